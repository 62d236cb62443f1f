/*
 * test_comm_large.c - more than 2^31 elements, with 2 ranks in the symmetric heap.
 *
 * Bytes of U8, so that counts, offsets and sizes all pass 2^31 and, gathered, 2^32.  Each
 * element is a function of its index; the check reads every one.  Skipped (77) where the
 * memory is not there.
 *
 *     test_comm_large BACKEND ALGORITHM
 */
#include "ranks.h"

#include <stdlib.h>

static const int64_t count = (INT64_C(1) << 31) + 3;

enum { SKIPPED = 77 };

/* Changes with every bit of the index, also above 32. */
static uint8_t value(int rank, int64_t i)
{
    uint64_t x = ((uint64_t)i + (uint64_t)rank * 77) * UINT64_C(0x9e3779b97f4a7c15);

    return (uint8_t)(x >> 56);
}

static void fill(uint8_t *p, int rank)
{
    for (int64_t i = 0; i < count; i++)
        p[i] = value(rank, i);
}

typedef uint8_t (*wanted)(int64_t i);

static uint8_t greatest(int64_t i)
{
    uint8_t a = value(0, i), b = value(1, i);

    return a > b ? a : b;
}

static uint8_t of_rank_0(int64_t i)
{
    return value(0, i);
}

static uint8_t of_rank_1(int64_t i)
{
    return value(1, i);
}

static void check_all(const uint8_t *p, wanted want, const char *what)
{
    int64_t wrong = 0, first = -1;

    for (int64_t i = 0; i < count; i++)
        if (p[i] != want(i)) {
            first = wrong ? first : i;
            wrong++;
        }
    if (!CHECK(wrong == 0))
        printf("     %s: %lld elements differ, first %lld\n", what, (long long)wrong,
               (long long)first);
}

/* 3 counts a rank: in the end out holds what both gave. */
static void large(ls_comm *world, void *context)
{
    int      r   = ls_comm_rank(world);
    uint8_t *in  = ls_comm_alloc(world, (size_t)count);
    uint8_t *out = ls_comm_alloc(world, (size_t)count * 2);

    (void)context;
    if (!CHECK(in && out))
        return;
    fill(in, r);
    CHECK_OK(ls_comm_all_reduce(world, out, in, count, LS_U8, LS_MAX));
    check_all(out, greatest, "all_reduce");
    memcpy(out, in, (size_t)count);
    CHECK_OK(ls_comm_broadcast(world, out, count, LS_U8, 1));
    check_all(out, of_rank_1, "broadcast");
    CHECK_OK(ls_comm_all_gather(world, out, in, count, LS_U8));
    check_all(out, of_rank_0, "all_gather, first");
    check_all(out + count, of_rank_1, "all_gather, second");
    CHECK(ls_comm_counted(world, LS_ALL_GATHER).sent == count);
    ls_comm_release(world, in);
    ls_comm_release(world, out);
}

static int64_t available_bytes(void)
{
    FILE     *file = fopen("/proc/meminfo", "re");
    char      line[200];
    long long kb = 0;

    while (file && fgets(line, sizeof line, file))
        sscanf(line, "MemAvailable: %lld", &kb);
    if (file)
        fclose(file);
    return kb * 1024;
}

int main(int argc, char **argv)
{
    const char  *backend   = argc > 1 ? argv[1] : "shm";
    ls_algorithm algorithm = LS_AUTO;
    ranks_opts   opts      = {.backend = backend, .n = 2, .limit_s = 280, .timeout_s = 200};
    int64_t      needed    = 6 * count + count / 2; /* and some scratch */

    if (argc > 2 && !ls_algorithm_parse(argv[2], &algorithm))
        return 1;
    if (available_bytes() < needed) {
        printf("comm_large: skipped, %lld MB of memory are available and %lld needed\n",
               (long long)available_bytes() >> 20, (long long)needed >> 20);
        return SKIPPED;
    }
    opts.algorithm = algorithm;
    TEST_ROW(backend);
    CHECK(ranks_run(&opts, large, NULL) == 0);
    return test_summary("comm_large");
}

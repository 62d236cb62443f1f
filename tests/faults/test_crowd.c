/*
 * test_crowd.c - more ranks than cores, and ranks that wait.
 *
 * Eight ranks do 1,000 small sums in a time that shows that they hand the cores on (on two
 * cores it is a fraction of a second; ranks that spin take minutes).  A rank that waits a
 * second for a late one, in a call or in a work that was started, uses less than 50 ms of
 * processor time.
 */
#include "outcome.h"

#include <time.h>

enum { MOST_RANKS = 8, SUMS = 1000, BOUND_S = 20, WAIT_MS = 50 };

typedef struct {
    int64_t used[MOST_RANKS], took[MOST_RANKS]; /* ns */
} findings;

typedef struct {
    bool      threads, started;
    findings *f;
} job;

/* Of a rank: its process, or its thread (the others' are in the same process). */
static int64_t cpu_ns(bool thread)
{
    struct timespec t;

    clock_gettime(thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void run_sums(ls_comm *world, void *context)
{
    job    *j = context;
    int     n = ls_comm_size(world);
    int64_t start;
    float   x[4], y[4] = {1, 2, 3, 4};

    CHECK_OK(ls_comm_barrier(world));
    start = ls_now_ns();
    for (int i = 0; i < SUMS; i++)
        CHECK_OK(ls_comm_all_reduce(world, x, y, 4, LS_F32, LS_SUM));
    j->f->took[ls_comm_rank(world)] = ls_now_ns() - start;
    CHECK(x[3] == (float)(4 * n));
}

static ls_status sum_started(ls_comm *world, float *x)
{
    ls_call   c = {.kind = LS_ALL_REDUCE, .in = x, .out = x, .count = 1, .dtype = LS_F32};
    ls_work  *work;
    ls_status status = ls_comm_start(world, &c, &work);

    return status ? status : ls_work_wait(work);
}

static void run_wait(ls_comm *world, void *context)
{
    job  *j = context;
    int   r = ls_comm_rank(world);
    float x = 1;

    CHECK_OK(ls_comm_barrier(world));
    if (r == 1)
        ls_sleep_ns(1000 * MS);
    int64_t before = cpu_ns(j->threads);
    CHECK_OK(j->started ? sum_started(world, &x)
                        : ls_comm_all_reduce(world, &x, &x, 1, LS_F32, LS_SUM));
    j->f->used[r] = cpu_ns(j->threads) - before;
    CHECK(x == (float)ls_comm_size(world));
}

static void crowd(const char *backend, findings *f)
{
    job        j    = {.f = f};
    ranks_opts opts = {.backend = backend, .n = 8};
    int64_t    most = 0;

    TEST_ROW("a thousand sums of eight ranks");
    memset(f, 0, sizeof *f);
    CHECK(ranks_run(&opts, run_sums, &j) == 0);
    for (int r = 0; r < 8; r++)
        most = f->took[r] > most ? f->took[r] : most;
    if (!CHECK(most > 0 && most < BOUND_S * 1000 * MS * OUTCOME_SLOW) || getenv("LS_SHOW"))
        printf("     %s: %.2f s\n", backend, (double)most * 1e-9);
}

/* Eight that do not spin at all, and two that do at first; half-way the late one is asked for,
 * and that costs too. */
static void wait_for_late(const char *backend, findings *f)
{
    for (int n = 2; n <= 8; n *= 2)
        for (int started = 0; started < 2; started++) {
            job        j    = {!strcmp(backend, "threads"), started, f};
            ranks_opts opts = {.backend = backend, .n = n, .timeout_s = 3 * OUTCOME_SLOW};
            TEST_ROW(started ? "a second in a work" : "a second in a call");
            memset(f, 0, sizeof *f);
            CHECK(ranks_run(&opts, run_wait, &j) == 0);
            for (int r = 0; r < n; r++)
                if (!CHECK(f->used[r] < WAIT_MS * MS * OUTCOME_SLOW) || getenv("LS_SHOW"))
                    printf("     %s, %d ranks: rank %d used %.1f ms\n", backend, n, r,
                           (double)f->used[r] * 1e-6);
        }
}

int main(int argc, char **argv)
{
    const char *backends[] = {"threads", "shm", "tcp", "mixed"};
    findings   *f          = ranks_shared(sizeof *f);

    for (int b = 0; b < 4; b++)
        if (argc < 2 || !strcmp(argv[1], backends[b])) {
            crowd(backends[b], f);
            wait_for_late(backends[b], f);
        }
    ranks_unshare(f, sizeof *f);
    return test_summary("crowd");
}

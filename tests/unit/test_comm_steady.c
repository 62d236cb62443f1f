/*
 * test_comm_steady.c - an operation that a group has done before allocates nothing.
 *
 * Every call of the allocator in this program goes through the counters below (the linker's
 * --wrap).  What the C library itself asks of the system is seen by strace alone:
 * tests/faults/test_comm_calls.py runs this program and looks between the two marks, which
 * stand where all ranks are between two barriers.
 *
 *     test_comm_steady BACKEND [auto]     auto: that algorithm alone
 */
#include "count_allocations.h"
#include "ranks.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- what is done again and again ---- */

enum { MOST = 60000, RANKS = 3, WARM_UP = 20, ROUNDS = 200 };

typedef struct {
    ls_comm *world;
    float   *in, *out; /* [MOST] */
} bench;

static void wait_for(ls_comm *world, const ls_call *call)
{
    ls_work *work;

    CHECK_OK(ls_comm_start(world, call, &work));
    CHECK_OK(ls_work_wait(work));
}

/* A fused bucket and a small one, by the caller and by the worker. */
static void one_round(const bench *b, int64_t count)
{
    ls_slice_segment segments[2 * RANKS];
    ls_segment_list  slices[RANKS];
    int              n = ls_comm_size(b->world);

    for (int i = 0; i < 2 * n; i++)
        segments[i] = (ls_slice_segment){i * count / (2 * n),
                                         (i + 1) * count / (2 * n) - i * count / (2 * n)};
    for (int r = 0; r < n; r++)
        slices[r] = (ls_segment_list){segments + 2 * r, 2};
    ls_call call = {
        .kind = LS_ALL_REDUCE, .in = b->in, .out = b->out, .count = count, .dtype = LS_F32};
    CHECK_OK(ls_comm_run(b->world, &call));
    wait_for(b->world, &call);
    call.dtype = LS_BF16;
    CHECK_OK(ls_comm_run(b->world, &call));
    call.kind   = LS_REDUCE_SCATTER;
    call.slices = slices;
    CHECK_OK(ls_comm_run(b->world, &call));
    call.slices = NULL;
    call.count  = count / n;
    CHECK_OK(ls_comm_run(b->world, &call));
    call.kind = LS_ALL_GATHER;
    CHECK_OK(ls_comm_run(b->world, &call));
    wait_for(b->world, &call);
    CHECK_OK(ls_comm_broadcast(b->world, b->out, count, LS_F32, 1));
}

static void rounds(const bench *heap, const bench *own, int n)
{
    for (int i = 0; i < n; i++) {
        const bench *b = i % 2 ? heap : own;
        one_round(b, 300);
        one_round(b, i % 10 > 7 ? MOST : 9000);
    }
}

static void mark(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));

    CHECK(written == (ssize_t)strlen(text));
}

static void steady(ls_comm *world, void *context)
{
    size_t bytes = sizeof(float) * MOST;
    bench  heap  = {world, ls_comm_alloc(world, bytes), ls_comm_alloc(world, bytes)};
    bench  own   = {world, calloc(bytes, 1), calloc(bytes, 1)};

    (void)context;
    rounds(&heap, &own, WARM_UP);
    CHECK_OK(ls_comm_barrier(world));
    int before = allocations;
    mark("steady: begin\n");
    CHECK_OK(ls_comm_barrier(world));
    rounds(&heap, &own, ROUNDS);
    CHECK_OK(ls_comm_barrier(world));
    CHECK(allocations == before);
    mark("steady: end\n");
    CHECK_OK(ls_comm_barrier(world));
    ls_comm_release(world, heap.in);
    ls_comm_release(world, heap.out);
    free(own.in);
    free(own.out);
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "shm";
    ranks_opts  opts    = {.backend = backend, .n = RANKS};

    for (int a = 0; a < LS_ALGORITHM_COUNT; a++)
        if (ls_algorithm_fits((ls_algorithm)a, RANKS) && (argc < 3 || a == LS_AUTO)) {
            opts.algorithm = (ls_algorithm)a;
            opts.fast      = a == LS_RING;
            TEST_ROW(ls_algorithm_name((ls_algorithm)a));
            CHECK(ranks_run(&opts, steady, NULL) == 0);
        }
    return test_summary("comm_steady");
}

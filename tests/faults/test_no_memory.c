/*
 * test_no_memory.c - the n-th allocation fails on one rank, for every n.
 *
 * In the join, in a split, in first operations, in started work: all ranks return an error
 * (the one without memory ENOMEM), soon, none hangs or crashes, though the one without memory
 * stays; under AddressSanitizer none leaks.  Threads that are made inside (the worker, the
 * watch) are not reached: the injected failure is the calling thread's.
 */
#include "core/alloc.h"
#include "outcome.h"

enum { MOST_RANKS = 8, MOST_FAILURES = 300, CALM = 6 };

typedef enum { JOIN, SPLIT, FIRST, STARTED, PHASES } phase;

static const char *const phase_name[] = {"join", "split", "first operations", "started work"};

typedef struct {
    phase       phase;
    int64_t     n; /* which allocation fails */
    int         who, ranks;
    _Atomic int done;
    outcome     of[MOST_RANKS];
} job;

static void fail_in_join(ls_join_opts *opts, void *context)
{
    const job *j = context;

    if (j->phase == JOIN && opts->rank == j->who)
        ls_alloc_fail_after(j->n);
}

static ls_status first_operations(ls_comm *world)
{
    enum { COUNT = 40000 };
    int    n         = ls_comm_size(world);
    float *x         = calloc((size_t)(COUNT * n), sizeof *x),
          *y         = calloc((size_t)(COUNT * n), sizeof *y);
    ls_status status = ls_comm_barrier(world);

    for (int k = LS_BROADCAST; k < LS_SPLIT && !status; k++) {
        ls_call c = {
            .kind = (ls_collective)k, .in = x, .out = y, .count = COUNT, .dtype = LS_F32};
        status = ls_comm_run(world, &c);
        if (!status && k != LS_GATHER && k != LS_SCATTER && k != LS_ALL_TO_ALL) {
            c.dtype = LS_BF16;
            status  = ls_comm_run(world, &c);
        }
    }
    free(x);
    free(y);
    return status;
}

static ls_status split(ls_comm *world)
{
    ls_comm  *group  = NULL;
    ls_status status = ls_comm_split(world, 0, 0, &group);

    if (!status)
        status = ls_comm_barrier(group);
    ls_comm_free(group);
    return status;
}

static ls_status started(ls_comm *world)
{
    float     x = 1;
    ls_call   c = {.kind = LS_ALL_REDUCE, .in = &x, .out = &x, .count = 1, .dtype = LS_F32};
    ls_work  *work;
    ls_status status = ls_comm_start(world, &c, &work);

    return status ? status : ls_work_wait(work);
}

static ls_status run_phase(const job *j, ls_comm *world)
{
    switch (j->phase) {
    case JOIN:
        return ls_comm_barrier(world);
    case SPLIT:
        return split(world);
    case FIRST:
        return first_operations(world);
    case STARTED:
    case PHASES:
        break;
    }
    return started(world);
}

/* The others are to fail of what this rank says, not of its leaving. */
static void await_others(job *j, int64_t start)
{
    j->done++;
    while (j->done < j->ranks && ls_now_ns() - start < 3000 * MS * OUTCOME_SLOW)
        ls_sleep_ns(MS);
}

static void body(ls_comm *world, void *context)
{
    job      *j      = context;
    int       r      = ranks_me();
    int64_t   start  = ls_now_ns();
    ls_status status = world ? LS_OK : LS_ESTATE;

    if (world && r == j->who && j->phase != JOIN)
        ls_alloc_fail_after(j->n);
    if (world)
        status = run_phase(j, world);
    ls_alloc_fail_after(-1);
    outcome_note(&j->of[r], status, start);
    await_others(j, start);
}

/* True when nothing failed. */
static bool one_case(const char *backend, ls_algorithm algorithm, int ranks, job *j)
{
    ranks_opts opts = {.backend   = backend,
                       .n         = ranks,
                       .algorithm = algorithm,
                       .timeout_s = 1.5 * OUTCOME_SLOW,
                       .join      = fail_in_join,
                       .unjoined  = true,
                       .limit_s   = 60};
    char       name[120];
    int        failed = 0;
    bool       ok     = true;
    /* Over TCP a member of a new group that waits for the others' calls hears nothing else. */
    bool       calls = j->phase == SPLIT && (backend[0] == 'm' || !strcmp(backend, "tcp"));
    int64_t    most  = (calls ? 2500 : 500) * MS * OUTCOME_SLOW;

    snprintf(name, sizeof name, "%s, %s, %d ranks, %s, allocation %lld of rank %d", backend,
             ls_algorithm_name(algorithm), ranks, phase_name[j->phase], (long long)j->n,
             j->who);
    TEST_ROW(name);
    memset(j->of, 0, sizeof j->of);
    j->done  = 0;
    j->ranks = ranks;
    CHECK(ranks_run(&opts, body, j) == 0);
    for (int r = 0; r < ranks; r++) {
        const outcome *o = &j->of[r];
        failed += o->status != LS_OK;
        ok = CHECK(o->noted) && ok;
        ok = CHECK(o->took < most) && ok;
    }
    ok = CHECK(failed == 0 || failed == ranks) && ok;
    if (!ok)
        outcome_print(j->of, ranks);
    return failed == 0;
}

static void each_allocation(const char *backend, ls_algorithm algorithm, int ranks, phase p,
                            job *j)
{
    int calm = 0; /* some lacks are made good: only several in a row are the end */

    j->phase = p;
    j->who   = ranks > 2 ? 1 : 0;
    for (j->n = 0; j->n < MOST_FAILURES && calm < CALM; j->n++)
        calm = one_case(backend, algorithm, ranks, j) ? calm + 1 : 0;
    CHECK(calm == CALM);
    CHECK(j->n > CALM || p == FIRST); /* there is something to fail */
}

/*
 * Threads count who still looks at a control block; a member that never came to look keeps
 * those of its group for ever, which AddressSanitizer calls a leak.  Processes give their
 * memory back as a whole.
 */
static phase first_phase(const char *backend)
{
#if defined(__SANITIZE_ADDRESS__)
    if (!strcmp(backend, "threads"))
        return FIRST;
#endif
    (void)backend;
    return JOIN;
}

int main(int argc, char **argv)
{
    const char *backends[] = {"threads", "shm", "tcp", "mixed"};
    job        *j          = ranks_shared(sizeof *j);

    for (int b = 0; b < 4; b++)
        if (argc < 2 || !strcmp(argv[1], backends[b])) {
            for (int p = first_phase(backends[b]); p < PHASES; p++)
                each_allocation(backends[b], LS_AUTO, 3, (phase)p, j);
            each_allocation(backends[b], LS_DIRECT, 2, FIRST, j);
            each_allocation(backends[b], LS_TREE, 3, FIRST, j);
            each_allocation(backends[b], LS_HALVING, 2, FIRST, j);
        }
    ranks_unshare(j, sizeof *j);
    return test_summary("no_memory");
}

/*
 * test_ranks.c - the harness of ranks.h: which ranks it counts as failed, and that none stays.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "dist/comm/board.h"
#include "ranks.h"

enum { N = 3, MILLISECOND = 1000000 };

/* What the ranks and the parent share. */
typedef struct {
    atomic_int rank[N], size[N], ready;
    pid_t      pid[N];
    bool       known; /* the end of rank 1 stood on the board within a second */
} page;

typedef enum { ALL_WELL, FAILED_CHECK, KILLED, EXITED, STOPPED, HUNG, NOT_JOINED } ending;

typedef struct {
    page  *shared;
    ending how; /* of rank 1 */
} scene;

static void rank_of(ls_comm *world, void *context)
{
    scene *s  = context;
    int    me = ranks_me();

    CHECK(ls_comm_rank(world) == me);
    atomic_store(&s->shared->rank[me], 1 + ls_comm_rank(world));
    atomic_store(&s->shared->size[me], ls_comm_size(world));
    s->shared->pid[me] = getpid();
    CHECK_OK(ls_comm_barrier(world));
    atomic_fetch_add(&s->shared->ready, 1);
}

static void end_of_rank(ls_comm *world, void *context)
{
    scene *s = context;

    if (s->how == NOT_JOINED) {
        CHECK(world == NULL || ranks_me() != 1);
        return;
    }
    CHECK_OK(ls_comm_barrier(world));
    s->shared->pid[ranks_me()] = getpid();
    atomic_fetch_add(&s->shared->ready, 1);
    if (ranks_me() != 1)
        return;
    switch (s->how) {
    case FAILED_CHECK:
        CHECK(!"this failure is wanted");
        break;
    case EXITED:
        _exit(7);
    case KILLED:
    case STOPPED:
    case HUNG:
        for (;;)
            pause();
    case ALL_WELL:
    case NOT_JOINED:
        break;
    }
}

static void send_signal(ranks_job *job, void *context)
{
    scene *s = context;
    int    status;

    while (atomic_load(&s->shared->ready) < N)
        ls_sleep_ns(MILLISECOND);
    CHECK(ranks_kill(job, 1, s->how == STOPPED ? SIGSTOP : SIGKILL));
    for (int i = 0; i < 1000 && !s->shared->known; i++) {
        s->shared->known = ls_board_how_ended(ranks_board(job), 1, &status);
        ls_sleep_ns(MILLISECOND);
    }
    if (s->how == KILLED)
        CHECK(!ranks_kill(job, 1, SIGKILL));
}

/* A rank that the others wait for in vain: half of the ranks say another world. */
static void wrong_world(ls_join_opts *opts, void *context)
{
    (void)context;
    opts->timeout_s = 2;
    if (opts->rank == 1)
        opts->rank = N + 4;
}

static bool none_left(const page *shared)
{
    for (int r = 0; r < N; r++)
        if (shared->pid[r] && shared->pid[r] != getpid() &&
            (kill(shared->pid[r], 0) == 0 || errno != ESRCH))
            return false;
    return waitpid(-1, NULL, WNOHANG) < 0;
}

static void test_backends(void)
{
    static const struct {
        const char *name;
        ranks_opts  opts;
    } rows[] = {
        {"shm", {.backend = "shm"}},
        {"tcp", {.backend = "tcp"}},
        {"tcp, mesh of IPv4", {.backend = "tcp", .control = "127.0.0.1"}},
        {"mixed", {.backend = "mixed"}},
        {"threads", {.backend = "threads"}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        page      *shared = ranks_shared(sizeof *shared);
        scene      s      = {.shared = shared};
        ranks_opts opts   = rows[i].opts;
        int        before = test_checks;

        TEST_ROW(rows[i].name);
        if (!CHECK(shared != NULL))
            continue;
        opts.n = N;
        CHECK(ranks_run(&opts, rank_of, &s) == 0);
        CHECK(test_checks >= before + 2 * N); /* the ranks' own are counted */
        for (int r = 0; r < N; r++)
            CHECK(shared->rank[r] == 1 + r && shared->size[r] == N);
        CHECK(shared->ready == N);
        CHECK(none_left(shared));
        ranks_unshare(shared, sizeof *shared);
    }
}

/* ranks_run() without adding the failures that are wanted here to those of this test. */
static int run_quietly(const ranks_opts *opts, scene *s, ranks_tally *sum)
{
    ranks_test test = {ranks__tally, ranks__row, end_of_rank, s, test_row};

    return ranks__run(opts, &test, sum);
}

static void test_ends(void)
{
    static const struct {
        const char *name;
        ending      how;
        int         failed, limit_s, failures;
        bool        signal;
        int         status; /* of rank 1 */
    } rows[] = {
        {"all well", ALL_WELL, 0, 0, 0, false, 0},
        {"a check fails in rank 1", FAILED_CHECK, 1, 0, 1, false, 1 << 8},
        {"rank 1 is killed", KILLED, 1, 0, 0, true, SIGKILL},
        {"rank 1 leaves with 7", EXITED, 1, 0, 0, false, 7 << 8},
        {"rank 1 is stopped", STOPPED, 1, 0, 0, true, SIGKILL},
        {"rank 1 hangs", HUNG, 1, 1, 0, false, SIGKILL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        page       *shared = ranks_shared(sizeof *shared);
        scene       s      = {shared, rows[i].how};
        int         ended[N];
        ranks_tally sum  = {0};
        ranks_opts  opts = {.n = N, .limit_s = rows[i].limit_s, .ended = ended};

        TEST_ROW(rows[i].name);
        if (!CHECK(shared != NULL))
            continue;
        opts.meanwhile = rows[i].signal ? send_signal : NULL;
        CHECK(run_quietly(&opts, &s, &sum) == rows[i].failed);
        CHECK(sum.failures == rows[i].failures);
        CHECK(ended[0] == 0 && ended[1] == rows[i].status && ended[2] == 0);
        CHECK(shared->known == (rows[i].how == KILLED));
        CHECK(none_left(shared));
        ranks_unshare(shared, sizeof *shared);
    }
}

static void test_no_join(void)
{
    page       *shared = ranks_shared(sizeof *shared);
    scene       s      = {shared, NOT_JOINED};
    ranks_tally sum    = {0};
    ranks_opts  opts   = {.n = N, .join = wrong_world};

    TEST_ROW("rank 1 cannot join");
    if (!CHECK(shared != NULL))
        return;
    CHECK(run_quietly(&opts, &s, &sum) == N);
    opts.unjoined = true;
    CHECK(run_quietly(&opts, &s, &sum) == 0);
    CHECK(sum.checks == N && sum.failures == 0);
    ranks_unshare(shared, sizeof *shared);
}

int main(void)
{
    test_backends();
    test_ends();
    test_no_join();
    return test_summary("ranks");
}

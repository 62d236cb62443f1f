/*
 * test_death.c - ranks that die, stop or end in the middle of operations.
 *
 * A victim (rank 0 or the last) runs the same loop as the rest and is ended, somewhere in it,
 * by a signal from the parent or by a thread of its own.  The others must fail within 1.5 s
 * (after SIGSTOP: the time-out and 0.6 s) with one text that names rank, process, host,
 * operation and sequence number, and what ended it.  A group without the victim goes on as
 * before.
 */
#include "outcome.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 300000, SMALL = 50, MOST_RANKS = 8 };

typedef enum { KILL, STOP, EXIT_0, EXIT_3, ABORT } way;

static const char *const said[] = {
    "was killed by signal 9 (Killed) ", "does not answer (stopped?)", "exited with status 0 ",
    "exited with status 3 ", "was killed by signal 6 (Aborted) "};

typedef enum { LARGE_SUMS, ALL_KINDS, STARTED, IDLE } work_kind;

static const char *const load_name[] = {"large sums", "all kinds", "started works",
                                        "between operations"};

typedef struct {
    outcome         of[MOST_RANKS], apart[MOST_RANKS];
    _Atomic int     ready;
    _Atomic int64_t died_at;
    int             pid;
} findings;

typedef struct {
    way       death;
    work_kind load;
    int       n, victim;
    bool      groups; /* pairs of ranks go on apart */
    unsigned  delay_ms;
    findings *f;
} job;

/* ---- the victim ---- */

static void *end_now(void *context)
{
    job *j = context;

    ls_sleep_ns(j->delay_ms * MS);
    j->f->died_at = ls_now_ns();
    if (j->death == ABORT)
        abort();
    _exit(j->death == EXIT_3 ? 3 : 0);
}

static void end_soon(job *j)
{
    pthread_t thread;

    if (!CHECK(!pthread_create(&thread, NULL, end_now, j)))
        return;
    pthread_detach(thread);
}

static void end_by_parent(ranks_job *ranks, void *context)
{
    job *j = context;

    while (j->f->ready < j->n)
        ls_sleep_ns(MS);
    ls_sleep_ns(j->delay_ms * MS);
    j->f->died_at = ls_now_ns();
    CHECK(ranks_kill(ranks, j->victim, j->death == STOP ? SIGSTOP : SIGKILL));
}

/* ---- the loop ---- */

typedef struct {
    ls_comm *world;
    float   *in, *out;
    int64_t  count;
    int      round;
} loop;

static ls_call call_of(const loop *l, ls_collective kind)
{
    return (ls_call){.kind  = kind,
                     .in    = l->in,
                     .out   = l->out,
                     .count = l->count,
                     .dtype = LS_F32,
                     .root  = l->round % ls_comm_size(l->world)};
}

static ls_status run_started(loop *l)
{
    ls_work  *work[4];
    ls_status status = LS_OK;
    int       n      = 0;
    ls_call   c      = call_of(l, LS_ALL_REDUCE);

    while (n < 4 && !status)
        if (!(status = ls_comm_start(l->world, &c, &work[n])))
            n++;
    for (int i = 0; i < n; i++) {
        ls_status done = ls_work_wait(work[i]);
        status         = status ? status : done;
    }
    return status;
}

static ls_status one_round(loop *l, work_kind load)
{
    ls_collective kind = LS_ALL_REDUCE;

    l->round++;
    if (load == STARTED)
        return run_started(l);
    if (load == IDLE) {
        ls_sleep_ns(20 * MS);
        return ls_comm_check(l->world);
    }
    if (load == ALL_KINDS) {
        kind     = (ls_collective)(LS_BARRIER + l->round % (LS_SPLIT - LS_BARRIER));
        l->count = l->round % 2 ? LARGE / 8 : 10;
    }
    ls_call c = call_of(l, kind);
    return ls_comm_run(l->world, &c);
}

/* 20 sums in a group that has lost nobody. */
static ls_status go_on(ls_comm *pair)
{
    ls_status status = LS_OK;

    for (int i = 0; i < 20 && !status; i++) {
        float x = 1, sum = 0;
        status = ls_comm_all_reduce(pair, &sum, &x, 1, LS_F32, LS_SUM);
        if (!status && sum != (float)ls_comm_size(pair))
            status = ls_fail(LS_EINVAL, "wrong sum");
    }
    return status;
}

static bool lost_its_peer(const job *j, int r)
{
    return r / 2 == j->victim / 2;
}

static void survive(loop *l, const job *j, ls_comm *pair)
{
    int       r      = ls_comm_rank(l->world);
    outcome  *o      = &j->f->of[r];
    ls_status status = LS_OK;

    while (!status)
        status = one_round(l, j->load);
    outcome_note(o, status, j->f->died_at);
    outcome_note_again(o, ls_comm_barrier(l->world));
    if (pair && !lost_its_peer(j, r))
        outcome_note(&j->f->apart[r], go_on(pair), ls_now_ns());
}

static void body(ls_comm *world, void *context)
{
    const struct rlimit none = {0, 0};
    job                *j    = context;
    int                 r    = ls_comm_rank(world);
    size_t              most = (size_t)(j->load == ALL_KINDS ? j->n * LARGE / 8 : LARGE);
    ls_comm            *pair = NULL;
    loop                l    = {.world = world, .count = LARGE};

    setrlimit(RLIMIT_CORE, &none);
    l.in  = ls_comm_alloc(world, most * sizeof *l.in);
    l.out = ls_comm_alloc(world, most * sizeof *l.out);
    if (j->groups)
        CHECK_OK(ls_comm_split(world, r / 2, 0, &pair));
    CHECK_OK(ls_comm_barrier(world));
    j->f->ready++;
    if (r == j->victim) {
        j->f->pid = getpid();
        if (j->death >= EXIT_0)
            end_soon(j);
    }
    survive(&l, j, pair);
    ls_comm_free(pair);
    ls_comm_release(world, l.in);
    ls_comm_release(world, l.out);
}

/* ---- the judge ---- */

static bool ended_so(int status, way death)
{
    switch (death) {
    case KILL:
    case STOP:
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    case ABORT:
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    case EXIT_0:
        return status == 0;
    case EXIT_3:
        break;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 3;
}

static void judge(const job *j, const int *ended)
{
    char           who[64], host[64];
    outcome_wanted want = {.status  = j->death == STOP ? LS_ETIMEOUT : LS_EPEER,
                           .parts   = {who, host, said[j->death], " #"},
                           .most_ns = (j->death == STOP ? 1600 : 1500) * MS,
                           .except  = j->victim + 1};

    snprintf(who, sizeof who, "rank %d (pid %d, host ", j->victim, j->f->pid);
    gethostname(host, sizeof host);
    outcome_judge(j->f->of, j->n, &want);
    for (int r = 0; r < j->n; r++) {
        bool victim = r == j->victim;
        CHECK(victim ? ended_so(ended[r], j->death) : ended[r] == 0);
        if (j->groups && !lost_its_peer(j, r) &&
            !(CHECK(j->f->apart[r].noted) && CHECK(j->f->apart[r].status == LS_OK)))
            printf("     rank %d, apart: %s\n", r, j->f->apart[r].text);
    }
}

static void one_case(const char *backend, job *j)
{
    char       name[120];
    int        ended[MOST_RANKS];
    ranks_opts opts = {.backend   = backend,
                       .n         = j->n,
                       .timeout_s = j->death == STOP ? 1 : 20,
                       .ended     = ended,
                       .meanwhile = j->death <= STOP ? end_by_parent : NULL};

    snprintf(name, sizeof name, "%s, rank %d of %d %sduring %s after %u ms", backend, j->victim,
             j->n, said[j->death], load_name[j->load], j->delay_ms);
    TEST_ROW(name);
    memset(j->f, 0, sizeof *j->f);
    ranks_run(&opts, body, j);
    judge(j, ended);
}

/* Every death in every load, on four ranks; some with a time-out wait only once. */
static void each_death(const char *backend, findings *f)
{
    for (int d = KILL; d <= ABORT; d++)
        for (int l = LARGE_SUMS; l <= STARTED; l++)
            for (int v = 0; v < 4; v += 3)
                if (d != STOP || l == (v ? ALL_KINDS : LARGE_SUMS))
                    one_case(backend, &(job){.death    = (way)d,
                                             .load     = (work_kind)l,
                                             .n        = 4,
                                             .victim   = v,
                                             .groups   = true,
                                             .delay_ms = 20,
                                             .f        = f});
    one_case(backend, &(job){.death = KILL, .load = IDLE, .n = 2, .delay_ms = 20, .f = f});
}

/* Killed at 20 moments. */
static void any_moment(const char *backend, findings *f)
{
    unsigned seed = 12345;

    for (int i = 0; i < 20; i++) {
        seed = seed * 1103515245u + 12345u;
        one_case(backend, &(job){.death    = KILL,
                                 .load     = (work_kind)(i % 3),
                                 .n        = 2 + i % 3,
                                 .victim   = i % 2,
                                 .delay_ms = seed / 65536u % 40,
                                 .f        = f});
    }
}

/* ---- killed while the ranks join ---- */

static void run_unjoined(ls_comm *world, void *context)
{
    job      *j      = context;
    outcome  *o      = &j->f->of[ranks_me()];
    float     x      = 1;
    ls_status status = world ? LS_OK : LS_EPEER;

    while (!status)
        status = ls_comm_all_reduce(world, &x, &x, 1, LS_F32, LS_MAX);
    outcome_note(o, status, j->f->died_at);
}

static void kill_early(ranks_job *ranks, void *context)
{
    job *j = context;

    ls_sleep_ns(j->delay_ms * MS / 4);
    j->f->died_at = ls_now_ns();
    ranks_kill(ranks, j->victim, SIGKILL);
}

/* Those that were not done with it may name each other; but all end, soon. */
static void at_the_join(const char *backend, findings *f)
{
    TEST_ROW("killed at the join");
    for (unsigned i = 0; i < 20; i++) {
        job        j = {.n = 4, .victim = i % 2 ? 3 : 0, .delay_ms = i, .f = f};
        int        ended[MOST_RANKS];
        ranks_opts opts = {.backend   = backend,
                           .n         = 4,
                           .ended     = ended,
                           .unjoined  = true,
                           .meanwhile = kill_early};
        memset(f, 0, sizeof *f);
        ranks_run(&opts, run_unjoined, &j);
        for (int r = 0; r < 4; r++)
            if (r != j.victim && (!CHECK(f->of[r].noted && f->of[r].status) ||
                                  !CHECK(f->of[r].took < 1500 * MS * OUTCOME_SLOW)))
                outcome_print(f->of, 4);
    }
}

/* ---- all ranks killed at once ---- */

static void run_on(ls_comm *world, void *context)
{
    (void)context;
    loop l = {.world = world, .count = LARGE};

    l.in  = ls_comm_alloc(world, LARGE * sizeof *l.in);
    l.out = ls_comm_alloc(world, LARGE * sizeof *l.out);
    while (!one_round(&l, LARGE_SUMS))
        ;
    pause();
}

static void kill_all(ranks_job *ranks, void *context)
{
    job *j = context;

    ls_sleep_ns(j->delay_ms * MS);
    for (int r = 0; r < j->n; r++)
        ranks_kill(ranks, r, SIGKILL);
}

/* No file descriptor of the parent, no child: nothing was left (names in /dev/shm are looked
 * for by test_dev_shm.sh). */
static void all_at_once(const char *backend, findings *f)
{
    int before = outcome_open_files();

    TEST_ROW("all killed at once");
    for (unsigned i = 0; i < 20; i++) {
        job        j = {.n = 3, .delay_ms = i * 2, .f = f};
        int        ended[MOST_RANKS];
        ranks_opts opts = {.backend = backend, .n = 3, .ended = ended, .meanwhile = kill_all};
        ranks_run(&opts, run_on, &j);
        for (int r = 0; r < 3; r++)
            CHECK(WIFSIGNALED(ended[r]));
    }
    CHECK(outcome_open_files() == before);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1);
}

int main(int argc, char **argv)
{
    const char *backends[] = {"shm", "tcp", "mixed"};
    findings   *f          = ranks_shared(sizeof *f);

    for (int b = 0; b < 3; b++)
        if (argc < 2 || !strcmp(argv[1], backends[b])) {
            each_death(backends[b], f);
            any_moment(backends[b], f);
            at_the_join(backends[b], f);
            all_at_once(backends[b], f);
        }
    ranks_unshare(f, sizeof *f);
    return test_summary("death");
}

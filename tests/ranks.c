#define _GNU_SOURCE /* prctl(PR_SET_PDEATHSIG): no rank outlives its test */
/*
 * ranks.c - runs a body as N ranks; see ranks.h.
 *
 *     parent   socket (r, s) for all pairs, board, report page
 *       ├─ rank 0: its row of sockets, join, body, free, report, exit
 *       ├─ rank 1: ...
 *       ├─ waits for ends and publishes them; kills all when the time is over
 *       └─ meanwhile(), on a thread
 *
 * Every rank that has ended is marked under the job's lock before its number may be used again
 * by the system, so ranks_kill() never hits a stranger.
 */
#include "ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "dist/comm/board.h"

enum { DEFAULT_TIMEOUT_S = 20, DEFAULT_LIMIT_S = 60, RECORDS_SHOWN = 12 };

/* A rank as its parent sees it. */
typedef struct {
    ranks_job *job;
    int        rank;
    int       *sockets; /* [n] its ends; -1: own entry, or handed over */
    pid_t      pid;     /* 0: a thread */
    pthread_t  thread;
    bool       started, ended, stopped, failed;
    int        status; /* as of waitpid() */
} rank_state;

struct ranks_job {
    const ranks_opts *opts;
    const ranks_test *test;
    int               n;
    ls_board         *board;
    ranks_tally      *reports; /* [n], shared: of ranks that are processes */
    rank_state       *ranks;   /* [n] */
    pthread_mutex_t   lock;    /* of ended, stopped, failed, status, busy */
    pthread_cond_t    changed; /* a rank that is a thread, or meanwhile(), has ended */
    bool              busy;    /* meanwhile() runs */
};

static _Thread_local int me = -1;

int ranks_me(void)
{
    return me;
}

ls_board *ranks_board(ranks_job *job)
{
    return job->board;
}

void *ranks_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void ranks_unshare(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}

bool ranks_kill(ranks_job *job, int rank, int signal_number)
{
    rank_state *r = &job->ranks[rank];

    pthread_mutex_lock(&job->lock);
    bool alive = r->pid > 0 && !r->ended;
    if (alive)
        kill(r->pid, signal_number);
    pthread_mutex_unlock(&job->lock);
    return alive;
}

/* ---- the mesh ---- */

/* Two ends of a TCP connection over a loopback address. */
static bool tcp_pair(const char *address, int pair[2])
{
    struct sockaddr_in  v4       = {.sin_family = AF_INET};
    struct sockaddr_in6 v6       = {.sin6_family = AF_INET6};
    bool                six      = strchr(address, ':') != NULL;
    struct sockaddr    *at       = six ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t           length   = six ? sizeof v6 : sizeof v4;
    int                 listener = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(at->sa_family, address, six ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr);
    pair[0] = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[1] = -1;
    if (listener >= 0 && pair[0] >= 0 && !bind(listener, at, length) && !listen(listener, 1) &&
        !getsockname(listener, at, &length) && !connect(pair[0], at, length))
        pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (listener >= 0)
        close(listener);
    if (pair[1] < 0 && pair[0] >= 0)
        close(pair[0]);
    return pair[1] >= 0;
}

static bool new_pair(const char *control, int pair[2])
{
    return control ? tcp_pair(control, pair)
                   : !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
}

/* 64 ranks have 4,032 ends, more than a shell's usual limit. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static bool make_mesh(ranks_job *job)
{
    if (job->n > 16)
        allow_descriptors();
    for (int r = 0; r < job->n; r++)
        for (int s = r + 1; s < job->n; s++) {
            int pair[2];
            if (!new_pair(job->opts->control, pair)) {
                printf("ranks: no sockets for ranks %d and %d: %s\n", r, s, strerror(errno));
                return false;
            }
            job->ranks[r].sockets[s] = pair[0];
            job->ranks[s].sockets[r] = pair[1];
        }
    return true;
}

static void close_sockets(rank_state *r)
{
    for (int s = 0; s < r->job->n; s++) {
        if (r->sockets[s] >= 0)
            close(r->sockets[s]);
        r->sockets[s] = -1;
    }
}

/* ---- a rank ---- */

static bool is_threads(const ranks_opts *opts)
{
    return opts->backend && !strcmp(opts->backend, "threads");
}

static ls_join_opts join_opts(const rank_state *r, char identity[64])
{
    const ranks_job  *job    = r->job;
    const ranks_opts *o      = job->opts;
    bool              mixed  = o->backend && !strcmp(o->backend, "mixed");
    bool              faulty = o->fault > 0 && r->rank == o->fault_rank;

    snprintf(identity, 64, "host-%d", r->rank * (o->hosts ? o->hosts : 2) / job->n);
    return (ls_join_opts){
        .rank       = r->rank,
        .world      = job->n,
        .control    = r->sockets,
        .board      = job->board,
        .backend    = mixed        ? "auto"
                      : o->backend ? o->backend
                                   : "shm",
        .algorithm  = o->algorithm,
        .fast       = o->fast,
        .timeout_s  = o->timeout_s > 0 ? o->timeout_s : DEFAULT_TIMEOUT_S,
        .identity   = mixed ? identity : NULL,
        .fault      = faulty ? o->fault : 0,
        .fault_kind = o->fault_kind,
        .event      = o->event,
        .context    = job->test->context,
    };
}

/* Joins, runs the body, leaves; false where that, or a check on this thread, failed. */
static bool run_rank(rank_state *r)
{
    const ranks_job  *job  = r->job;
    const ranks_test *test = job->test;
    char              identity[64];
    ls_join_opts      opts   = join_opts(r, identity);
    ls_comm          *world  = NULL;
    int               before = test->tally().here;
    bool              joined;

    me = r->rank;
    test->row(test->name);
    if (job->opts->join)
        job->opts->join(&opts, test->context);
    joined = ls_join(&opts, &world) == LS_OK;
    for (int s = 0; s < job->n; s++)
        r->sockets[s] = -1; /* taken */
    if (joined || job->opts->unjoined)
        test->body(joined ? world : NULL, test->context);
    else
        printf("ranks: rank %d [%s] could not join: %s\n", r->rank, test->name,
               ls_error_message());
    if (joined)
        ls_comm_free(world);
    me = -1;
    return (joined || job->opts->unjoined) && test->tally().here == before;
}

static void *rank_thread(void *argument)
{
    rank_state *r   = argument;
    ranks_job  *job = r->job;
    bool        ok  = run_rank(r);

    pthread_mutex_lock(&job->lock);
    r->ended  = true;
    r->status = ok ? 0 : 1 << 8;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
    return NULL;
}

_Noreturn static void rank_process(rank_state *r, pid_t parent)
{
    ranks_job  *job   = r->job;
    ranks_tally start = job->test->tally(), end;
    bool        ok;

    setvbuf(stdout, NULL, _IOLBF, 0); /* what a rank said is there also when it is killed */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (int s = 0; s < job->n; s++)
        if (s != r->rank)
            close_sockets(&job->ranks[s]);
    ok  = run_rank(r);
    end = job->test->tally();
    job->reports[r->rank] =
        (ranks_tally){0, end.checks - start.checks, end.failures - start.failures};
    exit(!ok || end.failures != start.failures);
}

static bool start_process(rank_state *r, const sigset_t *mask)
{
    pid_t parent = getpid();

    fflush(NULL);
    r->pid = fork();
    if (r->pid == 0) {
        sigprocmask(SIG_SETMASK, mask, NULL);
        rank_process(r, parent);
    }
    close_sockets(r);
    return r->pid > 0;
}

static bool start_rank(rank_state *r, const sigset_t *mask)
{
    r->started = is_threads(r->job->opts) ? !pthread_create(&r->thread, NULL, rank_thread, r)
                                          : start_process(r, mask);
    if (!r->started)
        printf("ranks: rank %d could not be started: %s\n", r->rank, strerror(errno));
    return r->started;
}

/* ---- the parent ---- */

/* Looks once at a process; publishes its end. */
static void look_at(ranks_job *job, rank_state *r)
{
    int   status;
    pid_t pid;

    if (!r->started || r->ended || !r->pid)
        return;
    pid = waitpid(r->pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid != r->pid)
        return;
    r->stopped = WIFSTOPPED(status);
    if (WIFSTOPPED(status) || WIFCONTINUED(status))
        return;
    r->ended  = true;
    r->status = status;
    ls_board_ended(job->board, r->rank, status);
}

/* How many have not ended; *stopped of them are stopped. */
static int look_at_all(ranks_job *job, int *stopped)
{
    int alive = 0;

    *stopped = 0;
    for (int i = 0; i < job->n; i++) {
        rank_state *r = &job->ranks[i];
        look_at(job, r);
        alive += r->started && !r->ended;
        *stopped += r->started && !r->ended && r->stopped;
    }
    return alive;
}

static void kill_all(ranks_job *job)
{
    for (int i = 0; i < job->n; i++)
        if (job->ranks[i].pid > 0 && !job->ranks[i].ended)
            kill(job->ranks[i].pid, SIGKILL);
}

/* The time is over: who is still there, and what it was doing. */
static void name_hung(ranks_job *job, int limit_s)
{
    for (int i = 0; i < job->n; i++) {
        rank_state *r = &job->ranks[i];
        if (!r->started || r->ended)
            continue;
        r->failed = true;
        printf("ranks: rank %d (pid %d) [%s] is not done after %d s; its last operations:\n", i,
               (int)r->pid, job->test->name, limit_s);
        ls_recorder_print(ls_board_recorder(job->board, i), stdout, RECORDS_SHOWN, ls_now_ns());
    }
    fflush(stdout);
}

/* Waits up to 20 ms for the end of a rank, with the lock held. */
static void wait_a_little(ranks_job *job)
{
    enum { MOST_NS = 20000000, SECOND_NS = 1000000000 };
    struct timespec at, most = {0, MOST_NS};
    sigset_t        children;

    if (is_threads(job->opts)) {
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_nsec += MOST_NS;
        at.tv_sec += at.tv_nsec / SECOND_NS;
        at.tv_nsec %= SECOND_NS;
        pthread_cond_timedwait(&job->changed, &job->lock, &at);
        return;
    }
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    pthread_mutex_unlock(&job->lock);
    sigtimedwait(&children, NULL, &most);
    pthread_mutex_lock(&job->lock);
}

/* Until every rank and meanwhile() are done.  Threads that hang end the whole test. */
static void wait_for_all(ranks_job *job)
{
    int     limit_s = job->opts->limit_s ? job->opts->limit_s : DEFAULT_LIMIT_S, stopped, alive;
    int64_t limit   = ls_now_ns() + limit_s * INT64_C(1000000000);
    bool    over    = false;

    pthread_mutex_lock(&job->lock);
    while ((alive = look_at_all(job, &stopped)) || job->busy) {
        if (!over && alive && ls_now_ns() > limit) {
            over = true;
            name_hung(job, limit_s);
            kill_all(job);
            if (is_threads(job->opts))
                _exit(1);
        } else if (alive && alive == stopped && !job->busy) {
            kill_all(job);
        }
        wait_a_little(job);
    }
    pthread_mutex_unlock(&job->lock);
}

static void *meanwhile_thread(void *argument)
{
    ranks_job *job = argument;

    job->test->row(job->test->name);
    job->opts->meanwhile(job, job->test->context);
    pthread_mutex_lock(&job->lock);
    job->busy = false;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
    return NULL;
}

/* Starts the ranks, in a process that is still one thread when it forks, and sees them end. */
static bool run_all(ranks_job *job, const sigset_t *mask)
{
    pthread_t helper;
    bool      ok = true, helped = false;

    for (int r = 0; r < job->n && ok; r++)
        ok = start_rank(&job->ranks[r], mask);
    if (ok && job->opts->meanwhile) {
        job->busy = true; /* until the helper, which may be done at once, says otherwise */
        ok = helped = !pthread_create(&helper, NULL, meanwhile_thread, job);
        if (!helped)
            job->busy = false;
    }
    if (!ok)
        kill_all(job);
    wait_for_all(job);
    if (helped)
        pthread_join(helper, NULL);
    for (int r = 0; r < job->n; r++)
        if (job->ranks[r].started && !job->ranks[r].pid)
            pthread_join(job->ranks[r].thread, NULL);
    return ok;
}

/* An end that says nothing itself, where the test does not look at it. */
static void name_end(const ranks_job *job, int rank)
{
    int status = job->ranks[rank].status;

    if (job->opts->ended || job->ranks[rank].failed || status == 0 || status == 1 << 8)
        return;
    if (WIFSIGNALED(status))
        printf("ranks: rank %d [%s] was killed by signal %d (%s)\n", rank, job->test->name,
               WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        printf("ranks: rank %d [%s] left with %d\n", rank, job->test->name,
               WEXITSTATUS(status));
}

static int count_failed(const ranks_job *job, ranks_tally *sum)
{
    int failed = 0;

    for (int i = 0; i < job->n; i++) {
        const rank_state *r = &job->ranks[i];
        name_end(job, i);
        if (r->failed || r->status)
            failed++;
        if (job->opts->ended)
            job->opts->ended[i] = r->status;
        sum->checks += job->reports[i].checks;
        sum->failures += job->reports[i].failures;
    }
    return failed;
}

static bool make_job(ranks_job *job)
{
    size_t n = (size_t)job->n;
    int   *ends;

    job->ranks   = calloc(n, sizeof *job->ranks);
    ends         = calloc(n * n, sizeof *ends);
    job->reports = ranks_shared(n * sizeof *job->reports);
    if (!job->ranks || !ends || !job->reports) {
        free(ends);
        return false;
    }
    for (size_t i = 0; i < n * n; i++)
        ends[i] = -1;
    for (int r = 0; r < job->n; r++)
        job->ranks[r] = (rank_state){.job = job, .rank = r, .sockets = ends + (size_t)r * n};
    if (ls_board_new(job->n, &job->board)) {
        printf("ranks: no board: %s\n", ls_error_message());
        return false;
    }
    return make_mesh(job);
}

static void free_job(ranks_job *job)
{
    if (job->ranks && job->ranks[0].sockets) {
        for (int r = 0; r < job->n; r++)
            close_sockets(&job->ranks[r]);
        free(job->ranks[0].sockets);
    }
    free(job->ranks);
    ranks_unshare(job->reports, (size_t)job->n * sizeof *job->reports);
    ls_board_free(job->board);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
}

int ranks__run(const ranks_opts *opts, const ranks_test *test, ranks_tally *sum)
{
    ranks_job job = {.opts = opts, .test = test, .n = opts->n};
    sigset_t  children, mask;
    int       failed = opts->n;

    pthread_mutex_init(&job.lock, NULL);
    pthread_cond_init(&job.changed, NULL);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &children, &mask);
    if (make_job(&job) && run_all(&job, &mask))
        failed = count_failed(&job, sum);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    free_job(&job);
    return failed;
}

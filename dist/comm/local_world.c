#define _GNU_SOURCE /* pipe2; prctl(PR_SET_PDEATHSIG): no rank outlives its parent */
/*
 * local_world.c - N ranks of this host, forked or as threads, on socket pairs.
 *
 *     parent   socket pair (r, s) for all pairs, board
 *       |-- rank 0: join, body, leave --- report ---> pipe 0
 *       |-- rank 1: ...                  --- report ---> pipe 1
 *       `-- waits for the end of every pipe, reaps its rank, publishes how it ended
 *
 * A pipe ends when its rank does, however that ends, so the parent sleeps in poll() alone.
 * Threads write into the same pipes and close them.
 */
#include "dist/comm/local_world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/board.h"

enum { MOST_RANKS = 1024, TEXT = 400, GRACE_S = 10, SHELL_LIMIT = 16 };

/* What a rank says at its end; one write to a pipe. */
typedef struct {
    int32_t status;
    char    text[TEXT];
} report;

_Static_assert(sizeof(report) <= 512, "a write that POSIX keeps whole");

typedef struct local_world local_world;

typedef struct {
    local_world *job;
    int          rank;
    int         *sockets; /* [n] its ends; -1: own entry, or handed over */
    int          read_end, write_end;
    pid_t        pid; /* 0: a thread */
    pthread_t    thread;
    bool         started;
} local_rank;

struct local_world {
    const ls_local_opts *opts;
    ls_local_body        body;
    void                *context;
    int                  n, running;
    ls_board            *board;
    local_rank          *ranks; /* [n] */
    int                 *ends;  /* [n * n] */
    struct pollfd       *polls; /* [n] */
    report               first; /* failure; status LS_OK: there was none */
};

/* ---- the mesh ---- */

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_sockets(local_rank *r)
{
    for (int s = 0; s < r->job->n; s++)
        close_end(&r->sockets[s]);
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

static ls_status make_mesh(local_world *job)
{
    int pair[2];

    if (job->n > SHELL_LIMIT)
        allow_descriptors();
    for (int r = 0; r < job->n; r++)
        for (int s = r + 1; s < job->n; s++) {
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
                return ls_fail(LS_EIO, "no sockets for ranks %d and %d of %d: %s", r, s, job->n,
                               strerror(errno));
            job->ranks[r].sockets[s] = pair[0];
            job->ranks[s].sockets[r] = pair[1];
        }
    return LS_OK;
}

/* ---- a rank ---- */

static bool is_threads(const local_world *job)
{
    return job->opts->join.backend && !strcmp(job->opts->join.backend, "threads");
}

static ls_status run_body(local_rank *r)
{
    const local_world *job  = r->job;
    ls_join_opts       opts = job->opts->join;
    ls_comm           *world;

    opts.rank        = r->rank;
    opts.world       = job->n;
    opts.control     = r->sockets;
    opts.board       = job->board;
    ls_status status = ls_join(&opts, &world);
    for (int s = 0; s < job->n; s++)
        r->sockets[s] = -1; /* taken */
    if (status)
        return status;
    status = job->body(world, job->context);
    ls_comm_free(world);
    return status;
}

static void send_report(int fd, ls_status status)
{
    report  mine = {.status = (int32_t)status};
    ssize_t sent;

    if (status)
        snprintf(mine.text, sizeof mine.text, "%s",
                 ls_error_message()[0] ? ls_error_message() : ls_status_text(status));
    do
        sent = write(fd, &mine, sizeof mine);
    while (sent < 0 && errno == EINTR);
}

static void *rank_thread(void *argument)
{
    local_rank *r = argument;

    send_report(r->write_end, run_body(r));
    close_end(&r->write_end);
    return NULL;
}

_Noreturn static void rank_process(local_rank *r, pid_t parent)
{
    local_world *job = r->job;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (int s = 0; s < job->n; s++) {
        close_end(&job->ranks[s].read_end);
        if (s != r->rank)
            close_sockets(&job->ranks[s]);
    }
    ls_status status = run_body(r);
    fflush(NULL);
    send_report(r->write_end, status);
    _exit(status != LS_OK);
}

static ls_status start_process(local_rank *r)
{
    pid_t parent = getpid();

    fflush(NULL);
    r->pid = fork();
    if (r->pid == 0)
        rank_process(r, parent);
    if (r->pid < 0)
        return ls_fail(LS_EIO, "fork of rank %d: %s", r->rank, strerror(errno));
    close_sockets(r);
    close_end(&r->write_end);
    return LS_OK;
}

static ls_status start_rank(local_rank *r)
{
    int       ends[2];
    ls_status status = LS_OK;

    if (pipe2(ends, O_CLOEXEC))
        return ls_fail(LS_EIO, "no pipe for rank %d: %s", r->rank, strerror(errno));
    r->read_end  = ends[0];
    r->write_end = ends[1];
    if (!is_threads(r->job))
        status = start_process(r);
    else if (pthread_create(&r->thread, NULL, rank_thread, r))
        status = ls_fail(LS_EIO, "no thread for rank %d", r->rank);
    r->started = !status;
    r->job->running += r->started;
    return status;
}

/* ---- the parent ---- */

/* The report, or what to say of a rank that left none. */
static report read_report(const local_rank *r, int wait_status)
{
    report  got;
    ssize_t n;

    do
        n = read(r->read_end, &got, sizeof got);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof got)
        return got;
    got = (report){.status = LS_EPEER};
    if (WIFSIGNALED(wait_status))
        snprintf(got.text, TEXT, "killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(got.text, TEXT, "left with %d before its end", WEXITSTATUS(wait_status));
    return got;
}

static void end_rank(local_world *job, local_rank *r)
{
    int wait_status = 0;

    if (r->pid) {
        while (waitpid(r->pid, &wait_status, 0) < 0 && errno == EINTR) {
        }
        ls_board_ended(job->board, r->rank, wait_status);
    } else {
        pthread_join(r->thread, NULL);
    }
    report last = read_report(r, wait_status);
    if (last.status && !job->first.status) {
        job->first.status = last.status;
        snprintf(job->first.text, TEXT, "rank %d: %.*s", r->rank, TEXT - 16, last.text);
    }
    close_end(&r->read_end);
    r->started = false;
    job->running--;
}

static void kill_all(local_world *job)
{
    for (int i = 0; i < job->n; i++)
        if (job->ranks[i].started && job->ranks[i].pid > 0)
            kill(job->ranks[i].pid, SIGKILL);
}

/* Has this rank closed its pipe?  A report that stands in it is no end yet. */
static bool has_ended(const struct pollfd *p)
{
    return p->fd >= 0 && (p->revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* What ranks have from the first failure on to notice it. */
static int64_t grace_ns(const local_world *job)
{
    double timeout = job->opts->join.timeout_s;

    return (int64_t)((timeout > 0 && timeout < GRACE_S ? timeout : GRACE_S) * 1e9);
}

/* Until all have ended; those that do not follow a failure in time are killed. */
static void wait_for_all(local_world *job, bool failed)
{
    int64_t limit = failed ? ls_now_ns() : 0;

    while (job->running) {
        int64_t left = limit ? (limit - ls_now_ns() + 999999) / 1000000 : -1;

        if (limit && left <= 0) {
            kill_all(job);
            left = -1;
        }
        for (int i = 0; i < job->n; i++)
            job->polls[i] =
                (struct pollfd){.fd = job->ranks[i].started ? job->ranks[i].read_end : -1};
        if (poll(job->polls, (nfds_t)job->n, (int)left) < 0 && errno != EINTR)
            kill_all(job);
        for (int i = 0; i < job->n; i++)
            if (has_ended(&job->polls[i]))
                end_rank(job, &job->ranks[i]);
        if (job->first.status && !limit)
            limit = ls_now_ns() + grace_ns(job);
    }
}

static ls_status make_job(local_world *job)
{
    size_t n = (size_t)job->n;

    job->ranks = ls_calloc(n, sizeof *job->ranks);
    job->ends  = ls_calloc(n * n, sizeof *job->ends);
    job->polls = ls_calloc(n, sizeof *job->polls);
    if (!job->ranks || !job->ends || !job->polls)
        return LS_ENOMEM;
    for (size_t i = 0; i < n * n; i++)
        job->ends[i] = -1;
    for (int r = 0; r < job->n; r++)
        job->ranks[r] = (local_rank){.job       = job,
                                     .rank      = r,
                                     .sockets   = job->ends + (size_t)r * n,
                                     .read_end  = -1,
                                     .write_end = -1};
    ls_status status = ls_board_new(job->n, &job->board);
    return status ? status : make_mesh(job);
}

static void free_job(local_world *job)
{
    if (job->ranks && job->ends) {
        for (int r = 0; r < job->n; r++) {
            if (!job->ranks[r].job)
                continue;
            close_sockets(&job->ranks[r]);
            close_end(&job->ranks[r].read_end);
            close_end(&job->ranks[r].write_end);
        }
    }
    ls_board_free(job->board);
    free(job->ranks);
    free(job->ends);
    free(job->polls);
}

ls_status ls_local_world(const ls_local_opts *opts, ls_local_body body, void *context)
{
    local_world job = {.opts = opts, .body = body, .context = context, .n = opts->n};

    if (opts->n < 1 || opts->n > MOST_RANKS)
        return ls_fail(LS_ECONFIG, "%d ranks on one host; 1 to %d are possible", opts->n,
                       MOST_RANKS);
    ls_status status = make_job(&job);
    if (status) {
        free_job(&job);
        return status;
    }
    for (int r = 0; r < job.n && !status; r++)
        status = start_rank(&job.ranks[r]);
    report unstarted = {.status = (int32_t)status};
    if (status)
        snprintf(unstarted.text, TEXT, "%s", ls_error_message());
    /* Threads cannot be killed; without their sockets they fail by themselves. */
    for (int r = 0; r < job.n && status; r++)
        if (!job.ranks[r].started)
            close_sockets(&job.ranks[r]);
    wait_for_all(&job, status != LS_OK);
    free_job(&job);
    if (unstarted.status)
        return ls_fail((ls_status)unstarted.status, "%s", unstarted.text);
    if (job.first.status)
        return ls_fail((ls_status)job.first.status, "%s", job.first.text);
    return LS_OK;
}

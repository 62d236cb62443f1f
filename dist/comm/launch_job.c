#define _GNU_SOURCE /* pipe2, open_memstream beside it */
/*
 * launch_job.c - one attempt: starts the ranks, and one loop until the last of them has ended.
 *
 *            first failure           0.25 s            2 s
 *     RUNNING ─────────────> HEARING ──────> ENDING ─────> KILLED    to every group: SIGTERM,
 *        └──────────────── second stop signal ───────────────^       then SIGKILL
 *
 * HEARING: the other ranks notice by themselves and say what they were doing with the one that
 * is gone; and a rank that was killed may be reaped later than one that fails because of it.
 *
 * All that happens wakes one poll(): a signal (SIGCHLD too), a rank's output, room in our own.
 *
 * Note [groups]: a rank's process group can outlive the rank.  Its number stays taken as long
 * as it has members, so it may be signalled until kill(-group, 0) has once found nobody, which
 * is looked at right after the rank is reaped and then all 100 ms.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/launch_impl.h"

#define MS INT64_C(1000000)

enum {
    HEARING_MS = 250,
    GRACE_MS   = 2000,  /* from SIGTERM to SIGKILL */
    REMAINS_MS = 30000, /* for what is left of groups after a stop signal that was passed on */
    KILLED_MS  = 1000,  /* for groups to be gone after SIGKILL */
    TWICE_MS   = 20,    /* `timeout` sends its signal twice; a person is slower */
    LOOK_MS    = 100,
    LOOK_SOON_MS = 10,
    DRAINS       = 64, /* reads of what is left in a pipe that somebody still holds */
    RECORDS      = 10
};

typedef enum { RUNNING, HEARING, ENDING, KILLED } stage;

typedef struct {
    pid_t      pid;          /* 0: not started */
    bool       ended, group; /* group: may still have members, Note [groups] */
    ls__stream out, err;
} rank_state;

enum { POLL_SIGNALS, POLL_SINKS, POLL_INPUT = POLL_SINKS + 2, POLL_RANKS };

typedef struct {
    ls__place     *place;
    int            alive; /* ranks that have not ended */
    ls__outputs   *outputs;
    ls__outcome   *outcome;
    ls_board      *board;
    rank_state    *ranks;  /* [n] */
    ls__group     *groups; /* [n] scratch */
    ls__input      input;
    struct pollfd *polls; /* [POLL_RANKS + 2 n] */
    int            trouble[2];
    stage          stage;
    bool           remains;               /* the deadline is that of what the ranks left */
    int64_t        deadline;              /* of ENDING and KILLED */
    int64_t        stopped_at, failed_at; /* ls_now_ns() */
} job;

/* 128 + signal, or what it exited with. */
static int exit_status(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

void ls__outcome_text(const ls__outcome *o, char *text, size_t size)
{
    if (WIFSIGNALED(o->how))
        snprintf(text, size, "rank %d (pid %ld) was killed by signal %d (%s)", o->rank,
                 (long)o->pid, WTERMSIG(o->how), strsignal(WTERMSIG(o->how)));
    else
        snprintf(text, size, "rank %d (pid %ld) exited with status %d", o->rank, (long)o->pid,
                 WEXITSTATUS(o->how));
}

static int world_rank(const job *j, int i)
{
    return j->place->opts->node * j->place->n + i;
}

/* ---- groups ---- */

static void signal_groups(job *j, int number)
{
    for (int i = 0; i < j->place->n; i++)
        if (j->ranks[i].group)
            kill(-j->ranks[i].pid, number);
}

static void forget_group(job *j, rank_state *r)
{
    r->group = false;
    ls__guard_remove(j->place->guard, r->pid);
}

/* When all ranks have ended: forgets the groups of zombies alone; how many others there are. */
static int look_closer(job *j)
{
    int n = 0, at = 0;

    for (int i = 0; i < j->place->n; i++)
        if (j->ranks[i].group)
            j->groups[n++] = (ls__group){.group = j->ranks[i].pid};
    int living = ls__groups_living(j->groups, n);
    for (int i = 0; i < j->place->n; i++)
        if (j->ranks[i].group && !j->groups[at++].lives)
            forget_group(j, &j->ranks[i]);
    return living;
}

/* Forgets the groups that have nobody left; how many others there are. */
static int look_at_groups(job *j)
{
    int left = 0;

    for (int i = 0; i < j->place->n; i++) {
        rank_state *r = &j->ranks[i];
        if (r->group && r->ended && kill(-r->pid, 0) && errno == ESRCH)
            forget_group(j, r);
        left += r->group;
    }
    return left && !j->alive ? look_closer(j) : left;
}

static void enter(job *j, stage next, int limit_ms)
{
    j->stage    = next;
    j->deadline = ls_now_ns() + limit_ms * MS;
}

/* A stopped rank is continued, else it would not notice. */
static void end_groups(job *j)
{
    enter(j, ENDING, GRACE_MS);
    signal_groups(j, SIGTERM);
    signal_groups(j, SIGCONT);
}

static void kill_groups(job *j)
{
    enter(j, KILLED, KILLED_MS);
    signal_groups(j, SIGKILL);
}

/* ---- ends of ranks ---- */

/* Whether a rank that ended so has failed; not by the stop signal that it was sent. */
static bool has_failed(const job *j, int how)
{
    int status = exit_status(how);

    return status && !(j->outcome->stopped && status == 128 + j->outcome->stopped);
}

static void note_end(job *j, int i, int how)
{
    rank_state *r = &j->ranks[i];

    r->ended = true;
    j->alive--;
    ls_board_ended(j->board, world_rank(j, i), how);
    if (j->outcome->stopped && exit_status(how) == 128 + j->outcome->stopped)
        j->outcome->status = 128 + j->outcome->stopped;
}

/* The first failure ends the job; one that was killed is rather the cause than one that left.
 */
static void fail(job *j, int i, int how)
{
    ls__outcome *o = j->outcome;

    o->rank      = world_rank(j, i);
    o->pid       = j->ranks[i].pid;
    o->how       = how;
    o->status    = o->stopped ? 128 + o->stopped : exit_status(how);
    j->failed_at = ls_now_ns();
    if (j->stage == RUNNING)
        enter(j, HEARING, HEARING_MS);
}

static bool is_cause(const job *j, int how)
{
    const ls__outcome *o = j->outcome;

    if (!has_failed(j, how) || j->stage > HEARING)
        return false;
    return o->rank < 0 || (WIFSIGNALED(how) && !WIFSIGNALED(o->how));
}

static void reap(job *j)
{
    int how = 0;

    for (int i = 0; i < j->place->n; i++) {
        rank_state *r = &j->ranks[i];
        if (r->pid <= 0 || r->ended || waitpid(r->pid, &how, WNOHANG) != r->pid)
            continue;
        note_end(j, i, how);
        if (is_cause(j, how))
            fail(j, i, how);
    }
}

/* ---- signals ---- */

static void on_stop(job *j, int number)
{
    int64_t now = ls_now_ns();

    if (!j->outcome->stopped) {
        j->outcome->stopped = number;
        j->stopped_at       = now;
        signal_groups(j, number);
        signal_groups(j, SIGCONT);
    } else if (number != SIGHUP && now - j->stopped_at > TWICE_MS * MS) {
        if (!j->outcome->status)
            j->outcome->status = 128 + number;
        kill_groups(j);
    }
}

static void on_signal(job *j, int number)
{
    switch (number) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
        on_stop(j, number);
        break;
    case SIGTSTP: /* goes on behind kill() at SIGCONT, which comes as a byte too */
        signal_groups(j, SIGTSTP);
        kill(getpid(), SIGSTOP);
        break;
    case SIGUSR1:
    case SIGUSR2:
    case SIGCONT:
        signal_groups(j, number);
        break;
    default: /* SIGCHLD has woken the loop */
        break;
    }
}

static void read_signals(job *j)
{
    unsigned char number[256];
    ssize_t       n = read(j->place->signals->pipe[0], number, sizeof number);

    for (ssize_t i = 0; i < n; i++)
        on_signal(j, number[i]);
}

/* ---- the loop ---- */

static struct pollfd poll_stream(const ls__stream *s)
{
    return (struct pollfd){.fd = ls__sink_full(s->to) ? -1 : s->fd, .events = POLLIN};
}

/* Waits until something happens or the next look at the clock is due. */
static void wait_for_something(job *j, int groups)
{
    struct pollfd *p = j->polls;
    int n = j->place->n, limit = j->stage != RUNNING || (!j->alive && groups) ? LOOK_SOON_MS
                                 : groups > j->alive                          ? LOOK_MS
                                                                              : -1;

    p[POLL_SIGNALS]   = (struct pollfd){.fd = j->place->signals->pipe[0], .events = POLLIN};
    p[POLL_SINKS]     = ls__sink_poll(&j->outputs->sinks[0]);
    p[POLL_SINKS + 1] = ls__sink_poll(&j->outputs->sinks[1]);
    p[POLL_INPUT]     = ls__input_poll(&j->input);
    for (int i = 0; i < n; i++) {
        p[POLL_RANKS + 2 * i]     = poll_stream(&j->ranks[i].out);
        p[POLL_RANKS + 2 * i + 1] = poll_stream(&j->ranks[i].err);
    }
    if (poll(p, (nfds_t)(POLL_RANKS + 2 * n), limit) < 0)
        for (int i = 0; i < POLL_RANKS + 2 * n; i++)
            p[i].revents = 0;
}

static void move_output(job *j)
{
    for (int i = 0; i < j->place->n; i++) {
        if (j->polls[POLL_RANKS + 2 * i].revents)
            ls__stream_read(&j->ranks[i].out);
        if (j->polls[POLL_RANKS + 2 * i + 1].revents)
            ls__stream_read(&j->ranks[i].err);
    }
    ls__sink_flush(&j->outputs->sinks[0]);
    ls__sink_flush(&j->outputs->sinks[1]);
}

/* All ranks have ended, but their groups have not. */
static void on_remains(job *j)
{
    if (j->stage > HEARING || j->remains)
        return;
    j->remains = true;
    if (j->outcome->stopped)
        enter(j, ENDING, REMAINS_MS); /* they were sent the signal as well */
    else
        end_groups(j);
}

static void on_time(job *j)
{
    if (j->stage == RUNNING || ls_now_ns() < j->deadline)
        return;
    if (j->stage == HEARING)
        end_groups(j);
    else if (j->stage == ENDING)
        kill_groups(j);
}

static void run(job *j)
{
    int groups = look_at_groups(j);

    while (j->alive || (groups && !(j->stage == KILLED && ls_now_ns() >= j->deadline))) {
        wait_for_something(j, groups);
        read_signals(j);
        reap(j);
        groups = look_at_groups(j);
        if (!j->alive && groups)
            on_remains(j);
        on_time(j);
        ls__input_move(&j->input, j->polls[POLL_INPUT].revents);
        move_output(j);
    }
}

/* ---- start and end ---- */

static void open_stream(ls__stream *s, int fd, ls__sink *to, const char *prefix)
{
    *s = (ls__stream){.fd = fd, .to = to};
    snprintf(s->prefix, sizeof s->prefix, "%s", prefix);
}

static ls_status start(job *j, int i)
{
    rank_state *r = &j->ranks[i];
    ls__started started;
    char        prefix[16] = "";
    ls_status   status     = ls__rank_start(j->place, i, &started);

    if (status)
        return status;
    r->pid   = started.pid;
    r->group = true;
    j->alive++;
    if (started.in >= 0)
        j->input = (ls__input){.from = STDIN_FILENO, .to = started.in};
    if (!j->place->opts->plain || world_rank(j, i) != 0)
        snprintf(prefix, sizeof prefix, "[%d] ", world_rank(j, i));
    open_stream(&r->out, started.out, j->outputs->out, prefix);
    open_stream(&r->err, started.err, j->outputs->err, prefix);
    return LS_OK;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Until every child has become the program, or one says why not. */
static ls_status await_programs(job *j)
{
    ls__trouble trouble;
    ssize_t     n;

    close_fd(&j->trouble[1]);
    while ((n = read(j->trouble[0], &trouble, sizeof trouble)) < 0 && errno == EINTR)
        ;
    if (n != sizeof trouble)
        return LS_OK;
    return ls_fail(
        LS_ECONFIG, "run: %s cannot be executed: %s%s", j->place->path, strerror(trouble.error),
        trouble.error == ENOENT ? "; is the interpreter in its first line there?" : "");
}

static ls_status start_all(job *j)
{
    ls_status status = LS_OK;

    for (int i = 0; i < j->place->n && !status; i++) {
        status = start(j, i);
        if (i == 0)
            close_fd(&j->place->listen_fd); /* rank 0's alone, to close when all have joined */
    }
    return status ? status : await_programs(j);
}

/* Those of an attempt that did not come about. */
static void abandon(job *j)
{
    signal_groups(j, SIGKILL);
    for (int i = 0; i < j->place->n; i++) {
        rank_state *r = &j->ranks[i];
        while (r->pid > 0 && waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        if (r->pid > 0)
            ls__guard_remove(j->place->guard, r->pid);
    }
}

static void drain(ls__stream *s)
{
    for (int i = 0; i < DRAINS && s->fd >= 0; i++)
        if (!ls__stream_read(s))
            break;
    ls__stream_close(s);
}

/* The flight recorder of a rank that was killed. */
static void print_records(job *j)
{
    const ls__outcome *o = j->outcome;
    ls_record          any;
    char              *text  = NULL, *at, *line;
    size_t             bytes = 0;

    if (o->rank < 0 || o->stopped || exit_status(o->how) <= 128 ||
        !ls_recorder_last(ls_board_recorder(j->board, o->rank), &any))
        return;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory)
        return;
    ls_recorder_print(ls_board_recorder(j->board, o->rank), memory, RECORDS, j->failed_at);
    if (fclose(memory)) {
        free(text);
        return;
    }
    ls__say(j->outputs->err, "lockstep: the last operations of rank %d:", o->rank);
    for (line = strtok_r(text, "\n", &at); line; line = strtok_r(NULL, "\n", &at))
        ls__say(j->outputs->err, "lockstep:   %s", line);
    free(text);
}

/*
 * MASTER_PORT is for what the ranks' program opens itself, PyTorch's store for instance; our
 * own ranks meet at another port.  All nodes must know it, so with several it is the next one.
 */
static ls_status find_programs_port(ls__place *p)
{
    if (!p->opts->rendezvous)
        return ls__reserve(&p->programs_port, &p->reserved_fd);
    p->programs_port = p->master.port < 65535 ? p->master.port + 1 : p->master.port - 1;
    return LS_OK;
}

static ls_status prepare(job *j)
{
    ls__place *p     = j->place;
    int        nodes = p->opts->nodes > 0 ? p->opts->nodes : 1;
    ls_status  status;

    j->ranks  = ls_calloc((size_t)p->n, sizeof *j->ranks);
    j->groups = ls_calloc((size_t)p->n, sizeof *j->groups);
    j->polls  = ls_calloc((size_t)(POLL_RANKS + 2 * p->n), sizeof *j->polls);
    for (int i = 0; j->ranks && i < p->n; i++)
        j->ranks[i].out.fd = j->ranks[i].err.fd = -1;
    if (!j->ranks || !j->groups || !j->polls)
        return LS_ENOMEM;
    if (pipe2(j->trouble, O_CLOEXEC)) {
        j->trouble[0] = j->trouble[1] = -1;
        return ls_fail(LS_EIO, "run: no pipe: %s", strerror(errno));
    }
    p->trouble_fd = j->trouble[1];
    status        = ls_board_new(p->n * nodes, &j->board);
    if (!status)
        p->board_fd = ls_board_fd(j->board);
    if (!status && p->opts->node == 0)
        status = ls__listen(&p->master, &p->listen_fd);
    return status ? status : find_programs_port(p);
}

static void clear(job *j)
{
    for (int i = 0; j->ranks && i < j->place->n; i++) {
        ls__stream_close(&j->ranks[i].out);
        ls__stream_close(&j->ranks[i].err);
    }
    ls__input_close(&j->input);
    close_fd(&j->trouble[0]);
    close_fd(&j->trouble[1]);
    close_fd(&j->place->listen_fd);
    close_fd(&j->place->reserved_fd);
    ls_board_free(j->board);
    free(j->ranks);
    free(j->groups);
    free(j->polls);
}

ls_status ls__attempt(ls__place *place, ls__outputs *outputs, ls__outcome *outcome)
{
    job       j = {.place   = place,
                   .outputs = outputs,
                   .outcome = outcome,
                   .input   = {.from = -1, .to = -1},
                   .trouble = {-1, -1}};
    ls_status status;

    *outcome         = (ls__outcome){.rank = -1};
    place->listen_fd = place->reserved_fd = place->board_fd = -1;
    status                                                  = prepare(&j);
    if (!status) {
        status = start_all(&j);
        if (status)
            abandon(&j);
    }
    if (!status) {
        run(&j);
        for (int i = 0; i < place->n; i++) {
            drain(&j.ranks[i].out);
            drain(&j.ranks[i].err);
        }
        print_records(&j);
    }
    clear(&j);
    return status;
}

/*
 * comm.c - the communicator: in which order operations run, and on which thread.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/comm_impl.h"

int ls_comm_rank(const ls_comm *comm)
{
    return comm->rank;
}

int ls_comm_size(const ls_comm *comm)
{
    return comm->size;
}

const char *ls_comm_transport(const ls_comm *comm)
{
    return comm->transport->ops->name;
}

/* ---- make and free ---- */

static void wake_transport(void *context)
{
    ls_comm *comm = context;

    comm->transport->ops->wake(comm->transport);
}

static void free_parts(ls_comm *comm)
{
    ls_collective_state_close(&comm->state);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->changed);
    free(comm->members);
    free(comm->pair_sequence);
    free(comm);
}

ls_status ls__comm_new(ls_endpoint *home, uint64_t id, const int *members, ls_transport *t,
                       ls_comm **out)
{
    size_t   n    = (size_t)t->size;
    ls_comm *comm = ls_calloc(1, sizeof *comm);

    if (!comm)
        goto out_transport;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    comm->home          = home;
    comm->id            = id;
    comm->rank          = t->rank;
    comm->size          = t->size;
    comm->transport     = t;
    comm->members       = ls_calloc(n, sizeof *comm->members);
    comm->pair_sequence = ls_calloc(n, sizeof *comm->pair_sequence);
    if (!comm->members || !comm->pair_sequence ||
        ls_collective_state_init(&comm->state, t->size))
        goto out_parts;
    memcpy(comm->members, members, n * sizeof *members);
    comm->guard = ls_guard_new(home->control, id, members, t->size, wake_transport, comm);
    if (!comm->guard)
        goto out_parts;
    atomic_fetch_add(&home->groups, 1);
    *out = comm;
    return LS_OK;
out_parts:
    free_parts(comm);
out_transport:
    t->ops->close(t);
    return LS_ENOMEM;
}

static void end_worker(ls_comm *comm)
{
    if (!comm->has_worker)
        return;
    pthread_mutex_lock(&comm->lock);
    comm->ending = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->worker, NULL);
}

void ls_comm_free(ls_comm *comm)
{
    if (!comm || ls__comm_is_child(comm))
        return; /* a forked child's copy is its parent's business */
    ls_endpoint *home = comm->home;
    end_worker(comm);
    ls_guard_free(comm->guard);
    if (comm->id == LS_WORLD_ID) { /* the goodbye goes before the end of connections */
        ls_control_free(home->control);
        home->control = NULL;
    }
    comm->transport->ops->close(comm->transport);
    for (ls_work *w = comm->spare, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free_parts(comm);
    ls__endpoint_release(home);
}

/* ---- one operation ---- */

bool ls__comm_is_child(const ls_comm *comm)
{
    return getpid() != comm->home->pid;
}

ls_status ls__comm_own(const ls_comm *comm)
{
    if (!ls__comm_is_child(comm))
        return LS_OK;
    return ls_fail(
        LS_ESTATE,
        "process %ld is a forked child of rank %d (pid %ld) and may not use its group",
        (long)getpid(), comm->home->rank, (long)comm->home->pid);
}

/* A group split off a world of 2^k ranks may have another size: then one with the same bits. */
static ls_algorithm forced(const ls_comm *comm)
{
    ls_algorithm asked = comm->home->opts.algorithm;

    return ls_algorithm_fits(asked, comm->size) ? asked : LS_AUTO;
}

ls_status ls__comm_give_up(ls_comm *comm, ls_status status, const char *what)
{
    char text[LS_GUARD_TEXT];

    snprintf(text, sizeof text, "rank %d: %s: %s", comm->rank, what, ls_error_message());
    (void)ls_guard_fail(comm->guard, status, text);
    return ls_fail(status, "%s", text);
}

static ls_operation operation(ls_comm *comm, const ls_call *call, const ls_descriptor *what,
                              ls_comm_counters *did)
{
    const ls_wait_policy *policy = &comm->home->policy;
    int64_t               now    = ls_now_ns();

    return (ls_operation){.running   = {.transport     = comm->transport,
                                        .guard         = comm->guard,
                                        .policy        = policy,
                                        .crowded_until = &comm->crowded_until,
                                        .what          = *what,
                                        .deadline      = now + policy->timeout_ns,
                                        .warn_at       = now + policy->warn_ns,
                                        .paired        = ls_collective_is_paired(call->kind)},
                          .call      = call,
                          .algorithm = forced(comm),
                          .fast      = comm->home->opts.fast,
                          .state     = &comm->state,
                          .counted   = did};
}

/* Runs what the caller holds the right to (busy). */
static ls_status execute(ls_comm *comm, const ls_call *call, const ls_descriptor *what,
                         ls_record *record)
{
    ls_comm_counters did   = {0};
    int64_t          start = ls_now_ns();
    ls_operation     op    = operation(comm, call, what, &did);
    ls_status        status;

    ls_record_start(record);
    ls_guard_enter(comm->guard, what);
    status =
        ls_guard_failed(comm->guard) ? ls_guard_check(comm->guard) : ls_collective_run(&op);
    if (!status)
        ls_guard_leave(comm->guard, what->sequence);
    ls_record_end(record, status);
    did.total_ns = ls_now_ns() - start;
    ls__comm_count(comm, &op, did, status);
    return status;
}

/* Under the lock: the next number of its row, and its entry in the flight recorder. */
static void number(ls_comm *comm, const ls_call *call, ls_collective kind, ls_descriptor *what,
                   ls_record **record)
{
    bool     paired   = ls_collective_is_paired(call->kind);
    uint64_t sequence = paired ? ++comm->pair_sequence[call->root] : ++comm->sequence;

    *what      = ls_descriptor_of(call, comm->size, sequence, comm->home->opts.algorithm);
    what->kind = (uint8_t)kind;
    *record    = ls_recorder_add(comm->home->recorder, what, comm->id, comm->size,
                                 call->count * (int64_t)ls_dtype_bytes(call->dtype));
}

/* ---- the queue ---- */

static void push(ls_comm *comm, ls_work *w)
{
    w->next = NULL;
    if (comm->last)
        comm->last->next = w;
    else
        comm->first = w;
    comm->last = w;
}

static ls_work *pop(ls_comm *comm)
{
    ls_work *w = comm->first;

    comm->first = w->next;
    if (!comm->first)
        comm->last = NULL;
    return w;
}

static void run_work(ls_comm *comm, ls_work *w)
{
    int64_t cpu = ls_thread_cpu_ns();

    w->times.began = ls_now_ns();
    w->status      = execute(comm, &w->call, &w->what, w->record);
    w->times.ended = ls_now_ns();
    w->times.cpu   = ls_thread_cpu_ns() - cpu;
    if (w->status)
        snprintf(w->text, sizeof w->text, "%s", ls_error_message());
}

static void *worker(void *context)
{
    ls_comm *comm = context;

    pthread_mutex_lock(&comm->lock);
    for (;;) {
        if (comm->first && !comm->busy) {
            ls_work *w = pop(comm);
            comm->busy = true;
            pthread_mutex_unlock(&comm->lock);
            run_work(comm, w);
            pthread_mutex_lock(&comm->lock);
            comm->busy = false;
            w->done    = true;
            pthread_cond_broadcast(&comm->changed);
        } else if (comm->ending && !comm->first) {
            break;
        } else {
            pthread_cond_wait(&comm->changed, &comm->lock);
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

/* Signals are the program's: the worker takes none. */
static ls_status need_worker(ls_comm *comm)
{
    sigset_t all, before;

    if (comm->has_worker)
        return LS_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&comm->worker, NULL, worker, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return ls_fail(LS_ENOMEM, "a worker thread for a group of %d: %s", comm->size,
                       strerror(failed));
    comm->has_worker = true;
    return LS_OK;
}

static ls_work *new_work(ls_comm *comm)
{
    ls_work *w = comm->spare;

    if (w)
        comm->spare = w->next;
    else
        w = ls_calloc(1, sizeof *w);
    if (w)
        *w = (ls_work){.comm = comm};
    return w;
}

static ls_status check(const ls_comm *comm, const ls_call *call)
{
    ls_status status = ls__comm_own(comm);

    return status ? status : ls_call_check(call, comm->rank, comm->size);
}

static ls_status enqueue(ls_comm *comm, const ls_call *call, ls_collective kind, ls_work **work)
{
    pthread_mutex_lock(&comm->lock);
    ls_status status = need_worker(comm);
    ls_work  *w      = status ? NULL : new_work(comm);
    if (w) {
        w->call          = *call;
        w->times.started = ls_now_ns();
        number(comm, call, kind, &w->what, &w->record);
        w->times.sequence = w->what.sequence;
        push(comm, w);
        pthread_cond_broadcast(&comm->changed);
        *work = w;
    } else if (!status) {
        status = LS_ENOMEM;
    }
    pthread_mutex_unlock(&comm->lock);
    return status ? ls__comm_give_up(comm, status, ls_collective_name(kind)) : LS_OK;
}

ls_status ls_comm_start(ls_comm *comm, const ls_call *call, ls_work **work)
{
    ls_status status = check(comm, call);

    return status ? status : enqueue(comm, call, call->kind, work);
}

/* A child of fork() has no worker, and its lock may be held for ever: waiting fails at once. */
bool ls_work_test(const ls_work *work)
{
    pthread_mutex_t *lock = &work->comm->lock;

    if (ls__comm_is_child(work->comm))
        return true;
    pthread_mutex_lock(lock);
    bool done = work->done;
    pthread_mutex_unlock(lock);
    return done;
}

ls_status ls_work_wait(ls_work *w)
{
    ls_work_times times;

    return ls_work_wait_timed(w, &times);
}

ls_status ls_work_wait_timed(ls_work *w, ls_work_times *times)
{
    ls_comm  *comm   = w->comm;
    ls_status status = ls__comm_own(comm);

    *times = (ls_work_times){0};
    if (status)
        return status;
    pthread_mutex_lock(&comm->lock);
    while (!w->done)
        pthread_cond_wait(&comm->changed, &comm->lock);
    status = w->status;
    if (status)
        ls_fail(status, "%s", w->text);
    *times      = w->times;
    w->next     = comm->spare;
    comm->spare = w;
    pthread_mutex_unlock(&comm->lock);
    return status;
}

/* On the caller's thread, after whatever was started before. */
ls_status ls__comm_run_as(ls_comm *comm, const ls_call *call, ls_collective kind)
{
    ls_descriptor what;
    ls_record    *record;
    ls_work      *w = NULL;

    pthread_mutex_lock(&comm->lock);
    if (comm->busy || comm->first) {
        pthread_mutex_unlock(&comm->lock);
        ls_status queued = enqueue(comm, call, kind, &w);
        return queued || !w ? queued : ls_work_wait(w);
    }
    comm->busy = true;
    number(comm, call, kind, &what, &record);
    pthread_mutex_unlock(&comm->lock);
    ls_status status = execute(comm, call, &what, record);
    pthread_mutex_lock(&comm->lock);
    comm->busy = false;
    pthread_cond_broadcast(&comm->changed); /* to the worker, or a thread in explain */
    pthread_mutex_unlock(&comm->lock);
    return status;
}

ls_status ls_comm_run(ls_comm *comm, const ls_call *call)
{
    ls_status status = check(comm, call);

    return status ? status : ls__comm_run_as(comm, call, call->kind);
}

/* ---- predictions ---- */

/* The group to itself, once what was started is done; the barrier brings all members here. */
ls_status ls_comm_explain(ls_comm *comm, const ls_call *call, char *text, size_t size)
{
    ls_comm_counters did     = {0};
    ls_call          barrier = {.kind = LS_BARRIER};
    ls_descriptor    what;
    ls_record       *record;
    ls_status        status = check(comm, call);

    if (status)
        return status;
    pthread_mutex_lock(&comm->lock);
    while (comm->busy || comm->first)
        pthread_cond_wait(&comm->changed, &comm->lock);
    comm->busy = true;
    number(comm, &barrier, LS_BARRIER, &what, &record);
    pthread_mutex_unlock(&comm->lock);
    status          = execute(comm, &barrier, &what, record);
    ls_operation op = operation(comm, &barrier, &what, &did);
    if (!status)
        status = ls__comm_explain(comm, &op, call, text, size);
    pthread_mutex_lock(&comm->lock);
    comm->busy = false;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    return status;
}

/* ---- health ---- */

void ls_comm_abort(ls_comm *comm, const char *reason)
{
    char text[LS_GUARD_TEXT];

    if (ls__comm_own(comm))
        return;
    snprintf(text, sizeof text, "rank %d gave up: %s", comm->rank, reason);
    (void)ls_guard_fail(comm->guard, LS_EPEER, text);
}

ls_status ls_comm_check(ls_comm *comm)
{
    ls_status status = ls__comm_own(comm);

    return status ? status : ls_guard_check(comm->guard);
}

/* ---- memory ---- */

void *ls_comm_alloc(ls_comm *comm, size_t bytes)
{
    ls_space *space = comm->home->space;

    return ls__comm_own(comm) ? NULL : space->ops->alloc(space, bytes);
}

void ls_comm_release(ls_comm *comm, void *block)
{
    ls_space *space = comm->home->space;

    if (!ls__comm_own(comm))
        space->ops->release(space, block);
}

/*
 * comm_impl.h - the communicator, shared by the files that make, run and count it.
 */
#ifndef LS_DIST_COMM_COMM_IMPL_H
#define LS_DIST_COMM_COMM_IMPL_H

#include <pthread.h>

#include "dist/comm/collective.h"
#include "dist/comm/endpoint.h"

struct ls_work {
    ls_comm        *comm;
    ls_call         call;
    ls_descriptor   what;
    ls_record      *record;
    struct ls_work *next; /* in the queue, or among the spare */
    ls_work_times   times;
    ls_status       status;
    bool            done;
    char            text[LS_GUARD_TEXT];
};

/*
 * One thread at a time runs operations: a caller that found the group idle, or the worker.
 * `lock` guards what is below it; whoever is `busy` has the rest to itself.
 */
struct ls_comm {
    ls_endpoint        *home;
    uint64_t            id;
    int                 rank, size;
    int                *members; /* [size] world ranks */
    ls_transport       *transport;
    ls_guard           *guard;
    ls_collective_state state;
    uint64_t            splits;
    int64_t             crowded_until; /* wait.c */
    ls_comm_counters    counted[LS_COLLECTIVE_COUNT];

    pthread_mutex_t lock;
    pthread_cond_t  changed; /* something was queued, done, or is to end */
    ls_work        *first, *last, *spare;
    uint64_t        sequence;
    uint64_t       *pair_sequence; /* [size] of send and recv with each */
    bool            busy, has_worker, ending;
    pthread_t       worker;
};

/* As ls_comm_run(), shown to the others as `kind`. */
LS_MUST_CHECK ls_status ls__comm_run_as(ls_comm *comm, const ls_call *call, ls_collective kind);

/* For a failure of this rank alone, with its message, while others wait for it in an operation
 * of the group: fails the group.  Returns status. */
ls_status ls__comm_give_up(ls_comm *comm, ls_status status, const char *what);

/* Is this a child of fork(), whose copy of the group is its parent's business? */
bool ls__comm_is_child(const ls_comm *comm);

/* ESTATE in such a child. */
LS_MUST_CHECK ls_status ls__comm_own(const ls_comm *comm);

/* ls_comm_explain(), within an operation that all members are in. */
LS_MUST_CHECK ls_status ls__comm_explain(ls_comm *comm, ls_operation *op, const ls_call *call,
                                         char *text, size_t size);

/* Adds what an operation did to the counters and to the log. */
void ls__comm_count(ls_comm *comm, const ls_operation *op, ls_comm_counters did,
                    ls_status status);

#endif

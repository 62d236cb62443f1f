/*
 * wait.h - how a rank waits: spin, yield, sleep, always with a deadline.
 *
 * A short wait spins, so that an answer in a microsecond is seen in a microsecond; then it
 * gives the core away, then it sleeps in the kernel.  Where more ranks than cores share a host
 * it does not spin: whoever it waits for may need this very core.
 */
#ifndef LS_DIST_COMM_WAIT_H
#define LS_DIST_COMM_WAIT_H

#include "dist/comm/guard.h"
#include "dist/comm/meet.h"
#include "dist/comm/transport.h"

typedef struct {
    int64_t spin_ns;  /* looks with a pause between them, 0: none */
    int64_t yield_ns; /* then looks with sched_yield() between them; then sleep */
    int64_t timeout_ns, warn_ns;
    void (*warn)(void *context, const char *text);
    void *context;
} ls_wait_policy;

/* For so many ranks on this host. */
ls_wait_policy ls_wait_policy_for(int local_ranks, double timeout_s);

/* One operation of this rank while it runs: what it is, and how long it may take. */
typedef struct {
    ls_transport         *transport;
    ls_guard             *guard;
    const ls_wait_policy *policy;
    ls_descriptor         what;
    int64_t               deadline, warn_at; /* ls_now_ns() */
    uint64_t              asked;             /* the question about late ranks; 0: not yet */
    int64_t               wait_ns;           /* spent waiting so far */
    int64_t              *crowded_until;     /* the group's: till then yielding does not pay */
    bool                  paired;            /* send or recv: only one peer is waited for */
} ls_running;

/* A wait inside it. */
typedef struct {
    ls_running *running;
    int         peer; /* for whom, where that is one rank; else LS_NO_PEER */
    int         looks;
    bool        yields, long_since; /* how far the wait has come: no spin, no yield any more */
    bool        slept;
    int64_t     since;      /* the first look that found nothing */
    int64_t     started;    /* the first one after something last moved; 0: there was none */
    int64_t     left_since; /* when it was seen that the peer has left; 0: it has not */
} ls_waiter;

ls_waiter ls_wait_begin(ls_running *running);

/*
 * Called when a look found nothing: pauses, yields, or sleeps in the transport.  Fails when the
 * group has failed or the deadline is over; then it names who has not come (it asks), fails the
 * group, and every member gets the same text.
 */
LS_MUST_CHECK ls_status ls_wait_more(ls_waiter *w);
void                    ls_wait_end(ls_waiter *w);

/* The verb: both directions done, or a failure of the whole group. */
LS_MUST_CHECK ls_status ls_exchange(ls_running *running, ls_outgoing out, ls_incoming in);

/*
 * Of ranks that share memory: all put up a posting, have seen all others', and agree. `payload`
 * of `bytes` goes with it.
 */
LS_MUST_CHECK ls_status ls_meet_begin(ls_running *running, uint64_t in, uint64_t out,
                                      const void *payload, size_t bytes);
/* All have come this far: the phase ends. */
LS_MUST_CHECK ls_status ls_meet_sync(ls_running *running);

#endif

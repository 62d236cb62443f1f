/*
 * transport.h - moves bytes between the ranks of one group.  Knows nothing of sums.
 *
 * There is one verb, exchange: send to one peer while receiving from another (or the same), so
 * nothing deadlocks on messages larger than the buffers in between.  A transport does it
 * without waiting, in begin() and progress(); the wait in between, with its deadline and its
 * watch on dead peers, is written once, in ls_exchange() of wait.h.
 *
 * In front of every message stands an ls_header.  The receiver compares its own with it, and
 * the sizes, before it lets a byte into the caller's buffer.
 *
 * Ranks that share memory can do more: meet.h.
 */
#ifndef LS_DIST_COMM_TRANSPORT_H
#define LS_DIST_COMM_TRANSPORT_H

#include "dist/comm/call.h"

typedef struct ls_transport ls_transport;

enum { LS_NO_PEER = -1 };

typedef struct {
    int         peer; /* rank in the group; LS_NO_PEER: nothing to send */
    const void *data;
    size_t      bytes;
} ls_outgoing;

typedef struct {
    int    peer; /* LS_NO_PEER: nothing to receive */
    void  *data;
    size_t bytes;
} ls_incoming;

typedef struct {
    ls_descriptor what;
    uint64_t      step; /* of the operation: the exchange's number, from 0, on this rank pair */
    uint64_t      bytes; /* of the message that follows */
} ls_header;

_Static_assert(sizeof(ls_header) == 48, "no padding on the wire");

typedef struct {
    const char *name;

    /*
     * Starts one exchange; the one before is done.  Either side may have LS_NO_PEER; bytes may
     * be 0 (the header travels alone).  `what` is this rank's descriptor: it goes into the
     * header of the outgoing message and the incoming one must have the same.  Buffers are
     * borrowed until the exchange is done.
     */
    ls_status (*begin)(ls_transport *t, const ls_descriptor *what, ls_outgoing out,
                       ls_incoming in);

    /*
     * Moves what can be moved without waiting.  *moved: something was; *done: both directions
     * are complete (the outgoing bytes may still be in a buffer of the transport).  EPEER when
     * the peer's end is closed, EMISMATCH when headers or sizes differ (both named).
     */
    ls_status (*progress)(ls_transport *t, bool *moved, bool *done);

    /*
     * Sleeps until progress() (or a meeting) may move, wake() was called, or ns have passed. It
     * may return early, and does so the first time: the caller looks once more before it really
     * sleeps.  ns = 0: the wait is over.
     */
    void (*sleep)(ls_transport *t, int64_t ns);

    /* Ends a sleep of this rank; from any thread, also before the sleep begins. */
    void (*wake)(ls_transport *t);

    /* Frees t and all that it holds; peers see the end of their connection. */
    void (*close)(ls_transport *t);
} ls_transport_ops;

/* A backend is a struct that starts with this. */
struct ls_transport {
    const ls_transport_ops *ops;
    int                     rank, size;
    int64_t         sent;     /* payload bytes handed to peers so far, headers not counted */
    bool            received; /* by progress(): what the exchange is to bring has come */
    struct ls_meet *meet;     /* of ranks that share memory, else NULL (meet.h) */
};

#endif

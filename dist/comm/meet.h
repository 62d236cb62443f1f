/*
 * meet.h - what ranks that share memory can do beyond exchanging messages.
 *
 * They put up a posting at the start of an operation, all at the same place of it: the
 * descriptor, where their buffers are, and for small operations the payload itself.  Whoever
 * has seen all postings knows that all have entered, that they agree, and can work on the
 * others' buffers in place.  A phase counter then says when all have finished.
 *
 *     rank 0   post ────────── reduce slice 0 of all ── advance ───────
 *     rank 1   post ──── reduce slice 1 of all ──────────── advance ───
 *                   \ sees all postings               \ sees all phases
 *
 * Nothing here waits; the wait is ls_wait_more() of wait.h.  Postings are double-buffered: a
 * rank that has seen all postings of one meeting may put up the next while others still read.
 */
#ifndef LS_DIST_COMM_MEET_H
#define LS_DIST_COMM_MEET_H

#include "dist/comm/call.h"

typedef struct {
    ls_descriptor what;
    uint64_t      in, out; /* places of the buffers (ls_meet_ops.place) */
} ls_posting;

typedef struct ls_meet ls_meet;

typedef struct {
    /* Puts up this rank's next posting, with `bytes` (at most payload_limit) of payload. */
    ls_status (*post)(ls_meet *m, const ls_posting *mine, const void *payload, size_t bytes);
    /* The posting of a rank for the meeting in which this rank is; NULL while it is not there.
     */
    const ls_posting *(*posted)(ls_meet *m, int rank);
    const void *(*payload)(ls_meet *m, int rank); /* of a posting that is there */

    /* This rank has finished its next phase; has `rank` come as far? */
    ls_status (*advance)(ls_meet *m);
    bool (*advanced)(ls_meet *m, int rank);

    /* A number for p that others can turn into an address; 0 where they cannot reach all its
     * bytes. */
    uint64_t (*place)(ls_meet *m, const void *p, size_t bytes);
    /* Where `bytes` at a place of `rank` lie in this process; NULL: ENOMEM. */
    void *(*address)(ls_meet *m, int rank, uint64_t place, size_t bytes);
} ls_meet_ops;

/* A transport of ranks that share memory has one of these (ls_transport.meet). */
struct ls_meet {
    const ls_meet_ops *ops;
    size_t             payload_limit; /* bytes */
};

#endif

/*
 * comm.h - groups of ranks and the operations on them.
 *
 * All members of a group call the same operations in the same order.  A group has one FIFO: an
 * operation that finds it idle runs on the caller's thread, a started one (ls_comm_start) on
 * the group's worker thread, which overlaps with what the caller does meanwhile.  Different
 * groups never wait for each other.
 *
 *     ls_comm *world;                                   from ls_join() of join.h
 *     float   *x = ls_comm_alloc(world, n * sizeof *x); symmetric heap, where there is one
 *     ls_comm_all_reduce(world, x, x, n, LS_F32, LS_SUM);
 *     ls_comm_release(world, x);
 *     ls_comm_free(world);
 *
 * Sums follow the canonical tree over ranks (Note [canonical order] in collective.h), so their
 * bits depend on the group's size and the data alone: not on algorithm (but for the ring),
 * transport, message size, or what else is in the same buffer.
 *
 * Operations return LS_OK only after every member has entered the same one.  Failures: EINVAL
 * for arguments (nothing was sent, the group is sound), EMISMATCH when members disagree, EPEER
 * when one is gone, ETIMEOUT when one did not come in time.  After these three the group is
 * dead: every later operation returns the same failure.
 *
 * A child of fork() may not use a group: ESTATE.
 */
#ifndef LS_DIST_COMM_COMM_H
#define LS_DIST_COMM_COMM_H

#include "dist/comm/call.h"

typedef struct ls_comm ls_comm;
typedef struct ls_work ls_work;

int         ls_comm_rank(const ls_comm *comm);
int         ls_comm_size(const ls_comm *comm);
const char *ls_comm_transport(const ls_comm *comm); /* "shm", "tcp", "shm+tcp", ... */

/*
 * The operations.  Buffers need no alignment, and may be the same (in == out: in place); else
 * they do not overlap.  Zero elements are fine.  dtype is F32, BF16, I32, I64 or U8; avg of
 * integers is EINVAL.  Counts are elements:
 *
 *   all_reduce      in, out: count.
 *   broadcast       out: count; the root's is sent.
 *   reduce          in: count on all; out: count on the root, untouched elsewhere.
 *   all_gather      in: count; out: count of each rank, in rank order.  In place when in is
 *                   this rank's part of out.
 *   reduce_scatter  in: count for each rank, in rank order; out: this rank's count.  In place
 *                   when out is this rank's part of in, whose other parts are undefined
 *                   afterwards.
 *   gather          in: count; out: count of each rank, on the root.
 *   scatter         in: count for each rank, on the root; out: count.
 *   all_to_all      in: count for each rank; out: count of each rank.  Not in place.
 */
LS_MUST_CHECK ls_status ls_comm_barrier(ls_comm *comm);
LS_MUST_CHECK ls_status ls_comm_broadcast(ls_comm *comm, void *out, int64_t count,
                                          ls_dtype dtype, int root);
LS_MUST_CHECK ls_status ls_comm_reduce(ls_comm *comm, void *out, const void *in, int64_t count,
                                       ls_dtype dtype, ls_reduce_op op, int root);
LS_MUST_CHECK ls_status ls_comm_all_reduce(ls_comm *comm, void *out, const void *in,
                                           int64_t count, ls_dtype dtype, ls_reduce_op op);
LS_MUST_CHECK ls_status ls_comm_all_gather(ls_comm *comm, void *out, const void *in,
                                           int64_t count, ls_dtype dtype);
LS_MUST_CHECK ls_status ls_comm_reduce_scatter(ls_comm *comm, void *out, const void *in,
                                               int64_t count, ls_dtype dtype, ls_reduce_op op);
LS_MUST_CHECK ls_status ls_comm_gather(ls_comm *comm, void *out, const void *in, int64_t count,
                                       ls_dtype dtype, int root);
LS_MUST_CHECK ls_status ls_comm_scatter(ls_comm *comm, void *out, const void *in, int64_t count,
                                        ls_dtype dtype, int root);
LS_MUST_CHECK ls_status ls_comm_all_to_all(ls_comm *comm, void *out, const void *in,
                                           int64_t count, ls_dtype dtype);
/* Between two ranks alone; the others take no part. */
LS_MUST_CHECK ls_status ls_comm_send(ls_comm *comm, const void *in, int64_t count,
                                     ls_dtype dtype, int peer);
LS_MUST_CHECK ls_status ls_comm_recv(ls_comm *comm, void *out, int64_t count, ls_dtype dtype,
                                     int peer);

/*
 * Any operation, with segment lists too: all_gather and reduce_scatter with call->slices take
 * one flat buffer of call->count elements of which slices[r] belong to rank r (disjoint, empty
 * lists allowed; the same on all ranks).  all_gather: in is this rank's slice, packed; out the
 * flat buffer.  reduce_scatter: in is the flat buffer; out this rank's slice, packed.  In place
 * when in == out: the slice then lies at its segments in the flat buffer.
 */
LS_MUST_CHECK ls_status ls_comm_run(ls_comm *comm, const ls_call *call);

/*
 * Starts it and returns; *work is then to be waited for.  The call is copied; its buffers and
 * slices are borrowed until the work is done.
 */
LS_MUST_CHECK ls_status ls_comm_start(ls_comm *comm, const ls_call *call, ls_work **work);

bool ls_work_test(const ls_work *work); /* done, well or not? */

/* Waits until it is done, frees it, and returns how it went. */
LS_MUST_CHECK ls_status ls_work_wait(ls_work *work);

/* When it was handed over, began to run and was done (ls_now_ns), the processor time it took of
 * this process's cores, and its number in the group, which is the same on all members. */
typedef struct {
    int64_t  started, began, ended, cpu;
    uint64_t sequence;
} ls_work_times;

/* As ls_work_wait(), which also tells these. */
LS_MUST_CHECK ls_status ls_work_wait_timed(ls_work *work, ls_work_times *times);

/*
 * A new group of the members of comm that give the same colour, ranked by (key, rank); a
 * negative colour takes part but joins no group (*group = NULL).  All members of comm call it.
 * Members of a new group may be on any transport that the old one spans.
 */
LS_MUST_CHECK ls_status ls_comm_split(ls_comm *comm, int colour, int key, ls_comm **group);

/*
 * Leaves the group, at any time after this rank's last operation; others may still be finishing
 * theirs. Started work is waited for.  The world's communicator (from ls_join) is freed last.
 * NULL is allowed.
 */
void ls_comm_free(ls_comm *comm);

/* Fails the group for this rank and tells the others: "rank R gave up: reason".  From any
 * thread, at once. */
void ls_comm_abort(ls_comm *comm, const char *reason);

/* LS_OK, or the failure that ended the group, with its text as the error message. */
LS_MUST_CHECK ls_status ls_comm_check(ls_comm *comm);

/*
 * Memory that the other ranks of this host reach in place, so that operations need no copies;
 * ordinary memory where the transport has none.  At 64 bytes' alignment, zeroed, charged to
 * LS_MEM_COMM.  Each rank for itself: not a collective.  NULL: ENOMEM.
 */
void *ls_comm_alloc(ls_comm *comm, size_t bytes);
void  ls_comm_release(ls_comm *comm,
                      void    *block); /* after the last operation on it; NULL allowed */

/*
 * The same memory on all ranks: *here is where this one reaches the owner's block (of
 * ls_comm_alloc(); ignored on the others), until the owner releases it.  NULL, on all, where
 * the ranks do not share memory.  All members call it.  Who writes what, and when others may
 * read it, is the callers' business: an operation of the group between the two is enough.
 */
LS_MUST_CHECK ls_status ls_comm_share(ls_comm *comm, void *block, size_t bytes, int owner,
                                      void **here);

/*
 * How an operation of this kind and size would go over messages, and why: one line an
 * algorithm, with its predicted time; into text.  All members call it, for it may measure.
 */
LS_MUST_CHECK ls_status ls_comm_explain(ls_comm *comm, const ls_call *call, char *text,
                                        size_t size);

/* What a group has done since it was made, by operation. */
typedef struct {
    int64_t calls;
    int64_t payload; /* bytes of the callers' buffers */
    int64_t sent; /* bytes handed to peers: wire, or stores into and loads from their memory */
    int64_t wait_ns, copy_ns, reduce_ns, total_ns;
    ls_algorithm algorithm; /* of the last one */
} ls_comm_counters;

ls_comm_counters ls_comm_counted(ls_comm *comm, ls_collective kind);

#endif

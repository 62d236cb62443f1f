/*
 * collective_impl.h - what the files of the algorithms share.
 *
 * N or size  ranks of the group      r  this rank
 * T          elements of a vector    V, W  a vector of all slices, side by side; W holds
 * partial sums at         [N + 1]: slice b is elements at[b] .. at[b + 1] of V
 */
#ifndef LS_DIST_COMM_COLLECTIVE_IMPL_H
#define LS_DIST_COMM_COLLECTIVE_IMPL_H

#include "core/kernels/combine.h"
#include "dist/comm/collective.h"

/* Bytes that travel at once, so that one piece is joined while the next is on its way. */
enum { LS_PIECE = 256 << 10 };

static inline int ls__rank(const ls_operation *op)
{
    return op->running.transport->rank;
}

static inline int ls__size(const ls_operation *op)
{
    return op->running.transport->size;
}

static inline size_t ls__bytes(const ls_operation *op, int64_t n)
{
    return (size_t)n * ls_dtype_bytes(op->call->dtype);
}

/* The dtype of partial sums: float for bf16. */
ls_dtype ls__wide(const ls_operation *op);

/* Scratch of at least `bytes`; NULL: ENOMEM. */
void *ls__scratch(ls_scratch *s, size_t bytes);

/* memcpy and ls_k_combine, timed. */
void ls__copy(ls_operation *op, void *to, const void *from, size_t bytes);
void ls__combine(ls_operation *op, const ls_combine *c);

/* V's element i, of a dtype of `size` bytes. */
static inline void *ls__at(const void *v, int64_t i, size_t size)
{
    return (char *)(uintptr_t)v + (size_t)i * size;
}

/* ---- slices ---- */

/* Fills state->at: equal slices of T. */
void    ls__equal_slices(ls_operation *op, int64_t total);
/* ... the slices of the call (its lists, or `count` each), side by side; in the order of
 * `rank_of`, NULL: of the ranks.
 */
void    ls__call_slices(ls_operation *op, int (*rank_of)(int index, int size));
int64_t ls__slice_count(const ls_call *call, int rank);

/* Where rank's slice starts in the flat buffer, if it is in one piece there; else -1. */
int64_t ls__slice_start(const ls_call *call, int rank);

/* Between the flat buffer and rank's slice packed, `size` bytes an element. */
void ls__pack(ls_operation *op, void *packed, const void *flat, int rank);
void ls__unpack(ls_operation *op, void *flat, const void *packed, int rank);

/* ---- messages ---- */

/* All have entered and agree; also the barrier.  Dissemination: log2 N rounds of headers. */
LS_MUST_CHECK ls_status ls__agree(ls_operation *op);

/* A whole block each way; either peer may be LS_NO_PEER. */
LS_MUST_CHECK ls_status ls__swap(ls_operation *op, int to, const void *out, size_t out_bytes,
                                 int from, void *in, size_t in_bytes);

/*
 * Sends `out` to `to` while `n` elements of partial sums arrive from `from` and are joined with
 * acc, in pieces: acc = arrived + acc when arrived_left, else acc + arrived.
 */
typedef struct {
    int         to;
    const void *out;
    int64_t     n_out;
    int         from;
    void       *acc;
    int64_t     n_in;
    bool        arrived_left;
} ls__joining;
LS_MUST_CHECK ls_status ls__swap_and_join(ls_operation *op, const ls__joining *j);

/* ---- steps of algorithms ---- */

/* W's slices are summed over all ranks; afterwards the slice of this rank's index is complete.
 */
LS_MUST_CHECK ls_status ls__halving_reduce(ls_operation *op, void *w);
LS_MUST_CHECK ls_status ls__ring_reduce(ls_operation *op, void *w);
/* V's slice of this rank's index is there; afterwards all are. */
LS_MUST_CHECK ls_status ls__doubling_gather(ls_operation *op, void *v, bool reversed);
LS_MUST_CHECK ls_status ls__ring_gather(ls_operation *op, void *v);
/* The slice index of a rank under halving: its bits reversed (and the other way round). */
int                     ls__reversed(int rank, int size);

/* W of n partial sums, up to `root`; elsewhere W is scratch afterwards. */
LS_MUST_CHECK ls_status ls__tree_reduce(ls_operation *op, void *w, int64_t n, int root);
/* bytes at v, down from `root`. */
LS_MUST_CHECK ls_status ls__tree_broadcast(ls_operation *op, void *v, size_t bytes, int root);

/* This rank's slice (of state->at, or of the call with its lists), joined from all ranks' `in`,
 * finished, into own. */
LS_MUST_CHECK ls_status ls__direct_reduce(ls_operation *op, void *own, bool call_slices);
/* V's slices from everybody to everybody. */
LS_MUST_CHECK ls_status ls__direct_gather(ls_operation *op, void *v);

/* The operations over messages. */
LS_MUST_CHECK ls_status ls__run_messages(ls_operation *op);
/* Of ranks that share memory, after the postings: *done where it could be done in place. */
LS_MUST_CHECK ls_status ls__run_shared(ls_operation *op, bool *done);

/* Chooses among the algorithms over messages (tuner.c). */
LS_MUST_CHECK ls_status ls__choose(ls_operation *op);
/* Measures latency and bandwidth, once per group; all ranks call it. */
LS_MUST_CHECK ls_status ls__tune(ls_operation *op);

#endif

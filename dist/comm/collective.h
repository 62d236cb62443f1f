/*
 * collective.h - what goes where: the algorithms, written once over ls_exchange() and meetings.
 *
 * Note [canonical order]
 * Element i of a reduction is the left-balanced binary tree over the group's ranks 0 .. N-1,
 * split at the largest power of two below N (rule 2 of docs/architecture.md); N = 6:
 * ((0+1)+(2+3))+(4+5). IEEE addition commutes, so the tree fixes every bit, whoever adds and in
 * whatever order the parts arrive.  Three ways to compute the same tree:
 *
 *   direct    every rank gets its own slice of all peers, N arrays side by side, and
 * ls_k_combine() joins them; tree      binomial: whole vectors go up, level by level; the node
 * of ranks [a, a+2d) is formed by one of them, from [a, a+d) and [a+d, a+2d) (any root: the
 * root forms every node it is in); halving   at distances 1, 2, 4, ...: partners r and r^d hold
 * the same part of the vector, summed over blocks of d ranks; each keeps one half.  (The
 * textbook starts at N/2, and that is another tree.) N is a power of two.
 *
 * bf16 travels as it is where whole contributions do (direct), and as float where partial sums
 * do (tree, halving, ring), so that there is one rounding, at the end, everywhere.
 *
 * The ring (reduce-scatter pass, then all-gather pass: Patarasuk & Yuan 2009,
 * doi:10.1016/j.jpdc.2008.09.002) adds in the order of the ring, another for each slice: a
 * choice for speed, not canonical.
 *
 *   algorithm   steps of all_reduce    bytes sent per rank
 *   direct      2 (N-1)                2 T (N-1)/N
 *   tree        2 log2 N               T log2 N at most, each way
 *   halving     2 log2 N               2 T (N-1)/N
 *   ring        2 (N-1)                2 T (N-1)/N
 *
 * T = the vector's bytes; slice b is elements [b T/N, (b+1) T/N), so where N divides T the
 * bytes are exact, and there is no padding.
 */
#ifndef LS_DIST_COMM_COLLECTIVE_H
#define LS_DIST_COMM_COLLECTIVE_H

#include "dist/comm/comm.h"
#include "dist/comm/wait.h"

/* Memory that grows to what was needed and is kept. */
typedef struct {
    void  *data;
    size_t bytes;
} ls_scratch;

/* What a group keeps from one operation to the next. */
typedef struct {
    ls_scratch       work;       /* a vector of partial sums */
    ls_scratch       piece;      /* what arrives, before it is joined */
    ls_scratch       pack;       /* slices side by side */
    ls_scratch       gathered;   /* a slice whose home is in several segments */
    int64_t         *at;         /* [size + 1] where slices start in a vector of all */
    void           **in;         /* [size] the ranks' buffers, as this rank sees them */
    void           **out;        /* [size] */
    void           **from, **to; /* [size] the parts of them that are being joined */
    struct ls_tuner *tuner;
} ls_collective_state;

LS_MUST_CHECK ls_status ls_collective_state_init(ls_collective_state *state, int size);
void                    ls_collective_state_close(ls_collective_state *state);

/* One call on one rank. */
typedef struct {
    ls_running           running; /* filled in by the caller */
    const ls_call       *call;
    ls_algorithm         algorithm; /* asked for; then the one that runs */
    bool                 fast;      /* AUTO may choose the ring */
    ls_collective_state *state;
    ls_comm_counters    *counted; /* sent, copy_ns and reduce_ns are added to */
} ls_operation;

/*
 * Runs it; the call has been checked (ls_call_check).  A failure is the group's (EMISMATCH,
 * EPEER, ETIMEOUT, ...) or ENOMEM, which then fails the group as well.
 */
LS_MUST_CHECK ls_status ls_collective_run(ls_operation *op);

/* EINVAL, and what is wrong with the arguments of this rank. */
LS_MUST_CHECK ls_status ls_call_check(const ls_call *call, int rank, int size);

#endif

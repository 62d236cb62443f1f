/*
 * tree_sum.h - sums of equally long arrays in the canonical order.
 *
 * Rule 2 of the law (docs/architecture.md): leaves 0 .. M-1 are joined in the left-balanced
 * binary tree, split at the largest power of two below M.  Leaves arrive one after another and
 * M need not be known: as in a binary counter, a partial sum of 2^level leaves waits for its
 * neighbour of the same size.
 *
 *     after 6 leaves:  part[1] = 4+5    part[2] = (0+1)+(2+3)
 *     finish:          part[2] + part[1]
 *
 * At most log2(M) + 1 arrays are held at any time.
 */
#ifndef LS_CORE_TREE_SUM_H
#define LS_CORE_TREE_SUM_H

#include "core/tensor.h"

enum { LS_TREE_LEVELS = 40 };

/* All zero is the empty sum. */
typedef struct {
    ls_storage
            *part[LS_TREE_LEVELS]; /* part[level] is there when bit `level` of count is set */
    uint64_t count;                /* leaves so far */
} ls_tree_sum;

void ls_tree_sum_init(ls_tree_sum *t);
void ls_tree_sum_close(ls_tree_sum *t); /* drops the partial sums; t is empty again */

/*
 * Takes leaf (an array of ls_real), in failure too: t is unchanged then.  The leaf's memory
 * becomes the sum's, so nobody else may hold it (ESTATE); all leaves have the same bytes
 * (ESHAPE).
 */
LS_MUST_CHECK ls_status ls_tree_sum_push(ls_tree_sum *t, ls_storage *leaf);

/*
 * A leaf of +0, `bytes` long.  It is really added: -0 + +0 is +0.  Needs memory (ENOMEM) only
 * where no partial sum waits for it.
 */
LS_MUST_CHECK ls_status ls_tree_sum_push_zero(ls_tree_sum *t, size_t bytes);

/* Leaves of +0 until there are `leaves` of them; none where there are as many already.  ENOMEM.
 */
LS_MUST_CHECK ls_status ls_tree_sum_fill(ls_tree_sum *t, uint64_t leaves, size_t bytes);

/*
 * The sum of all leaves so far and of a last one (taken, in failure too; NULL: +0), written to
 * out; the last join of the tree goes straight there, and nowhere else.  t is empty afterwards.
 * `bytes` long; out may be the memory of the leaf or of the first leaf pushed.  ENOMEM where a
 * leaf of +0 needs memory.
 */
LS_MUST_CHECK ls_status ls_tree_sum_end(ls_tree_sum *t, ls_storage *leaf, void *out,
                                        size_t bytes);

/* The sum of all leaves, one reference for the caller; NULL for none.  t is empty afterwards.
 */
ls_storage *ls_tree_sum_finish(ls_tree_sum *t);

#endif

/*
 * combine.h - several ranks' arrays joined into one, in the canonical order.
 *
 * Element i of the result is op over in[0][i] .. in[n_in - 1][i] in the left-balanced binary
 * tree (rule 2 of docs/architecture.md): split at the largest power of two below n_in.
 *
 *     n_in = 6:   ((0 + 1) + (2 + 3)) + (4 + 5)
 *
 * One pass over memory: every input is read once and every output written once.  Pointers
 * need no alignment, not even that of their type.
 */
#ifndef LS_CORE_KERNELS_COMBINE_H
#define LS_CORE_KERNELS_COMBINE_H

#include "core/dtype.h"
#include "core/reduce_op.h"

/*
 * What to join.  An output may be one of the inputs (the very same pointer, except BF16 ->
 * F32); otherwise arrays do not overlap.
 *
 * from, to: F32, I32, I64, U8 with to == from; BF16 inputs are widened and joined in float,
 * and rounded once where `to` is BF16 (BF16 -> F32 leaves the sum as it is, F32 -> BF16
 * rounds it).  Integers wrap around.  AVG is SUM divided once by `divisor` (as float; F32 and
 * BF16 only) before any rounding; 0 divides by n_in.
 *
 * MIN and MAX do not depend on the order: a NaN anywhere gives the quiet NaN 0x7fc00000 (bf16
 * 0x7fc0), and -0 is below +0.  The others give a NaN for a NaN; of two, which one is open.
 */
typedef struct {
    ls_reduce_op       op;
    ls_dtype           from, to;
    int                divisor;
    int                n_in, n_out;
    const void *const *in;  /* [n_in], n_in >= 1; each count elements of `from` */
    void *const       *out; /* [n_out], n_out >= 1; each count elements of `to` */
    int64_t            count;
} ls_combine;

void ls_k_combine(const ls_combine *c);

#endif

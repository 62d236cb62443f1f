/*
 * grad_norm.h - the exact gradient norm, and clipping.
 *
 * Rule 4 of the law (docs/architecture.md): per-row sums of squares, formed in double with
 * lanes fixed by the column's index, go through an order-independent accumulator.  So the norm
 * does not depend on who owns which rows.
 */
#ifndef LS_OPTIM_GRAD_NORM_H
#define LS_OPTIM_GRAD_NORM_H

#include "core/exact_sum.h"
#include "core/tensor.h"

/*
 * Adds the squares of all gradients to sum; parameters without one add nothing, sharded ones
 * (tensor.h) the rank's own rows: then the ranks' sums are to be added up.  A gradient that is
 * not finite makes the sum not finite.  ENOMEM.
 */
LS_MUST_CHECK ls_status ls_grad_squares(const ls_named_tensor *parameters, int n,
                                        ls_exact_sum *sum);

/* The infinity norm: the largest magnitude, NaN where one is; of sharded parameters, of the
 * rank's own rows. */
double ls_grad_largest(const ls_named_tensor *parameters, int n);

/* sqrt(sum of squares) / count: the norm of the mean's gradient. */
double ls_grad_norm(const ls_exact_sum *squares, double count);

/* min(1, clip / (norm + 1e-6)), PyTorch's coefficient; 1 with clip 0. */
double ls_clip_coefficient(double norm, double clip);

#endif

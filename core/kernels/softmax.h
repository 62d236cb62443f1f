/*
 * softmax.h - what is computed over rows of logits, (rows,n).
 *
 * Rows are shifted by their maximum, sums are formed in double.  A logit of -inf has
 * probability 0; a row with nothing else, or with a NaN, gives NaN, which no one overlooks.
 */
#ifndef LS_CORE_KERNELS_SOFTMAX_H
#define LS_CORE_KERNELS_SOFTMAX_H

#include "core/dtype.h"

void ls_k_softmax(ls_real *y, const ls_real *x, int64_t rows, int64_t n);
void ls_k_log_softmax(ls_real *y, const ls_real *x, int64_t rows, int64_t n);

/* Gradients from those of the results, y being the forward's result; add: joined to dx. */
void ls_k_softmax_backward(ls_real *dx, const ls_real *dy, const ls_real *y, int64_t rows,
                           int64_t n, bool add);
void ls_k_log_softmax_backward(ls_real *dx, const ls_real *dy, const ls_real *y, int64_t rows,
                               int64_t n, bool add);

/* Rows of logits with their targets, each in 0..n-1 or ignore. */
typedef struct {
    const ls_real *logits; /* (rows,n) */
    const int32_t *target; /* (rows) */
    int32_t        ignore;
    int64_t        rows, n;
} ls_scored;

/* loss[r] = lse[r] - logits[r][target[r]], 0 where ignored; lse[r] = log sum exp of the row. */
void ls_k_cross_entropy(double *loss, double *lse, const ls_scored *s);

/*
 * d[r] = (softmax(logits[r]) - onehot(target[r])) * scale, 0 where ignored; add: joined to d.
 * Without add, d may be the logits themselves.
 */
void ls_k_cross_entropy_backward(ls_real *d, const double *lse, const ls_scored *s,
                                 ls_real scale, bool add);

/*
 * Both at once, in place: losses as ls_k_cross_entropy gives them, to the bit, and the logits
 * become softmax - onehot (0 where ignored).  One exponential an element.
 */
void ls_k_cross_entropy_gradient(double *loss, ls_real *logits, const ls_scored *s);

/* The same, but row r's n gradients stand as BF16, rounded once, at the start of its n reals.
 */
void ls_k_cross_entropy_gradient_bf16(double *loss, ls_real *logits, const ls_scored *s);

/* Adds the losses of n rows to a total in row order. */
double ls_k_add_losses(double total, const double *loss, int64_t n);

#endif

/*
 * dropout.h - which elements dropout keeps: a pure function of where they are.
 *
 * A draw depends on (seed, step, sequence of the step, site, element inside the sequence),
 * four elements to a Philox block; see Note [random draws] in dropout.c.
 */
#ifndef LS_CORE_KERNELS_DROPOUT_H
#define LS_CORE_KERNELS_DROPOUT_H

#include "core/dtype.h"

typedef struct {
    uint64_t seed;
    uint32_t step, first_sequence, site;
    double   p; /* probability of zero, in [0, 1) */
} ls_dropout_args;

/* y (+)= dropout(x) for `sequences` sequences of n elements; for backward, x is dy and y is dx.
 */
void ls_k_dropout(const ls_dropout_args *d, ls_real *y, const ls_real *x, int64_t sequences,
                  int64_t n, bool add);

/* y = residual + dropout(x), in one pass. */
void ls_k_residual(const ls_dropout_args *d, ls_real *y, const ls_real *residual,
                   const ls_real *x, int64_t sequences, int64_t n);

/* factor[i] = 0 or 1 / (1 - p) for elements first .. first + n - 1 of one sequence. */
void ls_k_dropout_factors(const ls_dropout_args *d, int64_t sequence, int64_t first, int64_t n,
                          ls_real *factor);

#endif

/*
 * rmsnorm.h - y = x * r * w over rows, r = 1 / sqrt(mean(x^2) + eps).
 *
 * Zhang and Sennrich 2019, arXiv:1910.07467, eq. 4.  r is kept in double, one for each row.
 */
#ifndef LS_CORE_KERNELS_RMSNORM_H
#define LS_CORE_KERNELS_RMSNORM_H

#include "core/dtype.h"

typedef struct {
    const ls_real *x;    /* (rows,n) */
    const ls_real *w;    /* (n) */
    double        *rstd; /* (rows): written by the forward, read by the gradients */
    int64_t        rows, n;

    const uint16_t *w16; /* in place of w where that is BF16 */
} ls_rmsnorm_args;

/* y is ls_real; with w16 it is BF16, rounded once. */
void ls_k_rmsnorm(void *y, const ls_rmsnorm_args *a, double eps);

/* add: joined to what is there */
void ls_k_rmsnorm_dx(ls_real *dx, const ls_real *dy, const ls_rmsnorm_args *a, bool add);

/* scratch of ls_k_columns_scratch(rows, n) bytes */
void ls_k_rmsnorm_dw(ls_real *dw, const ls_real *dy, const ls_rmsnorm_args *a, bool add,
                     void *scratch);

#endif

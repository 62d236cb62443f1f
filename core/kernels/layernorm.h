/*
 * layernorm.h - layer normalisation of rows, Ba, Kiros, Hinton 2016, arXiv:1607.06450, eq. 4.
 *
 * N rows of C columns.  mean and rstd (N each) pass from forward to backward.  Sums along a
 * row are formed in double, lanes fixed by the column's index.
 */
#ifndef LS_CORE_KERNELS_LAYERNORM_H
#define LS_CORE_KERNELS_LAYERNORM_H

#include "core/dtype.h"

typedef struct {
    int64_t        n, c;
    const ls_real *x;
    const ls_real *w;
    const ls_real *b; /* NULL: none */
    double        *mean, *rstd;
    double         eps;

    const uint16_t *w16, *b16; /* in place of w and b where these are BF16 */
} ls_layernorm_args;

/* y is ls_real; with w16 it is BF16, rounded once. */
void ls_k_layernorm(const ls_layernorm_args *a, void *y);
void ls_k_layernorm_dx(const ls_layernorm_args *a, const ls_real *dy, ls_real *dx, bool add);

/* dw and db, either may be NULL; scratch of ls_k_columns_scratch(n, c) bytes. */
typedef struct {
    ls_real *dw, *db;
    bool     add_w, add_b;
    void    *scratch;
} ls_layernorm_grads;
void ls_k_layernorm_dw(const ls_layernorm_args *a, const ls_real *dy,
                       const ls_layernorm_grads *g);

#endif

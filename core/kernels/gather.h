/*
 * gather.h - rows of a table by index, and their gradients back into it.
 */
#ifndef LS_CORE_KERNELS_GATHER_H
#define LS_CORE_KERNELS_GATHER_H

#include "core/dtype.h"

/* y[i] = w[ids[i]], n rows of c. */
void ls_k_gather_rows(ls_real *y, const ls_real *w, const int32_t *ids, int64_t n, int64_t c);

/* The same of a BF16 table, widened. */
void ls_k_gather_rows_bf16(ls_real *y, const uint16_t *w, const int32_t *ids, int64_t n,
                           int64_t c);

/* y[r] = x for `rows` rows of n. */
void ls_k_repeat_rows(ls_real *y, const ls_real *x, int64_t rows, int64_t n);

/* dw[ids[i]] += dy[i] in the order of i; threads split the columns. */
void ls_k_scatter_add_rows(ls_real *dw, const ls_real *dy, const int32_t *ids, int64_t n,
                           int64_t c);

#endif

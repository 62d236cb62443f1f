/*
 * row_squares.h - sums of squares of rows.
 */
#ifndef LS_CORE_KERNELS_ROW_SQUARES_H
#define LS_CORE_KERNELS_ROW_SQUARES_H

#include "core/dtype.h"

/* out[r] = sum over j of x[r][j]^2 in double, lanes fixed by j. */
void ls_k_row_squares(double *out, const ls_real *x, int64_t rows, int64_t n);

#endif

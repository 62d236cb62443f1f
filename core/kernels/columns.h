/*
 * columns.h - sums down columns, in blocks of rows whose size depends on the shape alone.
 *
 * Each block is summed row after row by one task; the partial rows are joined in index order.
 * So the bits depend neither on the number of threads nor on their timing.
 */
#ifndef LS_CORE_KERNELS_COLUMNS_H
#define LS_CORE_KERNELS_COLUMNS_H

#include "core/dtype.h"

/* Rows of a block, and the number of blocks, for that many rows. */
int64_t ls_k_column_grain(int64_t rows);
int64_t ls_k_column_blocks(int64_t rows);

/* Elements of scratch that a sum of (rows,n) needs. */
int64_t ls_k_column_scratch(int64_t rows, int64_t n);

/* out[j] (+)= sum over r of x[r][j]; scratch as ls_k_column_scratch() says. */
void ls_k_column_sums(ls_real *out, const ls_real *x, int64_t rows, int64_t n, bool add,
                      ls_real *scratch);

/* out[j] (+)= partial[0][j] + partial[1][j] + ...; partials lie `distance` apart. */
void ls_k_join_blocks(ls_real *out, const ls_real *partial, int64_t blocks, int64_t distance,
                      int64_t n, bool add);

#endif

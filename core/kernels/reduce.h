/*
 * reduce.h - sums in double whose order is fixed by the shape alone.
 *
 * Within a row by lanes (lanes.h); across rows and over whole arrays, blocks of fixed size are
 * joined in index order.
 */
#ifndef LS_CORE_KERNELS_REDUCE_H
#define LS_CORE_KERNELS_REDUCE_H

#include "core/dtype.h"

/* Of one row, on this thread. */
double ls_k_row_sum(const ls_real *x, int64_t n);
double ls_k_row_dot(const ls_real *a, const ls_real *b, int64_t n);

/* Of a whole array; scratch of ls_k_sum_scratch(n) bytes. */
size_t ls_k_sum_scratch(int64_t n);
double ls_k_sum(const ls_real *x, int64_t n, void *scratch);

/* y[j] = (or +=, with add) the sum over rows r of a[r][j] * (b[r][j] - shift[r]) * factor[r] */
typedef struct {
    ls_real       *y;      /* n */
    const ls_real *a;      /* (rows,n) */
    const ls_real *b;      /* (rows,n), or NULL for ones */
    const double  *shift;  /* (rows), or NULL for zeros; only with b */
    const double  *factor; /* (rows), or NULL for ones */
    int64_t        rows, n;
    bool           add;
    void          *scratch; /* ls_k_columns_scratch(rows, n) bytes */
    uint16_t      *rounded; /* (rows,n): receives a in BF16, on the same way; NULL: does not */
} ls_columns;

size_t ls_k_columns_scratch(int64_t rows, int64_t n);
void   ls_k_columns(const ls_columns *c);

#endif

/*
 * row_squares.c - for the exact gradient norm.
 */
#include "core/kernels/row_squares.h"

#include "core/kernels/clones.h"
#include "core/kernels/lanes.h"
#include "core/thread.h"

enum { ELEMENTS = 1 << 14 }; /* of a task, about */

typedef struct {
    double        *out;
    const ls_real *x;
    int64_t        rows, n;
} job;

static int64_t grain(int64_t n)
{
    return n < ELEMENTS ? ELEMENTS / (n ? n : 1) : 1;
}

LS_CLONES static void square_rows(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->rows, grain(j->n), index);

    for (int64_t r = b.first; r < b.end; r++) {
        const ls_real *x = j->x + r * j->n;
        LS_LANES_SUM(j->out[r], i, j->n, (double)x[i] * (double)x[i]);
    }
}

void ls_k_row_squares(double *out, const ls_real *x, int64_t rows, int64_t n)
{
    job j = {out, x, rows, n};
    ls_parallel(ls_block_count(rows, grain(n)), square_rows, &j);
}

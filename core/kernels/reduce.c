/*
 * reduce.c - lanes, blocks and column strips.
 *
 * Column sums cut the rows into at most COLUMN_BLOCKS blocks:
 *
 *     scratch (blocks,n)  <--  block b: rows b * grain ... in order      one task a block
 *     y (n)               <--  scratch rows 0, 1, 2, ... in order        one task a strip
 */
#include "core/kernels/reduce.h"

#include "core/kernels/bf16.h"
#include "core/kernels/clones.h"
#include "core/kernels/lanes.h"
#include "core/thread.h"

enum {
    GRAIN         = 16384, /* elements of a block */
    COLUMN_BLOCKS = 16,    /* enough for two to eight threads, little to join */
    COLUMN_ROWS   = 16,    /* fewest rows of a block */
    STRIP         = 1024   /* columns joined by one task */
};

LS_CLONES double ls_k_row_sum(const ls_real *x, int64_t n)
{
    double sum;
    LS_LANES_SUM(sum, i, n, (double)x[i]);
    return sum;
}

LS_CLONES double ls_k_row_dot(const ls_real *a, const ls_real *b, int64_t n)
{
    double sum;
    LS_LANES_SUM(sum, i, n, (double)a[i] * (double)b[i]);
    return sum;
}

typedef struct {
    const ls_real *x;
    int64_t        n;
    double        *partial;
} whole;

LS_CLONES static void sum_task(void *context, int64_t index)
{
    const whole *w     = context;
    ls_block     range = ls_block_at(w->n, GRAIN, index);

    w->partial[index] = ls_k_row_sum(w->x + range.first, range.end - range.first);
}

size_t ls_k_sum_scratch(int64_t n)
{
    return (size_t)ls_block_count(n, GRAIN) * sizeof(double);
}

double ls_k_sum(const ls_real *x, int64_t n, void *scratch)
{
    whole  w     = {x, n, scratch};
    double total = 0;

    ls_parallel(ls_block_count(n, GRAIN), sum_task, &w);
    for (int64_t i = 0; i < ls_block_count(n, GRAIN); i++)
        total += w.partial[i];
    return total;
}

static int64_t column_grain(int64_t rows)
{
    int64_t grain = ls_block_count(rows, COLUMN_BLOCKS);
    return grain < COLUMN_ROWS ? COLUMN_ROWS : grain;
}

size_t ls_k_columns_scratch(int64_t rows, int64_t n)
{
    return (size_t)(ls_block_count(rows, column_grain(rows)) * n) * sizeof(double);
}

LS_INLINE void add_row(double *sum, const ls_columns *c, int64_t r)
{
    const ls_real *a = c->a + r * c->n, *b = c->b ? c->b + r * c->n : NULL;
    double         factor = c->factor ? c->factor[r] : 1, shift = c->shift ? c->shift[r] : 0;

    if (b)
        for (int64_t j = 0; j < c->n; j++)
            sum[j] += (double)a[j] * ((double)b[j] - shift) * factor;
    else if (c->factor)
        for (int64_t j = 0; j < c->n; j++)
            sum[j] += (double)a[j] * factor;
    else
        for (int64_t j = 0; j < c->n; j++)
            sum[j] += (double)a[j];
}

LS_CLONES static void rows_task(void *context, int64_t index)
{
    const ls_columns *c     = context;
    ls_block          range = ls_block_at(c->rows, column_grain(c->rows), index);
    double           *sum   = (double *)c->scratch + index * c->n;

    for (int64_t j = 0; j < c->n; j++)
        sum[j] = 0;
    for (int64_t r = range.first; r < range.end; r++) {
        add_row(sum, c, r);
        if (c->rounded)
            ls_k_bf16_round_here(c->rounded + r * c->n, c->a + r * c->n, c->n);
    }
}

LS_CLONES static void strip_task(void *context, int64_t index)
{
    const ls_columns *c      = context;
    ls_block          range  = ls_block_at(c->n, STRIP, index);
    int64_t           blocks = ls_block_count(c->rows, column_grain(c->rows));

    for (int64_t j = range.first; j < range.end; j++) {
        double total = 0;
        for (int64_t b = 0; b < blocks; b++)
            total += ((const double *)c->scratch)[b * c->n + j];
        c->y[j] = c->add ? c->y[j] + (ls_real)total : (ls_real)total;
    }
}

void ls_k_columns(const ls_columns *c)
{
    ls_columns job = *c;

    ls_parallel(ls_block_count(c->rows, column_grain(c->rows)), rows_task, &job);
    ls_parallel(ls_block_count(c->n, STRIP), strip_task, &job);
}

/*
 * columns.c - sums down columns.
 */
#include "core/kernels/columns.h"

#include <string.h>

#include "core/kernels/clones.h"
#include "core/thread.h"

enum { ROWS_AT_LEAST = 32, BLOCKS_AT_MOST = 32 };

int64_t ls_k_column_grain(int64_t rows)
{
    int64_t grain = ls_block_count(rows, BLOCKS_AT_MOST);
    return grain > ROWS_AT_LEAST ? grain : ROWS_AT_LEAST;
}

int64_t ls_k_column_blocks(int64_t rows)
{
    return ls_block_count(rows, ls_k_column_grain(rows));
}

int64_t ls_k_column_scratch(int64_t rows, int64_t n)
{
    return ls_k_column_blocks(rows) * n;
}

void ls_k_join_blocks(ls_real *out, const ls_real *partial, int64_t blocks, int64_t distance,
                      int64_t n, bool add)
{
    for (int64_t j = 0; j < n; j++) {
        ls_real sum = blocks ? partial[j] : 0;
        for (int64_t b = 1; b < blocks; b++)
            sum += partial[b * distance + j];
        out[j] = add ? out[j] + sum : sum;
    }
}

typedef struct {
    const ls_real *x;
    ls_real       *partial;
    int64_t        rows, n;
} job;

LS_CLONES static void sum_block(void *context, int64_t index)
{
    const job *j   = context;
    ls_block   b   = ls_block_at(j->rows, ls_k_column_grain(j->rows), index);
    ls_real   *out = j->partial + index * j->n;

    memcpy(out, j->x + b.first * j->n, (size_t)j->n * sizeof *out);
    for (int64_t r = b.first + 1; r < b.end; r++)
        for (int64_t i = 0; i < j->n; i++)
            out[i] += j->x[r * j->n + i];
}

void ls_k_column_sums(ls_real *out, const ls_real *x, int64_t rows, int64_t n, bool add,
                      ls_real *scratch)
{
    job j = {x, scratch, rows, n};

    ls_parallel(ls_k_column_blocks(rows), sum_block, &j);
    ls_k_join_blocks(out, scratch, ls_k_column_blocks(rows), n, n, add);
}

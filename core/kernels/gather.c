/*
 * gather.c - embedding rows.
 */
#include "core/kernels/gather.h"

#include <string.h>

#include "core/kernels/bf16.h"
#include "core/kernels/clones.h"
#include "core/thread.h"

enum { ROWS = 64, COLUMNS = 64 }; /* of a task */

typedef struct {
    ls_real       *to;
    const ls_real *from;
    const int32_t *ids;
    int64_t        n, c;

    const uint16_t *from16; /* in place of from */
} job;

static void gather_block(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->n, ROWS, index);

    for (int64_t i = b.first; i < b.end; i++)
        memcpy(j->to + i * j->c, j->from + j->ids[i] * j->c, (size_t)j->c * sizeof *j->to);
}

void ls_k_gather_rows(ls_real *y, const ls_real *w, const int32_t *ids, int64_t n, int64_t c)
{
    job j = {.to = y, .from = w, .ids = ids, .n = n, .c = c};
    ls_parallel(ls_block_count(n, ROWS), gather_block, &j);
}

static void gather_bf16_block(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->n, ROWS, index);

    for (int64_t i = b.first; i < b.end; i++)
        ls_k_bf16_widen_here(j->to + i * j->c, j->from16 + j->ids[i] * j->c, j->c);
}

void ls_k_gather_rows_bf16(ls_real *y, const uint16_t *w, const int32_t *ids, int64_t n,
                           int64_t c)
{
    job j = {.to = y, .from16 = w, .ids = ids, .n = n, .c = c};
    ls_parallel(ls_block_count(n, ROWS), gather_bf16_block, &j);
}

static void repeat_block(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->n, ROWS, index);

    for (int64_t i = b.first; i < b.end; i++)
        memcpy(j->to + i * j->c, j->from, (size_t)j->c * sizeof *j->to);
}

void ls_k_repeat_rows(ls_real *y, const ls_real *x, int64_t rows, int64_t n)
{
    job j = {.to = y, .from = x, .n = rows, .c = n};
    ls_parallel(ls_block_count(rows, ROWS), repeat_block, &j);
}

LS_CLONES static void scatter_columns(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->c, COLUMNS, index);

    for (int64_t i = 0; i < j->n; i++)
        for (int64_t k = b.first; k < b.end; k++)
            j->to[j->ids[i] * j->c + k] += j->from[i * j->c + k];
}

void ls_k_scatter_add_rows(ls_real *dw, const ls_real *dy, const int32_t *ids, int64_t n,
                           int64_t c)
{
    job j = {.to = dw, .from = dy, .ids = ids, .n = n, .c = c};
    ls_parallel(ls_block_count(c, COLUMNS), scatter_columns, &j);
}

/*
 * bf16.c - whole arrays of it.
 */
#include "core/kernels/bf16.h"

#include "core/thread.h"

enum { GRAIN = 16384 };

typedef struct {
    uint16_t       *to16;
    const uint16_t *from16;
    ls_real        *to;
    const ls_real  *from;
    int64_t         n;
} job;

LS_CLONES void ls_k_bf16_round_here(uint16_t *restrict y, const ls_real *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ls_bf16_round((float)x[i]);
}

LS_CLONES void ls_k_bf16_widen_here(ls_real *restrict y, const uint16_t *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ls_bf16_widen(x[i]);
}

static void round_task(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->n, GRAIN, index);

    ls_k_bf16_round_here(j->to16 + b.first, j->from + b.first, b.end - b.first);
}

static void widen_task(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->n, GRAIN, index);

    ls_k_bf16_widen_here(j->to + b.first, j->from16 + b.first, b.end - b.first);
}

void ls_k_bf16_round(uint16_t *y, const ls_real *x, int64_t n)
{
    job j = {.to16 = y, .from = x, .n = n};
    ls_parallel(ls_block_count(n, GRAIN), round_task, &j);
}

void ls_k_bf16_widen(ls_real *y, const uint16_t *x, int64_t n)
{
    job j = {.to = y, .from16 = x, .n = n};
    ls_parallel(ls_block_count(n, GRAIN), widen_task, &j);
}

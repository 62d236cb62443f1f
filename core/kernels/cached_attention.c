/*
 * cached_attention.c - bands of queries against the whole cache.
 */
#include "core/kernels/cached_attention.h"

#include <math.h>
#include <string.h>

#include "core/kernels/clones.h"
#include "core/kernels/gemm.h"
#include "core/kernels/lanes.h"
#include "core/kernels/real_math.h"
#include "core/thread.h"

enum { BAND = 32 }; /* queries whose scores are held at once */

int64_t ls_k_cached_attention_scratch(int64_t heads, int64_t capacity)
{
    return heads * BAND * capacity;
}

static void append(const ls_cached_attention_args *a, int64_t head)
{
    int64_t        row = (a->h + 2 * a->k) * a->d;
    const ls_real *k = a->qkv + (a->h + head) * a->d, *v = k + a->k * a->d;
    ls_real       *keys   = a->keys + head * a->d * a->capacity + a->past;
    ls_real       *values = a->values + (head * a->capacity + a->past) * a->d;

    for (int64_t i = 0; i < a->t; i++, k += row, v += row) {
        for (int64_t c = 0; c < a->d; c++)
            keys[c * a->capacity + i] = k[c];
        memcpy(values + i * a->d, v, (size_t)a->d * sizeof *v);
    }
}

/* s = softmax of its first n elements, zeros in the others up to hidden_to */
LS_CLONES static void softmax_row(ls_real *s, int64_t n, int64_t hidden_to)
{
    ls_real largest = ls_lanes_max(s, n);
    double  sum;

    for (int64_t j = 0; j < n; j++)
        s[j] = ls_exp(s[j] - largest);
    LS_LANES_SUM(sum, j, n, (double)s[j]);
    ls_real factor = (ls_real)(1 / sum);
    for (int64_t j = 0; j < n; j++)
        s[j] *= factor;
    for (int64_t j = n; j < hidden_to; j++)
        s[j] = 0;
}

/* Queries first .. first + n - 1 of a head, over the keys up to the last of them. */
static void attend(const ls_cached_attention_args *a, int64_t head, int64_t first, int64_t n)
{
    int64_t  row = (a->h + 2 * a->k) * a->d, kv = head / (a->h / a->k);
    int64_t  seen   = a->past + first + n;
    ls_real *scores = a->scratch + head * BAND * a->capacity;

    ls_gemm_tile(&(ls_gemm_args){.m     = n,
                                 .n     = seen,
                                 .k     = a->d,
                                 .alpha = (ls_real)(1 / sqrt((double)a->d)),
                                 .a     = a->qkv + first * row + head * a->d,
                                 .lda   = row,
                                 .b     = a->keys + kv * a->d * a->capacity,
                                 .ldb   = a->capacity,
                                 .c     = scores,
                                 .ldc   = seen});
    for (int64_t i = 0; i < n; i++)
        softmax_row(scores + i * seen, a->past + first + i + 1, seen);
    ls_gemm_tile(&(ls_gemm_args){.m     = n,
                                 .n     = a->d,
                                 .k     = seen,
                                 .alpha = 1,
                                 .a     = scores,
                                 .lda   = seen,
                                 .b     = a->values + kv * a->capacity * a->d,
                                 .ldb   = a->d,
                                 .c     = a->out + (first * a->h + head) * a->d,
                                 .ldc   = a->h * a->d});
}

static void append_task(void *context, int64_t head)
{
    append(context, head);
}

static void attend_task(void *context, int64_t head)
{
    const ls_cached_attention_args *a = context;

    for (int64_t first = 0; first < a->t; first += BAND)
        attend(a, head, first, a->t - first < BAND ? a->t - first : BAND);
}

void ls_k_cached_attention(const ls_cached_attention_args *a)
{
    ls_cached_attention_args copy = *a;

    ls_parallel(a->k, append_task, &copy);
    ls_parallel(a->h, attend_task, &copy);
}

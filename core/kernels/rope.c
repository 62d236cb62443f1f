/*
 * rope.c - a table of angles, and a pass over tokens.
 */
#include "core/kernels/rope.h"

#include <math.h>
#include <string.h>

#include "core/kernels/bf16.h"
#include "core/kernels/clones.h"
#include "core/thread.h"

enum { GRAIN = 16384 };

typedef struct {
    const ls_rope_args *a;
    ls_real            *out;
    const ls_real      *in;
    ls_real             direction; /* 1: forward, -1: back */
    bool                add;

    uint16_t       *out16; /* in place of out and in where these are BF16 */
    const uint16_t *in16;
} job;

void ls_k_rope_table(ls_real *table, int64_t time, int64_t size, double base)
{
    int64_t half = size / 2;

    for (int64_t d = 0; d < half; d++) {
        double step = pow(base, -2.0 * (double)d / (double)size);
        for (int64_t t = 0; t < time; t++) {
            table[t * size + d]        = (ls_real)cos((double)t * step);
            table[t * size + half + d] = (ls_real)sin((double)t * step);
        }
    }
}

LS_INLINE void put(const job *j, ls_real *out, ls_real value)
{
    *out = j->add ? *out + value : value;
}

LS_INLINE void turn_head(const job *j, ls_real *out, const ls_real *in, const ls_real *angle)
{
    int64_t half = j->a->size / 2;

    for (int64_t d = 0; d < half; d++) {
        ls_real c = angle[d], s = j->direction * angle[half + d];
        ls_real u = in[d], v = in[half + d];
        put(j, out + d, u * c - v * s);
        put(j, out + half + d, v * c + u * s);
    }
}

LS_INLINE void token(const job *j, int64_t index)
{
    const ls_rope_args *a     = j->a;
    int64_t             width = a->heads * a->size, turned = a->turned * a->size;
    ls_real            *out   = j->out + index * width;
    const ls_real      *in    = j->in + index * width;
    const ls_real      *angle = a->table + index % a->time * a->size;

    for (int64_t h = 0; h < turned; h += a->size)
        turn_head(j, out + h, in + h, angle);
    for (int64_t i = turned; i < width; i++)
        put(j, out + i, in[i]);
}

static int64_t token_grain(const ls_rope_args *a)
{
    int64_t width = a->heads * a->size;
    return width < GRAIN ? GRAIN / width : 1;
}

LS_INLINE void turn_head_bf16(uint16_t *out, const uint16_t *in, const ls_real *angle,
                              int64_t half)
{
    for (int64_t d = 0; d < half; d++) {
        ls_real c = angle[d], s = angle[half + d];
        ls_real u = ls_bf16_widen(in[d]), v = ls_bf16_widen(in[half + d]);
        out[d]        = ls_bf16_round((float)(u * c - v * s));
        out[half + d] = ls_bf16_round((float)(v * c + u * s));
    }
}

LS_INLINE void token_bf16(const job *j, int64_t index)
{
    const ls_rope_args *a     = j->a;
    int64_t             width = a->heads * a->size, turned = a->turned * a->size;
    uint16_t           *out   = j->out16 + index * width;
    const uint16_t     *in    = j->in16 + index * width;
    const ls_real      *angle = a->table + index % a->time * a->size;

    for (int64_t h = 0; h < turned; h += a->size)
        turn_head_bf16(out + h, in + h, angle, a->size / 2);
    memcpy(out + turned, in + turned, (size_t)(width - turned) * sizeof *out);
}

LS_CLONES static void tokens_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->a->batch * j->a->time, token_grain(j->a), index);

    for (int64_t i = range.first; i < range.end; i++)
        if (j->in16)
            token_bf16(j, i);
        else
            token(j, i);
}

static void run(job j)
{
    ls_parallel(ls_block_count(j.a->batch * j.a->time, token_grain(j.a)), tokens_task, &j);
}

void ls_k_rope(ls_real *y, const ls_real *x, const ls_rope_args *a)
{
    run((job){.a = a, .out = y, .in = x, .direction = 1});
}

void ls_k_rope_bf16(uint16_t *y, const uint16_t *x, const ls_rope_args *a)
{
    run((job){.a = a, .out16 = y, .in16 = x});
}

void ls_k_rope_backward(ls_real *dx, const ls_real *dy, const ls_rope_args *a, bool add)
{
    run((job){.a = a, .out = dx, .in = dy, .direction = -1, .add = add});
}

/*
 * layernorm.c - forward, gradient of the rows, gradients of weight and bias.
 */
#include "core/kernels/layernorm.h"

#include <math.h>
#include <string.h>

#include "core/kernels/bf16.h"
#include "core/kernels/clones.h"
#include "core/kernels/lanes.h"
#include "core/kernels/reduce.h"
#include "core/thread.h"

enum { ROWS = 16 }; /* of a task */

typedef struct {
    const ls_layernorm_args *a;
    ls_real                 *y;   /* forward's result, or dx */
    uint16_t                *y16; /* in place of a result of forward */
    const ls_real           *dy;
    bool                     add;
} job;

LS_INLINE ls_real weight(const ls_layernorm_args *a, int64_t i, bool half)
{
    return half ? (ls_real)ls_bf16_widen(a->w16[i]) : a->w[i];
}

LS_INLINE void forward_row_bf16(const ls_layernorm_args *a, const ls_real *x, ls_real m,
                                ls_real s, uint16_t *y)
{
    if (a->b16)
        for (int64_t i = 0; i < a->c; i++)
            y[i] = ls_bf16_round(
                (float)((x[i] - m) * s * weight(a, i, true) + ls_bf16_widen(a->b16[i])));
    else
        for (int64_t i = 0; i < a->c; i++)
            y[i] = ls_bf16_round((float)((x[i] - m) * s * weight(a, i, true)));
}

LS_INLINE void forward_row(const ls_layernorm_args *a, int64_t r, ls_real *y, uint16_t *y16)
{
    const ls_real *x = a->x + r * a->c;
    double         sum, square;

    LS_LANES_SUM(sum, i, a->c, (double)x[i]);
    double mean = sum / (double)a->c;
    LS_LANES_SUM(square, i, a->c, ((double)x[i] - mean) * ((double)x[i] - mean));
    double  rstd = 1 / sqrt(square / (double)a->c + a->eps);
    ls_real m = (ls_real)mean, s = (ls_real)rstd;

    a->mean[r] = mean;
    a->rstd[r] = rstd;
    if (y16)
        forward_row_bf16(a, x, m, s, y16);
    else if (a->b)
        for (int64_t i = 0; i < a->c; i++)
            y[i] = (x[i] - m) * s * a->w[i] + a->b[i];
    else
        for (int64_t i = 0; i < a->c; i++)
            y[i] = (x[i] - m) * s * a->w[i];
}

LS_CLONES static void forward_rows(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->a->n, ROWS, index);

    for (int64_t r = b.first; r < b.end; r++)
        if (j->y16)
            forward_row(j->a, r, NULL, j->y16 + r * j->a->c);
        else
            forward_row(j->a, r, j->y + r * j->a->c, NULL);
}

void ls_k_layernorm(const ls_layernorm_args *a, void *y)
{
    job j = {.a = a, .y = a->w16 ? NULL : y, .y16 = a->w16 ? y : NULL};
    ls_parallel(ls_block_count(a->n, ROWS), forward_rows, &j);
}

/* dx = rstd (g - mean(g) - xhat mean(g xhat)),  g = dy w,  xhat = (x - mean) rstd */
LS_INLINE void dx_row(const job *j, int64_t r, bool half)
{
    const ls_layernorm_args *a = j->a;
    const ls_real           *x = a->x + r * a->c, *dy = j->dy + r * a->c;
    ls_real m = (ls_real)a->mean[r], s = (ls_real)a->rstd[r], *dx = j->y + r * a->c;
    double  sum, dot;

    LS_LANES_SUM(sum, i, a->c, (double)(dy[i] * weight(a, i, half)));
    LS_LANES_SUM(dot, i, a->c, (double)(dy[i] * weight(a, i, half)) * (double)((x[i] - m) * s));
    ls_real mean_g = (ls_real)(sum / (double)a->c), mean_gx = (ls_real)(dot / (double)a->c);

    if (j->add)
        for (int64_t i = 0; i < a->c; i++)
            dx[i] += s * (dy[i] * weight(a, i, half) - mean_g - (x[i] - m) * s * mean_gx);
    else
        for (int64_t i = 0; i < a->c; i++)
            dx[i] = s * (dy[i] * weight(a, i, half) - mean_g - (x[i] - m) * s * mean_gx);
}

LS_CLONES static void dx_rows(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->a->n, ROWS, index);

    for (int64_t r = b.first; r < b.end; r++)
        if (j->a->w16)
            dx_row(j, r, true);
        else
            dx_row(j, r, false);
}

void ls_k_layernorm_dx(const ls_layernorm_args *a, const ls_real *dy, ls_real *dx, bool add)
{
    job j = {.a = a, .y = dx, .dy = dy, .add = add};
    ls_parallel(ls_block_count(a->n, ROWS), dx_rows, &j);
}

void ls_k_layernorm_dw(const ls_layernorm_args *a, const ls_real *dy,
                       const ls_layernorm_grads *g)
{
    ls_columns c = {.a = dy, .rows = a->n, .n = a->c, .scratch = g->scratch};

    c.y   = g->db;
    c.add = g->add_b;
    if (g->db)
        ls_k_columns(&c);
    c.y      = g->dw;
    c.add    = g->add_w;
    c.b      = a->x;
    c.shift  = a->mean;
    c.factor = a->rstd;
    if (g->dw)
        ls_k_columns(&c);
}

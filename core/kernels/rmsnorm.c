/*
 * rmsnorm.c - one row at a time, blocks of rows over the pool.
 */
#include "core/kernels/rmsnorm.h"

#include <math.h>

#include "core/kernels/bf16.h"
#include "core/kernels/clones.h"
#include "core/kernels/lanes.h"
#include "core/kernels/reduce.h"
#include "core/thread.h"

enum { GRAIN = 16384 };

typedef struct {
    const ls_rmsnorm_args *a;
    ls_real               *out;
    uint16_t              *out16; /* in place of a result of forward */
    const ls_real         *dy;
    double                 eps;
    bool                   add;
} job;

static int64_t row_grain(const ls_rmsnorm_args *a)
{
    return a->n < GRAIN ? GRAIN / (a->n ? a->n : 1) : 1;
}

LS_INLINE ls_real weight(const job *j, int64_t i, bool half)
{
    return half ? (ls_real)ls_bf16_widen(j->a->w16[i]) : j->a->w[i];
}

LS_INLINE void forward_row(const job *j, int64_t r)
{
    int64_t        n    = j->a->n;
    const ls_real *x    = j->a->x + r * n;
    ls_real       *y    = j->out ? j->out + r * n : NULL;
    uint16_t      *y16  = j->out16 ? j->out16 + r * n : NULL;
    double         rstd = 1 / sqrt(ls_k_row_dot(x, x, n) / (double)n + j->eps);

    j->a->rstd[r] = rstd;
    if (y16)
        for (int64_t i = 0; i < n; i++)
            y16[i] =
                ls_bf16_round((float)((ls_real)((double)x[i] * rstd) * weight(j, i, true)));
    else if (y)
        for (int64_t i = 0; i < n; i++)
            y[i] = (ls_real)((double)x[i] * rstd) * weight(j, i, false);
}

LS_CLONES static void forward_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->a->rows, row_grain(j->a), index);

    for (int64_t r = range.first; r < range.end; r++)
        forward_row(j, r);
}

void ls_k_rmsnorm(void *y, const ls_rmsnorm_args *a, double eps)
{
    job j = {.a = a, .out = a->w16 ? NULL : y, .out16 = a->w16 ? y : NULL, .eps = eps};
    ls_parallel(ls_block_count(a->rows, row_grain(a)), forward_task, &j);
}

/* r g - x r^3 (g . x) / n, with g = dy w */
LS_INLINE void dx_row(const job *j, int64_t r, bool half)
{
    int64_t        n = j->a->n;
    const ls_real *x = j->a->x + r * n, *dy = j->dy + r * n;
    ls_real       *dx   = j->out + r * n;
    double         rstd = j->a->rstd[r];
    double         dot;

    LS_LANES_SUM(dot, i, n, (double)dy[i] * (double)weight(j, i, half) * (double)x[i]);
    double pull = rstd * rstd * rstd * dot / (double)n;
    for (int64_t i = 0; i < n; i++) {
        ls_real d =
            (ls_real)(rstd * (double)dy[i] * (double)weight(j, i, half) - pull * (double)x[i]);
        dx[i] = j->add ? dx[i] + d : d;
    }
}

LS_CLONES static void dx_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->a->rows, row_grain(j->a), index);

    for (int64_t r = range.first; r < range.end; r++)
        if (j->a->w16)
            dx_row(j, r, true);
        else
            dx_row(j, r, false);
}

void ls_k_rmsnorm_dx(ls_real *dx, const ls_real *dy, const ls_rmsnorm_args *a, bool add)
{
    job j = {.a = a, .out = dx, .dy = dy, .add = add};
    ls_parallel(ls_block_count(a->rows, row_grain(a)), dx_task, &j);
}

void ls_k_rmsnorm_dw(ls_real *dw, const ls_real *dy, const ls_rmsnorm_args *a, bool add,
                     void *scratch)
{
    ls_k_columns(&(ls_columns){.y       = dw,
                               .a       = dy,
                               .b       = a->x,
                               .factor  = a->rstd,
                               .rows    = a->rows,
                               .n       = a->n,
                               .add     = add,
                               .scratch = scratch});
}

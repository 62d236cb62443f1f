/*
 * adam.c - Adam, AdamW and SGD with momentum over flat arrays.
 */
#include "core/kernels/adam.h"

#include <math.h>

#include "core/kernels/clones.h"
#include "core/thread.h"

enum { ELEMENTS = 1 << 14 }; /* of a task */

#ifdef LS_REAL_F64
#define ROOT sqrt
#else
#define ROOT sqrtf
#endif

typedef struct {
    const void    *args;
    ls_real       *p, *m, *v;
    const ls_real *g;
    int64_t        n;
} job;

LS_CLONES static void adam_block(void *context, int64_t index)
{
    const job         *j = context;
    const ls_adam_args a = *(const ls_adam_args *)j->args;
    ls_block           b = ls_block_at(j->n, ELEMENTS, index);
    ls_real *restrict p = j->p, *restrict m = j->m, *restrict v = j->v;
    const ls_real *restrict g = j->g;

    for (int64_t i = b.first; i < b.end; i++) {
        ls_real d = g[i] * a.scale + a.l2 * p[i];
        m[i]      = m[i] + (d - m[i]) * a.one_minus_b1;
        v[i]      = v[i] * a.b2 + a.one_minus_b2 * d * d;
        p[i]      = p[i] * a.decay - a.step_size * m[i] / (ROOT(v[i]) / a.root_bias2 + a.eps);
    }
}

void ls_k_adam(const ls_adam_args *a, ls_real *p, const ls_real *g, ls_real *m, ls_real *v,
               int64_t n)
{
    job j = {a, p, m, v, g, n};
    ls_parallel(ls_block_count(n, ELEMENTS), adam_block, &j);
}

LS_CLONES static void sgd_block(void *context, int64_t index)
{
    const job        *j = context;
    const ls_sgd_args a = *(const ls_sgd_args *)j->args;
    ls_block          b = ls_block_at(j->n, ELEMENTS, index);

    for (int64_t i = b.first; i < b.end; i++) {
        ls_real d = j->g[i] * a.scale + a.l2 * j->p[i];
        if (j->m) {
            j->m[i] = a.first ? d : j->m[i] * a.momentum + d;
            d       = j->m[i];
        }
        j->p[i] -= a.lr * d;
    }
}

void ls_k_sgd(const ls_sgd_args *a, ls_real *p, const ls_real *g, ls_real *buf, int64_t n)
{
    job j = {.args = a, .p = p, .m = buf, .g = g, .n = n};
    ls_parallel(ls_block_count(n, ELEMENTS), sgd_block, &j);
}

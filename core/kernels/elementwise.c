/*
 * elementwise.c - blocks of GRAIN elements over the pool; every loop body is one formula.
 */
#include "core/kernels/elementwise.h"

#include "core/kernels/bf16.h"
#include "core/kernels/clones.h"
#include "core/kernels/real_math.h"
#include "core/thread.h"

enum { GRAIN = 16384 };

#define SQRT_HALF ((ls_real)0.70710678118654752440)      /* 1 / sqrt(2) */
#define INV_SQRT_2PI ((ls_real)0.39894228040143267794)   /* 1 / sqrt(2 pi) */
#define SQRT_2_OVER_PI ((ls_real)0.79788456080286535588) /* sqrt(2 / pi) */
#define GELU_CUBIC ((ls_real)0.044715)
#define HALF ((ls_real)0.5)
#define REACH ((ls_real)10) /* beyond it tanh u is 1 */

/* What a task sees: a pass over n elements, or over rows of n. */
typedef struct {
    ls_real       *y;
    const ls_real *a, *b, *c;
    int64_t        n, rows;
    ls_real        value;
    ls_activation  f;
    bool           add;

    uint16_t       *y16; /* in place of y, a, b where these are BF16 */
    const uint16_t *a16, *b16;
} job;

static void each_block(job *j, ls_task task)
{
    ls_parallel(ls_block_count(j->n, GRAIN), task, j);
}

static int64_t row_grain(const job *j)
{
    return j->n < GRAIN ? GRAIN / (j->n ? j->n : 1) : 1;
}

static void each_row_block(job *j, ls_task task)
{
    ls_parallel(ls_block_count(j->rows, row_grain(j)), task, j);
}

LS_INLINE void put(const job *j, int64_t i, ls_real value)
{
    j->y[i] = j->add ? j->y[i] + value : value;
}

LS_CLONES static void add_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->n, GRAIN, index);

    for (int64_t i = range.first; i < range.end; i++)
        j->y[i] = j->a[i] + j->b[i];
}

void ls_k_add(ls_real *y, const ls_real *a, const ls_real *b, int64_t n)
{
    each_block(&(job){.y = y, .a = a, .b = b, .n = n}, add_task);
}

void ls_k_add_to(ls_real *y, const ls_real *x, int64_t n)
{
    ls_k_add(y, y, x, n);
}

LS_CLONES static void mul_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->n, GRAIN, index);

    for (int64_t i = range.first; i < range.end; i++)
        put(j, i, j->a[i] * j->b[i]);
}

void ls_k_mul(ls_real *y, const ls_real *a, const ls_real *b, int64_t n, bool add)
{
    each_block(&(job){.y = y, .a = a, .b = b, .n = n, .add = add}, mul_task);
}

LS_CLONES static void scale_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->n, GRAIN, index);

    for (int64_t i = range.first; i < range.end; i++)
        put(j, i, j->a[i] * j->value);
}

void ls_k_scale(ls_real *y, const ls_real *x, ls_real factor, int64_t n, bool add)
{
    each_block(&(job){.y = y, .a = x, .value = factor, .n = n, .add = add}, scale_task);
}

LS_CLONES static void fill_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->n, GRAIN, index);

    for (int64_t i = range.first; i < range.end; i++)
        put(j, i, j->value);
}

void ls_k_fill(ls_real *y, ls_real value, int64_t n, bool add)
{
    each_block(&(job){.y = y, .value = value, .n = n, .add = add}, fill_task);
}

LS_CLONES static void add_rows_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->rows, row_grain(j), index);

    for (int64_t r = range.first; r < range.end; r++)
        for (int64_t i = 0; i < j->n; i++)
            j->y[r * j->n + i] = j->a[r * j->n + i] + j->b[i];
}

void ls_k_add_rows(ls_real *y, const ls_real *a, const ls_real *b, int64_t rows, int64_t n)
{
    each_row_block(&(job){.y = y, .a = a, .b = b, .rows = rows, .n = n}, add_rows_task);
}

LS_CLONES static void mul_rows_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->rows, row_grain(j), index);

    for (int64_t r = range.first; r < range.end; r++)
        for (int64_t i = 0; i < j->n; i++)
            put(j, r * j->n + i, j->a[r * j->n + i] * j->b[i]);
}

void ls_k_mul_rows(ls_real *y, const ls_real *a, const ls_real *b, int64_t rows, int64_t n,
                   bool add)
{
    if (n == 1)
        ls_k_scale(y, a, b[0], rows, add);
    else
        each_row_block(&(job){.y = y, .a = a, .b = b, .rows = rows, .n = n, .add = add},
                       mul_rows_task);
}

LS_INLINE ls_real sigmoid(ls_real x)
{
    return 1 / (1 + ls_exp(-x));
}

/* The comparisons let a NaN through. */
LS_INLINE ls_real relu(ls_real x)
{
    return x <= 0 ? 0 : x;
}

LS_INLINE ls_real relu_slope(ls_real x)
{
    return x <= 0 ? (ls_real)0 : (ls_real)1;
}

/* x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2 */
LS_INLINE ls_real gelu(ls_real x)
{
    return HALF * x * (1 + ls_erf(x * SQRT_HALF));
}

/* Phi(x) + x phi(x), phi(x) = exp(-x^2 / 2) / sqrt(2 pi) */
LS_INLINE ls_real gelu_slope(ls_real x)
{
    return HALF * (1 + ls_erf(x * SQRT_HALF)) + x * INV_SQRT_2PI * ls_exp(-HALF * x * x);
}

/* (1 + tanh u) / 2 is the sigmoid of 2 u, u = sqrt(2 / pi) (x + 0.044715 x^3) */
LS_INLINE ls_real half_tanh(ls_real x)
{
    return sigmoid(2 * SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
}

LS_INLINE ls_real gelu_tanh(ls_real x)
{
    return x * half_tanh(x);
}

/* s + x s (1 - s) 2 u'; beyond 10 the second part is nothing, and x is held there for x^2 */
LS_INLINE ls_real gelu_tanh_slope(ls_real x)
{
    ls_real near = x > REACH ? REACH : x < -REACH ? -REACH : x;
    ls_real s    = half_tanh(near);
    ls_real du   = SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * near * near);
    return s + 2 * near * s * (1 - s) * du;
}

LS_INLINE ls_real tanh_of(ls_real x)
{
    return ls_tanh_of(x);
}

LS_INLINE ls_real silu(ls_real x)
{
    return x * sigmoid(x);
}

/* s + x s (1 - s) */
LS_INLINE ls_real silu_slope(ls_real x)
{
    ls_real s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

LS_INLINE ls_real tanh_slope(ls_real x)
{
    ls_real t = ls_tanh_of(x);
    return 1 - t * t;
}

/* Called with constant f and half, so that each use becomes a loop of its own. */
LS_INLINE void map(const job *j, int64_t index, ls_real (*f)(ls_real), bool half)
{
    ls_block range = ls_block_at(j->n, GRAIN, index);

    if (half)
        for (int64_t i = range.first; i < range.end; i++)
            j->y16[i] = ls_bf16_round((float)f(ls_bf16_widen(j->a16[i])));
    else
        for (int64_t i = range.first; i < range.end; i++)
            j->y[i] = f(j->a[i]);
}

LS_INLINE ls_real first_of(const job *j, int64_t i, bool half)
{
    return half ? (ls_real)ls_bf16_widen(j->a16[i]) : j->a[i];
}

LS_INLINE ls_real second_of(const job *j, int64_t i, bool half)
{
    return half ? (ls_real)ls_bf16_widen(j->b16[i]) : j->b[i];
}

LS_INLINE void chain(const job *j, int64_t index, ls_real (*slope)(ls_real), bool half)
{
    ls_block range = ls_block_at(j->n, GRAIN, index);

    if (j->add) /* two loops, as a loop with a choice inside is too large to be split */
        for (int64_t i = range.first; i < range.end; i++)
            j->y[i] += j->c[i] * slope(first_of(j, i, half));
    else
        for (int64_t i = range.first; i < range.end; i++)
            j->y[i] = j->c[i] * slope(first_of(j, i, half));
}

LS_INLINE void apply(const job *j, int64_t index, bool half)
{
    switch (j->f) {
    case LS_ACT_RELU:
        map(j, index, relu, half);
        break;
    case LS_ACT_GELU:
        map(j, index, gelu, half);
        break;
    case LS_ACT_GELU_TANH:
        map(j, index, gelu_tanh, half);
        break;
    case LS_ACT_SILU:
        map(j, index, silu, half);
        break;
    case LS_ACT_TANH:
        map(j, index, tanh_of, half);
        break;
    }
}

LS_INLINE void apply_slope(const job *j, int64_t index, bool half)
{
    switch (j->f) {
    case LS_ACT_RELU:
        chain(j, index, relu_slope, half);
        break;
    case LS_ACT_GELU:
        chain(j, index, gelu_slope, half);
        break;
    case LS_ACT_GELU_TANH:
        chain(j, index, gelu_tanh_slope, half);
        break;
    case LS_ACT_SILU:
        chain(j, index, silu_slope, half);
        break;
    case LS_ACT_TANH:
        chain(j, index, tanh_slope, half);
        break;
    }
}

LS_CLONES static void activation_task(void *context, int64_t index)
{
    const job *j = context;

    if (j->a16)
        apply(j, index, true);
    else
        apply(j, index, false);
}

LS_CLONES static void slope_task(void *context, int64_t index)
{
    const job *j = context;

    if (j->a16)
        apply_slope(j, index, true);
    else
        apply_slope(j, index, false);
}

void ls_k_activation(ls_activation f, ls_real *y, const ls_real *x, int64_t n)
{
    each_block(&(job){.y = y, .a = x, .n = n, .f = f}, activation_task);
}

void ls_k_activation_bf16(ls_activation f, uint16_t *y, const uint16_t *x, int64_t n)
{
    each_block(&(job){.y16 = y, .a16 = x, .n = n, .f = f}, activation_task);
}

void ls_k_activation_backward(ls_activation f, ls_real *dx, const ls_real *dy, const ls_real *x,
                              int64_t n, bool add)
{
    each_block(&(job){.y = dx, .a = x, .c = dy, .n = n, .f = f, .add = add}, slope_task);
}

void ls_k_activation_backward_bf16(ls_activation f, ls_real *dx, const ls_real *dy,
                                   const uint16_t *x, int64_t n, bool add)
{
    each_block(&(job){.y = dx, .a16 = x, .c = dy, .n = n, .f = f, .add = add}, slope_task);
}

/* y = (or +=) silu(a) times b, or times c where b is not there: forward, and d/d up */
LS_INLINE void gated(const job *j, int64_t index, bool half, bool from_c)
{
    ls_block range = ls_block_at(j->n, GRAIN, index);

    if (half && !from_c)
        for (int64_t i = range.first; i < range.end; i++)
            j->y16[i] =
                ls_bf16_round((float)(silu(first_of(j, i, true)) * second_of(j, i, true)));
    else if (j->add)
        for (int64_t i = range.first; i < range.end; i++)
            j->y[i] += silu(first_of(j, i, half)) * (from_c ? j->c[i] : j->b[i]);
    else
        for (int64_t i = range.first; i < range.end; i++)
            j->y[i] = silu(first_of(j, i, half)) * (from_c ? j->c[i] : j->b[i]);
}

LS_CLONES static void swiglu_task(void *context, int64_t index)
{
    const job *j = context;

    if (j->a16)
        gated(j, index, true, false);
    else
        gated(j, index, false, false);
}

void ls_k_swiglu(ls_real *y, const ls_real *gate, const ls_real *up, int64_t n)
{
    each_block(&(job){.y = y, .a = gate, .b = up, .n = n}, swiglu_task);
}

void ls_k_swiglu_bf16(uint16_t *y, const uint16_t *gate, const uint16_t *up, int64_t n)
{
    each_block(&(job){.y16 = y, .a16 = gate, .b16 = up, .n = n}, swiglu_task);
}

/* d/d up is silu(gate): the product that swiglu itself forms, with dy in up's place. */
LS_CLONES static void dup_task(void *context, int64_t index)
{
    const job *j = context;

    if (j->a16)
        gated(j, index, true, true);
    else
        gated(j, index, false, true);
}

void ls_k_swiglu_dup(ls_real *dup, const ls_real *dy, const ls_real *gate, int64_t n, bool add)
{
    if (dup)
        each_block(&(job){.y = dup, .a = gate, .c = dy, .n = n, .add = add}, dup_task);
}

void ls_k_swiglu_dup_bf16(ls_real *dup, const ls_real *dy, const uint16_t *gate, int64_t n,
                          bool add)
{
    if (dup)
        each_block(&(job){.y = dup, .a16 = gate, .c = dy, .n = n, .add = add}, dup_task);
}

LS_INLINE void dgate(const job *j, int64_t index, bool half)
{
    ls_block range = ls_block_at(j->n, GRAIN, index);

    if (j->add)
        for (int64_t i = range.first; i < range.end; i++)
            j->y[i] += j->c[i] * second_of(j, i, half) * silu_slope(first_of(j, i, half));
    else
        for (int64_t i = range.first; i < range.end; i++)
            j->y[i] = j->c[i] * second_of(j, i, half) * silu_slope(first_of(j, i, half));
}

LS_CLONES static void dgate_task(void *context, int64_t index)
{
    const job *j = context;

    if (j->a16)
        dgate(j, index, true);
    else
        dgate(j, index, false);
}

void ls_k_swiglu_dgate(ls_real *dgate, const ls_real *dy, const ls_real *gate,
                       const ls_real *up, int64_t n, bool add)
{
    if (dgate)
        each_block(&(job){.y = dgate, .a = gate, .b = up, .c = dy, .n = n, .add = add},
                   dgate_task);
}

void ls_k_swiglu_dgate_bf16(ls_real *dgate, const ls_real *dy, const uint16_t *gate,
                            const uint16_t *up, int64_t n, bool add)
{
    if (dgate)
        each_block(&(job){.y = dgate, .a16 = gate, .b16 = up, .c = dy, .n = n, .add = add},
                   dgate_task);
}

/*
 * combine.c - arrays joined in the canonical order, block by block.
 *
 *     1, 2, 4 or 8 inputs --- take ---> block --+-- finish ---> block --- spread ---> outputs
 *     the next ones ------- take ---> block -- join
 *
 * Blocks of 2 KiB on the stack, one for each level of the tree at most, so all that is between
 * inputs and outputs stays in the first-level cache.  The sums that training spends its time in
 * (F32, 2, 4 or 8 ranks) have no block: each register goes straight to all outputs.
 *
 * All inputs of a block (or register) are read before its outputs are written, so an output may
 * be an input.  The compiler cannot see that this is harmless and would take a slow path; so
 * outputs are written as explicit vectors, and loops that it vectorises write to blocks alone.
 */
#include "core/kernels/combine.h"

#include <assert.h>
#include <string.h>

#include "core/kernels/bf16.h"

enum {
    MOST_LEAVES  = 8, /* in registers at once */
    MOST_OUTPUTS = 8, /* of one register */
    BLOCK_BYTES  = 2048,
    VECTOR_BYTES = 64,
    QUIET_NAN    = 0x7fc00000, /* of min and max */
};

/* Elements at any address. */
typedef float __attribute__((aligned(1), may_alias)) any_f32;
typedef uint16_t __attribute__((aligned(1), may_alias)) any_bf16;
typedef int32_t __attribute__((aligned(1), may_alias)) any_i32;
typedef int64_t __attribute__((aligned(1), may_alias)) any_i64;
typedef uint8_t any_u8;
typedef float __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias)) any_vector;

enum { VECTOR_FLOATS = VECTOR_BYTES / sizeof(float) };

/* Effective types do not matter: what was written is read as the same type. */
typedef union {
    _Alignas(VECTOR_BYTES) char bytes[BLOCK_BYTES];
    float    f32[BLOCK_BYTES / sizeof(float)];
    uint16_t bf16[BLOCK_BYTES / sizeof(uint16_t)];
} block;

LS_INLINE uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

LS_INLINE float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

LS_INLINE bool is_nan(float x)
{
    return (bits_of(x) & 0x7fffffffu) > 0x7f800000u;
}

/* Integers in the order of the floats (NaNs aside), -0 below +0. */
LS_INLINE int32_t order_of(float x)
{
    int32_t bits = (int32_t)bits_of(x);
    return bits ^ (bits < 0 ? INT32_MAX : 0);
}

LS_INLINE float quiet(float x)
{
    return float_of(is_nan(x) ? QUIET_NAN : bits_of(x));
}

LS_INLINE float min_f32(float a, float b)
{
    uint32_t smaller = order_of(a) < order_of(b) ? bits_of(a) : bits_of(b);
    return float_of(is_nan(a) | is_nan(b) ? QUIET_NAN : smaller);
}

LS_INLINE float max_f32(float a, float b)
{
    uint32_t larger = order_of(a) > order_of(b) ? bits_of(a) : bits_of(b);
    return float_of(is_nan(a) | is_nan(b) ? QUIET_NAN : larger);
}

/* a is the left child, b the right one; AVG is a sum until it is finished. */
LS_INLINE float apply_f32(ls_reduce_op op, float a, float b)
{
    return op == LS_MIN    ? min_f32(a, b)
           : op == LS_MAX  ? max_f32(a, b)
           : op == LS_PROD ? a * b
                           : a + b;
}

LS_INLINE int32_t apply_i32(ls_reduce_op op, int32_t a, int32_t b)
{
    uint32_t x = (uint32_t)a, y = (uint32_t)b; /* wrap around */
    return op == LS_MIN    ? (a < b ? a : b)
           : op == LS_MAX  ? (a > b ? a : b)
           : op == LS_PROD ? (int32_t)(x * y)
                           : (int32_t)(x + y);
}

LS_INLINE int64_t apply_i64(ls_reduce_op op, int64_t a, int64_t b)
{
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    return op == LS_MIN    ? (a < b ? a : b)
           : op == LS_MAX  ? (a > b ? a : b)
           : op == LS_PROD ? (int64_t)(x * y)
                           : (int64_t)(x + y);
}

LS_INLINE uint8_t apply_u8(ls_reduce_op op, uint8_t a, uint8_t b)
{
    return op == LS_MIN    ? (a < b ? a : b)
           : op == LS_MAX  ? (a > b ? a : b)
           : op == LS_PROD ? (uint8_t)(a * b)
                           : (uint8_t)(a + b);
}

/* Sums go from registers to registers; others have larger formulas, joined in blocks. */
static int leaves_at_once(ls_reduce_op op)
{
    return op == LS_SUM || op == LS_AVG ? MOST_LEAVES : 2;
}

#define SAME(x) (x)

#define NAME(x) f32_##x
#define ELEM any_f32
#define VALUE float
#define LOAD SAME
#define APPLY apply_f32
#include "core/kernels/combine_loops_impl.h"

#define NAME(x) bf16_##x
#define ELEM any_bf16
#define VALUE float
#define LOAD ls_bf16_widen
#define APPLY apply_f32
#include "core/kernels/combine_loops_impl.h"

#define NAME(x) i32_##x
#define ELEM any_i32
#define VALUE int32_t
#define LOAD SAME
#define APPLY apply_i32
#include "core/kernels/combine_loops_impl.h"

#define NAME(x) i64_##x
#define ELEM any_i64
#define VALUE int64_t
#define LOAD SAME
#define APPLY apply_i64
#include "core/kernels/combine_loops_impl.h"

#define NAME(x) u8_##x
#define ELEM any_u8
#define VALUE uint8_t
#define LOAD SAME
#define APPLY apply_u8
#include "core/kernels/combine_loops_impl.h"

typedef struct {
    size_t value_bytes; /* of an element in a block */
    void (*take)(ls_reduce_op op, void *y, const void *const *in, int n, int64_t first,
                 int64_t count);
    void (*join)(ls_reduce_op op, void *y, const void *right, int64_t count);
} loops;

static const loops loops_of[LS_DTYPE_COUNT] = {
    [LS_F32]  = {sizeof(float), f32_take, f32_join},
    [LS_BF16] = {sizeof(float), bf16_take, bf16_join},
    [LS_I32]  = {sizeof(int32_t), i32_take, i32_join},
    [LS_I64]  = {sizeof(int64_t), i64_take, i64_join},
    [LS_U8]   = {sizeof(uint8_t), u8_take, u8_join},
};

static int largest_power_below(int n)
{
    int power = 1;
    while (power < n - power)
        power *= 2;
    return power;
}

static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* y = elements first .. of inputs leaf .. leaf + n - 1, joined. */
static void form_tree(const ls_combine *c, int leaf, int n, int64_t first, int64_t count,
                      void *y)
{
    const loops *l = &loops_of[c->from];
    block        right;

    if (n <= leaves_at_once(c->op) && is_power_of_two(n)) {
        l->take(c->op, y, c->in + leaf, n, first, count);
        return;
    }
    int left = largest_power_below(n);
    form_tree(c, leaf, left, first, count, y);
    form_tree(c, leaf + left, n - left, first, count, &right);
    l->join(c->op, y, &right, count);
}

LS_CLONES static void divide(float *y, int64_t count, float divisor)
{
    for (int64_t i = 0; i < count; i++)
        y[i] /= divisor;
}

LS_CLONES static void quiet_all(float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = quiet(y[i]);
}

LS_CLONES static void narrow_all(uint16_t *restrict y, const float *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = ls_bf16_round(x[i]);
}

static bool is_float(ls_dtype dtype)
{
    return dtype == LS_F32 || dtype == LS_BF16;
}

/* What comes after the last join: division, rounding.  Returns the block with the result. */
static block *finish(const ls_combine *c, int64_t count, block *sum, block *rounded)
{
    if (!is_float(c->from))
        return sum;
    if (c->op == LS_AVG)
        divide(sum->f32, count, (float)(c->divisor ? c->divisor : c->n_in));
    if (c->n_in == 1 && (c->op == LS_MIN || c->op == LS_MAX))
        quiet_all(sum->f32, count);
    if (c->to != LS_BF16)
        return sum;
    narrow_all(rounded->bf16, sum->f32, count);
    return rounded;
}

/* Writes a block to all outputs, from byte `at` of each on. */
LS_CLONES static void spread(const ls_combine *c, const block *y, size_t at, size_t bytes)
{
    size_t body = bytes / VECTOR_BYTES * VECTOR_BYTES;

    for (size_t i = 0; i < body; i += VECTOR_BYTES)
        for (int k = 0; k < c->n_out; k++)
            *(any_vector *)((char *)c->out[k] + at + i) = *(const any_vector *)(y->bytes + i);
    for (int k = 0; k < c->n_out; k++)
        memcpy((char *)c->out[k] + at + body, y->bytes + body, bytes - body);
}

static void combine_blocks(const ls_combine *c)
{
    size_t  out_bytes = ls_dtype_bytes(c->to);
    int64_t most      = BLOCK_BYTES / (int64_t)loops_of[c->from].value_bytes;
    block   sum, rounded;

    for (int64_t first = 0; first < c->count; first += most) {
        int64_t count = c->count - first < most ? c->count - first : most;
        form_tree(c, 0, c->n_in, first, count, &sum);
        spread(c, finish(c, count, &sum, &rounded), (size_t)first * out_bytes,
               (size_t)count * out_bytes);
    }
}

/* Sums of F32 without a block; called with constant n_in and often constant n_out. */
LS_INLINE void sum_through(const ls_combine *c, int n_in, int n_out)
{
    const any_f32 *in[MOST_LEAVES] = {c->in[0], c->in[1]};
    any_f32       *out[MOST_OUTPUTS];
    int64_t        i = 0;

    for (int k = 2; k < n_in; k++)
        in[k] = c->in[k];
    for (int k = 0; k < n_out; k++)
        out[k] = c->out[k];
#define AT(k) (*(const any_vector *)(in[k] + i))
    for (; i + VECTOR_FLOATS <= c->count; i += VECTOR_FLOATS) {
        any_vector sum = AT(0) + AT(1);
        if (n_in >= 4)
            sum = sum + (AT(2) + AT(3));
        if (n_in == 8)
            sum = sum + ((AT(4) + AT(5)) + (AT(6) + AT(7)));
        for (int k = 0; k < n_out; k++)
            *(any_vector *)(out[k] + i) = sum;
    }
#undef AT
    for (; i < c->count; i++) {
        float sum = n_in == 2   ? f32_tree_2(LS_SUM, in, i)
                    : n_in == 4 ? f32_tree_4(LS_SUM, in, i)
                                : f32_tree_8(LS_SUM, in, i);
        for (int k = 0; k < n_out; k++)
            out[k][i] = sum;
    }
}

LS_CLONES static void sum_2(const ls_combine *c)
{
    if (c->n_out == 2)
        sum_through(c, 2, 2);
    else
        sum_through(c, 2, c->n_out);
}

LS_CLONES static void sum_4(const ls_combine *c)
{
    if (c->n_out == 4)
        sum_through(c, 4, 4);
    else
        sum_through(c, 4, c->n_out);
}

LS_CLONES static void sum_8(const ls_combine *c)
{
    if (c->n_out == 8)
        sum_through(c, 8, 8);
    else
        sum_through(c, 8, c->n_out);
}

void ls_k_combine(const ls_combine *c)
{
    bool sum =
        c->op == LS_SUM && c->from == LS_F32 && c->to == LS_F32 && c->n_out <= MOST_OUTPUTS;

    assert(loops_of[c->from].take && (is_float(c->from) ? is_float(c->to) : c->to == c->from));
    assert(c->op != LS_AVG || is_float(c->from));
    if (sum && c->n_in == 2)
        sum_2(c);
    else if (sum && c->n_in == 4)
        sum_4(c);
    else if (sum && c->n_in == 8)
        sum_8(c);
    else
        combine_blocks(c);
}

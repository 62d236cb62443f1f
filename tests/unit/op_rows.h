/*
 * op_rows.h - the table behind test_ops.c: at least one row for every operator.
 *
 * A row says how to call its operator, on which inputs, and how far float may lie from double.
 * A dimension (or limit) -k stands for k times a swept size, which runs through tails and the
 * borders of tiles and blocks: 1, 3, 7, 17, 33, 65, 129, 257.  Rows without a swept size are
 * also compared with central differences, so they are small, unless they are marked wide.
 *
 * Bounds are in units of 2^-24 (half an ulp of 1) times the largest element of the array that
 * is compared: output, gradients, gradients added to others.
 */
#ifndef LS_TESTS_OP_ROWS_H
#define LS_TESTS_OP_ROWS_H

#include "autograd/ops.h"

enum { ROW_INPUTS = 4, IGNORE = -100 };

typedef enum {
    NOTHING,
    REALS,   /* in [-2, 2) */
    AWAY,    /* the same without (-1/4, 1/4): no kink within reach of a difference */
    WEIGHTS, /* in [1/2, 3/2) */
    IDS,     /* I32 in 0 .. limit - 1 */
    TARGETS, /* the same, every fifth ignored */
    IGNORED  /* I32, all ignored */
} op_fill;

typedef struct {
    op_fill  fill;
    ls_shape shape;
    int      limit;
} op_input;

typedef ls_tensor *(*op_build)(ls_tape *tape, ls_tensor *const *in);

typedef struct {
    const ls_op *op;
    const char  *what;
    op_build     build;
    double       bound;
    op_input     in[ROW_INPUTS];
    bool         wide;
} op_row;

/* Calls that must fail: the message names the operator and holds text. */
typedef struct {
    const ls_op *op;
    op_build     build;
    op_input     in[ROW_INPUTS];
    ls_status    status;
    const char  *text;
} op_wrong;

/* clang-format off */
#define R0                   {REALS, {0, {0}}, 0}
#define R1(a)                {REALS, {1, {a}}, 0}
#define R2(a, b)             {REALS, {2, {a, b}}, 0}
#define R3(a, b, c)          {REALS, {3, {a, b, c}}, 0}
#define R4(a, b, c, d)       {REALS, {4, {a, b, c, d}}, 0}
#define AWAY2(a, b)          {AWAY, {2, {a, b}}, 0}
#define W1(a)                {WEIGHTS, {1, {a}}, 0}
#define ID1(n, limit)        {IDS, {1, {n}}, limit}
#define ID2(m, n, limit)     {IDS, {2, {m, n}}, limit}
#define TARGET1(n, limit)    {TARGETS, {1, {n}}, limit}
#define TARGET2(m, n, limit) {TARGETS, {2, {m, n}}, limit}
/* clang-format on */

#define BUILD(name, expression)                                 \
    static ls_tensor *name(ls_tape *tape, ls_tensor *const *in) \
    {                                                           \
        return (expression);                                    \
    }

static ls_tensor *swap_dims(ls_tape *tape, ls_tensor *x)
{
    return ls_transpose(tape, x, -1, -2);
}

BUILD(contiguous, ls_contiguous(tape, swap_dims(tape, in[0])))
BUILD(cast, ls_cast(tape, in[0], LS_BF16))
BUILD(cast_to_bytes, ls_cast(tape, in[0], LS_U8))
BUILD(matmul, ls_matmul(tape, in[0], in[1], false, false))
BUILD(matmul_ta, ls_matmul(tape, in[0], in[1], true, false))
BUILD(matmul_tb, ls_matmul(tape, in[0], in[1], false, true))
BUILD(matmul_tatb, ls_matmul(tape, in[0], in[1], true, true))
BUILD(matmul_self, ls_matmul(tape, in[0], in[0], false, true))
BUILD(matmul_strided, ls_matmul(tape, swap_dims(tape, in[0]), in[1], false, false))
BUILD(linear, ls_linear(tape, in[0], in[1], in[2]))
BUILD(linear_plain, ls_linear(tape, in[0], in[1], NULL))
BUILD(add, ls_add(tape, in[0], in[1]))
BUILD(add_self, ls_add(tape, in[0], in[0]))
BUILD(add_strided, ls_add(tape, swap_dims(tape, in[0]), in[1]))
BUILD(mul, ls_mul(tape, in[0], in[1]))
BUILD(mul_self, ls_mul(tape, in[0], in[0]))
BUILD(scale, ls_scale(tape, in[0], -0.75))
BUILD(sum, ls_sum(tape, in[0]))
BUILD(mean, ls_mean(tape, in[0]))
BUILD(reshape, ls_reshape(tape, in[0], LS_SHAPE3(2, -1, 3)))
BUILD(reshape_flat, ls_reshape(tape, in[0], LS_SHAPE1(-1)))
BUILD(reshape_strided, ls_reshape(tape, swap_dims(tape, in[0]), LS_SHAPE1(-1)))
BUILD(permute3, ls_permute(tape, in[0], (const int[]){2, 0, 1}))
BUILD(permute4, ls_permute(tape, in[0], (const int[]){0, 2, 1, 3}))
BUILD(transpose, ls_transpose(tape, in[0], 0, -1))
BUILD(slice_first, ls_slice(tape, in[0], 0, 1, 2))
BUILD(slice_middle, ls_slice(tape, in[0], 1, 1, 2))
BUILD(slice_last, ls_slice(tape, in[0], -1, 2, 1))
BUILD(concat_first, ls_concat(tape, in, 2, 0))
BUILD(concat_last, ls_concat(tape, in, 3, -1))
BUILD(concat_one, ls_concat(tape, in, 1, 1))
BUILD(concat_self, ls_concat(tape, (ls_tensor *[]){in[0], in[1], in[0]}, 3, 1))
BUILD(embedding, ls_embedding(tape, in[0], in[1]))
BUILD(softmax, ls_softmax(tape, in[0]))
BUILD(softmax_strided, ls_softmax(tape, swap_dims(tape, in[0])))
BUILD(log_softmax, ls_log_softmax(tape, in[0]))
BUILD(cross_entropy, ls_cross_entropy(tape, in[0], in[1], IGNORE))
BUILD(head, ls_head_cross_entropy(tape, in[0], in[1], in[2], IGNORE))
BUILD(layernorm, ls_layernorm(tape, in[0], in[1], in[2], 1e-5))
BUILD(layernorm_plain, ls_layernorm(tape, in[0], in[1], NULL, 1e-5))
BUILD(rmsnorm, ls_rmsnorm(tape, in[0], in[1], 1e-5))
BUILD(relu, ls_relu(tape, in[0]))
BUILD(gelu, ls_gelu(tape, in[0]))
BUILD(gelu_tanh, ls_gelu_tanh(tape, in[0]))
BUILD(silu, ls_silu(tape, in[0]))
BUILD(tanh_, ls_tanh(tape, in[0]))
BUILD(swiglu, ls_swiglu(tape, in[0], in[1]))
BUILD(swiglu_self, ls_swiglu(tape, in[0], in[0]))
BUILD(dropout, ls_dropout(tape, in[0], 0.25))
BUILD(dropout_all, ls_dropout(tape, in[0], 1))
BUILD(residual, ls_residual(tape, in[0], in[1], 0.25))
BUILD(residual_all, ls_residual(tape, in[0], in[1], 1))
BUILD(heads2, ls_attention(tape, in[0], &(ls_heads){.n_head = 2}))
BUILD(heads4_1, ls_attention(tape, in[0], &(ls_heads){.n_head = 4, .n_kv_head = 1}))
BUILD(heads4_2, ls_attention(tape, in[0], &(ls_heads){.n_head = 4, .n_kv_head = 2}))
BUILD(heads4_3, ls_attention(tape, in[0], &(ls_heads){.n_head = 4, .n_kv_head = 3}))
BUILD(heads_dropout,
      ls_attention(tape, in[0], &(ls_heads){.n_head = 2, .n_kv_head = 1, .dropout = 0.25}))
BUILD(heads_dropout_all, ls_attention(tape, in[0], &(ls_heads){.n_head = 2, .dropout = 1}))
BUILD(rope, ls_rope(tape, in[0], &(ls_heads){.n_head = 2}))
BUILD(rope_grouped,
      ls_rope(tape, in[0], &(ls_heads){.n_head = 4, .n_kv_head = 2, .rope_base = 100}))

static ls_status reached(void *context)
{
    (void)context;
    return LS_OK;
}
static const ls_boundary_hook hook = {reached, NULL};
BUILD(boundary, ls_boundary(tape, ls_scale(tape, in[0], 0.5), &hook))
BUILD(boundary_null, ls_boundary(tape, in[0], NULL))

/* The rows' own arrays of inputs live as long as the tape. */
static ls_tensor *feed_forward(void *context, ls_tape *tape, ls_tensor *x)
{
    ls_tensor *const *in = context;
    ls_tensor *y = ls_dropout(tape, ls_gelu(tape, ls_linear(tape, x, in[1], in[2])), 0.25);
    return ls_add(tape, x, y);
}
static ls_tensor *feed_forward_twice(void *context, ls_tape *tape, ls_tensor *x)
{
    return feed_forward(context, tape, ls_recompute(tape, x, feed_forward, context));
}
BUILD(recompute, ls_recompute(tape, in[0], feed_forward, (void *)in))
BUILD(recompute_nested, ls_recompute(tape, in[0], feed_forward_twice, (void *)in))
BUILD(recompute_null, ls_recompute(tape, in[0], NULL, NULL))

/*
 * The bounds, about three times what was measured with OpenBLAS on x86-64 (test_ops_f32 FILE
 * show).
 */
/* Values are copied; only gradients that join others are rounded, once. */
#define MOVES 1
/* One or two rounded operations an element. */
#define ROUNDS 2
/* A product, its factor rounded too, and a sum. */
#define FUSED 6
/* Sums of up to some hundred terms: their errors and their largest element grow alike. */
#define SUMS 24
/* exp, tanh or erf within 2 ulp, products around it, differences of these in the derivative. */
#define CURVES 12
/* The division by a deviation magnifies what the sums have lost. */
#define NORMS 16
/* Several of the above in a row. */
#define CHAINS 40
/* Two layers: the second multiplies the errors of the first by its weights. */
#define LAYERS 128

static const op_row op_rows[] = {
    {&ls_op_contiguous, "of a transpose", contiguous, MOVES, {R2(3, 4)}, false},
    {&ls_op_contiguous, "sweep", contiguous, MOVES, {R3(3, -1, 33)}, false},
    {&ls_op_contiguous, "wide", contiguous, MOVES, {R2(131, 129)}, true},

    {&ls_op_matmul, "plain", matmul, SUMS, {R2(3, 4), R2(4, 5)}, false},
    {&ls_op_matmul, "a transposed", matmul_ta, SUMS, {R2(4, 3), R2(4, 5)}, false},
    {&ls_op_matmul, "b transposed", matmul_tb, SUMS, {R2(3, 4), R2(5, 4)}, false},
    {&ls_op_matmul, "both transposed", matmul_tatb, SUMS, {R2(4, 3), R2(5, 4)}, false},
    {&ls_op_matmul, "1 x 1", matmul, SUMS, {R2(1, 1), R2(1, 1)}, false},
    {&ls_op_matmul, "batch", matmul, SUMS, {R3(2, 3, 4), R3(2, 4, 2)}, false},
    {&ls_op_matmul, "batch, a transposed", matmul_ta, SUMS, {R3(2, 4, 3), R3(2, 4, 2)}, false},
    {&ls_op_matmul, "batch, b transposed", matmul_tb, SUMS, {R3(2, 3, 4), R3(2, 2, 4)}, false},
    {&ls_op_matmul, "batch, both", matmul_tatb, SUMS, {R3(2, 4, 3), R3(2, 2, 4)}, false},
    {&ls_op_matmul, "batch of two dims", matmul, SUMS, {R4(2, 2, 3, 2), R4(2, 2, 2, 3)}, false},
    {&ls_op_matmul, "one b for all", matmul, SUMS, {R3(3, 2, 4), R2(4, 2)}, false},
    {&ls_op_matmul, "one b, a transposed", matmul_ta, SUMS, {R3(3, 4, 2), R2(4, 2)}, false},
    {&ls_op_matmul, "one b, transposed", matmul_tb, SUMS, {R3(3, 2, 4), R2(2, 4)}, false},
    {&ls_op_matmul, "one b, both", matmul_tatb, SUMS, {R3(3, 4, 2), R2(2, 4)}, false},
    {&ls_op_matmul, "one a for all", matmul, SUMS, {R2(2, 4), R3(3, 4, 2)}, false},
    {&ls_op_matmul, "one a, transposed", matmul_ta, SUMS, {R2(4, 2), R3(3, 4, 2)}, false},
    {&ls_op_matmul, "one a, b transposed", matmul_tb, SUMS, {R2(2, 4), R3(3, 2, 4)}, false},
    {&ls_op_matmul, "one a, both", matmul_tatb, SUMS, {R2(4, 2), R3(3, 2, 4)}, false},
    {&ls_op_matmul, "x x^T", matmul_self, SUMS, {R2(3, 4)}, false},
    {&ls_op_matmul, "a strided", matmul_strided, SUMS, {R2(4, 3), R2(4, 5)}, false},
    {&ls_op_matmul, "sweep m", matmul, SUMS, {R2(-1, 33), R2(33, 17)}, false},
    {&ls_op_matmul, "sweep n", matmul_ta, SUMS, {R2(33, 7), R2(33, -1)}, false},
    {&ls_op_matmul, "sweep k", matmul_tb, SUMS, {R2(33, -1), R2(17, -1)}, false},
    {&ls_op_matmul, "sweep all", matmul_tatb, SUMS, {R2(-1, -1), R2(-1, -1)}, false},
    {&ls_op_matmul, "wide batch", matmul, SUMS, {R3(5, 33, 65), R3(5, 65, 129)}, true},
    {&ls_op_matmul, "wide, one b", matmul_tb, SUMS, {R3(5, 33, 65), R2(129, 65)}, true},
    {&ls_op_matmul, "wide, one a", matmul_ta, SUMS, {R2(65, 33), R3(5, 65, 129)}, true},
    {&ls_op_matmul, "several tiles", matmul, SUMS, {R2(513, 65), R2(65, 1030)}, true},

    {&ls_op_linear, "bias", linear, SUMS, {R2(3, 4), R2(5, 4), R1(5)}, false},
    {&ls_op_linear, "no bias", linear_plain, SUMS, {R2(3, 4), R2(5, 4)}, false},
    {&ls_op_linear, "x of three dims", linear, SUMS, {R3(2, 2, 3), R2(4, 3), R1(4)}, false},
    {&ls_op_linear, "x of one dim", linear, SUMS, {R1(3), R2(4, 3), R1(4)}, false},
    {&ls_op_linear, "sweep rows", linear, SUMS, {R2(-1, 17), R2(33, 17), R1(33)}, false},
    {&ls_op_linear, "sweep in", linear, SUMS, {R2(17, -1), R2(33, -1), R1(33)}, false},
    {&ls_op_linear, "sweep out", linear, SUMS, {R2(17, 33), R2(-1, 33), R1(-1)}, false},
    {&ls_op_linear, "wide", linear, SUMS, {R3(3, 129, 65), R2(257, 65), R1(257)}, true},

    {&ls_op_add, "same shape", add, ROUNDS, {R2(3, 4), R2(3, 4)}, false},
    {&ls_op_add, "rows", add, SUMS, {R3(2, 3, 4), R1(4)}, false},
    {&ls_op_add, "blocks", add, SUMS, {R3(2, 3, 4), R2(3, 4)}, false},
    {&ls_op_add, "scalar", add, SUMS, {R2(3, 4), R0}, false},
    {&ls_op_add, "x + x", add_self, ROUNDS, {R2(3, 4)}, false},
    {&ls_op_add, "strided", add_strided, ROUNDS, {R2(3, 4), R2(4, 3)}, false},
    {&ls_op_add, "sweep", add, ROUNDS, {R2(5, -1), R2(5, -1)}, false},
    {&ls_op_add, "sweep row length", add, SUMS, {R2(33, -1), R1(-1)}, false},
    {&ls_op_add, "sweep rows", add, SUMS, {R2(-1, 33), R1(33)}, false},
    {&ls_op_add, "wide", add, ROUNDS, {R2(131, 129), R2(131, 129)}, true},
    {&ls_op_add, "wide rows", add, SUMS, {R2(1030, 65), R1(65)}, true},
    {&ls_op_add, "wide scalar", add, SUMS, {R2(131, 129), R0}, true},

    {&ls_op_mul, "same shape", mul, ROUNDS, {R2(3, 4), R2(3, 4)}, false},
    {&ls_op_mul, "rows", mul, SUMS, {R3(2, 3, 4), R1(4)}, false},
    {&ls_op_mul, "blocks", mul, SUMS, {R3(2, 3, 4), R2(3, 4)}, false},
    {&ls_op_mul, "scalar", mul, SUMS, {R2(3, 4), R0}, false},
    {&ls_op_mul, "x x", mul_self, ROUNDS, {R2(3, 4)}, false},
    {&ls_op_mul, "sweep", mul, ROUNDS, {R2(5, -1), R2(5, -1)}, false},
    {&ls_op_mul, "sweep row length", mul, SUMS, {R2(33, -1), R1(-1)}, false},
    {&ls_op_mul, "sweep rows", mul, SUMS, {R2(-1, 33), R1(33)}, false},
    {&ls_op_mul, "wide", mul, ROUNDS, {R2(131, 129), R2(131, 129)}, true},
    {&ls_op_mul, "wide rows", mul, SUMS, {R2(1030, 65), R1(65)}, true},
    {&ls_op_mul, "wide scalar", mul, SUMS, {R2(131, 129), R0}, true},

    {&ls_op_scale, "", scale, ROUNDS, {R2(3, 4)}, false},
    {&ls_op_scale, "sweep", scale, ROUNDS, {R2(5, -1)}, false},
    {&ls_op_scale, "wide", scale, ROUNDS, {R2(131, 129)}, true},

    {&ls_op_sum, "", sum, ROUNDS, {R2(3, 4)}, false},
    {&ls_op_sum, "of a scalar", sum, ROUNDS, {R0}, false},
    {&ls_op_sum, "sweep", sum, ROUNDS, {R2(5, -1)}, false},
    {&ls_op_sum, "wide", sum, ROUNDS, {R2(131, 129)}, true},
    {&ls_op_mean, "", mean, ROUNDS, {R2(3, 4)}, false},
    {&ls_op_mean, "sweep", mean, ROUNDS, {R2(5, -1)}, false},
    {&ls_op_mean, "wide", mean, ROUNDS, {R2(131, 129)}, true},

    {&ls_op_reshape, "three dims", reshape, MOVES, {R2(6, 4)}, false},
    {&ls_op_reshape, "flat", reshape_flat, MOVES, {R3(2, 3, 2)}, false},
    {&ls_op_reshape, "of a transpose", reshape_strided, MOVES, {R2(3, 4)}, false},
    {&ls_op_reshape, "sweep", reshape_flat, MOVES, {R2(3, -1)}, false},
    {&ls_op_permute, "three dims", permute3, MOVES, {R3(2, 3, 4)}, false},
    {&ls_op_permute, "four dims", permute4, MOVES, {R4(2, 3, 2, 2)}, false},
    {&ls_op_permute, "transpose", transpose, MOVES, {R3(2, 3, 4)}, false},
    {&ls_op_permute, "sweep", permute3, MOVES, {R3(3, -1, 33)}, false},
    {&ls_op_permute, "wide", permute4, MOVES, {R4(3, 65, 5, 33)}, true},
    {&ls_op_slice, "first", slice_first, MOVES, {R3(4, 2, 3)}, false},
    {&ls_op_slice, "middle", slice_middle, MOVES, {R3(2, 4, 3)}, false},
    {&ls_op_slice, "last", slice_last, MOVES, {R3(2, 3, 4)}, false},
    {&ls_op_slice, "sweep", slice_middle, MOVES, {R3(-1, 3, 7)}, false},
    {&ls_op_slice, "wide", slice_middle, MOVES, {R3(257, 3, 65)}, true},
    {&ls_op_concat, "first", concat_first, MOVES, {R2(2, 3), R2(4, 3)}, false},
    {&ls_op_concat, "last", concat_last, MOVES, {R2(2, 3), R2(2, 1), R2(2, 4)}, false},
    {&ls_op_concat, "one", concat_one, MOVES, {R3(2, 3, 2)}, false},
    {&ls_op_concat, "x twice", concat_self, ROUNDS, {R3(2, 3, 2), R3(2, 1, 2)}, false},
    {&ls_op_concat, "sweep", concat_last, MOVES, {R2(5, -1), R2(5, 3), R2(5, -2)}, false},
    {&ls_op_concat, "wide", concat_last, MOVES, {R2(257, 65), R2(257, 33), R2(257, 7)}, true},

    {&ls_op_embedding, "repeated ids", embedding, SUMS, {R2(4, 3), ID1(9, 4)}, false},
    {&ls_op_embedding, "ids of two dims", embedding, SUMS, {R2(5, 2), ID2(2, 3, 5)}, false},
    {&ls_op_embedding, "rows not used", embedding, SUMS, {R2(9, 2), ID1(3, 2)}, false},
    {&ls_op_embedding, "sweep channels", embedding, SUMS, {R2(7, -1), ID1(33, 7)}, false},
    {&ls_op_embedding, "sweep ids", embedding, SUMS, {R2(17, 5), ID1(-1, 17)}, false},
    {&ls_op_embedding, "wide", embedding, SUMS, {R2(131, 129), ID2(3, 129, 131)}, true},

    {&ls_op_softmax, "", softmax, CURVES, {R2(3, 4)}, false},
    {&ls_op_softmax, "three dims", softmax, CURVES, {R3(2, 2, 3)}, false},
    {&ls_op_softmax, "of a transpose", softmax_strided, CURVES, {R2(3, 4)}, false},
    {&ls_op_softmax, "sweep columns", softmax, CURVES, {R2(17, -1)}, false},
    {&ls_op_softmax, "sweep rows", softmax, CURVES, {R2(-1, 33)}, false},
    {&ls_op_softmax, "wide", softmax, CURVES, {R2(131, 129)}, true},
    {&ls_op_log_softmax, "", log_softmax, CURVES, {R2(3, 4)}, false},
    {&ls_op_log_softmax, "three dims", log_softmax, CURVES, {R3(2, 2, 3)}, false},
    {&ls_op_log_softmax, "sweep columns", log_softmax, CURVES, {R2(17, -1)}, false},
    {&ls_op_log_softmax, "sweep rows", log_softmax, CURVES, {R2(-1, 33)}, false},
    {&ls_op_log_softmax, "wide", log_softmax, CURVES, {R2(131, 129)}, true},

    {&ls_op_cross_entropy, "", cross_entropy, CURVES, {R2(6, 4), TARGET1(6, 4)}, false},
    {&ls_op_cross_entropy,
     "3 dims",
     cross_entropy,
     CURVES,
     {R3(2, 3, 4), TARGET2(2, 3, 4)},
     false},
    {&ls_op_cross_entropy,
     "all ignored",
     cross_entropy,
     CURVES,
     {R2(3, 4), {IGNORED, {1, {3}}, 4}},
     false},
    {&ls_op_cross_entropy,
     "sweep V",
     cross_entropy,
     CURVES,
     {R2(17, -1), TARGET1(17, -1)},
     false},
    {&ls_op_cross_entropy,
     "sweep N",
     cross_entropy,
     CURVES,
     {R2(-1, 33), TARGET1(-1, 33)},
     false},
    {&ls_op_cross_entropy,
     "wide",
     cross_entropy,
     CURVES,
     {R2(131, 129), TARGET1(131, 129)},
     true},

    {&ls_op_head_cross_entropy, "", head, CHAINS, {R2(6, 3), R2(4, 3), TARGET1(6, 4)}, false},
    {&ls_op_head_cross_entropy,
     "three dims",
     head,
     CHAINS,
     {R3(2, 3, 2), R2(5, 2), TARGET2(2, 3, 5)},
     false},
    {&ls_op_head_cross_entropy,
     "all ignored",
     head,
     CHAINS,
     {R2(3, 2), R2(4, 2), {IGNORED, {1, {3}}, 4}},
     false},
    {&ls_op_head_cross_entropy,
     "sweep V",
     head,
     CHAINS,
     {R2(17, 9), R2(-1, 9), TARGET1(17, -1)},
     false},
    {&ls_op_head_cross_entropy,
     "sweep N",
     head,
     CHAINS,
     {R2(-1, 9), R2(33, 9), TARGET1(-1, 33)},
     false},
    {&ls_op_head_cross_entropy,
     "sweep C",
     head,
     CHAINS,
     {R2(17, -1), R2(33, -1), TARGET1(17, 33)},
     false},
    {&ls_op_head_cross_entropy,
     "wide",
     head,
     CHAINS,
     {R3(3, 129, 17), R2(1031, 17), TARGET2(3, 129, 1031)},
     true},

    {&ls_op_head_cross_entropy,
     "several chunks",
     head,
     CHAINS,
     {R2(130, 3), R2(16500, 3), TARGET1(130, 16500)},
     true},
    {&ls_op_layernorm, "bias", layernorm, NORMS, {R2(3, 4), W1(4), R1(4)}, false},
    {&ls_op_layernorm, "no bias", layernorm_plain, NORMS, {R2(3, 4), W1(4)}, false},
    {&ls_op_layernorm, "three dims", layernorm, NORMS, {R3(2, 2, 5), W1(5), R1(5)}, false},
    {&ls_op_layernorm, "sweep C", layernorm, NORMS, {R2(17, -1), W1(-1), R1(-1)}, false},
    {&ls_op_layernorm, "sweep N", layernorm, NORMS, {R2(-1, 33), W1(33), R1(33)}, false},
    {&ls_op_layernorm, "wide", layernorm, NORMS, {R2(131, 129), W1(129), R1(129)}, true},
    {&ls_op_rmsnorm, "", rmsnorm, NORMS, {R2(3, 4), W1(4)}, false},
    {&ls_op_rmsnorm, "three dims", rmsnorm, NORMS, {R3(2, 2, 5), W1(5)}, false},
    {&ls_op_rmsnorm, "sweep C", rmsnorm, NORMS, {R2(17, -1), W1(-1)}, false},
    {&ls_op_rmsnorm, "sweep N", rmsnorm, NORMS, {R2(-1, 33), W1(33)}, false},
    {&ls_op_rmsnorm, "wide", rmsnorm, NORMS, {R2(131, 129), W1(129)}, true},

    {&ls_op_relu, "", relu, ROUNDS, {AWAY2(3, 4)}, false},
    {&ls_op_relu, "sweep", relu, ROUNDS, {AWAY2(5, -1)}, false},
    {&ls_op_relu, "wide", relu, ROUNDS, {AWAY2(131, 129)}, true},
    {&ls_op_gelu, "", gelu, CURVES, {R2(3, 4)}, false},
    {&ls_op_gelu, "sweep", gelu, CURVES, {R2(5, -1)}, false},
    {&ls_op_gelu, "wide", gelu, CURVES, {R2(131, 129)}, true},
    {&ls_op_gelu_tanh, "", gelu_tanh, CURVES, {R2(3, 4)}, false},
    {&ls_op_gelu_tanh, "sweep", gelu_tanh, CURVES, {R2(5, -1)}, false},
    {&ls_op_gelu_tanh, "wide", gelu_tanh, CURVES, {R2(131, 129)}, true},
    {&ls_op_silu, "", silu, CURVES, {R2(3, 4)}, false},
    {&ls_op_silu, "sweep", silu, CURVES, {R2(5, -1)}, false},
    {&ls_op_silu, "wide", silu, CURVES, {R2(131, 129)}, true},
    {&ls_op_tanh, "", tanh_, CURVES, {R2(3, 4)}, false},
    {&ls_op_tanh, "sweep", tanh_, CURVES, {R2(5, -1)}, false},
    {&ls_op_tanh, "wide", tanh_, CURVES, {R2(131, 129)}, true},
    {&ls_op_swiglu, "", swiglu, CURVES, {R2(3, 4), R2(3, 4)}, false},
    {&ls_op_swiglu, "x twice", swiglu_self, CURVES, {R2(3, 4)}, false},
    {&ls_op_swiglu, "sweep", swiglu, CURVES, {R2(5, -1), R2(5, -1)}, false},
    {&ls_op_swiglu, "wide", swiglu, CURVES, {R2(131, 129), R2(131, 129)}, true},

    {&ls_op_dropout, "", dropout, ROUNDS, {R3(3, 2, 5)}, false},
    {&ls_op_dropout, "sweep", dropout, ROUNDS, {R2(5, -1)}, false},
    {&ls_op_dropout, "sweep sequences", dropout, ROUNDS, {R2(-1, 7)}, false},
    {&ls_op_dropout, "wide", dropout, ROUNDS, {R2(5, 9001)}, true},
    {&ls_op_residual, "", residual, FUSED, {R3(3, 2, 5), R3(3, 2, 5)}, false},
    {&ls_op_residual, "sweep", residual, FUSED, {R2(5, -1), R2(5, -1)}, false},
    {&ls_op_residual, "wide", residual, FUSED, {R2(5, 9001), R2(5, 9001)}, true},

    {&ls_op_attention, "heads", heads2, CHAINS, {R3(2, 4, 12)}, false},
    {&ls_op_attention, "one token", heads2, CHAINS, {R3(2, 1, 6)}, false},
    {&ls_op_attention, "grouped", heads4_2, CHAINS, {R3(1, 4, 16)}, false},
    {&ls_op_attention, "one key head", heads4_1, CHAINS, {R3(1, 3, 18)}, false},
    {&ls_op_attention, "dropout", heads_dropout, CHAINS, {R3(2, 5, 8)}, false},
    {&ls_op_attention, "sweep T", heads2, CHAINS, {R3(2, -1, 30)}, false},
    {&ls_op_attention, "sweep T, grouped", heads4_2, CHAINS, {R3(1, -1, 24)}, false},
    {&ls_op_attention, "sweep T, dropout", heads_dropout, CHAINS, {R3(2, -1, 28)}, false},
    {&ls_op_attention, "sweep D", heads4_1, CHAINS, {R3(1, 70, -6)}, false},
    {&ls_op_attention, "64 tokens", heads2, CHAINS, {R3(2, 64, 96)}, true},
    {&ls_op_attention, "128 tokens", heads_dropout, CHAINS, {R3(2, 128, 64)}, true},

    {&ls_op_rope, "", rope, CURVES, {R3(2, 3, 12)}, false},
    {&ls_op_rope, "grouped", rope_grouped, CURVES, {R3(1, 4, 16)}, false},
    {&ls_op_rope, "sweep T", rope, CURVES, {R3(2, -1, 36)}, false},
    {&ls_op_rope, "sweep D", rope_grouped, CURVES, {R3(1, 9, -16)}, false},
    {&ls_op_rope, "wide", rope, CURVES, {R3(3, 129, 96)}, true},

    {&ls_op_boundary, "", boundary, ROUNDS, {R2(3, 4)}, false},
    {&ls_op_boundary, "sweep", boundary, ROUNDS, {R2(5, -1)}, false},
    {&ls_op_recompute, "", recompute, LAYERS, {R2(3, 4), R2(4, 4), R1(4)}, false},
    {&ls_op_recompute, "nested", recompute_nested, LAYERS, {R2(3, 4), R2(4, 4), R1(4)}, false},
    {&ls_op_recompute, "sweep", recompute, LAYERS, {R2(-1, 17), R2(17, 17), R1(17)}, false},
    {&ls_op_recompute,
     "wide",
     recompute_nested,
     LAYERS,
     {R2(257, 65), R2(65, 65), R1(65)},
     true},

    /* nothing to do: gradients of weights are zero all the same */
    {&ls_op_matmul, "no rows", matmul, SUMS, {R2(0, 4), R2(4, 5)}, false},
    {&ls_op_matmul, "no terms", matmul, SUMS, {R2(3, 0), R2(0, 5)}, false},
    {&ls_op_matmul, "no batch", matmul, SUMS, {R3(0, 3, 4), R2(4, 5)}, false},
    {&ls_op_linear, "no rows", linear, SUMS, {R2(0, 4), R2(5, 4), R1(5)}, false},
    {&ls_op_add, "no rows", add, SUMS, {R2(0, 4), R1(4)}, false},
    {&ls_op_mul, "no rows", mul, SUMS, {R2(0, 4), R1(4)}, false},
    {&ls_op_scale, "no rows", scale, ROUNDS, {R2(0, 4)}, false},
    {&ls_op_sum, "no rows", sum, ROUNDS, {R2(0, 4)}, false},
    {&ls_op_permute, "no rows", permute3, MOVES, {R3(2, 0, 4)}, false},
    {&ls_op_slice, "no rows", slice_last, MOVES, {R2(0, 4)}, false},
    {&ls_op_concat, "no rows", concat_first, MOVES, {R2(0, 3), R2(4, 3)}, false},
    {&ls_op_embedding, "no ids", embedding, SUMS, {R2(4, 3), ID1(0, 4)}, false},
    {&ls_op_softmax, "no rows", softmax, CURVES, {R2(0, 4)}, false},
    {&ls_op_log_softmax, "no rows", log_softmax, CURVES, {R2(0, 4)}, false},
    {&ls_op_cross_entropy, "no rows", cross_entropy, CURVES, {R2(0, 4), TARGET1(0, 4)}, false},
    {&ls_op_head_cross_entropy,
     "no rows",
     head,
     CHAINS,
     {R2(0, 3), R2(4, 3), TARGET1(0, 4)},
     false},
    {&ls_op_layernorm, "no rows", layernorm, NORMS, {R2(0, 4), W1(4), R1(4)}, false},
    {&ls_op_rmsnorm, "no rows", rmsnorm, NORMS, {R2(0, 4), W1(4)}, false},
    {&ls_op_gelu, "no rows", gelu, CURVES, {R2(0, 4)}, false},
    {&ls_op_swiglu, "no rows", swiglu, CURVES, {R2(0, 4), R2(0, 4)}, false},
    {&ls_op_dropout, "no rows", dropout, ROUNDS, {R2(0, 4)}, false},
    {&ls_op_residual, "no rows", residual, FUSED, {R2(0, 4), R2(0, 4)}, false},
    {&ls_op_attention, "no sequences", heads2, CHAINS, {R3(0, 4, 12)}, false},
    {&ls_op_attention, "no tokens", heads2, CHAINS, {R3(2, 0, 12)}, false},
    {&ls_op_rope, "no tokens", rope, CURVES, {R3(2, 0, 12)}, false},
    {&ls_op_recompute, "no rows", recompute, LAYERS, {R2(0, 4), R2(4, 4), R1(4)}, false},
};
enum { OP_ROWS = sizeof op_rows / sizeof *op_rows };

BUILD(contiguous_null, ls_contiguous(tape, in[1]))
BUILD(reshape_none, ls_reshape(tape, in[0], LS_SHAPE2(5, -1)))
BUILD(reshape_two, ls_reshape(tape, in[0], LS_SHAPE2(-1, -1)))
BUILD(permute_twice, ls_permute(tape, in[0], (const int[]){0, 0, 1}))
BUILD(slice_beyond, ls_slice(tape, in[0], 1, 3, 2))
BUILD(slice_nowhere, ls_slice(tape, in[0], 4, 0, 1))
BUILD(concat_nowhere, ls_concat(tape, in, 2, 2))

static const op_wrong op_wrongs[] = {
    {&ls_op_cast, cast, {ID2(3, 4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_cast, cast_to_bytes, {R2(3, 4)}, LS_EINVAL, "dtype"},
    {&ls_op_matmul, matmul, {R2(3, 4), R2(5, 4)}, LS_ESHAPE, "(3,4)"},
    {&ls_op_matmul, matmul_ta, {R2(3, 4), R2(4, 5)}, LS_ESHAPE, "(4,5)"},
    {&ls_op_matmul, matmul_tb, {R2(3, 4), R2(4, 5)}, LS_ESHAPE, "(3,4)"},
    {&ls_op_matmul, matmul, {R3(2, 3, 4), R3(3, 4, 5)}, LS_ESHAPE, "(3,4,5)"},
    {&ls_op_matmul, matmul, {R1(4), R2(4, 5)}, LS_ESHAPE, "(4)"},
    {&ls_op_matmul, matmul, {R2(3, 4), ID2(4, 5, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_linear, linear, {R2(3, 4), R2(5, 3), R1(5)}, LS_ESHAPE, "(5,3)"},
    {&ls_op_linear, linear, {R2(3, 4), R2(5, 4), R1(4)}, LS_ESHAPE, "(4)"},
    {&ls_op_linear, linear, {ID2(3, 4, 2), R2(5, 4), R1(5)}, LS_ESHAPE, "I32"},
    {&ls_op_linear, linear, {R2(3, 4), {NOTHING, {0, {0}}, 0}, R1(5)}, LS_EINVAL, "1 is NULL"},
    {&ls_op_add, add, {R2(3, 4), R1(3)}, LS_ESHAPE, "(3,4) and (3)"},
    {&ls_op_add, add, {R1(4), R2(3, 4)}, LS_ESHAPE, "(4) and (3,4)"},
    {&ls_op_add, add, {R1(4), ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_mul, mul, {R2(3, 4), R2(1, 4)}, LS_ESHAPE, "(3,4) and (1,4)"},
    {&ls_op_mul, mul, {ID1(4, 2), R1(4)}, LS_ESHAPE, "I32"},
    {&ls_op_scale, scale, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_sum, sum, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_mean, mean, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_reshape, reshape_none, {R2(3, 4)}, LS_ESHAPE, "(3,4)"},
    {&ls_op_reshape, reshape_two, {R2(3, 4)}, LS_ESHAPE, "(3,4)"},
    {&ls_op_permute, permute_twice, {R3(3, 4, 2)}, LS_EINVAL, "dimension 0 at place 1"},
    {&ls_op_slice, slice_beyond, {R2(3, 4)}, LS_ESHAPE, "(3,4)"},
    {&ls_op_slice, slice_nowhere, {R2(3, 4)}, LS_EINVAL, "(3,4)"},
    {&ls_op_concat, concat_first, {R2(3, 4), R2(3, 5)}, LS_ESHAPE, "(3,5)"},
    {&ls_op_concat, concat_first, {R2(3, 4), R1(4)}, LS_ESHAPE, "(4)"},
    {&ls_op_concat, concat_nowhere, {R2(3, 4), R2(3, 4)}, LS_EINVAL, "dimension 2"},
    {&ls_op_embedding, embedding, {R1(4), ID1(2, 4)}, LS_ESHAPE, "(4)"},
    {&ls_op_embedding, embedding, {R2(4, 3), R1(2)}, LS_ESHAPE, "(2)"},
    {&ls_op_embedding, embedding, {R2(4, 3), ID1(40, 6)}, LS_EINVAL, "want 0 to 3"},
    {&ls_op_softmax, softmax, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_softmax, softmax, {R0}, LS_ESHAPE, "()"},
    {&ls_op_log_softmax, log_softmax, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_cross_entropy, cross_entropy, {R2(3, 4), ID1(4, 4)}, LS_ESHAPE, "(3,4)"},
    {&ls_op_cross_entropy, cross_entropy, {R2(3, 4), R1(3)}, LS_ESHAPE, "want I32"},
    {&ls_op_cross_entropy, cross_entropy, {R2(40, 4), ID1(40, 6)}, LS_EINVAL, "want 0 to 3"},
    {&ls_op_head_cross_entropy, head, {R2(3, 4), R2(5, 3), ID1(3, 5)}, LS_ESHAPE, "(5,3)"},
    {&ls_op_head_cross_entropy, head, {R2(3, 4), R2(5, 4), ID1(4, 5)}, LS_ESHAPE, "(4)"},
    {&ls_op_head_cross_entropy,
     head,
     {R2(3, 4), R2(5, 4), R1(3)},
     LS_ESHAPE,
     "targets F64 (3)"},
    {&ls_op_head_cross_entropy,
     head,
     {R2(40, 4), R2(5, 4), ID1(40, 9)},
     LS_EINVAL,
     "want 0 to 4"},
    {&ls_op_layernorm, layernorm, {R2(3, 4), W1(3), R1(4)}, LS_ESHAPE, "(3)"},
    {&ls_op_layernorm, layernorm, {R2(3, 4), W1(4), R2(1, 4)}, LS_ESHAPE, "(1,4)"},
    {&ls_op_layernorm, layernorm, {R2(3, 4), ID1(4, 2), R1(4)}, LS_ESHAPE, "I32"},
    {&ls_op_rmsnorm, rmsnorm, {R2(3, 4), W1(3)}, LS_ESHAPE, "(3)"},
    {&ls_op_rmsnorm, rmsnorm, {ID2(3, 4, 2), W1(4)}, LS_ESHAPE, "I32"},
    {&ls_op_relu, relu, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_gelu, gelu, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_gelu_tanh, gelu_tanh, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_silu, silu, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_tanh, tanh_, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_swiglu, swiglu, {R2(3, 4), R2(4, 3)}, LS_ESHAPE, "(4,3)"},
    {&ls_op_swiglu, swiglu, {R1(4), ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_dropout, dropout, {ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_dropout, dropout, {R0}, LS_ESHAPE, "0 dim"},
    {&ls_op_dropout, dropout_all, {R1(4)}, LS_EINVAL, "probability 1"},
    {&ls_op_residual, residual, {R1(4), R1(3)}, LS_ESHAPE, "(4)"},
    {&ls_op_residual, residual, {R1(4), ID1(4, 2)}, LS_ESHAPE, "I32"},
    {&ls_op_residual, residual_all, {R1(4), R1(4)}, LS_EINVAL, "probability 1"},
    {&ls_op_attention, heads2, {R3(2, 4, 10)}, LS_ESHAPE, "(2,4,10)"},
    {&ls_op_attention, heads2, {R2(4, 12)}, LS_ESHAPE, "(4,12)"},
    {&ls_op_attention, heads4_3, {R3(2, 4, 10)}, LS_ESHAPE, "4 query and 3 key"},
    {&ls_op_attention, heads2, {{IDS, {3, {2, 4, 12}}, 2}}, LS_ESHAPE, "I32"},
    {&ls_op_attention, heads_dropout_all, {R3(2, 4, 12)}, LS_EINVAL, "dropout 1"},
    {&ls_op_rope, rope, {R3(2, 4, 18)}, LS_ESHAPE, "even size"},
    {&ls_op_rope, rope, {R2(4, 12)}, LS_ESHAPE, "(4,12)"},
    {&ls_op_contiguous, contiguous_null, {R1(4)}, LS_EINVAL, "NULL"},
    {&ls_op_boundary, boundary_null, {R1(4)}, LS_EINVAL, "NULL"},
    {&ls_op_recompute, recompute_null, {R1(4)}, LS_EINVAL, "NULL"},
};
enum { OP_WRONGS = sizeof op_wrongs / sizeof *op_wrongs };

#endif

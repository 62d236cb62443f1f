/*
 * test_ops_golden.c - operators against PyTorch in double: conventions, not precision.
 *
 * What plain loops of our own could share a mistake with: the form of gelu, eps inside the
 * root, the layout of heads and of rotations, grouping, what an ignored target does.
 */
#include "autograd/ops.h"
#include "reference/golden_ops.h"
#include "test.h"

enum { INPUTS = 3, IGNORE = -100 };

typedef struct {
    const char   *name;
    const double *want; /* the output, then the gradient of each input */
    size_t        n_want;
    ls_tensor *(*build)(ls_tape *tape, ls_tensor *x);
    ls_shape in[INPUTS];
} row;

static ls_tensor *build_gelu(ls_tape *tape, ls_tensor *x)
{
    return ls_gelu(tape, x);
}

static ls_tensor *build_gelu_tanh(ls_tape *tape, ls_tensor *x)
{
    return ls_gelu_tanh(tape, x);
}

static ls_tensor *build_silu(ls_tape *tape, ls_tensor *x)
{
    return ls_silu(tape, x);
}

static ls_tensor *build_swiglu(ls_tape *tape, ls_tensor *x)
{
    return ls_swiglu(tape, &x[0], &x[1]);
}

static ls_tensor *build_layernorm(ls_tape *tape, ls_tensor *x)
{
    return ls_layernorm(tape, &x[0], &x[1], &x[2], 1e-5);
}

static ls_tensor *build_rmsnorm(ls_tape *tape, ls_tensor *x)
{
    return ls_rmsnorm(tape, &x[0], &x[1], 1e-5);
}

static ls_tensor *build_softmax(ls_tape *tape, ls_tensor *x)
{
    return ls_softmax(tape, x);
}

static ls_tensor *build_log_softmax(ls_tape *tape, ls_tensor *x)
{
    return ls_log_softmax(tape, x);
}

static ls_tensor *build_cross_entropy(ls_tape *tape, ls_tensor *x)
{
    ls_tensor *y = ls_tape_input(tape, LS_I32, LS_SHAPE1(8), golden_targets);
    return ls_cross_entropy(tape, x, y, IGNORE);
}

static ls_tensor *build_head_cross_entropy(ls_tape *tape, ls_tensor *x)
{
    ls_tensor *y = ls_tape_input(tape, LS_I32, LS_SHAPE1(8), golden_targets);
    return ls_head_cross_entropy(tape, &x[0], &x[1], y, IGNORE);
}

static ls_tensor *build_embedding(ls_tape *tape, ls_tensor *x)
{
    return ls_embedding(tape, x, ls_tape_input(tape, LS_I32, LS_SHAPE2(2, 3), golden_ids));
}

static ls_tensor *build_attention(ls_tape *tape, ls_tensor *x)
{
    return ls_attention(tape, x, &(ls_heads){.n_head = 2});
}

static ls_tensor *build_attention_grouped(ls_tape *tape, ls_tensor *x)
{
    return ls_attention(tape, x, &(ls_heads){.n_head = 4, .n_kv_head = 2});
}

static ls_tensor *build_rope(ls_tape *tape, ls_tensor *x)
{
    return ls_rope(tape, x, &(ls_heads){.n_head = 2});
}

static ls_tensor *build_rope_grouped(ls_tape *tape, ls_tensor *x)
{
    return ls_rope(tape, x, &(ls_heads){.n_head = 2, .n_kv_head = 1, .rope_base = 500});
}

/* clang-format off */
#define ROW(name, ...) \
    {#name, golden_##name, sizeof golden_##name / sizeof(double), build_##name, {__VA_ARGS__}}
#define D1(a)       {1, {a}}
#define D2(a, b)    {2, {a, b}}
#define D3(a, b, c) {3, {a, b, c}}

static const row rows[] = {
    ROW(gelu, D2(2, 5)),
    ROW(gelu_tanh, D2(2, 5)),
    ROW(silu, D2(2, 5)),
    ROW(swiglu, D2(2, 5), D2(2, 5)),
    ROW(layernorm, D2(3, 7), D1(7), D1(7)),
    ROW(rmsnorm, D2(3, 7), D1(7)),
    ROW(softmax, D2(3, 7)),
    ROW(log_softmax, D2(3, 7)),
    ROW(cross_entropy, D2(8, 7)),
    ROW(head_cross_entropy, D2(8, 3), D2(7, 3)),
    ROW(embedding, D2(7, 4)),
    ROW(attention, D3(2, 4, 18)),
    ROW(attention_grouped, D3(1, 5, 16)),
    ROW(rope, D3(1, 5, 24)),
    ROW(rope_grouped, D3(2, 3, 16)),
};
/* clang-format on */

static void fill_input(ls_tensor *t, int which)
{
    for (int64_t i = 0; i < ls_tensor_numel(t); i++)
        ls_reals(t)[i] =
            (ls_real)((double)((i * 37 + which * 11 + i * i * 5) % 64) - 31.5) / 16;
}

static void fill_seed(ls_real *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (ls_real)((double)((i * 29 + 7) % 32) - 15.5) / 8;
}

/* Compares n values with the next of the row's; returns those behind them. */
static const double *compare(const ls_real *got, int64_t n, const double *want)
{
    for (int64_t i = 0; i < n; i++)
        CHECK_CLOSE(got[i], want[i], 1e-13 * fmax(1, fabs(want[i])));
    return want + n;
}

static void judge(const row *r)
{
    ls_tensor x[INPUTS];
    ls_real   seed[512];
    int       n    = 0;
    ls_tape  *tape = ls_tape_new();

    TEST_ROW(r->name);
    for (; n < INPUTS && r->in[n].ndim; n++) {
        x[n] = ls_tensor_header(LS_REAL, r->in[n]);
        CHECK_OK(ls_tensor_materialize(&x[n], LS_MEM_PARAMS));
        x[n].requires_grad = true;
        fill_input(&x[n], n);
    }
    ls_tensor *y = r->build(tape, x);
    if (y) {
        fill_seed(seed, ls_tensor_numel(y));
        const double *want = compare(ls_reals(y), ls_tensor_numel(y), r->want);
        CHECK_OK(ls_backward_with(tape, y, &(ls_backward_opts){.seed = seed}));
        for (int i = 0; i < n && CHECK(x[i].grad); i++)
            want = compare(ls_tensor_grad(&x[i]), ls_tensor_numel(&x[i]), want);
        CHECK(want == r->want + r->n_want);
    }
    CHECK_OK(ls_tape_status(tape));
    for (int i = 0; i < n; i++)
        ls_tensor_drop(&x[i]);
    ls_tape_free(tape);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        judge(&rows[i]);
    return test_summary("ops_golden");
}

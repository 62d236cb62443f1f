/*
 * test_ops_values.c - operators against plain loops and central differences, in double.
 *
 * A row builds its operator from leaves of given shapes.  For each row:
 *
 *     value   the result equals the plain loop's
 *     fresh   with a random gradient of the result, each leaf's equals central differences
 *     joined  the operator called twice on the same leaves gives twice that gradient
 */
#include <stdlib.h>

#include "autograd/ops.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/gemm.h"
#include "core/kernels/rmsnorm.h"
#include "core/kernels/softmax.h"
#include "core/thread.h"
#include "test.h"

enum { MAX_IN = 3, MAX_NUMEL = 512, IGNORE = -100 };

typedef struct row row;
struct row {
    const char *name;
    int         n_in;
    ls_shape    in[MAX_IN];
    ls_tensor *(*build)(const row *r, ls_tape *tape, ls_tensor **x);
    void (*plain)(const row *r, double *const *x, double *y); /* NULL: gradients only */
    int arg[2];
};

static double random_value(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (double)(1 << 24) * 2 - 1;
}

/* --- matmul ------------------------------------------------------------------------------ */

static ls_tensor *build_matmul(const row *r, ls_tape *tape, ls_tensor **x)
{
    return ls_matmul(tape, x[0], x[1], r->arg[0], r->arg[1]);
}

static void plain_matmul(const row *r, double *const *x, double *y)
{
    const int64_t *a = r->in[0].dim + r->in[0].ndim - 2, *b = r->in[1].dim + r->in[1].ndim - 2;
    int64_t        m = a[r->arg[0]], k = a[!r->arg[0]], n = b[!r->arg[1]], batch = 1;
    bool           many_a = r->in[0].ndim > 2, many_b = r->in[1].ndim > 2;

    for (int i = 0; i < r->in[!many_a].ndim - 2; i++)
        batch *= r->in[!many_a].dim[i];
    for (int64_t s = 0; s < batch * m * n; s++) {
        int64_t       at = s / (m * n), i = s / n % m, j = s % n;
        const double *pa = x[0] + (many_a ? at * m * k : 0);
        const double *pb = x[1] + (many_b ? at * k * n : 0);
        y[s]             = 0;
        for (int64_t p = 0; p < k; p++)
            y[s] +=
                pa[r->arg[0] ? p * m + i : i * k + p] * pb[r->arg[1] ? j * k + p : p * n + j];
    }
}

static ls_tensor *build_square(const row *r, ls_tape *tape, ls_tensor **x)
{
    return ls_matmul(tape, x[0], x[0], r->arg[0], r->arg[1]);
}

static void plain_square(const row *r, double *const *x, double *y)
{
    row both   = *r;
    both.in[1] = r->in[0];
    plain_matmul(&both, (double *[]){x[0], x[0]}, y);
}

/* A transposed view where a contiguous matrix is wanted. */
static ls_tensor *build_matmul_view(const row *r, ls_tape *tape, ls_tensor **x)
{
    return ls_matmul(tape, ls_transpose(tape, x[0], -1, -2), x[1], !r->arg[0], r->arg[1]);
}

/* --- elementwise and reductions ----------------------------------------------------------- */

static int64_t last_of(const row *r, int i)
{
    return r->in[i].dim[r->in[i].ndim - 1];
}

static ls_tensor *build_mul(const row *r, ls_tape *tape, ls_tensor **x)
{
    return ls_mul(tape, x[0], x[r->n_in - 1]);
}

static void plain_mul(const row *r, double *const *x, double *y)
{
    for (int64_t i = 0; i < ls_shape_numel(&r->in[0]); i++)
        y[i] = x[0][i] * x[r->n_in - 1][i % ls_shape_numel(&r->in[r->n_in - 1])];
}

static ls_tensor *build_scale(const row *r, ls_tape *tape, ls_tensor **x)
{
    (void)r;
    return ls_scale(tape, x[0], -1.25);
}

static void plain_scale(const row *r, double *const *x, double *y)
{
    for (int64_t i = 0; i < ls_shape_numel(&r->in[0]); i++)
        y[i] = -1.25 * x[0][i];
}

static ls_tensor *build_sum(const row *r, ls_tape *tape, ls_tensor **x)
{
    return r->arg[0] ? ls_mean(tape, x[0]) : ls_sum(tape, x[0]);
}

static void plain_sum(const row *r, double *const *x, double *y)
{
    int64_t n = ls_shape_numel(&r->in[0]);

    y[0] = 0;
    for (int64_t i = 0; i < n; i++)
        y[0] += x[0][i];
    if (r->arg[0])
        y[0] /= (double)n;
}

static ls_tensor *build_swiglu(const row *r, ls_tape *tape, ls_tensor **x)
{
    return ls_swiglu(tape, x[0], x[r->n_in - 1]);
}

static void plain_swiglu(const row *r, double *const *x, double *y)
{
    for (int64_t i = 0; i < ls_shape_numel(&r->in[0]); i++)
        y[i] = x[0][i] / (1 + exp(-x[0][i])) * x[r->n_in - 1][i];
}

/* --- rows ----------------------------------------------------------------------------------
 */

static ls_tensor *build_softmax(const row *r, ls_tape *tape, ls_tensor **x)
{
    return r->arg[0] ? ls_log_softmax(tape, x[0]) : ls_softmax(tape, x[0]);
}

static void plain_softmax(const row *r, double *const *x, double *y)
{
    int64_t n = last_of(r, 0);

    for (int64_t i = 0; i < ls_shape_numel(&r->in[0]); i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += exp(x[0][i / n * n + j]);
        y[i] = r->arg[0] ? x[0][i] - log(sum) : exp(x[0][i]) / sum;
    }
}

static const int32_t targets[6] = {2, 0, IGNORE, 4, 4, 1};

static ls_tensor *build_cross_entropy(const row *r, ls_tape *tape, ls_tensor **x)
{
    ls_shape lead = r->in[0];

    lead.ndim--;
    return ls_cross_entropy(tape, x[0], ls_tape_input(tape, LS_I32, lead, targets), IGNORE);
}

static void plain_cross_entropy(const row *r, double *const *x, double *y)
{
    double log_p[MAX_NUMEL];
    row    logs = *r;

    logs.arg[0] = 1;
    plain_softmax(&logs, x, log_p);
    y[0] = 0;
    for (int64_t i = 0; i < 6; i++)
        if (targets[i] != IGNORE)
            y[0] -= log_p[i * last_of(r, 0) + targets[i]];
}

static ls_tensor *build_rmsnorm(const row *r, ls_tape *tape, ls_tensor **x)
{
    (void)r;
    return ls_rmsnorm(tape, x[0], x[1], 1e-2);
}

static void plain_rmsnorm(const row *r, double *const *x, double *y)
{
    int64_t n = last_of(r, 0);

    for (int64_t i = 0; i < ls_shape_numel(&r->in[0]); i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += pow(x[0][i / n * n + j], 2);
        y[i] = x[0][i] / sqrt(sum / (double)n + 1e-2) * x[1][i % n];
    }
}

/* --- rope: arg {n_head, n_kv_head}, D = 4 ----------------------------------------------------
 */

static ls_tensor *build_rope(const row *r, ls_tape *tape, ls_tensor **x)
{
    return ls_rope(tape, x[0], &(ls_heads){.n_head = r->arg[0], .n_kv_head = r->arg[1]});
}

static void plain_rope(const row *r, double *const *x, double *y)
{
    int64_t time = r->in[0].dim[1], width = r->in[0].dim[2];
    int     turned = r->arg[0] + (r->arg[1] ? r->arg[1] : r->arg[0]);

    for (int64_t i = 0; i < ls_shape_numel(&r->in[0]); i++) {
        int64_t d = i % 4, t = i / width % time;
        double  angle = (double)t * (d % 2 ? 0.01 : 1); /* 10000^(-2/4) = 0.01 */
        y[i]          = x[0][i];
        if (i % width < 4 * turned)
            y[i] = d < 2 ? x[0][i] * cos(angle) - x[0][i + 2] * sin(angle)
                         : x[0][i] * cos(angle) + x[0][i - 2] * sin(angle);
    }
}

/* --- views and joins ---------------------------------------------------------------------- */

static ls_tensor *build_permute(const row *r, ls_tape *tape, ls_tensor **x)
{
    (void)r;
    return ls_permute(tape, x[0], (int[]){2, 0, 1});
}

static void plain_permute(const row *r, double *const *x, double *y)
{
    const int64_t *d = r->in[0].dim;

    for (int64_t i = 0; i < ls_shape_numel(&r->in[0]); i++) {
        int64_t a = i / (d[0] * d[1]), b = i / d[1] % d[0], c = i % d[1];
        y[i] = x[0][(b * d[1] + c) * d[2] + a];
    }
}

static ls_tensor *build_slice(const row *r, ls_tape *tape, ls_tensor **x)
{
    return ls_slice(tape, x[0], r->arg[0], r->arg[1], 2);
}

static void plain_slice(const row *r, double *const *x, double *y)
{
    const int64_t *d     = r->in[0].dim;
    int            dim   = r->arg[0] < 0 ? r->arg[0] + r->in[0].ndim : r->arg[0];
    int64_t        after = 1, n = ls_shape_numel(&r->in[0]) / d[dim] * 2;

    for (int i = dim + 1; i < r->in[0].ndim; i++)
        after *= d[i];
    for (int64_t i = 0; i < n; i++)
        y[i] = x[0][i / (2 * after) * d[dim] * after + r->arg[1] * after + i % (2 * after)];
}

/* Overlapping slices of a view of a view, with the row-major copy that sum asks for. */
static ls_tensor *build_views(const row *r, ls_tape *tape, ls_tensor **x)
{
    ls_tensor *t = ls_transpose(tape, x[0], 0, 2);

    (void)r;
    return ls_mul(tape, ls_reshape(tape, ls_slice(tape, t, 1, 0, 2), LS_SHAPE2(-1, 2)),
                  ls_reshape(tape, ls_slice(tape, t, 1, 1, 2), LS_SHAPE2(8, 2)));
}

static ls_tensor *build_reshape(const row *r, ls_tape *tape, ls_tensor **x)
{
    (void)r;
    return ls_reshape(tape, x[0], LS_SHAPE3(2, -1, 3));
}

static void plain_same(const row *r, double *const *x, double *y)
{
    memcpy(y, x[0], (size_t)ls_shape_numel(&r->in[0]) * sizeof *y);
}

static ls_tensor *build_contiguous(const row *r, ls_tape *tape, ls_tensor **x)
{
    (void)r;
    return ls_contiguous(tape, ls_permute(tape, x[0], (int[]){2, 0, 1}));
}

/* The first stands at both ends. */
static ls_tensor *build_concat(const row *r, ls_tape *tape, ls_tensor **x)
{
    return ls_concat(tape, (ls_tensor *[]){x[0], x[1], x[0]}, 3, r->arg[0]);
}

static void plain_concat(const row *r, double *const *x, double *y)
{
    int64_t before = 1, wide[2] = {1, 1};

    for (int i = 0; i < r->in[0].ndim; i++) {
        before *= i < r->arg[0] ? r->in[0].dim[i] : 1;
        for (int k = 0; k < 2; k++)
            wide[k] *= i < r->arg[0] ? 1 : r->in[k].dim[i];
    }
    for (int64_t b = 0; b < before; b++)
        for (int part = 0; part < 3; part++)
            for (int64_t i = 0, k = part % 2; i < wide[k]; i++)
                *y++ = x[k][b * wide[k] + i];
}

static const row rows[] = {
    {"matmul", 2, {{2, {3, 5}}, {2, {5, 4}}}, build_matmul, plain_matmul, {0, 0}},
    {"matmul a^T", 2, {{2, {5, 3}}, {2, {5, 4}}}, build_matmul, plain_matmul, {1, 0}},
    {"matmul b^T", 2, {{2, {3, 5}}, {2, {4, 5}}}, build_matmul, plain_matmul, {0, 1}},
    {"matmul a^T b^T", 2, {{2, {5, 3}}, {2, {4, 5}}}, build_matmul, plain_matmul, {1, 1}},
    {"matmul batch",
     2,
     {{4, {2, 2, 3, 5}}, {4, {2, 2, 5, 4}}},
     build_matmul,
     plain_matmul,
     {0, 0}},
    {"matmul batch a^T",
     2,
     {{3, {2, 5, 3}}, {3, {2, 5, 4}}},
     build_matmul,
     plain_matmul,
     {1, 0}},
    {"matmul batch b^T",
     2,
     {{3, {2, 3, 5}}, {3, {2, 4, 5}}},
     build_matmul,
     plain_matmul,
     {0, 1}},
    {"matmul batch a^T b^T",
     2,
     {{3, {2, 5, 3}}, {3, {2, 4, 5}}},
     build_matmul,
     plain_matmul,
     {1, 1}},
    {"matmul one b", 2, {{3, {3, 2, 5}}, {2, {5, 4}}}, build_matmul, plain_matmul, {0, 0}},
    {"matmul one b, b^T", 2, {{3, {3, 2, 5}}, {2, {4, 5}}}, build_matmul, plain_matmul, {0, 1}},
    {"matmul one b, a^T", 2, {{3, {3, 5, 2}}, {2, {5, 4}}}, build_matmul, plain_matmul, {1, 0}},
    {"matmul one b, both^T",
     2,
     {{3, {3, 5, 2}}, {2, {4, 5}}},
     build_matmul,
     plain_matmul,
     {1, 1}},
    {"matmul one a", 2, {{2, {2, 5}}, {3, {3, 5, 4}}}, build_matmul, plain_matmul, {0, 0}},
    {"matmul one a, b^T", 2, {{2, {2, 5}}, {3, {3, 4, 5}}}, build_matmul, plain_matmul, {0, 1}},
    {"matmul one a, a^T", 2, {{2, {5, 2}}, {3, {3, 5, 4}}}, build_matmul, plain_matmul, {1, 0}},
    {"matmul one a, both^T",
     2,
     {{2, {5, 2}}, {3, {3, 4, 5}}},
     build_matmul,
     plain_matmul,
     {1, 1}},
    {"matmul x x", 1, {{2, {4, 4}}}, build_square, plain_square, {0, 0}},
    {"matmul x x^T", 1, {{3, {2, 3, 4}}}, build_square, plain_square, {0, 1}},
    {"matmul x^T x", 1, {{3, {2, 3, 4}}}, build_square, plain_square, {1, 0}},
    {"matmul of a view",
     2,
     {{3, {2, 3, 5}}, {3, {2, 5, 4}}},
     build_matmul_view,
     plain_matmul,
     {0, 0}},
    {"mul", 2, {{2, {3, 5}}, {2, {3, 5}}}, build_mul, plain_mul, {0}},
    {"mul row", 2, {{3, {2, 20, 5}}, {1, {5}}}, build_mul, plain_mul, {0}},
    {"mul matrix", 2, {{3, {2, 3, 5}}, {2, {3, 5}}}, build_mul, plain_mul, {0}},
    {"mul scalar", 2, {{2, {9, 5}}, {0}}, build_mul, plain_mul, {0}},
    {"mul x x", 1, {{2, {3, 5}}}, build_mul, plain_mul, {0}},
    {"scale", 1, {{2, {3, 5}}}, build_scale, plain_scale, {0}},
    {"sum", 1, {{3, {3, 5, 7}}}, build_sum, plain_sum, {0}},
    {"mean", 1, {{2, {3, 5}}}, build_sum, plain_sum, {1}},
    {"sum of a scalar", 1, {{0}}, build_sum, plain_sum, {0}},
    {"softmax", 1, {{3, {2, 3, 5}}}, build_softmax, plain_softmax, {0}},
    {"softmax of long rows", 1, {{2, {2, 37}}}, build_softmax, plain_softmax, {0}},
    {"log_softmax", 1, {{3, {2, 3, 5}}}, build_softmax, plain_softmax, {1}},
    {"cross_entropy", 1, {{3, {2, 3, 5}}}, build_cross_entropy, plain_cross_entropy, {0}},
    {"rmsnorm", 2, {{3, {2, 3, 11}}, {1, {11}}}, build_rmsnorm, plain_rmsnorm, {0}},
    {"rmsnorm of many rows", 2, {{2, {40, 5}}, {1, {5}}}, build_rmsnorm, plain_rmsnorm, {0}},
    {"swiglu", 2, {{2, {3, 5}}, {2, {3, 5}}}, build_swiglu, plain_swiglu, {0}},
    {"swiglu x x", 1, {{2, {3, 5}}}, build_swiglu, plain_swiglu, {0}},
    {"rope", 1, {{3, {2, 3, 24}}}, build_rope, plain_rope, {2, 0}},
    {"rope, grouped", 1, {{3, {2, 3, 24}}}, build_rope, plain_rope, {4, 1}},
    {"permute", 1, {{3, {2, 3, 4}}}, build_permute, plain_permute, {0}},
    {"contiguous", 1, {{3, {2, 3, 4}}}, build_contiguous, plain_permute, {0}},
    {"reshape", 1, {{2, {6, 4}}}, build_reshape, plain_same, {0}},
    {"slice 0", 1, {{3, {4, 3, 2}}}, build_slice, plain_slice, {0, 1}},
    {"slice 1", 1, {{3, {2, 3, 4}}}, build_slice, plain_slice, {1, 1}},
    {"slice -1", 1, {{3, {2, 3, 4}}}, build_slice, plain_slice, {-1, 0}},
    {"views of views", 1, {{3, {2, 3, 4}}}, build_views, NULL, {0}},
    {"concat 0", 2, {{2, {2, 3}}, {2, {1, 3}}}, build_concat, plain_concat, {0}},
    {"concat 1", 2, {{3, {2, 3, 2}}, {3, {2, 1, 2}}}, build_concat, plain_concat, {1}},
    {"concat 2", 2, {{3, {2, 2, 3}}, {3, {2, 2, 4}}}, build_concat, plain_concat, {2}},
};

/* --- the judge
 * -------------------------------------------------------------------------------- */

static void make_leaves(const row *r, ls_tensor *leaf, ls_tensor **x)
{
    uint32_t state = 7;

    for (int i = 0; i < r->n_in; i++) {
        leaf[i] = ls_tensor_header(LS_REAL, r->in[i]);
        CHECK_OK(ls_tensor_materialize(&leaf[i], LS_MEM_PARAMS));
        leaf[i].requires_grad = true;
        for (int64_t k = 0; k < ls_tensor_numel(&leaf[i]); k++)
            ls_reals(&leaf[i])[k] = 1.5 * random_value(&state);
        x[i] = &leaf[i];
    }
}

/* The result's elements in row-major order; how many. */
static int64_t read_values(ls_tape *tape, ls_tensor *y, double *out)
{
    ls_tensor *c = ls_contiguous(tape, y);
    if (!CHECK(c))
        return 0;
    memcpy(out, ls_reals(c), ls_tensor_bytes(c));
    return ls_tensor_numel(c);
}

static double weighted(const row *r, ls_tape *tape, ls_tensor **x, const double *seed)
{
    double  y[MAX_NUMEL], sum = 0;
    bool    before = ls_tape_set_grad(tape, false);
    int64_t n      = read_values(tape, r->build(r, tape, x), y);

    for (int64_t i = 0; i < n; i++)
        sum += y[i] * seed[i];
    ls_tape_reset(tape);
    ls_tape_set_grad(tape, before);
    return sum;
}

static void check_value(const row *r, ls_tape *tape, ls_tensor **x)
{
    double  got[MAX_NUMEL], want[MAX_NUMEL], *data[MAX_IN];
    int64_t n = read_values(tape, r->build(r, tape, x), got);

    for (int i = 0; i < r->n_in; i++)
        data[i] = ls_reals(x[i]);
    r->plain(r, data, want);
    CHECK(n > 0);
    for (int64_t i = 0; i < n; i++)
        CHECK_CLOSE(got[i], want[i], 1e-13 * (1 + fabs(want[i])));
    ls_tape_reset(tape);
}

static void check_gradient(const row *r, ls_tape *tape, ls_tensor **x, const double *seed,
                           double times)
{
    const double h = 1e-5;

    for (int i = 0; i < r->n_in; i++) {
        if (!CHECK(ls_tensor_grad(x[i])))
            return;
        for (int64_t k = 0; k < ls_tensor_numel(x[i]); k++) {
            double *at = ls_reals(x[i]) + k, old = *at;
            *at         = old + h;
            double plus = weighted(r, tape, x, seed);
            *at         = old - h;
            double want = times * (plus - weighted(r, tape, x, seed)) / (2 * h);
            *at         = old;
            CHECK_CLOSE(ls_tensor_grad(x[i])[k], want, 1e-8 * (1 + fabs(want)));
        }
    }
}

static void run_backward(const row *r, ls_tape *tape, ls_tensor **x, const double *seed,
                         bool twice)
{
    ls_tensor *y = r->build(r, tape, x);

    if (twice)
        y = ls_add(tape, y, r->build(r, tape, x));
    for (int i = 0; i < r->n_in; i++)
        ls_tensor_zero_grad(x[i]);
    CHECK_OK(ls_backward_with(tape, y, &(ls_backward_opts){.seed = seed}));
    ls_tape_reset(tape);
}

static void judge(const row *r, ls_tape *tape)
{
    ls_tensor leaf[MAX_IN], *x[MAX_IN];
    double    seed[MAX_NUMEL];
    uint32_t  state = 11;

    for (int i = 0; i < MAX_NUMEL; i++)
        seed[i] = random_value(&state);
    make_leaves(r, leaf, x);
    if (r->plain)
        check_value(r, tape, x);
    for (int twice = 0; twice < 2; twice++) {
        run_backward(r, tape, x, seed, twice);
        check_gradient(r, tape, x, seed, 1 + twice);
    }
    for (int i = 0; i < r->n_in; i++)
        ls_tensor_drop(&leaf[i]);
}

/* --- activations: kernels by themselves
 * ------------------------------------------------------- */

static double plain_activation(ls_activation f, double x)
{
    switch (f) {
    case LS_ACT_RELU:
        return fmax(x, 0);
    case LS_ACT_GELU:
        return 0.5 * x * erfc(-x * sqrt(0.5));
    case LS_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3))));
    case LS_ACT_SILU:
        return x / (1 + exp(-x));
    case LS_ACT_TANH:
        return tanh(x);
    }
    return NAN;
}

static void check_activations(void)
{
    static const char *names[] = {"relu", "gelu", "gelu_tanh", "silu", "tanh"};
    enum { N = 41, MIDDLE = 20 };
    double       x[N], y[N], dx[N], ones[N];
    const double h = 1e-5;

    for (int i = 0; i < N; i++) {
        x[i]    = 0.3 * (i - MIDDLE) + 0.05;
        ones[i] = 1;
    }
    for (int f = LS_ACT_RELU; f <= LS_ACT_TANH; f++) {
        TEST_ROW(names[f]);
        ls_activation a = (ls_activation)f;
        ls_k_activation(a, y, x, N);
        ls_k_activation_backward(a, dx, ones, x, N, false);
        for (int i = 0; i < N; i++) {
            double plus = plain_activation(a, x[i] + h), minus = plain_activation(a, x[i] - h);
            CHECK_CLOSE(y[i], plain_activation(a, x[i]), 1e-14);
            CHECK_CLOSE(dx[i], (plus - minus) / (2 * h), 1e-9);
        }
        ls_k_activation_backward(a, dx, ones, x, N, true);
        CHECK_CLOSE(dx[3],
                    2 * (plain_activation(a, x[3] + h) - plain_activation(a, x[3] - h)) /
                        (2 * h),
                    1e-9);
        double nan = NAN, through;
        ls_k_activation(a, &through, &nan, 1);
        CHECK(isnan(through));
    }
}

/* --- rows of logits that are not finite
 * ------------------------------------------------------- */

static void check_minus_infinity(ls_tape *tape)
{
    const double  inf       = INFINITY;
    const double  logits[8] = {1, -inf, 1, -inf, -inf, -inf, -inf, -inf};
    const int32_t one[2] = {2, IGNORE}, masked[2] = {1, IGNORE}, none[2] = {IGNORE, IGNORE};
    ls_tensor     leaf = ls_tensor_header(LS_REAL, LS_SHAPE2(2, 4));

    TEST_ROW("logits of -inf");
    CHECK_OK(ls_tensor_materialize(&leaf, LS_MEM_PARAMS));
    memcpy(ls_reals(&leaf), logits, sizeof logits);
    leaf.requires_grad = true;

    ls_tensor *loss =
        ls_cross_entropy(tape, &leaf, ls_tape_input(tape, LS_I32, LS_SHAPE1(2), one), IGNORE);
    CHECK_OK(ls_backward(tape, loss));
    CHECK_CLOSE(ls_item(loss), log(2), 1e-15);
    const double want[8] = {0.5, 0, -0.5, 0, 0, 0, 0, 0};
    for (int i = 0; i < 8; i++)
        CHECK_CLOSE(ls_tensor_grad(&leaf)[i], want[i], 1e-15);

    loss = ls_cross_entropy(tape, &leaf, ls_tape_input(tape, LS_I32, LS_SHAPE1(2), masked),
                            IGNORE);
    CHECK(loss && isinf(ls_item(loss)));

    TEST_ROW("all ignored");
    ls_tensor_zero_grad(&leaf);
    loss =
        ls_cross_entropy(tape, &leaf, ls_tape_input(tape, LS_I32, LS_SHAPE1(2), none), IGNORE);
    CHECK_OK(ls_backward(tape, loss));
    CHECK(ls_item(loss) == 0 && loss->is_wide);
    for (int i = 0; i < 8; i++)
        CHECK(ls_tensor_grad(&leaf)[i] == 0);
    ls_tensor_drop(&leaf);
    ls_tape_reset(tape);

    TEST_ROW("gradient in place of the logits");
    double    in_place[4] = {0.5, -1, 2, 0}, apart[4], loss_of, lse;
    ls_scored s           = {in_place, one, IGNORE, 1, 4};
    ls_k_cross_entropy(&loss_of, &lse, &s);
    ls_k_cross_entropy_backward(apart, &lse, &s, 0.25, false);
    ls_k_cross_entropy_backward(in_place, &lse, &s, 0.25, false);
    CHECK_BITS(in_place, apart, sizeof apart);
}

/* --- dtypes other than ls_real, through views
 * -------------------------------------------------- */

static void check_views_of_ints(ls_tape *tape)
{
    const int32_t ids[6]  = {1, 2, 3, 4, 5, 6};
    const int32_t want[4] = {2, 5, 3, 6};

    TEST_ROW("views of I32");
    ls_tensor *x = ls_tape_input(tape, LS_I32, LS_SHAPE2(2, 3), ids);
    ls_tensor *y = ls_contiguous(tape, ls_transpose(tape, ls_slice(tape, x, -1, 1, 2), 0, 1));
    if (CHECK(y && y->dtype == LS_I32 && y->shape.dim[0] == 2))
        CHECK_BITS(ls_ints(y), want, sizeof want);
    CHECK(ls_contiguous(tape, x) == x);
    ls_tape_reset(tape);
}

/* --- refusals ------------------------------------------------------------------------------
 */

typedef ls_tensor *(*misuse)(ls_tape *tape, ls_tensor *m23, ls_tensor *m45, ls_tensor *ids);

static ls_tensor *bad_matmul(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)ids;
    return ls_matmul(t, a, b, false, false);
}

static ls_tensor *bad_matmul_dtype(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)b;
    return ls_matmul(t, a, ids, false, false);
}

static ls_tensor *bad_mul(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)ids;
    return ls_mul(t, a, b);
}

static ls_tensor *bad_null(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)a, (void)b, (void)ids;
    return ls_softmax(t, ls_transpose(t, NULL, 0, 1));
}

static ls_tensor *bad_reshape(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)b, (void)ids;
    return ls_reshape(t, a, LS_SHAPE2(-1, 4));
}

static ls_tensor *bad_two_open(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)b, (void)ids;
    return ls_reshape(t, a, LS_SHAPE2(-1, -1));
}

static ls_tensor *bad_permute(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)b, (void)ids;
    return ls_permute(t, a, (int[]){1, 1});
}

static ls_tensor *bad_transpose(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)b, (void)ids;
    return ls_transpose(t, a, 0, 2);
}

static ls_tensor *bad_slice(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)b, (void)ids;
    return ls_slice(t, a, 1, 2, 2);
}

static ls_tensor *bad_concat(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)ids;
    return ls_concat(t, (ls_tensor *[]){a, b}, 2, 0);
}

static ls_tensor *bad_target(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)b;
    return ls_cross_entropy(t, a, ids, IGNORE);
}

static ls_tensor *bad_targets_shape(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)a;
    return ls_cross_entropy(t, b, ids, IGNORE);
}

static ls_tensor *bad_weight(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)ids;
    return ls_rmsnorm(t, a, b, 1e-5);
}

static ls_tensor *bad_swiglu(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)ids;
    return ls_swiglu(t, a, b);
}

static ls_tensor *bad_rope(ls_tape *t, ls_tensor *a, ls_tensor *b, ls_tensor *ids)
{
    (void)b, (void)ids;
    return ls_rope(t, ls_reshape(t, a, LS_SHAPE3(1, 2, 3)), &(ls_heads){.n_head = 1});
}

static const struct {
    misuse      call;
    ls_status   status;
    const char *text;
} misuses[] = {
    {bad_matmul, LS_ESHAPE, "matmul: (2,3) x (4,5)"},
    {bad_matmul_dtype, LS_ESHAPE, "matmul: input 1 is I32"},
    {bad_mul, LS_ESHAPE, "mul: (2,3) and (4,5)"},
    {bad_null, LS_EINVAL, "permute: input 0 is NULL"},
    {bad_reshape, LS_ESHAPE, "reshape: (2,3) (6 elements) to (-1,4)"},
    {bad_two_open, LS_ESHAPE, "to (-1,-1)"},
    {bad_permute, LS_EINVAL, "permute: dimension 1 at place 1"},
    {bad_transpose, LS_EINVAL, "transpose: dimensions 0 and 2 of a tensor with 2"},
    {bad_slice, LS_ESHAPE, "slice: 2 elements from 2 on in dimension 1 of (2,3)"},
    {bad_concat, LS_ESHAPE, "concat: input 1 is (4,5), input 0 is (2,3)"},
    {bad_target, LS_EINVAL, "cross_entropy: target 3 at position 1, want 0 to 2, or -100"},
    {bad_targets_shape, LS_ESHAPE, "cross_entropy: (4,5) and (2)"},
    {bad_weight, LS_ESHAPE, "rmsnorm: (2,3) and (4,5)"},
    {bad_swiglu, LS_ESHAPE, "swiglu: (2,3) and (4,5)"},
    {bad_rope, LS_ESHAPE, "rope: heads of size 1"},
};

static void check_misuses(ls_tape *tape)
{
    const double  values[20] = {0};
    const int32_t ids[2]     = {IGNORE, 3};

    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        TEST_ROW(misuses[i].text);
        ls_tensor *a = ls_tape_input(tape, LS_REAL, LS_SHAPE2(2, 3), values);
        ls_tensor *b = ls_tape_input(tape, LS_REAL, LS_SHAPE2(4, 5), values);
        ls_tensor *t = ls_tape_input(tape, LS_I32, LS_SHAPE1(2), ids);
        CHECK(misuses[i].call(tape, a, b, t) == NULL);
        CHECK_FAILS(ls_tape_status(tape), misuses[i].status, misuses[i].text);
        CHECK(ls_contiguous(tape, a) == NULL);
        ls_tape_reset(tape);
    }
}

/* --- threads
 * ---------------------------------------------------------------------------------- */

enum { MANY = 1031, WIDE = 67 };

static void gradients_of_many_rows(double *x, double *w, double *dx, double *dw)
{
    ls_tape  *tape = ls_tape_new();
    ls_tensor in   = ls_tensor_header(LS_REAL, LS_SHAPE2(MANY, WIDE));
    ls_tensor gain = ls_tensor_header(LS_REAL, LS_SHAPE1(WIDE));

    CHECK_OK(ls_tensor_materialize(&in, LS_MEM_PARAMS));
    CHECK_OK(ls_tensor_materialize(&gain, LS_MEM_PARAMS));
    memcpy(ls_reals(&in), x, ls_tensor_bytes(&in));
    memcpy(ls_reals(&gain), w, ls_tensor_bytes(&gain));
    in.requires_grad = gain.requires_grad = true;
    ls_tensor *y = ls_mul(tape, ls_rmsnorm(tape, &in, &gain, 1e-5), &gain);
    ls_tensor *t = ls_transpose(tape, ls_softmax(tape, y), 0, 1);
    CHECK_OK(ls_backward(tape, ls_sum(tape, ls_mul(tape, t, t))));
    memcpy(dx, ls_tensor_grad(&in), ls_tensor_bytes(&in));
    memcpy(dw, ls_tensor_grad(&gain), ls_tensor_bytes(&gain));
    ls_tensor_drop(&in);
    ls_tensor_drop(&gain);
    ls_tape_free(tape);
}

static void check_threads(void)
{
    static double x[MANY * WIDE], w[WIDE], dx[2][MANY * WIDE], dw[2][WIDE];
    uint32_t      state = 3;
    ls_pool      *pool  = ls_pool_new(3);

    TEST_ROW("3 threads, same bits");
    for (int i = 0; i < MANY * WIDE; i++)
        x[i] = random_value(&state);
    for (int i = 0; i < WIDE; i++)
        w[i] = random_value(&state);
    gradients_of_many_rows(x, w, dx[0], dw[0]);
    ls_pool *before = ls_pool_use(pool);
    gradients_of_many_rows(x, w, dx[1], dw[1]);
    ls_pool_use(before);
    ls_pool_free(pool);
    CHECK_BITS(dx[0], dx[1], sizeof dx[0]);
    CHECK_BITS(dw[0], dw[1], sizeof dw[0]);
}

/* A product over nothing is 0, so that the bias is all there is. */
static void check_no_columns(ls_tape *tape)
{
    enum { ROWS = 3, OUT = 4, TOO_MANY = 9 };
    int32_t   target[TOO_MANY] = {0};
    ls_tensor w                = ls_tensor_header(LS_REAL, LS_SHAPE2(OUT, 0));
    ls_tensor b                = ls_tensor_header(LS_REAL, LS_SHAPE1(OUT));

    TEST_ROW("linear of no columns");
    ls_tape_reset(tape);
    CHECK_OK(ls_tensor_materialize(&w, LS_MEM_PARAMS));
    CHECK_OK(ls_tensor_materialize(&b, LS_MEM_PARAMS));
    w.requires_grad = b.requires_grad = true;
    for (int i = 0; i < OUT; i++)
        ls_reals(&b)[i] = i + 1;
    ls_tensor *x = ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(ROWS, 0));
    ls_tensor *y = ls_linear(tape, x, &w, &b);
    CHECK_OK(ls_backward(tape, ls_sum(tape, y)));
    for (int i = 0; i < OUT; i++) {
        CHECK(ls_tensor_grad(&b)[i] == ROWS);
        for (int r = 0; r < ROWS; r++)
            CHECK(ls_reals(y)[r * OUT + i] == i + 1);
    }

    TEST_ROW("a head without columns counts its rows");
    ls_tensor *many = ls_tape_input(tape, LS_I32, LS_SHAPE1(TOO_MANY), target);
    CHECK(!ls_head_cross_entropy(tape, x, &w, many, IGNORE));
    CHECK_FAILS(ls_tape_status(tape), LS_ESHAPE,
                "x F64 (3,0), weight F64 (4,0), targets I32 (9)");
    ls_tape_reset(tape);
    ls_tensor_drop(&w);
    ls_tensor_drop(&b);
}

int main(void)
{
    ls_tape *tape = ls_tape_new();

    ls_blas_init();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        judge(&rows[i], tape);
    }
    check_activations();
    check_minus_infinity(tape);
    check_views_of_ints(tape);
    check_misuses(tape);
    check_no_columns(tape);
    check_threads();
    ls_tape_free(tape);
    return test_summary("ops_values");
}

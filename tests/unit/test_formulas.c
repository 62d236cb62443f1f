/*
 * test_formulas.c - operators against their formula in plain loops, in double.
 *
 * Central differences hold for any function that is differentiated rightly; here it is the
 * function itself that is checked.  N rows, K inputs, C channels, V vocabulary; B batch, T
 * time, H query heads, G key heads, D channels of a head.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/kernels/dropout.h"
#include "core/kernels/gemm.h"
#include "core/rng.h"
#include "test.h"

static ls_tape *tape;

static void fill(double *x, int64_t n, uint32_t stream)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t draw = ls_rng_draw(8, LS_RNG_SAMPLE, stream, 0, (uint64_t)i).v[0];
        x[i]          = ls_rng_unit(draw) * 4 - 2;
    }
}

static ls_tensor *random_tensor(ls_shape shape, uint32_t stream)
{
    ls_tensor *t = ls_tape_tensor(tape, LS_REAL, shape);
    if (CHECK(t != NULL))
        fill(ls_reals(t), ls_tensor_numel(t), stream);
    return t;
}

static void check_values(const ls_tensor *got, const double *want, int64_t n)
{
    double worst = 0, largest = 1e-3;

    if (!CHECK(got && want && ls_tensor_numel(got) == n && ls_tensor_is_contiguous(got)))
        return;
    for (int64_t i = 0; i < n; i++) {
        worst   = fmax(worst, fabs(ls_reals(got)[i] - want[i]));
        largest = fmax(largest, fabs(want[i]));
    }
    CHECK_CLOSE(worst / largest, 0, 1e-13);
}

static void start(const char *row)
{
    TEST_ROW(row);
    ls_tape_reset(tape);
    ls_tape_set_training(tape, true);
    ls_tape_set_random(tape, &(ls_random){.seed = 7});
}

static void test_add(void)
{
    enum { A = 3, B = 4, C = 5 };
    static const ls_shape shapes[] = {{3, {A, B, C}}, {2, {B, C}}, {1, {C}}, {0, {0}}};
    double                want[A * B * C];

    for (int s = 0; s < 4; s++) {
        start("add");
        ls_tensor *a = random_tensor(shapes[0], 1), *b = random_tensor(shapes[s], 2);
        for (int i = 0; i < A * B * C; i++)
            want[i] = ls_reals(a)[i] + ls_reals(b)[i % ls_tensor_numel(b)];
        check_values(ls_add(tape, a, b), want, A * B * C);
    }
}

static void test_linear(void)
{
    enum { N = 6, K = 5, C = 7 };
    double want[N * C];

    for (int bias = 0; bias < 2; bias++) {
        start(bias ? "linear with bias" : "linear");
        ls_tensor *x = random_tensor(LS_SHAPE3(2, 3, K), 1),
                  *w = random_tensor(LS_SHAPE2(C, K), 2);
        ls_tensor *b = random_tensor(LS_SHAPE1(C), 3);
        for (int i = 0; i < N * C; i++) {
            want[i] = bias ? ls_reals(b)[i % C] : 0;
            for (int k = 0; k < K; k++)
                want[i] += ls_reals(x)[i / C * K + k] * ls_reals(w)[i % C * K + k];
        }
        check_values(ls_linear(tape, x, w, bias ? b : NULL), want, N * C);
    }
}

static void test_embedding(void)
{
    enum { N = 6, V = 4, C = 5 };
    static const int32_t id[N] = {3, 0, 1, 3, 3, 2};
    double               want[N * C];

    start("embedding");
    ls_tensor *w = random_tensor(LS_SHAPE2(V, C), 1);
    for (int i = 0; i < N * C; i++)
        want[i] = ls_reals(w)[id[i / C] * C + i % C];
    ls_tensor *ids = ls_tape_input(tape, LS_I32, LS_SHAPE2(2, 3), id);
    check_values(ls_embedding(tape, w, ids), want, N * C);
}

static double gelu(double x)
{
    return x * 0.5 * (1 + erf(x / sqrt(2)));
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static double relu(double x)
{
    return x > 0 ? x : 0;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void test_activations(void)
{
    static const struct {
        const char *name;
        ls_tensor *(*op)(ls_tape *, ls_tensor *);
        double (*formula)(double);
    } rows[] = {{"gelu", ls_gelu, gelu},
                {"gelu_tanh", ls_gelu_tanh, gelu_tanh},
                {"relu", ls_relu, relu},
                {"silu", ls_silu, silu},
                {"tanh", ls_tanh, tanh}};
    enum { N = 200 };
    double want[N];

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        start(rows[r].name);
        ls_tensor *x = random_tensor(LS_SHAPE1(N), 1);
        for (int i = 0; i < N; i++) {
            ls_reals(x)[i] *= i < 20 ? 50 : 2; /* far out as well */
            want[i] = rows[r].formula(ls_reals(x)[i]);
        }
        check_values(rows[r].op(tape, x), want, N);
    }
}

static void norm_row(const double *x, const double *w, const double *b, int c, bool centre,
                     double *out)
{
    double mean = 0, square = 0;

    for (int j = 0; j < c && centre; j++)
        mean += x[j] / c;
    for (int j = 0; j < c; j++)
        square += (x[j] - mean) * (x[j] - mean) / c;
    for (int j = 0; j < c; j++)
        out[j] = (x[j] - mean) / sqrt(square + 1e-3) * w[j] + (b ? b[j] : 0);
}

static void test_norms(void)
{
    enum { N = 5, C = 11 };
    static const char *const names[] = {"layernorm with bias", "layernorm", "rmsnorm"};
    double                   want[N * C];

    for (int v = 0; v < 3; v++) {
        start(names[v]);
        ls_tensor *x = random_tensor(LS_SHAPE2(N, C), 1), *w = random_tensor(LS_SHAPE1(C), 2);
        ls_tensor *b = random_tensor(LS_SHAPE1(C), 3);
        for (int n = 0; n < N; n++)
            norm_row(ls_reals(x) + n * C, ls_reals(w), v == 0 ? ls_reals(b) : NULL, C, v < 2,
                     want + n * C);
        check_values(v == 2 ? ls_rmsnorm(tape, x, w, 1e-3)
                            : ls_layernorm(tape, x, w, v ? NULL : b, 1e-3),
                     want, N * C);
    }
}

/* -log softmax(logits)[target] */
static double row_loss(const double *logit, int v, int target)
{
    double sum = 0;
    for (int i = 0; i < v; i++)
        sum += exp(logit[i]);
    return log(sum) - logit[target];
}

static void test_losses(void)
{
    enum { N = 6, C = 3, V = 9 };
    static const int32_t target[N] = {3, -1, 0, 8, -1, 2};
    double               want      = 0, logit[N * V];

    start("head_cross_entropy");
    ls_tensor *x = random_tensor(LS_SHAPE2(N, C), 1), *w = random_tensor(LS_SHAPE2(V, C), 2);
    for (int i = 0; i < N * V; i++) {
        logit[i] = 0;
        for (int c = 0; c < C; c++)
            logit[i] += ls_reals(x)[i / V * C + c] * ls_reals(w)[i % V * C + c];
    }
    for (int n = 0; n < N; n++)
        want += target[n] < 0 ? 0 : row_loss(logit + n * V, V, target[n]);
    ls_tensor *t = ls_tape_input(tape, LS_I32, LS_SHAPE1(N), target);
    check_values(ls_head_cross_entropy(tape, x, w, t, -1), &want, 1);
    CHECK_CLOSE(ls_item(ls_head_cross_entropy(tape, x, w, t, -1)), want, 1e-12);
    TEST_ROW("cross_entropy");
    ls_tensor *logits = ls_tape_input(tape, LS_REAL, LS_SHAPE2(N, V), logit);
    check_values(ls_cross_entropy(tape, logits, t, -1), &want, 1);
    TEST_ROW("logits far out");
    for (int i = 0; i < N * V; i++)
        logit[i] = i % V == target[i / V] ? 1000 : -1000;
    logits = ls_tape_input(tape, LS_REAL, LS_SHAPE2(N, V), logit);
    want   = 0;
    check_values(ls_cross_entropy(tape, logits, t, -1), &want, 1);
}

/* ---- attention ---- */

typedef struct {
    int b, t, h, g, d;
} sizes;

/* One query row of one head: weights over all earlier positions, then their values. */
static void attend(const sizes *s, const double *qkv, int t, int h, double *out)
{
    int           width = (s->h + 2 * s->g) * s->d, group = h / (s->h / s->g);
    const double *q = qkv + t * width + h * s->d, *k = qkv + (s->h + group) * s->d;
    const double *v   = k + s->g * s->d;
    double        sum = 0;

    memset(out, 0, (size_t)s->d * sizeof *out);
    for (int j = 0; j <= t; j++) {
        double dot = 0;
        for (int i = 0; i < s->d; i++)
            dot += q[i] * k[j * width + i];
        double p = exp(dot / sqrt(s->d));
        sum += p;
        for (int i = 0; i < s->d; i++)
            out[i] += p * v[j * width + i];
    }
    for (int i = 0; i < s->d; i++)
        out[i] /= sum;
}

static void test_attention(void)
{
    static const struct {
        const char *name;
        sizes       s;
    } rows[] = {{"attention", {2, 7, 2, 2, 3}},        {"one token", {3, 1, 2, 2, 4}},
                {"grouped", {2, 9, 6, 2, 4}},          {"one key head", {1, 5, 4, 1, 5}},
                {"a tile", {1, 64, 1, 1, 8}},          {"a tile and one", {2, 65, 2, 1, 4}},
                {"several tiles", {1, 130, 2, 2, 16}}, {"one channel", {1, 10, 3, 3, 1}}};

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const sizes *s     = &rows[r].s;
        int          width = (s->h + 2 * s->g) * s->d, n = s->b * s->t * s->h * s->d;
        double      *want = malloc((size_t)n * sizeof *want);
        start(rows[r].name);
        ls_tensor *qkv = random_tensor(LS_SHAPE3(s->b, s->t, width), 1);
        for (int i = 0; want && i < s->b * s->t * s->h; i++)
            attend(s, ls_reals(qkv) + i / (s->t * s->h) * s->t * width, i / s->h % s->t,
                   i % s->h, want + i * s->d);
        check_values(ls_attention(tape, qkv, &(ls_heads){.n_head = s->h, .n_kv_head = s->g}),
                     want, n);
        free(want);
    }
}

/* ---- dropout: the rate, the scale, and on what a draw depends ---- */

enum { SEQUENCES = 4, EACH = 5000 };

static ls_tensor *drop(ls_tensor *x, const ls_random *random, int calls_before)
{
    ls_tape_set_random(tape, random);
    for (int i = 0; i < calls_before; i++)
        CHECK(ls_dropout(tape, x, 0.3) != NULL);
    return ls_dropout(tape, x, 0.3);
}

static void test_dropout_values(void)
{
    int kept = 0;

    start("dropout");
    ls_tensor *x = random_tensor(LS_SHAPE2(SEQUENCES, EACH), 1);
    ls_tensor *y = drop(x, &(ls_random){.seed = 1}, 0);
    for (int i = 0; i < SEQUENCES * EACH; i++) {
        double from = ls_reals(x)[i], to = ls_reals(y)[i];
        kept += to != 0;
        if (to != 0 && !CHECK(fabs(to - from / 0.7) < 1e-14))
            return;
    }
    /* five standard deviations of the number that is kept */
    CHECK_CLOSE(kept, 0.7 * SEQUENCES * EACH, 5 * sqrt(0.7 * 0.3 * SEQUENCES * EACH));
    for (int lag = 1; lag <= EACH; lag = lag < 8 ? lag + 1 : lag * 5) {
        int equal = 0;
        for (int i = lag; i < SEQUENCES * EACH; i++)
            equal += (ls_reals(y)[i] != 0) == (ls_reals(y)[i - lag] != 0);
        /* independent draws agree with probability 0.7^2 + 0.3^2 */
        CHECK_CLOSE((double)equal / (SEQUENCES * EACH - lag), 0.58, 0.02);
    }
    ls_tape_set_training(tape, false);
    CHECK(ls_dropout(tape, x, 0.3) == x);
    ls_tape_set_training(tape, true);
    CHECK(ls_dropout(tape, x, 0) == x);
}

static void test_dropout_draws(void)
{
    static const struct {
        const char *name;
        ls_random   random;
        int         calls_before;
        bool        same;
    } rows[] = {{"the same", {1, 2, 0}, 0, true},
                {"seed", {2, 2, 0}, 0, false},
                {"step", {1, 3, 0}, 0, false},
                {"sequence", {1, 2, 1}, 0, false},
                {"site", {1, 2, 0}, 1, false}};

    start("draws");
    ls_tensor *x = random_tensor(LS_SHAPE2(SEQUENCES, EACH), 1);
    ls_tensor *y = drop(x, &(ls_random){1, 2, 0}, 0);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        int equal = 0;
        TEST_ROW(rows[r].name);
        ls_tensor *z = drop(x, &rows[r].random, rows[r].calls_before);
        for (int i = 0; i < SEQUENCES * EACH; i++)
            equal += (ls_reals(y)[i] != 0) == (ls_reals(z)[i] != 0);
        if (rows[r].same)
            CHECK(equal == SEQUENCES * EACH);
        else /* independent masks agree at 0.7^2 + 0.3^2 of the places */
            CHECK_CLOSE(equal, 0.58 * SEQUENCES * EACH, 400);
    }
}

/* The micro-batch that holds a sequence changes nothing for it. */
static void check_cut(ls_tensor *x, ls_tensor *(*op)(ls_tensor *))
{
    int64_t all = x->shape.dim[0];

    ls_tape_set_random(tape, &(ls_random){.seed = 1, .step = 2});
    ls_tensor *whole = op(x);
    int64_t    each  = ls_tensor_numel(whole) / all;
    for (int64_t first = 0; first < all; first++) {
        ls_tape_set_random(
            tape, &(ls_random){.seed = 1, .step = 2, .first_sequence = (uint32_t)first});
        ls_tensor *part = op(ls_contiguous(tape, ls_slice(tape, x, 0, first, all - first)));
        if (CHECK(part != NULL))
            CHECK_BITS(ls_reals(part), ls_reals(whole) + first * each,
                       (size_t)(each * (all - first)) * sizeof(ls_real));
    }
}

/* The vectorised draws are those of ls_rng_draw(), wherever a range begins and ends. */
static void test_dropout_factors(void)
{
    static const int64_t  ranges[][2] = {{0, 1},   {0, 64},  {3, 2},
                                         {5, 200}, {63, 66}, {1000003, 77}};
    const ls_dropout_args d           = {11, 12, 13, 14, 0.3};
    ls_real               factor[256];

    start("dropout factors");
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        ls_k_dropout_factors(&d, 5, ranges[r][0], ranges[r][1], factor);
        for (int64_t i = ranges[r][0]; i < ranges[r][0] + ranges[r][1]; i++) {
            uint64_t        index = (uint64_t)d.site << 40 | (uint64_t)(i / 4);
            ls_philox_block block = ls_rng_draw(d.seed, LS_RNG_DROPOUT, d.step, 13 + 5, index);
            bool            kept  = block.v[i % 4] >= (uint32_t)(d.p * 0x1p32);
            CHECK(factor[i - ranges[r][0]] == (kept ? (ls_real)(1 / (1 - d.p)) : 0));
        }
    }
}

/* residual(x, y) has the bits of add(x, dropout(y)). */
static void test_residual(void)
{
    start("residual");
    ls_tensor *x = random_tensor(LS_SHAPE3(SEQUENCES, 33, 7), 1);
    ls_tensor *y = random_tensor(LS_SHAPE3(SEQUENCES, 33, 7), 2);
    ls_tape_set_random(tape, &(ls_random){1, 2, 3});
    ls_tensor *two = ls_add(tape, x, ls_dropout(tape, y, 0.3));
    ls_tape_set_random(tape, &(ls_random){1, 2, 3});
    ls_tensor *one = ls_residual(tape, x, y, 0.3);
    if (CHECK(one && two))
        CHECK_BITS(ls_tensor_data(one), ls_tensor_data(two), ls_tensor_bytes(one));
}

static ls_tensor *dropout_op(ls_tensor *x)
{
    return ls_dropout(tape, x, 0.3);
}

static ls_tensor *attention_op(ls_tensor *x)
{
    return ls_attention(tape, x, &(ls_heads){.n_head = 4, .n_kv_head = 2, .dropout = 0.3});
}

static void test_cuts(void)
{
    start("dropout by sequence");
    check_cut(random_tensor(LS_SHAPE3(SEQUENCES, 33, 7), 1), dropout_op);
    start("attention dropout by sequence");
    check_cut(random_tensor(LS_SHAPE3(SEQUENCES, 70, 24), 1), attention_op);
}

/* With values of 1 an output is the sum of the kept weights over 0.7: 1 on the average. */
static void test_attention_dropout(void)
{
    enum { B = 4, T = 100, D = 2 };
    double sum = 0, squares = 0, n = B * T * D;

    start("attention dropout keeps the mean");
    ls_tensor *qkv = random_tensor(LS_SHAPE3(B, T, 3 * D), 1);
    for (int i = 0; i < B * T * 3 * D; i++)
        if (i % (3 * D) >= 2 * D)
            ls_reals(qkv)[i] = 1;
    ls_tensor *y = ls_attention(tape, qkv, &(ls_heads){.n_head = 1, .dropout = 0.3});
    for (int i = 0; y && i < B * T * D; i++) {
        sum += ls_reals(y)[i];
        squares += pow(ls_reals(y)[i] - 1, 2);
    }
    CHECK(squares > 0);
    CHECK_CLOSE(sum / n, 1, 5 * sqrt(D * squares) / n);
    ls_tape_set_training(tape, false);
    y = ls_attention(tape, qkv, &(ls_heads){.n_head = 1, .dropout = 0.3});
    for (int i = 0; y && i < B * T * D; i++)
        CHECK_CLOSE(ls_reals(y)[i], 1, 1e-14);
}

int main(void)
{
    ls_blas_init();
    tape = ls_tape_new();
    test_add();
    test_linear();
    test_embedding();
    test_activations();
    test_norms();
    test_losses();
    test_attention();
    test_dropout_values();
    test_dropout_draws();
    test_dropout_factors();
    test_residual();
    test_cuts();
    test_attention_dropout();
    ls_tape_free(tape);
    ls_mem_trim();
    return test_summary("formulas");
}

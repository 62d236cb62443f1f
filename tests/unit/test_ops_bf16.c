/*
 * test_ops_bf16.c - operators with BF16 parameters against the same operators in double.
 *
 * Compiled twice.  A row names its operator's inputs and which of them are BF16.  All values,
 * and the factors of the output that is differentiated, are such that BF16 holds them exactly.
 * So a product of theirs has one exact value, and what may differ is what the row says was
 * rounded on the way: bounds are in units of 2^-8 (half of BF16's last place of 1) times the
 * largest element of the array; 0 stands for no rounding but that of sums.
 *
 *     test_ops_bf16 FILE       in double: BF16 against ls_real; writes what ls_real gave
 *     test_ops_bf16_f32 FILE   in float: BF16 against FILE; threads; allocations that fail
 */
#include <stdlib.h>

#include "autograd/ops.h"
#include "core/kernels/bf16.h"
#include "core/kernels/gemm_bf16.h"
#include "core/rng.h"
#include "core/thread.h"
#include "test.h"

enum { INPUTS = 6, IGNORE = -100 };

typedef ls_tensor *(*op_build)(ls_tape *tape, ls_tensor *const *in);

typedef enum { NOTHING, REAL, HALF, WEIGHT, IDS, TARGETS } op_fill;

typedef struct {
    op_fill fill;     /* HALF and WEIGHT (around 1) are BF16 where the row is run so */
    int     shape[4]; /* up to the first 0; -k is k times a swept size */
    int     limit;    /* of ids, targets */
} op_input;

typedef struct {
    const char *name;
    op_build    build;
    double      output, gradients; /* bounds */
    op_input    in[INPUTS];
} op_row;

#define BUILD(name, expression)                                 \
    static ls_tensor *name(ls_tape *tape, ls_tensor *const *in) \
    {                                                           \
        return (expression);                                    \
    }

static const ls_heads two     = {.n_head = 2};
static const ls_heads grouped = {.n_head = 4, .n_kv_head = 2};
static const ls_heads drops   = {.n_head = 2, .n_kv_head = 1, .dropout = 0.25};

BUILD(linear, ls_linear(tape, in[0], in[1], in[2]))
BUILD(linear_plain, ls_linear(tape, in[0], in[1], NULL))
BUILD(linear_narrow, ls_linear_narrow(tape, in[0], in[1], in[2]))
BUILD(embedding, ls_embedding(tape, in[0], in[1]))
BUILD(layernorm, ls_layernorm(tape, in[0], in[1], in[2], 1e-5))
BUILD(layernorm_plain, ls_layernorm(tape, in[0], in[1], NULL, 1e-5))
BUILD(rmsnorm, ls_rmsnorm(tape, in[0], in[1], 1e-5))
BUILD(relu, ls_relu(tape, in[0]))
BUILD(gelu, ls_gelu(tape, in[0]))
BUILD(gelu_tanh, ls_gelu_tanh(tape, in[0]))
BUILD(silu, ls_silu(tape, in[0]))
BUILD(tanh_, ls_tanh(tape, in[0]))
BUILD(swiglu, ls_swiglu(tape, in[0], in[1]))
BUILD(attention, ls_attention(tape, in[0], &two))
BUILD(attention_grouped, ls_attention(tape, in[0], &grouped))
BUILD(attention_dropout, ls_attention(tape, in[0], &drops))
BUILD(rope, ls_rope(tape, in[0], &grouped))
BUILD(head, ls_head_cross_entropy(tape, in[0], in[1], in[2], IGNORE))
BUILD(slice, ls_slice(tape, in[0], 1, 1, 2))
BUILD(back_and_forth, ls_cast(tape, ls_cast(tape, in[0], LS_BF16), LS_REAL))
BUILD(feed_forward,
      ls_linear(tape,
                ls_gelu(tape,
                        ls_linear_narrow(tape, ls_layernorm(tape, in[0], in[1], NULL, 1e-5),
                                         in[2], in[3])),
                in[4], NULL))

static ls_tensor *in_segment(void *context, ls_tape *tape, ls_tensor *x)
{
    ls_tensor *in[INPUTS];

    memcpy(in, context, sizeof in);
    in[0] = x;
    return feed_forward(tape, in);
}
BUILD(recomputed, ls_recompute(tape, in[0], in_segment, (void *)in))

#define R(...)                 \
    {                          \
        REAL, {__VA_ARGS__}, 0 \
    }
#define H(...)                 \
    {                          \
        HALF, {__VA_ARGS__}, 0 \
    }
#define W(...)                   \
    {                            \
        WEIGHT, {__VA_ARGS__}, 0 \
    }
#define IDS1(n, limit)  \
    {                   \
        IDS, {n}, limit \
    }
#define TARGETS1(n, limit)  \
    {                       \
        TARGETS, {n}, limit \
    }

/* Attention rounds weights, and in backward the gradients of scores; the head dlogits. */
static const op_row rows[] = {
    {"linear", linear, 0, 0, {H(-1, 17), H(33, 17), H(33)}},
    {"linear in", linear, 0, 0, {H(17, -1), H(33, -1), H(33)}},
    {"linear out", linear_plain, 0, 0, {H(17, 33), H(-1, 33)}},
    {"linear, x real", linear, 0, 0, {R(3, -1, 5), H(9, 5), H(9)}},
    {"linear narrow", linear_narrow, 1, 0, {H(-1, 33), H(-2, 33), H(-2)}},
    {"embedding", embedding, 0, 0, {H(-1, 33), IDS1(70, -1)}},
    {"layernorm", layernorm, 1, 0, {R(17, -3), W(-3), H(-3)}},
    {"layernorm plain", layernorm_plain, 1, 0, {R(-1, 33), W(33)}},
    {"rmsnorm", rmsnorm, 1, 0, {R(17, -3), W(-3)}},
    {"relu", relu, 0, 0, {H(5, -1)}},
    {"gelu", gelu, 1, 0, {H(5, -1)}},
    {"gelu_tanh", gelu_tanh, 1, 0, {H(5, -1)}},
    {"silu", silu, 1, 0, {H(5, -1)}},
    {"tanh", tanh_, 1, 0, {H(5, -1)}},
    {"swiglu", swiglu, 1, 0, {H(5, -1), H(5, -1)}},
    {"attention", attention, 1.5, 1, {H(2, -1, 3 * 2 * 16)}},
    {"attention grouped", attention_grouped, 1.5, 1, {H(2, -1, 8 * 5)}},
    {"attention dropout", attention_dropout, 1.5, 1, {H(2, -1, 4 * 64)}},
    {"attention, long", attention_dropout, 1.5, 1, {H(1, 600, 4 * 8)}},
    {"rope", rope, 1, 0, {H(2, -1, 8 * 6)}},
    {"head", head, 0, 0.75, {H(-1, 9), H(33, 9), TARGETS1(-1, 33)}},
    {"head, x real", head, 0, 0.75, {R(-1, 9), H(513, 9), TARGETS1(-1, 513)}},
    {"head, chunks", head, 0, 0.75, {H(130, 3), H(16500, 3), TARGETS1(130, 16500)}},
    {"slice", slice, 0, 0, {H(-1, 3, 7)}},
    {"cast", back_and_forth, 0, 0, {R(5, -1)}},
    {"feed forward", feed_forward, 2.5, 6, {R(9, -1), W(-1), H(40, -1), H(40), H(-1, 40)}},
    {"recomputed", recomputed, 2.5, 6, {R(9, -1), W(-1), H(40, -1), H(40), H(-1, 40)}},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const int sweep[] = {1, 3, 17, 65, 129};
enum { SWEEP = sizeof sweep / sizeof *sweep };

typedef struct {
    const op_row *row;
    ls_tensor     tensor[INPUTS];
    ls_tensor    *in[INPUTS];
    int           n;
} op_case;

typedef struct {
    ls_real *array[1 + INPUTS];
    int64_t  n[1 + INPUTS];
} result;

static const ls_random draws = {.seed = 5, .step = 3, .first_sequence = 2};

/* Eight bits of precision at most. */
static float draw_value(const op_input *want, uint32_t draw)
{
    float x = (float)((int)(draw >> 26) - 32) / 16;
    return want->fill == WEIGHT ? 1 + x / 4 : x;
}

static int times(int dim, int size)
{
    return dim < 0 ? -dim * size : dim;
}

static int32_t draw_id(const op_input *want, int size, uint32_t draw, int64_t i)
{
    if (want->fill == TARGETS && i % 5 == 3)
        return IGNORE;
    return (int32_t)(draw % (uint32_t)times(want->limit, size));
}

static void fill(ls_tensor *t, const op_input *want, int size, uint32_t stream)
{
    for (int64_t i = 0; i < ls_tensor_numel(t); i++) {
        uint32_t draw = ls_rng_draw(1, LS_RNG_SAMPLE, stream, 0, (uint64_t)i).v[0];
        if (t->dtype == LS_I32)
            ls_ints(t)[i] = draw_id(want, size, draw, i);
        else if (t->dtype == LS_BF16)
            ls_halves(t)[i] = ls_bf16_round(draw_value(want, draw));
        else
            ls_reals(t)[i] = (ls_real)draw_value(want, draw);
    }
}

static ls_dtype dtype_of(op_fill fill, bool half)
{
    if (fill >= IDS)
        return LS_I32;
    return half && fill != REAL ? LS_BF16 : LS_REAL;
}

static void case_open(op_case *c, const op_row *row, int size, bool half)
{
    *c = (op_case){.row = row};
    for (; c->n < INPUTS && row->in[c->n].fill != NOTHING; c->n++) {
        const op_input *want  = &row->in[c->n];
        ls_tensor      *t     = &c->tensor[c->n];
        ls_shape        shape = LS_SHAPE0;
        while (shape.ndim < 4 && want->shape[shape.ndim]) {
            shape.dim[shape.ndim] = times(want->shape[shape.ndim], size);
            shape.ndim++;
        }
        *t = ls_tensor_header(dtype_of(want->fill, half), shape);
        CHECK_OK(ls_tensor_materialize(t, LS_MEM_PARAMS));
        t->requires_grad = t->dtype != LS_I32;
        fill(t, want, size, (uint32_t)c->n);
        c->in[c->n] = t;
    }
}

static void case_close(op_case *c)
{
    for (int i = 0; i < c->n; i++)
        ls_tensor_drop(&c->tensor[i]);
}

/* Multiples of 1/4 in [-1, 3), also where two of them are added to each other. */
static ls_real *make_seed(int64_t n)
{
    ls_real *seed = malloc((size_t)(n ? n : 1) * sizeof *seed);

    for (int64_t i = 0; seed && i < n; i++)
        seed[i] =
            (ls_real)(ls_rng_draw(2, LS_RNG_SAMPLE, 9, 0, (uint64_t)i).v[0] >> 28) / 4 - 1;
    return seed;
}

static ls_tensor *build_once(const op_case *c, ls_tape *tape)
{
    ls_tape_set_random(tape, &draws);
    ls_tensor *y = c->row->build(tape, c->in);
    return y ? ls_cast(tape, ls_contiguous(tape, y), LS_REAL) : NULL;
}

static void keep(result *r, int at, const ls_real *x, int64_t n)
{
    r->array[at] = malloc((size_t)(n ? n : 1) * sizeof *x);
    r->n[at]     = n;
    if (CHECK(r->array[at] != NULL) && n)
        memcpy(r->array[at], x, (size_t)n * sizeof *x);
}

static void result_free(result *r)
{
    for (int i = 0; i <= INPUTS; i++)
        free(r->array[i]);
}

/* twice: the call and the same again, so that the second's gradients join the first's */
static ls_status run_case(op_case *c, bool twice, result *r)
{
    ls_tape *tape = ls_tape_new();
    if (!tape)
        return LS_ENOMEM;
    ls_tensor *y = build_once(c, tape);
    if (y && twice)
        y = ls_add(tape, y, build_once(c, tape));
    ls_real  *seed   = y ? make_seed(ls_tensor_numel(y)) : NULL;
    ls_status status = ls_backward_with(tape, y, &(ls_backward_opts){.seed = seed});

    if (!status && r) {
        *r = (result){{0}, {0}};
        keep(r, 0, ls_reals(y), ls_tensor_numel(y));
        for (int i = 0; i < c->n; i++)
            if (CHECK((ls_tensor_grad(c->in[i]) != NULL) == c->in[i]->requires_grad) &&
                c->in[i]->requires_grad)
                keep(r, 1 + i, ls_tensor_grad(c->in[i]), ls_tensor_numel(c->in[i]));
    }
    ls_tape_free(tape);
    free(seed);
    for (int i = 0; i < c->n; i++)
        ls_tensor_zero_grad(&c->tensor[i]);
    return status;
}

#ifdef LS_REAL_F64
static const double sums = 1e-12;
#else
static const double sums = 64 * 0x1p-24;
#endif

/* Error over the largest element. */
static double error_of(const ls_real *got, const double *want, int64_t n)
{
    double worst = 0, largest = 0;

    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)got[i] - want[i]);
        worst    = e > worst || isnan(e) ? e : worst;
        largest  = fmax(largest, fabs(want[i]));
    }
    return worst == 0 ? 0 : worst / largest;
}

static bool shows; /* errors of every row, where asked for */

static void compare(const op_row *row, int at, const ls_real *got, const double *want,
                    int64_t n)
{
    double bound = (at ? row->gradients : row->output) * 0x1p-8 * 1.01 + sums;
    double e     = error_of(got, want, n);

    if (shows && e > sums)
        printf("%-20s %d: %6.3f of %g\n", test_row, at, e * 0x1p8,
               at ? row->gradients : row->output);
    if (!CHECK_CLOSE(e, 0, bound))
        printf("     %s %d\n", at ? "gradient of input" : "output", at ? at - 1 : 0);
}

static const char *row_name(const op_row *row, int size, bool twice)
{
    static char name[80];

    snprintf(name, sizeof name, "%s %d%s", row->name, size, twice ? " twice" : "");
    return name;
}

#ifdef LS_REAL_F64

/* BF16 against ls_real, both in double; what ls_real gave goes to the file. */
static void judge(const op_row *row, int size, bool twice, FILE *f)
{
    op_case half, real;
    result  got = {{0}, {0}}, want = {{0}, {0}};

    case_open(&half, row, size, true);
    case_open(&real, row, size, false);
    CHECK_OK(run_case(&half, twice, &got));
    CHECK_OK(run_case(&real, twice, &want));
    for (int i = 0; i <= INPUTS; i++) {
        if (CHECK(got.n[i] == want.n[i]) && want.n[i])
            compare(row, i, got.array[i], want.array[i], want.n[i]);
        CHECK(fwrite(&want.n[i], sizeof want.n[i], 1, f) == 1);
        if (want.n[i])
            CHECK(fwrite(want.array[i], sizeof(double), (size_t)want.n[i], f) ==
                  (size_t)want.n[i]);
    }
    result_free(&got);
    result_free(&want);
    case_close(&half);
    case_close(&real);
}

#else

static void compare_threads(op_case *c, bool twice, const result *alone)
{
    for (int threads = 2; threads <= 3; threads++) {
        result   r    = {{0}, {0}};
        ls_pool *pool = ls_pool_new(threads);
        ls_pool_use(pool);
        CHECK_OK(run_case(c, twice, &r));
        ls_pool_use(NULL);
        ls_pool_free(pool);
        for (int i = 0; i <= INPUTS; i++)
            if (alone->n[i] && CHECK(r.n[i] == alone->n[i]))
                CHECK_BITS(r.array[i], alone->array[i], (size_t)r.n[i] * sizeof(ls_real));
        result_free(&r);
    }
}

static void compare_file(op_case *c, const result *r, FILE *f)
{
    for (int i = 0; i <= INPUTS; i++) {
        int64_t n = -1;
        if (!CHECK(fread(&n, sizeof n, 1, f) == 1) || !CHECK(n == r->n[i]))
            return;
        double *want = malloc((size_t)(n ? n : 1) * sizeof *want);
        if (CHECK(want && fread(want, sizeof *want, (size_t)n, f) == (size_t)n) && n)
            compare(c->row, i, r->array[i], want, n);
        free(want);
    }
}

/* Also what a thread keeps for products is made anew each time. */
static void judge_allocations(op_case *c)
{
    int64_t before = ls_mem_get_stats().total, n = 0;

    for (; n < 1000; n++) {
        ls_gemm_bf16_forget();
        ls_alloc_fail_after(n);
        ls_status status = run_case(c, true, NULL);
        ls_alloc_fail_after(-1);
        CHECK(ls_mem_get_stats().total == before);
        if (!status)
            break;
        CHECK(status == LS_ENOMEM);
    }
    CHECK(n > 2 && n < 1000);
}

static void judge(const op_row *row, int size, bool twice, FILE *f)
{
    op_case c;
    result  r = {{0}, {0}};

    case_open(&c, row, size, true);
    if (CHECK_OK(run_case(&c, twice, &r))) {
        compare_file(&c, &r, f);
        compare_threads(&c, twice, &r);
    }
    if (size == 3 && twice)
        judge_allocations(&c);
    result_free(&r);
    case_close(&c);
}

#endif

static bool is_swept(const op_row *row)
{
    bool any = false;

    for (int i = 0; i < INPUTS; i++)
        for (int d = 0; d < 4; d++)
            any |= row->in[i].shape[d] < 0;
    return any;
}

static void judge_all(FILE *f)
{
    for (int i = 0; i < ROWS; i++)
        for (int s = 0; s < (is_swept(&rows[i]) ? SWEEP : 1); s++)
            for (int twice = 0; twice < 2; twice++) {
                TEST_ROW(row_name(&rows[i], sweep[s], twice));
                judge(&rows[i], sweep[s], twice, f);
            }
}

/* What an operator refuses: a mixture. */
static void test_refused(void)
{
    ls_tape   *tape = ls_tape_new();
    uint16_t   h[4] = {0};
    ls_real    x[4] = {0};
    ls_tensor *half = ls_tape_input(tape, LS_BF16, LS_SHAPE2(2, 2), h);
    ls_tensor *real = ls_tape_input(tape, LS_REAL, LS_SHAPE2(2, 2), x);
    ls_tensor *ids  = ls_tape_input(tape, LS_I32, LS_SHAPE1(1), (int32_t[]){0});

    TEST_ROW("refused");
    CHECK(!ls_linear(tape, half, real, NULL));
    CHECK_FAILS(ls_tape_status(tape), LS_ESHAPE, "linear: input 1");
    ls_tape_free(tape);
    tape = ls_tape_new();
    half = ls_tape_input(tape, LS_BF16, LS_SHAPE2(2, 2), h);
    real = ls_tape_input(tape, LS_REAL, LS_SHAPE2(2, 2), x);
    CHECK(!ls_swiglu(tape, half, real));
    CHECK_FAILS(ls_tape_status(tape), LS_ESHAPE, "swiglu: input 1 is");
    ls_tape_free(tape);
    tape = ls_tape_new();
    ids  = ls_tape_input(tape, LS_I32, LS_SHAPE1(1), (int32_t[]){0});
    CHECK(!ls_cast(tape, ids, LS_BF16));
    CHECK_FAILS(ls_tape_status(tape), LS_ESHAPE, "cast: input 0 is I32");
    ls_tape_free(tape);
}

int main(int argc, char **argv)
{
#ifdef LS_REAL_F64
    FILE *f = argc > 1 ? fopen(argv[1], "wb") : NULL;
#else
    FILE *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
#endif
    if (!CHECK(f != NULL))
        return test_summary("ops_bf16");
    shows = argc > 2;
    printf("%s\n", ls_gemm_bf16_describe());
    judge_all(f);
    test_refused();
    fclose(f);
    ls_gemm_bf16_forget();
    ls_mem_trim();
    return test_summary("ops_bf16");
}

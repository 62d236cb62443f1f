/*
 * test_nn.c - the module tree, initial values, the models.
 *
 *     names     parameters, shapes and counts of each style, as docs/architecture.md has them
 *     init      values are functions of (seed, name, element): a part made alone has the bits
 *               of the whole
 *     calls     hooks, scopes, logits against loss, shorter sequences, recompute, wrong shapes
 *     memory    the n-th allocation fails, for every n, in construction and in a whole step
 */
#include <stddef.h>
#include <stdlib.h>

#include "lockstep.h"
#include "test.h"

enum { B = 2, T = 6, V = 11, C = 8 };

/* --- models ---------------------------------------------------------------------------------
 */

static ls_gpt_opts gpt2_style(void)
{
    return (ls_gpt_opts){.vocab_size     = V,
                         .n_layer        = 2,
                         .n_head         = 2,
                         .n_kv_head      = 2,
                         .d_model        = C,
                         .d_ff           = 4 * C,
                         .context        = T,
                         .bias           = true,
                         .tie_embeddings = true,
                         .norm           = LS_NORM_LAYER,
                         .norm_eps       = 1e-5,
                         .mlp            = LS_MLP_GELU};
}

static ls_gpt_opts llama_style(void)
{
    ls_gpt_opts o    = gpt2_style();
    o.n_kv_head      = 1;
    o.d_ff           = 12;
    o.bias           = false;
    o.tie_embeddings = false;
    o.norm           = LS_NORM_RMS;
    o.mlp            = LS_MLP_SWIGLU;
    o.rope           = true;
    o.rope_base      = 10000;
    return o;
}

/* GPT-2 style with what the other has: an untied head, grouped queries, no biases. */
static ls_gpt_opts mixed_style(void)
{
    ls_gpt_opts o    = gpt2_style();
    o.n_layer        = 1;
    o.n_kv_head      = 1;
    o.bias           = false;
    o.tie_embeddings = false;
    o.mlp            = LS_MLP_GELU_TANH;
    return o;
}

typedef struct {
    const char *name;
    ls_shape    shape;
} wanted;

/* clang-format off */
#define D1(a)    {1, {a}}
#define D2(a, b) {2, {a, b}}
#define GPT2_BLOCK(i)                                                                 \
    {"h." #i ".ln_1.weight", D1(C)}, {"h." #i ".ln_1.bias", D1(C)},                   \
    {"h." #i ".attn.qkv.weight", D2(3 * C, C)}, {"h." #i ".attn.qkv.bias", D1(3 * C)},\
    {"h." #i ".attn.proj.weight", D2(C, C)}, {"h." #i ".attn.proj.bias", D1(C)},      \
    {"h." #i ".ln_2.weight", D1(C)}, {"h." #i ".ln_2.bias", D1(C)},                   \
    {"h." #i ".mlp.fc.weight", D2(4 * C, C)}, {"h." #i ".mlp.fc.bias", D1(4 * C)},    \
    {"h." #i ".mlp.proj.weight", D2(C, 4 * C)}, {"h." #i ".mlp.proj.bias", D1(C)}
#define LLAMA_BLOCK(i)                                                                \
    {"h." #i ".ln_1.weight", D1(C)},                                                  \
    {"h." #i ".attn.qkv.weight", D2(2 * C, C)}, {"h." #i ".attn.proj.weight", D2(C, C)}, \
    {"h." #i ".ln_2.weight", D1(C)},                                                  \
    {"h." #i ".mlp.gate.weight", D2(12, C)}, {"h." #i ".mlp.up.weight", D2(12, C)},   \
    {"h." #i ".mlp.proj.weight", D2(C, 12)}

static const wanted gpt2_names[] = {
    {"wte.weight", D2(V, C)}, {"wpe.weight", D2(T, C)}, GPT2_BLOCK(0), GPT2_BLOCK(1),
    {"ln_f.weight", D1(C)}, {"ln_f.bias", D1(C)}, {NULL, D1(0)}};
static const wanted llama_names[] = {
    {"wte.weight", D2(V, C)}, LLAMA_BLOCK(0), LLAMA_BLOCK(1),
    {"ln_f.weight", D1(C)}, {"lm_head.weight", D2(V, C)}, {NULL, D1(0)}};
static const wanted mixed_names[] = {
    {"wte.weight", D2(V, C)}, {"wpe.weight", D2(T, C)}, {"h.0.ln_1.weight", D1(C)},
    {"h.0.attn.qkv.weight", D2(2 * C, C)}, {"h.0.attn.proj.weight", D2(C, C)},
    {"h.0.ln_2.weight", D1(C)}, {"h.0.mlp.fc.weight", D2(4 * C, C)},
    {"h.0.mlp.proj.weight", D2(C, 4 * C)}, {"ln_f.weight", D1(C)},
    {"lm_head.weight", D2(V, C)}, {NULL, D1(0)}};
static const wanted mlp_names[] = {
    {"layers.0.weight", D2(7, 5)}, {"layers.0.bias", D1(7)}, {"layers.1.weight", D2(3, 7)},
    {"layers.1.bias", D1(3)}, {NULL, D1(0)}};
/* clang-format on */

static ls_module *new_gpt2(void)
{
    ls_gpt_opts o = gpt2_style();
    return ls_gpt_new(&o);
}

static ls_module *new_llama(void)
{
    ls_gpt_opts o = llama_style();
    return ls_gpt_new(&o);
}

static ls_module *new_mixed(void)
{
    ls_gpt_opts o = mixed_style();
    return ls_gpt_new(&o);
}

static ls_module *new_mlp(void)
{
    return ls_mlp_new(&(ls_mlp_opts){3, (const int64_t[]){5, 7, 3}, LS_MLP_TANH});
}

typedef struct {
    const char *name;
    ls_module *(*make)(void);
    const wanted *parameters;
} style;

static const style styles[] = {{"gpt2", new_gpt2, gpt2_names},
                               {"llama", new_llama, llama_names},
                               {"mixed", new_mixed, mixed_names},
                               {"mlp", new_mlp, mlp_names}};
enum { STYLES = sizeof styles / sizeof *styles };

/* --- names ----------------------------------------------------------------------------------
 */

static void test_names(const style *s)
{
    int              n, i = 0;
    int64_t          elements = 0;
    ls_module       *m        = s->make();
    ls_named_tensor *list     = ls_module_list(m, false, &n);

    for (const wanted *w = s->parameters; w->name && i < n; w++, i++) {
        TEST_ROW(w->name);
        CHECK(!strcmp(list[i].name, w->name));
        CHECK(ls_shape_equal(&list[i].tensor->shape, &w->shape));
        CHECK(list[i].tensor->requires_grad && list[i].tensor->dtype == LS_REAL);
        CHECK(!list[i].tensor->storage); /* nothing exists before init */
        elements += ls_shape_numel(&w->shape);
    }
    TEST_ROW(s->name);
    CHECK(i == n && !s->parameters[i].name);
    CHECK(ls_module_parameter_count(m) == elements);
    free(list);
    ls_module_free(m);
}

static void test_matmul_weights(void)
{
    ls_gpt_opts gpt2 = gpt2_style(), llama = llama_style();

    TEST_ROW("matmul weights");
    CHECK(ls_gpt_matmul_weights(&gpt2) == 2 * (3 * C * C + C * C + 8 * C * C) + V * C);
    CHECK(ls_gpt_matmul_weights(&llama) == 2 * (2 * C * C + C * C + 3 * 12 * C) + V * C);
}

static ls_tensor *forward_none(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    (void)self, (void)tape, (void)y;
    return x;
}

static const ls_module_class plain_class = {"plain", forward_none};

/* Order of registration, paths below a named root, buffers only where asked for. */
static void test_tree(void)
{
    int           n;
    ls_init       one   = {LS_INIT_CONSTANT, 1};
    ls_module    *root  = ls_module_new(&plain_class, sizeof *root, NULL, "root");
    ls_module    *child = ls_module_new(&plain_class, sizeof *child, root, "a");
    ls_parameter *b     = ls_module_add_buffer(child, "buffer", LS_SHAPE1(2), one);
    ls_parameter *w     = ls_module_add_parameter(child, "w", LS_SHAPE1(3), one);
    ls_parameter *v     = ls_module_add_parameter(root, "v", LS_SHAPE0, one);

    TEST_ROW("tree");
    CHECK(b && w && v && !b->tensor.requires_grad && b->is_buffer);
    ls_named_tensor *list = ls_module_list(root, false, &n);
    CHECK(n == 2 && !strcmp(list[0].name, "root.v") && !strcmp(list[1].name, "root.a.w"));
    free(list);
    list = ls_module_list(root, true, &n);
    CHECK(n == 3 && !strcmp(list[1].name, "root.a.buffer") && list[1].tensor == &b->tensor);
    free(list);
    CHECK(ls_module_parameter_count(root) == 4);
    CHECK_OK(ls_module_init(root, 1));
    CHECK(ls_reals(&b->tensor)[1] == 1 && ls_reals(&v->tensor)[0] == 1);
    ls_module_free(root);
    CHECK(!ls_module_list(NULL, true, &n) && n == 0);
    ls_module_free(NULL);
}

/* --- initial values -------------------------------------------------------------------------
 */

enum { MANY = 20011 }; /* more than two tasks of init.c, and no multiple of four */

static void fill(const ls_init *init, uint64_t seed, const char *name, ls_real *out)
{
    ls_init_fill(init, seed, name, 0, MANY, out);
}

/* Parts at odd places, made alone, have the bits of the whole. */
static void test_init_parts(const ls_init *init, const ls_real *whole, ls_real *part)
{
    static const int64_t range[][2] = {{0, 1},      {1, 1},    {3, 2},       {5, 4096},
                                       {4095, 130}, {4097, 7}, {9999, 9000}, {MANY - 1, 1}};

    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        ls_init_fill(init, 7, "h.0.w", range[i][0], range[i][1], part);
        CHECK_BITS(part, whole + range[i][0], (size_t)range[i][1] * sizeof *part);
    }
}

static void moments(const ls_real *x, double *mean, double *deviation, double *largest)
{
    double sum = 0, squares = 0;

    *largest = 0;
    for (int i = 0; i < MANY; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        *largest = fmax(*largest, fabs((double)x[i]));
    }
    *mean      = sum / MANY;
    *deviation = sqrt(squares / MANY - *mean * *mean);
}

/* Deviations of mean and deviation within four of their own, at this number of draws. */
static void test_init_kind(const char *row, ls_init init, double want_deviation, double bound)
{
    ls_real *a = malloc(MANY * sizeof *a), *b = malloc(MANY * sizeof *b);
    double   mean, deviation, largest;

    TEST_ROW(row);
    fill(&init, 7, "h.0.w", a);
    moments(a, &mean, &deviation, &largest);
    CHECK_CLOSE(mean, 0, 4 * want_deviation / sqrt(MANY));
    CHECK_CLOSE(deviation / want_deviation, 1, 4 / sqrt(2.0 * MANY));
    CHECK(largest <= bound);
    test_init_parts(&init, a, b);
    fill(&init, 8, "h.0.w", b);
    CHECK(memcmp(a, b, MANY * sizeof *a));
    fill(&init, 7, "h.1.w", b);
    CHECK(memcmp(a, b, MANY * sizeof *a));
    free(a);
    free(b);
}

static void test_init(void)
{
    /* 33 bits of a Philox draw reach no further than 6.66 deviations */
    test_init_kind("normal", (ls_init){LS_INIT_NORMAL, 0.02}, 0.02, 6.67 * 0.02);
    test_init_kind("uniform", (ls_init){LS_INIT_UNIFORM, 0.25}, 0.25 / sqrt(3), 0.25);
    ls_real x[3];
    ls_init_fill(&(ls_init){LS_INIT_CONSTANT, 1}, 1, "b", 5, 3, x);
    TEST_ROW("constant");
    CHECK(x[0] == 1 && x[1] == 1 && x[2] == 1);
}

static const ls_init *init_of(ls_module *m, const char *path)
{
    for (ls_parameter *p = m->parameters; p; p = p->next)
        if (!strcmp(p->path, path))
            return &p->init;
    for (ls_module *c = m->children; c; c = c->next) {
        const ls_init *found = init_of(c, path);
        if (found)
            return found;
    }
    return NULL;
}

static void test_init_of_models(void)
{
    static const struct {
        ls_module *(*make)(void);
        const char  *path;
        ls_init_kind kind;
        double       value;
    } rows[] = {
        {new_gpt2, "wte.weight", LS_INIT_NORMAL, 0.02},
        {new_gpt2, "wpe.weight", LS_INIT_NORMAL, 0.02},
        {new_gpt2, "h.1.attn.qkv.weight", LS_INIT_NORMAL, 0.02},
        {new_gpt2, "h.1.attn.proj.weight", LS_INIT_NORMAL, 0.02 / 2}, /* sqrt(2 * 2 layers) */
        {new_gpt2, "h.1.mlp.proj.weight", LS_INIT_NORMAL, 0.02 / 2},
        {new_gpt2, "h.0.mlp.fc.bias", LS_INIT_CONSTANT, 0},
        {new_gpt2, "h.0.ln_1.weight", LS_INIT_CONSTANT, 1},
        {new_gpt2, "ln_f.bias", LS_INIT_CONSTANT, 0},
        {new_llama, "lm_head.weight", LS_INIT_NORMAL, 0.02},
        {new_llama, "h.0.mlp.gate.weight", LS_INIT_NORMAL, 0.02},
        {new_llama, "h.0.ln_2.weight", LS_INIT_CONSTANT, 1},
        {new_mlp, "layers.0.weight", LS_INIT_UNIFORM, 0.44721359549995793}, /* 1 / sqrt(5) */
        {new_mlp, "layers.1.bias", LS_INIT_UNIFORM, 0.3779644730092272},    /* 1 / sqrt(7) */
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_module     *m    = rows[i].make();
        const ls_init *init = init_of(m, rows[i].path);
        TEST_ROW(rows[i].path);
        if (CHECK(init) && CHECK(init->kind == rows[i].kind))
            CHECK_CLOSE(init->value, rows[i].value, 1e-17);
        ls_module_free(m);
    }
}

/* A model's values are those that ls_init_fill gives by path. */
static void test_init_by_path(void)
{
    int              n;
    ls_module       *m    = new_gpt2();
    ls_named_tensor *list = ls_module_list(m, false, &n);
    ls_real          want[V * C];

    TEST_ROW("init by path");
    CHECK_OK(ls_module_init(m, 42));
    ls_init_fill(init_of(m, "wte.weight"), 42, "wte.weight", 0, V * C, want);
    CHECK_BITS(ls_reals(list[0].tensor), want, sizeof want);
    free(list);
    ls_module_free(m);
}

/* --- calls ----------------------------------------------------------------------------------
 */

static const int32_t ids[B * T]     = {1, 4, 10, 0, 7, 3, 2, 2, 9, 5, 6, 8};
static const int32_t targets[B * T] = {4, 10, 0, 7, 3, 2, 2, -100, 5, 6, 8, 1};

static ls_tensor *tokens(ls_tape *tape, const int32_t *from, int64_t t)
{
    return ls_tape_input(tape, LS_I32, LS_SHAPE2(B, t), from);
}

/* Positive losses of about log V, the sum of what the logits say. */
static void test_loss_of_logits(const style *s, int64_t t)
{
    ls_module *m    = s->make();
    ls_tape   *tape = ls_tape_new();

    TEST_ROW(s->name);
    CHECK_OK(ls_module_init(m, 3));
    ls_tensor *logits = ls_module_call(m, tape, tokens(tape, ids, t));
    ls_tensor *direct =
        ls_module_call_with(m, tape, tokens(tape, ids, t), tokens(tape, targets, t));
    ls_tensor *apart = ls_cross_entropy(tape, logits, tokens(tape, targets, t), LS_IGNORE);
    if (CHECK_OK(ls_tape_status(tape))) {
        CHECK(ls_shape_equal(&logits->shape, &LS_SHAPE3(B, t, V)) && direct->shape.ndim == 0);
        CHECK_CLOSE(ls_item(direct), ls_item(apart), 1e-5 * ls_item(apart));
        int64_t counted = 0;
        for (int64_t i = 0; i < B * t; i++)
            counted += targets[i] != LS_IGNORE;
        CHECK_CLOSE(ls_item(direct) / (double)counted, log(V), 0.2);
    }
    ls_tape_free(tape);
    ls_module_free(m);
}

/* Causal: the first tokens' logits do not depend on what follows, nor on the length. */
static void test_prefix(const style *s)
{
    ls_module *m    = s->make();
    ls_tape   *tape = ls_tape_new();

    TEST_ROW(s->name);
    CHECK_OK(ls_module_init(m, 3));
    ls_tensor *whole =
        ls_module_call(m, tape, ls_tape_input(tape, LS_I32, LS_SHAPE2(1, T), ids));
    ls_tensor *part =
        ls_module_call(m, tape, ls_tape_input(tape, LS_I32, LS_SHAPE2(1, 3), ids));
    if (CHECK_OK(ls_tape_status(tape)))
        for (int i = 0; i < 3 * V; i++)
            CHECK_CLOSE(ls_reals(whole)[i], ls_reals(part)[i], 1e-6);
    ls_tape_free(tape);
    ls_module_free(m);
}

/* Runs a step of a GPT; the loss and all gradients, one after another, in out. */
static size_t step_of(const ls_gpt_opts *o, ls_real *out)
{
    int              n;
    size_t           used = 1;
    ls_module       *m    = ls_gpt_new(o);
    ls_named_tensor *list = ls_module_list(m, false, &n);
    ls_tape         *tape = ls_tape_new();

    CHECK_OK(ls_module_init(m, 3));
    ls_tape_set_random(tape, &(ls_random){.seed = 1, .step = 1});
    ls_tensor *loss =
        ls_module_call_with(m, tape, tokens(tape, ids, T), tokens(tape, targets, T));
    if (CHECK_OK(ls_backward(tape, loss)))
        out[0] = (ls_real)ls_item(loss);
    for (int i = 0; i < n; i++) {
        int64_t count = ls_tensor_numel(list[i].tensor);
        if (CHECK(list[i].tensor->grad))
            memcpy(out + used, ls_tensor_grad(list[i].tensor), (size_t)count * sizeof *out);
        used += (size_t)count;
    }
    free(list);
    ls_tape_free(tape);
    ls_module_free(m);
    return used;
}

enum { STEP_MAX = 4096 };

/* Recomputed blocks, with dropout, give every bit of a plain step. */
static void test_recompute(const char *row, ls_gpt_opts o)
{
    static ls_real plain[STEP_MAX], again[STEP_MAX];

    TEST_ROW(row);
    o.dropout     = 0.25;
    size_t n      = step_of(&o, plain);
    o.recompute   = true;
    size_t n_more = step_of(&o, again);
    CHECK(n == n_more && n < STEP_MAX);
    CHECK_BITS(plain, again, n * sizeof *plain);
    o.dropout = 0;
    step_of(&o, again);
    CHECK(memcmp(plain, again, n * sizeof *plain)); /* dropout was on */
}

/* A tied head: one parameter, whose gradient is the head's and the embedding's together. */
static void test_tied(void)
{
    static ls_real   tied[STEP_MAX], apart[STEP_MAX];
    ls_gpt_opts      o = gpt2_style();
    int              n, m;
    ls_module       *one = new_gpt2(), *two;
    ls_named_tensor *list;

    TEST_ROW("tied");
    o.tie_embeddings = false;
    two              = ls_gpt_new(&o);
    free(ls_module_list(one, false, &n));
    list = ls_module_list(two, false, &m);
    CHECK(m == n + 1 && !strcmp(list[n].name, "lm_head.weight"));
    CHECK(ls_module_parameter_count(two) == ls_module_parameter_count(one) + V * C);
    free(list);
    ls_module_free(one);
    ls_module_free(two);
    o.tie_embeddings = true;
    step_of(&o, tied);
    CHECK(tied[0] > 0);
    o.tie_embeddings = false;
    step_of(&o, apart);
    CHECK(memcmp(tied + 1, apart + 1, V * C * sizeof *tied));
    double size = 0; /* rows of tokens that are no input get the head's part alone */
    for (int i = 0; i < C; i++)
        size += fabs((double)tied[1 + 10 * C + i]);
    CHECK(size > 0);
}

typedef struct {
    int        before, after;
    ls_tensor *in, *out;
} calls;

static ls_tensor *count_before(void *context, ls_module *m, ls_tape *tape, ls_tensor *x)
{
    calls *c = context;

    (void)m;
    CHECK(c->before++ == c->after);
    return c->in = ls_scale(tape, x, 1);
}

static ls_tensor *count_after(void *context, ls_module *m, ls_tape *tape, ls_tensor *out)
{
    calls *c = context;

    (void)m;
    c->after++;
    return c->out = ls_scale(tape, out, 2);
}

static void test_hooks(void)
{
    calls      c    = {0};
    ls_module *m    = new_mlp();
    ls_tape   *tape = ls_tape_new();
    ls_real    data[10];

    TEST_ROW("hooks");
    CHECK_OK(ls_module_init(m, 1));
    ls_init_fill(&(ls_init){LS_INIT_UNIFORM, 1}, 1, "x", 0, 10, data);
    ls_tensor *x     = ls_tape_input(tape, LS_REAL, LS_SHAPE2(2, 5), data);
    ls_tensor *plain = ls_module_call(m, tape, x);
    ls_module_set_hook(m, (ls_module_hook){count_before, count_after, &c});
    ls_tensor *hooked = ls_module_call(m, tape, x);
    if (CHECK_OK(ls_tape_status(tape))) {
        CHECK(c.before == 1 && c.after == 1 && hooked == c.out && c.in != x);
        for (int i = 0; i < 6; i++)
            CHECK_CLOSE(ls_reals(hooked)[i], 2 * ls_reals(plain)[i], 0);
    }
    ls_tape_free(tape);
    ls_module_free(m);
}

/* Without recording, nothing that a module made in between stays. */
static void test_scopes(void)
{
    ls_module *m    = new_gpt2();
    ls_tape   *tape = ls_tape_new();

    TEST_ROW("scopes");
    CHECK_OK(ls_module_init(m, 1));
    ls_tape_set_grad(tape, false);
    ls_tensor *x      = tokens(tape, ids, T);
    int64_t    before = ls_mem_get_stats().current[LS_MEM_ACTIVATIONS];
    ls_tensor *logits = ls_module_call(m, tape, x);
    int64_t    after  = ls_mem_get_stats().current[LS_MEM_ACTIVATIONS];
    CHECK_OK(ls_tape_status(tape));
    CHECK(after - before <
          (int64_t)ls_tensor_bytes(logits) + 64); /* blocks are multiples of 64 */
    ls_tape_free(tape);
    ls_module_free(m);
}

static void test_mlp_activations(void)
{
    static const ls_mlp_activation kinds[] = {LS_MLP_RELU, LS_MLP_ERF_GELU, LS_MLP_TANH};
    static ls_tensor *(*const apply[])(ls_tape *, ls_tensor *) = {ls_relu, ls_gelu, ls_tanh};

    TEST_ROW("mlp by hand");
    for (int k = 0; k < 3; k++) {
        int        n;
        ls_module *m = ls_mlp_new(&(ls_mlp_opts){3, (const int64_t[]){5, 7, 3}, kinds[k]});
        ls_named_tensor *p    = ls_module_list(m, false, &n);
        ls_tape         *tape = ls_tape_new();
        CHECK_OK(ls_module_init(m, 1));
        ls_tensor *x = ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(4, 5));
        ls_init_fill(&(ls_init){LS_INIT_UNIFORM, 1}, 1, "x", 0, 20, ls_reals(x));
        ls_tensor *h = apply[k](tape, ls_linear(tape, x, p[0].tensor, p[1].tensor));
        ls_tensor *y = ls_linear(tape, h, p[2].tensor, p[3].tensor);
        ls_tensor *z = ls_module_call(m, tape, x);
        if (CHECK_OK(ls_tape_status(tape)))
            CHECK_BITS(ls_reals(y), ls_reals(z), ls_tensor_bytes(y));
        free(p);
        ls_tape_free(tape);
        ls_module_free(m);
    }
    CHECK(!ls_mlp_new(&(ls_mlp_opts){1, (const int64_t[]){5}, LS_MLP_RELU}));
    CHECK_FAILS(LS_EINVAL, LS_EINVAL, "1 sizes, want at least 2");
}

/* --- layers by hand --------------------------------------------------------------------------
 */

static ls_tensor *parameter(ls_module *m, const char *path)
{
    for (ls_parameter *p = m->parameters; p; p = p->next)
        if (!strcmp(p->path, path))
            return &p->tensor;
    for (ls_module *c = m->children; c; c = c->next) {
        ls_tensor *found = parameter(c, path);
        if (found)
            return found;
    }
    return NULL;
}

/* The result of a module equals that of the operators it should be made of. */
static void compare_layer(ls_module *root, ls_module *layer,
                          ls_tensor *(*by_hand)(ls_tape *, ls_module *, ls_tensor *))
{
    ls_tape *tape = ls_tape_new();

    CHECK_OK(ls_module_init(root, 5));
    ls_tensor *x = ls_tape_tensor(tape, LS_REAL, LS_SHAPE3(B, T, C));
    ls_init_fill(&(ls_init){LS_INIT_NORMAL, 1}, 1, "x", 0, B * T * C, ls_reals(x));
    ls_tensor *want = by_hand(tape, root, x);
    ls_tensor *got  = ls_module_call(layer, tape, x);
    if (CHECK_OK(ls_tape_status(tape)))
        CHECK_BITS(ls_reals(want), ls_reals(got), ls_tensor_bytes(got));
    ls_tape_free(tape);
    ls_module_free(root);
}

static ls_tensor *linear_of(ls_tape *tape, ls_module *root, const char *weight, ls_tensor *x)
{
    return ls_linear(tape, x, parameter(root, weight), NULL);
}

static const ls_heads grouped = {.n_head = 2, .n_kv_head = 1, .rope_base = 100};

static ls_tensor *attention_by_hand(ls_tape *tape, ls_module *root, ls_tensor *x)
{
    x = ls_attention(tape, linear_of(tape, root, "l.qkv.weight", x), &grouped);
    return linear_of(tape, root, "l.proj.weight", x);
}

static ls_tensor *rotated_by_hand(ls_tape *tape, ls_module *root, ls_tensor *x)
{
    x = ls_rope(tape, linear_of(tape, root, "l.qkv.weight", x), &grouped);
    return linear_of(tape, root, "l.proj.weight", ls_attention(tape, x, &grouped));
}

static ls_tensor *gelu_by_hand(ls_tape *tape, ls_module *root, ls_tensor *x)
{
    x = ls_gelu(tape, linear_of(tape, root, "l.fc.weight", x));
    return linear_of(tape, root, "l.proj.weight", x);
}

static ls_tensor *gelu_tanh_by_hand(ls_tape *tape, ls_module *root, ls_tensor *x)
{
    x = ls_gelu_tanh(tape, linear_of(tape, root, "l.fc.weight", x));
    return linear_of(tape, root, "l.proj.weight", x);
}

static ls_tensor *swiglu_by_hand(ls_tape *tape, ls_module *root, ls_tensor *x)
{
    ls_tensor *gate = linear_of(tape, root, "l.gate.weight", x);
    x               = ls_swiglu(tape, gate, linear_of(tape, root, "l.up.weight", x));
    return linear_of(tape, root, "l.proj.weight", x);
}

static void test_layers(void)
{
    static ls_tensor *(*const mlp[])(ls_tape *, ls_module *,
                                     ls_tensor *) = {[LS_MLP_GELU]      = gelu_by_hand,
                                                     [LS_MLP_GELU_TANH] = gelu_tanh_by_hand,
                                                     [LS_MLP_SWIGLU]    = swiglu_by_hand};
    ls_init init                                  = {LS_INIT_NORMAL, 0.5};

    for (int rope = 0; rope < 2; rope++) {
        ls_module        *root = ls_module_new(&plain_class, sizeof *root, NULL, "");
        ls_attention_opts o    = {C, grouped, rope, false, init, init};
        TEST_ROW(rope ? "attention, rope" : "attention");
        compare_layer(root, ls_attention_new(root, "l", &o),
                      rope ? rotated_by_hand : attention_by_hand);
    }
    for (ls_mlp_kind kind = LS_MLP_GELU; kind <= LS_MLP_SWIGLU; kind++) {
        ls_module          *root = ls_module_new(&plain_class, sizeof *root, NULL, "");
        ls_feedforward_opts o    = {kind, C, 12, false, init, init};
        TEST_ROW(((const char *[]){"gelu", "gelu_tanh", "swiglu"})[kind]);
        compare_layer(root, ls_feedforward_new(root, "l", &o), mlp[kind]);
    }
}

/* --- wrong calls ----------------------------------------------------------------------------
 */

static ls_tensor *long_tokens(ls_tape *tape)
{
    static const int32_t zero[T + 1];
    return ls_tape_input(tape, LS_I32, LS_SHAPE2(1, T + 1), zero);
}

static ls_tensor *flat_tokens(ls_tape *tape)
{
    return ls_tape_input(tape, LS_I32, LS_SHAPE1(T), ids);
}

static ls_tensor *real_tokens(ls_tape *tape)
{
    return ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(B, T));
}

static ls_tensor *no_tokens(ls_tape *tape)
{
    (void)tape;
    return NULL;
}

static ls_tensor *narrow_rows(ls_tape *tape)
{
    return ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(2, 4));
}

static void test_wrong(void)
{
    static const struct {
        const char *row;
        ls_module *(*make)(void);
        ls_tensor *(*input)(ls_tape *tape);
        ls_status   status;
        const char *text;
    } rows[] = {
        {"too long", new_gpt2, long_tokens, LS_ESHAPE,
         "gpt: tokens (1,7), want (B,T) with T <= 6"},
        {"one dimension", new_gpt2, flat_tokens, LS_ESHAPE, "gpt: tokens (6), want (B,T)"},
        {"reals", new_gpt2, real_tokens, LS_ESHAPE, "F32"},
        {"NULL", new_gpt2, no_tokens, LS_EINVAL, "gpt: tokens are NULL"},
        {"mlp, narrow", new_mlp, narrow_rows, LS_ESHAPE, "(2,4)"},
        {"mlp, NULL", new_mlp, no_tokens, LS_EINVAL, "NULL"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_module *m    = rows[i].make();
        ls_tape   *tape = ls_tape_new();
        TEST_ROW(rows[i].row);
        CHECK_OK(ls_module_init(m, 1));
        CHECK(!ls_module_call(m, tape, rows[i].input(tape)));
        CHECK_FAILS(ls_tape_status(tape), rows[i].status, rows[i].text);
        ls_tape_free(tape);
        ls_module_free(m);
    }
}

/* Options that do not fit: a message, and no model. */
static void test_wrong_options(void)
{
    static const struct {
        size_t      field;
        int64_t     value;
        const char *text;
    } rows[] = {
        {offsetof(ls_gpt_opts, vocab_size), 0, "gpt: vocab_size is 0, want at least 1"},
        {offsetof(ls_gpt_opts, n_layer), -1, "gpt: n_layer is -1"},
        {offsetof(ls_gpt_opts, n_head), 0, "gpt: n_head is 0"},
        {offsetof(ls_gpt_opts, n_head), 3, "gpt: d_model 8, want a multiple of n_head 3"},
        {offsetof(ls_gpt_opts, n_head), 8, "gpt: rope with heads of 1 channels"},
        {offsetof(ls_gpt_opts, n_kv_head), 3, "gpt: n_kv_head 3, want a divisor of n_head 2"},
        {offsetof(ls_gpt_opts, d_ff), 0, "gpt: d_ff is 0"},
        {offsetof(ls_gpt_opts, context), 0, "gpt: context is 0"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_gpt_opts o = llama_style();
        memcpy((char *)&o + rows[i].field, &rows[i].value, sizeof rows[i].value);
        TEST_ROW(rows[i].text);
        CHECK(!ls_gpt_new(&o));
        CHECK_FAILS(LS_EINVAL, LS_EINVAL, rows[i].text);
    }
    CHECK(!ls_mlp_new(&(ls_mlp_opts){2, (const int64_t[]){5, 0}, LS_MLP_RELU}));
    CHECK_FAILS(LS_EINVAL, LS_EINVAL, "mlp: size 1 is 0");
}

static void test_wrong_arguments(void)
{
    const int64_t huge = (int64_t)1 << 40;
    ls_tape      *tape = ls_tape_new();

    TEST_ROW("NULL");
    CHECK(!ls_gpt_new(NULL));
    CHECK_FAILS(LS_EINVAL, LS_EINVAL, "gpt: the options are NULL");
    CHECK(!ls_mlp_new(NULL) && !ls_mlp_new(&(ls_mlp_opts){.n_sizes = 2}));
    CHECK_FAILS(LS_EINVAL, LS_EINVAL, "mlp: the options or their sizes are NULL");
    CHECK_FAILS(ls_module_init(NULL, 1), LS_EINVAL, "the module is NULL");
    CHECK(!ls_module_call(NULL, tape, NULL));
    CHECK_FAILS(ls_tape_status(tape), LS_EINVAL, "the module is NULL");
    CHECK(!ls_module_call(NULL, tape, NULL));
    ls_tape_free(tape);

    TEST_ROW("sizes whose product wraps");
    ls_gpt_opts o = llama_style();
    o.vocab_size = o.d_ff = huge, o.d_model = huge;
    CHECK(!ls_gpt_new(&o));
    CHECK_FAILS(LS_ESHAPE, LS_ESHAPE, "(1099511627776,1099511627776)");
    CHECK(!ls_mlp_new(&(ls_mlp_opts){2, (const int64_t[]){huge, huge}, LS_MLP_RELU}));

    TEST_ROW("values twice");
    int              n;
    ls_module       *m = new_mlp();
    ls_named_tensor *p = ls_module_list(m, false, &n);
    CHECK_OK(ls_module_init(m, 1));
    ls_real first = ls_reals(p[0].tensor)[0];
    CHECK_OK(ls_module_init(m, 2));
    CHECK(ls_reals(p[0].tensor)[0] != first);
    CHECK_OK(ls_module_init(m, 1));
    CHECK(ls_reals(p[0].tensor)[0] == first);
    free(p);
    ls_module_free(m);
}

/* --- out of memory --------------------------------------------------------------------------
 */

/* A whole training step; on failure everything made so far is given back. */
static ls_status whole_step(const style *s)
{
    int              n;
    ls_status        status = LS_ENOMEM;
    ls_module       *m      = s->make();
    ls_named_tensor *p      = ls_module_list(m, false, &n);
    ls_optimizer    *opt    = ls_optimizer_new(p, n, &(ls_optimizer_opts){.lr = 0.1});
    ls_grad_sum     *sum    = p ? ls_grad_sum_new(p, n) : NULL;
    ls_tape         *tape   = ls_tape_new();

    if (m && p && opt && sum && tape)
        status = ls_module_init(m, 1);
    if (status)
        goto out_free;
    ls_grad_sum_begin(sum, tape);
    for (int micro = 0; micro < 3 && !status; micro++) {
        ls_tape_reset(tape);
        bool       mlp = s->make == new_mlp;
        ls_tensor *x =
            mlp ? ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(2, 5)) : tokens(tape, ids, T);
        ls_tensor *y = mlp ? ls_tape_input(tape, LS_I32, LS_SHAPE1(2), (int32_t[]){2, 0})
                           : tokens(tape, targets, T);
        if (mlp && x)
            memset(ls_reals(x), 0, ls_tensor_bytes(x));
        ls_tensor *loss = ls_module_call_with(m, tape, x, y);
        status          = ls_backward(tape, loss);
        if (!status)
            status = ls_grad_sum_end_micro(sum);
    }
    ls_grad_sum_finish(sum, tape);
    ls_exact_sum squares;
    ls_exact_sum_init(&squares);
    if (!status)
        status = ls_grad_squares(p, n, &squares);
    if (!status)
        ls_optimizer_step(opt, 1);
out_free:
    ls_tape_free(tape);
    ls_grad_sum_free(sum);
    ls_optimizer_free(opt);
    free(p);
    ls_module_free(m);
    return status;
}

static void test_memory(const style *s)
{
    int64_t   before = ls_mem_get_stats().total, n = 0;
    ls_status status;

    TEST_ROW(s->name);
    do {
        ls_alloc_fail_after(n++);
        status = whole_step(s);
        if (!CHECK(status == LS_OK || status == LS_ENOMEM) ||
            !CHECK(ls_mem_get_stats().total == before))
            break;
    } while (status);
    ls_alloc_fail_after(-1);
    CHECK(n > 30); /* the failures did reach the step */
}

int main(void)
{
    for (int i = 0; i < STYLES; i++)
        test_names(&styles[i]);
    test_matmul_weights();
    test_tree();
    test_init();
    test_init_of_models();
    test_init_by_path();
    for (int i = 0; i < STYLES - 1; i++) {
        test_loss_of_logits(&styles[i], T);
        test_loss_of_logits(&styles[i], 3);
        test_prefix(&styles[i]);
    }
    test_recompute("recompute, gpt2", gpt2_style());
    test_recompute("recompute, llama", llama_style());
    test_tied();
    test_hooks();
    test_scopes();
    test_mlp_activations();
    test_layers();
    test_wrong();
    test_wrong_options();
    test_wrong_arguments();
    for (int i = 0; i < STYLES; i++)
        test_memory(&styles[i]);
    return test_summary("nn");
}

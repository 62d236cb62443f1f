/*
 * test_tape.c - the promises of tape.h: sticky errors, order, the two hooks, memory, recompute.
 *
 * N rows of C channels run through layers y = gelu(x W^T) with square weights W.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/kernels/gemm.h"
#include "core/rng.h"
#include "test.h"

enum { N = 5, C = 8, WEIGHTS = 4, SIZE = C * C };

static ls_tensor weight[WEIGHTS];
static ls_real   input[N * C];
static ls_tape  *tape;

static int64_t activations(void)
{
    return ls_mem_get_stats().current[LS_MEM_ACTIVATIONS];
}

static void fill(ls_real *x, int64_t n, uint32_t stream)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t draw = ls_rng_draw(3, LS_RNG_SAMPLE, stream, 0, (uint64_t)i).v[0];
        x[i]          = (ls_real)(ls_rng_unit(draw) * 2 - 1);
    }
}

static void open_all(void)
{
    tape = ls_tape_new();
    fill(input, N * C, 100);
    for (int i = 0; i < WEIGHTS; i++) {
        weight[i] = ls_tensor_header(LS_REAL, LS_SHAPE2(C, C));
        CHECK_OK(ls_tensor_materialize(&weight[i], LS_MEM_PARAMS));
        weight[i].requires_grad = true;
        fill(ls_reals(&weight[i]), SIZE, (uint32_t)i);
    }
}

static void zero_grads(void)
{
    for (int i = 0; i < WEIGHTS; i++)
        ls_tensor_zero_grad(&weight[i]);
}

static void start(const char *row)
{
    TEST_ROW(row);
    zero_grads();
    ls_tape_reset(tape);
    ls_tape_on_leaf(tape, NULL, NULL);
    ls_tape_set_grad(tape, true);
    ls_tape_set_training(tape, true);
    ls_tape_set_random(tape, &(ls_random){.seed = 1, .step = 2});
}

static ls_tensor *data(void)
{
    return ls_tape_input(tape, LS_REAL, LS_SHAPE2(N, C), input);
}

static ls_tensor *layer(ls_tensor *x, ls_tensor *w)
{
    return ls_gelu(tape, ls_linear(tape, x, w, NULL));
}

/* ---- errors ---- */

static void test_sticky_errors(void)
{
    start("sticky errors");
    ls_tensor *x = data();
    CHECK(!ls_relu(tape, ls_add(tape, x, ls_mul(tape, NULL, x))));
    CHECK_FAILS(ls_tape_status(tape), LS_EINVAL, "mul: input 0 is NULL");
    CHECK(!ls_add(tape, x, x) && !ls_reshape(tape, x, LS_SHAPE1(-1)) &&
          !ls_concat(tape, &x, 1, 0));
    CHECK(!ls_dropout(tape, x, 0) && !data() && !ls_contiguous(tape, x));
    CHECK(!ls_boundary(tape, x, NULL) && !ls_recompute(tape, x, NULL, NULL));
    CHECK_FAILS(ls_backward(tape, NULL), LS_EINVAL, "mul: input 0 is NULL");
    CHECK(!ls_tape_fail(tape, LS_EIO));
    CHECK(ls_tape_status(tape) == LS_EINVAL);

    start("reset clears");
    CHECK_OK(ls_tape_status(tape));
    CHECK(ls_add(tape, data(), data()) != NULL);

    start("a layer above fails the tape");
    CHECK(!ls_tape_fail(tape, ls_fail(LS_EIO, "disk")));
    CHECK(!data());
    CHECK_FAILS(ls_backward(tape, NULL), LS_EIO, "disk");
}

static void test_wrong_roots(void)
{
    start("roots that are none");
    ls_tensor *x = data();
    CHECK_FAILS(ls_backward(tape, NULL), LS_EINVAL, "NULL");
    CHECK_FAILS(ls_backward(tape, layer(x, &weight[0])), LS_ESHAPE, "(5,8)");
    CHECK_FAILS(ls_backward(tape, ls_sum(tape, x)), LS_ESTATE, "nothing that requires");
    CHECK_FAILS(ls_backward(tape, &weight[0]), LS_EINVAL, "another tape");
    ls_tape_set_grad(tape, false);
    CHECK_FAILS(ls_backward(tape, ls_sum(tape, layer(x, &weight[0]))), LS_ESTATE, "recording");
}

static void test_other_tape(void)
{
    start("a tensor of another tape");
    ls_tape   *other = ls_tape_new();
    ls_tensor *x     = ls_tape_input(other, LS_REAL, LS_SHAPE2(N, C), input);
    CHECK(!ls_sum(other, layer(data(), &weight[0])));
    CHECK_FAILS(ls_tape_status(other), LS_EINVAL, "sum: input 0 belongs to another tape");
    ls_tensor *loss = ls_sum(tape, layer(data(), &weight[0]));
    ls_tape_reset(other);
    CHECK_FAILS(ls_backward(other, loss), LS_EINVAL, "belongs to another tape");
    CHECK(!ls_linear(tape, x, &weight[0], NULL));
    CHECK_FAILS(ls_tape_status(tape), LS_EINVAL, "linear: input 0 belongs to another tape");
    ls_tape_free(other);
    ls_tape_free(NULL);
}

static ls_tensor *doubled(void *context, ls_tape *t, ls_tensor *x)
{
    (void)context;
    return ls_scale(t, x, 2);
}

/* A tensor of the tape whose value is gone. */
static ls_tensor *released(void)
{
    ls_scope   scope = ls_tape_scope_begin(tape);
    ls_tensor *x     = ls_linear(tape, data(), &weight[0], NULL);
    ls_tape_scope_end(tape, scope, NULL);
    return x;
}

typedef enum {
    NULL_DATA,
    NULL_ORDER,
    NULL_LIST,
    NULL_HEADS,
    NULL_HOOK,
    NULL_SEGMENT,
    HUGE_INPUT,
    SIX_DIMENSIONS,
    HUGE_PRODUCT,
    HUGE_VIEW,
    BOUNDARY_RELEASED,
    BOUNDARY_FOREIGN,
    RECOMPUTE_RELEASED,
    RECOMPUTE_FOREIGN
} misuse;

static ls_tensor *commit(misuse what, ls_tape *other)
{
    static const ls_boundary_hook hook;
    const int64_t                 large   = (int64_t)1 << 31;
    ls_tensor                    *foreign = ls_tape_tensor(other, LS_REAL, LS_SHAPE2(N, C));

    foreign->requires_grad = true;
    switch (what) {
    case NULL_DATA:
        return ls_tape_input(tape, LS_REAL, LS_SHAPE1(3), NULL);
    case NULL_ORDER:
        return ls_permute(tape, data(), NULL);
    case NULL_LIST:
        return ls_concat(tape, NULL, 2, 0);
    case NULL_HEADS:
        return ls_rope(tape, ls_attention(tape, data(), NULL), NULL);
    case NULL_HOOK:
        return ls_boundary(tape, data(), NULL);
    case NULL_SEGMENT:
        return ls_recompute(tape, data(), NULL, NULL);
    case HUGE_INPUT:
        return ls_tape_input(tape, LS_F32, LS_SHAPE3(large, large, 4), input);
    case SIX_DIMENSIONS:
        return ls_tape_tensor(tape, LS_REAL, (ls_shape){6, {1}});
    case HUGE_PRODUCT:
        return ls_matmul(tape, ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(large, 0)),
                         ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(0, large)), false, false);
    case HUGE_VIEW:
        return ls_reshape(tape, ls_tape_tensor(tape, LS_REAL, LS_SHAPE1(0)),
                          LS_SHAPE3(2 * large, 2 * large, 4));
    case BOUNDARY_RELEASED:
        return ls_boundary(tape, released(), &hook);
    case BOUNDARY_FOREIGN:
        return ls_boundary(tape, foreign, &hook);
    case RECOMPUTE_RELEASED:
        return ls_recompute(tape, released(), doubled, NULL);
    case RECOMPUTE_FOREIGN:
        break;
    }
    return ls_recompute(tape, foreign, doubled, NULL);
}

static void test_misuse(void)
{
    static const struct {
        misuse      what;
        ls_status   status;
        const char *text;
    } rows[] = {
        {NULL_DATA, LS_EINVAL, "input: data is NULL"},
        {NULL_ORDER, LS_EINVAL, "permute: the order is NULL"},
        {NULL_LIST, LS_EINVAL, "concat: the list of inputs is NULL"},
        {NULL_HEADS, LS_EINVAL, "attention: heads is NULL"},
        {NULL_HOOK, LS_EINVAL, "boundary: the hook is NULL"},
        {NULL_SEGMENT, LS_EINVAL, "recompute: the segment is NULL"},
        {HUGE_INPUT, LS_ESHAPE, "(2147483648,2147483648,4) of F32 is too large"},
        {SIX_DIMENSIONS, LS_ESHAPE, "of 6 dimensions"},
        {HUGE_PRODUCT, LS_ESHAPE, "matmul: a tensor (2147483648,2147483648)"},
        {HUGE_VIEW, LS_ESHAPE, "reshape: (0) (0 elements) to"},
        {BOUNDARY_RELEASED, LS_ESTATE, "boundary: the value of input 0 was released"},
        {BOUNDARY_FOREIGN, LS_EINVAL, "boundary: input 0 belongs to another tape"},
        {RECOMPUTE_RELEASED, LS_ESTATE, "recompute: the value of input 0 was released"},
        {RECOMPUTE_FOREIGN, LS_EINVAL, "recompute: input 0 belongs to another tape"},
    };
    ls_tape *other = ls_tape_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start(rows[i].text);
        CHECK(!commit(rows[i].what, other));
        CHECK_FAILS(ls_tape_status(tape), rows[i].status, rows[i].text);
    }
    ls_tape_free(other);

    start("no elements need no data");
    CHECK(ls_tape_input(tape, LS_REAL, LS_SHAPE2(0, C), NULL) != NULL);
    start("a loss from before the reset");
    ls_tensor *loss = ls_sum(tape, layer(data(), &weight[0]));
    ls_tape_reset(tape);
    CHECK_FAILS(ls_backward(tape, loss), LS_ESTATE, "the value of the loss was released");
    start("no options are the default ones");
    CHECK_OK(ls_backward_with(tape, ls_sum(tape, layer(data(), &weight[0])), NULL));
}

/* ---- backward, once and again ---- */

static ls_tensor *model(void)
{
    ls_tensor *x = data();
    for (int i = 0; i < WEIGHTS; i++)
        x = layer(x, &weight[i]);
    return ls_sum(tape, x);
}

static void keep_grads(ls_real *out)
{
    for (int i = 0; i < WEIGHTS; i++)
        if (CHECK(weight[i].grad != NULL))
            memcpy(out + i * SIZE, ls_tensor_grad(&weight[i]), SIZE * sizeof *out);
}

static void test_twice(void)
{
    ls_real once[WEIGHTS * SIZE], again[WEIGHTS * SIZE];

    start("backward twice");
    ls_tensor *loss = model();
    CHECK_OK(ls_backward(tape, loss));
    keep_grads(once);
    CHECK_FAILS(ls_backward(tape, loss), LS_ESTATE, "used up");
    keep_grads(again);
    CHECK_BITS(once, again, sizeof once);

    start("retain");
    loss = model();
    for (int i = 0; i < 3; i++) {
        zero_grads();
        CHECK_OK(ls_backward_with(tape, loss, &(ls_backward_opts){.retain = i < 2}));
        keep_grads(again);
        CHECK_BITS(once, again, sizeof once);
    }
    CHECK_FAILS(ls_backward(tape, loss), LS_ESTATE, "retain");
}

static void test_seed(void)
{
    ls_real seed[N * C], once[WEIGHTS * SIZE], twice[WEIGHTS * SIZE];

    start("seed");
    for (int i = 0; i < N * C; i++)
        seed[i] = 2;
    ls_tensor *x = data();
    for (int i = 0; i < WEIGHTS; i++)
        x = layer(x, &weight[i]);
    CHECK_OK(ls_backward_with(tape, x, &(ls_backward_opts){.seed = seed}));
    keep_grads(twice);
    start("seed");
    CHECK_OK(ls_backward(tape, model()));
    keep_grads(once);
    for (int i = 0; i < WEIGHTS * SIZE; i++)
        once[i] *= 2;
    CHECK_BITS(once, twice, sizeof once);
}

/* One micro-batch: a weight that is used twice, so that the fresh gradient is itself a sum. */
static ls_tensor *shared_model(ls_real factor)
{
    ls_tensor *x = ls_scale(tape, data(), (double)factor);
    return ls_sum(tape, layer(layer(layer(x, &weight[0]), &weight[1]), &weight[0]));
}

static void test_accumulation(void)
{
    ls_real g[3][SIZE], want[SIZE];

    for (int m = 0; m < 3; m++) {
        start("complete leaf + old");
        CHECK_OK(ls_backward(tape, shared_model((ls_real)(m + 1) / 7)));
        memcpy(g[m], ls_tensor_grad(&weight[0]), sizeof g[m]);
    }
    zero_grads();
    for (int m = 0; m < 3; m++) {
        ls_tape_reset(tape);
        CHECK_OK(ls_backward(tape, shared_model((ls_real)(m + 1) / 7)));
    }
    for (int i = 0; i < SIZE; i++)
        want[i] = g[2][i] + (g[1][i] + g[0][i]);
    CHECK_BITS(ls_tensor_grad(&weight[0]), want, sizeof want);
    CHECK(!weight[2].grad);
}

/* ---- memory ---- */

static void test_scopes(void)
{
    start("scopes");
    ls_tape_set_grad(tape, false);
    ls_tensor *x      = data();
    int64_t    before = activations();
    ls_scope   scope  = ls_tape_scope_begin(tape);
    ls_tensor *a = ls_scale(tape, x, 2), *b = ls_scale(tape, a, 3);
    int64_t    during = activations();
    ls_tape_scope_end(tape, scope, b);
    CHECK(!a->storage && b->storage && x->storage);
    CHECK((during - before) == 2 * (activations() - before));
    CHECK(ls_add(tape, x, b) != NULL);
    CHECK(!ls_add(tape, b, a));
    CHECK_FAILS(ls_tape_status(tape), LS_ESTATE, "add: the value of input 1 was released");

    start("nested scopes");
    scope         = ls_tape_scope_begin(tape);
    a             = ls_scale(tape, data(), 2);
    ls_scope deep = ls_tape_scope_begin(tape);
    b             = ls_scale(tape, a, 3);
    ls_tape_scope_end(tape, deep, b);
    CHECK(a->storage && b->storage);
    ls_tape_scope_end(tape, scope, NULL);
    CHECK(!a->storage && !b->storage);

    start("a view keeps the memory, not the value");
    scope = ls_tape_scope_begin(tape);
    a     = ls_scale(tape, data(), 2);
    b     = ls_reshape(tape, a, LS_SHAPE1(-1));
    ls_tape_scope_end(tape, scope, b);
    CHECK(!a->storage && b->storage && b->storage->refs == 1);

    start("what backward needs stays");
    scope           = ls_tape_scope_begin(tape);
    ls_tensor *loss = model();
    ls_tape_scope_end(tape, scope, loss);
    CHECK_OK(ls_backward(tape, loss));
    CHECK(ls_tensor_grad(&weight[0]) != NULL);
}

static void test_no_grad(void)
{
    start("recording off");
    ls_tape_set_grad(tape, false);
    int64_t    before = activations();
    ls_scope   scope  = ls_tape_scope_begin(tape);
    ls_tensor *loss   = model();
    ls_tape_scope_end(tape, scope, loss);
    CHECK(loss && !loss->requires_grad && !loss->node);
    CHECK(activations() - before == 64);
    CHECK(!ls_tape_get_grad(tape) && !ls_tape_set_grad(tape, true) && ls_tape_get_grad(tape));
}

enum { MOST_EVENTS = 64 };
typedef struct {
    char text[MOST_EVENTS]; /* a digit: a weight's gradient is complete; a letter: a boundary */
    int  n;
    int64_t bytes[MOST_EVENTS];
    int     fail_at; /* 1 + number of the event that fails; 0: none */
} events;

static ls_status note(events *e, char what)
{
    e->bytes[e->n]  = activations();
    e->text[e->n++] = what;
    return e->n == e->fail_at ? ls_fail(LS_EIO, "event %d", e->n) : LS_OK;
}

static ls_status on_leaf(void *context, ls_tensor *leaf)
{
    CHECK(leaf->grad != NULL);
    return note(context, (char)('0' + (leaf - weight)));
}

static void test_consumption(void)
{
    events e = {0};

    start("backward lets go of what it consumes");
    int64_t    before = activations();
    ls_scope   scope  = ls_tape_scope_begin(tape);
    ls_tensor *loss   = model();
    ls_tape_scope_end(tape, scope, loss);
    ls_tape_on_leaf(tape, on_leaf, &e);
    CHECK_OK(ls_backward(tape, loss));
    CHECK(activations() - before == 64);
    CHECK(e.n == WEIGHTS);
    for (int i = 1; i < e.n; i++)
        CHECK(e.bytes[i] < e.bytes[i - 1]);
}

static void test_reuse(void)
{
    int64_t reserved = 0;

    for (int step = 0; step < 4; step++) {
        start("a tape is used again without asking the system");
        CHECK_OK(ls_backward(tape, model()));
        if (step == 1)
            reserved = ls_mem_get_stats().reserved;
        CHECK(step < 1 || ls_mem_get_stats().reserved == reserved);
    }
    start("a long tape");
    ls_tensor *x = data();
    for (int i = 0; i < 2000; i++)
        x = ls_scale(tape, x, 1);
    CHECK_BITS(ls_reals(x), input, sizeof input);
}

/* ---- hooks ---- */

static void test_leaf_hook(void)
{
    static const struct {
        const char *name;
        int         use[6]; /* weights in the order of their layers; -1 ends */
        const char *order;
    } rows[] = {
        {"each once", {0, 1, 2, 3, -1}, "3210"},
        {"another order", {2, 0, 3, -1}, "302"},
        {"shared", {0, 1, 0, -1}, "10"},
        {"shared in a row", {1, 1, 1, -1}, "1"},
        {"shared, first use last", {0, 1, 2, 1, 0, -1}, "210"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        events e = {0};
        start(rows[r].name);
        ls_tensor *x = data();
        for (const int *w = rows[r].use; *w >= 0; w++)
            x = layer(x, &weight[*w]);
        ls_tape_on_leaf(tape, on_leaf, &e);
        CHECK_OK(ls_backward(tape, ls_sum(tape, x)));
        CHECK(!strcmp(e.text, rows[r].order));
    }
}

static void test_leaves_off_the_path(void)
{
    events e = {0};

    start("leaves that the loss does not see");
    ls_tape_on_leaf(tape, on_leaf, &e);
    ls_tensor *x = layer(data(), &weight[0]);
    CHECK(layer(x, &weight[1]) != NULL);
    weight[2].requires_grad = false;
    CHECK_OK(ls_backward(tape, ls_sum(tape, layer(x, &weight[2]))));
    weight[2].requires_grad = true;
    CHECK(!strcmp(e.text, "0") && !weight[1].grad && !weight[2].grad);
}

typedef struct {
    ls_storage *grad[WEIGHTS];
} taken;

static ls_status take(void *context, ls_tensor *leaf)
{
    ((taken *)context)->grad[leaf - weight] = leaf->grad;
    leaf->grad                              = NULL;
    return LS_OK;
}

static void test_taking(void)
{
    ls_real want[WEIGHTS * SIZE];
    taken   t = {{NULL}};

    start("the hook takes gradients");
    CHECK_OK(ls_backward(tape, model()));
    keep_grads(want);
    start("the hook takes gradients");
    ls_tape_on_leaf(tape, take, &t);
    CHECK_OK(ls_backward(tape, model()));
    for (int i = 0; i < WEIGHTS; i++) {
        CHECK(!weight[i].grad && t.grad[i] && t.grad[i]->refs == 1);
        CHECK_BITS(t.grad[i]->data, want + i * SIZE, SIZE * sizeof *want);
        ls_storage_release(t.grad[i]);
    }
}

static void test_failing_hook(void)
{
    ls_real old[SIZE];

    for (int at = 1; at <= WEIGHTS; at++) {
        events e = {.fail_at = at};
        start("a failing hook ends backward");
        CHECK_OK(ls_backward(tape, model()));
        memcpy(old, ls_tensor_grad(&weight[0]), sizeof old);
        ls_tape_reset(tape);
        ls_tape_on_leaf(tape, on_leaf, &e);
        CHECK_FAILS(ls_backward(tape, model()), LS_EIO, "event");
        CHECK(e.n == at && ls_tape_status(tape) == LS_EIO);
        if (at < WEIGHTS) /* not reached: its gradient is what it was */
            CHECK_BITS(ls_tensor_grad(&weight[0]), old, sizeof old);
    }
}

typedef struct {
    events *events;
    char    letter;
} marker;

static ls_status reached(void *context)
{
    const marker *m = context;
    return note(m->events, m->letter);
}

static void test_boundary(void)
{
    ls_real          want[WEIGHTS * SIZE], got[WEIGHTS * SIZE];
    events           e    = {0};
    marker           m[3] = {{&e, 'a'}, {&e, 'b'}, {&e, 'c'}};
    ls_boundary_hook h[3] = {{reached, &m[0]}, {reached, &m[1]}, {reached, &m[2]}};

    start("boundary");
    CHECK_OK(ls_backward(tape, model()));
    keep_grads(want);
    for (int fail = 0; fail <= 6; fail++) {
        start("boundary");
        e            = (events){.fail_at = fail};
        ls_tensor *x = layer(layer(data(), &weight[0]), &weight[1]);
        x            = layer(ls_boundary(tape, x, &h[0]), &weight[2]);
        x            = ls_boundary(tape, layer(ls_boundary(tape, x, &h[1]), &weight[3]), &h[2]);
        ls_tape_on_leaf(tape, on_leaf, &e);
        ls_status status = ls_backward(tape, ls_sum(tape, x));
        CHECK(status == (fail ? LS_EIO : LS_OK));
        CHECK(!strncmp(e.text, "c3b2a10", (size_t)(fail ? fail : 7)) &&
              e.n == (fail ? fail : 7));
        if (!fail)
            keep_grads(got);
    }
    CHECK_BITS(want, got, sizeof want);

    start("boundary of a leaf, of data, without recording");
    e            = (events){0};
    ls_tensor *x = data();
    CHECK(ls_boundary(tape, x, &h[0]) == x);
    CHECK_OK(ls_backward(tape, ls_sum(tape, layer(x, ls_boundary(tape, &weight[0], &h[1])))));
    CHECK(!strcmp(e.text, "b") && weight[0].grad);
    ls_tape_set_grad(tape, false);
    CHECK(ls_boundary(tape, &weight[0], &h[0]) == &weight[0]);
}

/* ---- recompute ---- */

static ls_tensor *dropped_layer(ls_tape *t, ls_tensor *x, ls_tensor *w)
{
    return ls_add(t, x, ls_dropout(t, ls_gelu(t, ls_linear(t, x, w, NULL)), 0.25));
}

/* Two layers; context points to the first weight. */
static ls_tensor *two_layers(void *context, ls_tape *t, ls_tensor *x)
{
    ls_tensor *w = context;
    return dropped_layer(t, dropped_layer(t, x, &w[0]), &w[1]);
}

/* The second of them once more in a segment of its own. */
static ls_tensor *one_layer(void *context, ls_tape *t, ls_tensor *x)
{
    return dropped_layer(t, x, context);
}

static ls_tensor *nested(void *context, ls_tape *t, ls_tensor *x)
{
    ls_tensor *w = context;
    return ls_recompute(t, dropped_layer(t, x, &w[0]), one_layer, &w[1]);
}

/* Tied to what stands outside of the segment, and used twice in it. */
static ls_tensor *tied(void *context, ls_tape *t, ls_tensor *x)
{
    ls_tensor *w = context;
    return dropped_layer(t, two_layers(w, t, x), &w[0]);
}

static ls_tensor *same(void *context, ls_tape *t, ls_tensor *x)
{
    (void)context;
    (void)t;
    return x;
}

static ls_tensor *ignores_x(void *context, ls_tape *t, ls_tensor *x)
{
    return ls_add(t, ls_scale(t, x, 0), ls_slice(t, ls_gelu(t, context), 0, 0, N));
}

static ls_tensor *only_weights(void *context, ls_tape *t, ls_tensor *x)
{
    (void)x;
    return ls_slice(t, ls_gelu(t, context), 0, 0, N);
}

typedef enum { PLAIN, ONE_SEGMENT, EACH_SEGMENT } how;

static ls_tensor *call(how h, ls_segment run, ls_tensor *w, ls_tensor *x)
{
    return h == PLAIN ? run(w, tape, x) : ls_recompute(tape, x, run, w);
}

/* Dropout before, in and after; weight 0 before and after the segment as well, and the
 * segment's input has another use, so that its gradient is a sum that goes on inside. */
static ls_tensor *recomputed_model(how h, ls_segment run)
{
    ls_tensor *x = dropped_layer(tape, data(), &weight[0]);
    ls_tensor *y = call(h, run, &weight[1], x);
    x            = ls_add(tape, y, layer(x, &weight[1]));
    x            = dropped_layer(tape, x, &weight[1]);
    x            = call(h == EACH_SEGMENT ? h : PLAIN, two_layers, &weight[2], x);
    return ls_sum(tape, dropped_layer(tape, x, &weight[0]));
}

static void test_recompute(void)
{
    static const struct {
        const char *name;
        ls_segment  run;
        const char *plain, *recomputed; /* order of the leaf hook */
    } rows[] = {{"two layers", two_layers, "3210", "3210"},
                {"nested", nested, "3210", "3210"},
                {"tied", tied, "3210", "3210"},
                {"the identity", same, "3210", "3210"},
                {"x without effect", ignores_x, "3210", "3210"},
                {"weights without x", only_weights, "3210", "3210"}};

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ls_real grads[3][WEIGHTS * SIZE];
        double  loss[3];
        events  e[3] = {{.n = 0}};
        for (how h = PLAIN; h <= EACH_SEGMENT; h++) {
            start(rows[r].name);
            ls_tensor *y = recomputed_model(h, rows[r].run);
            ls_tape_set_random(tape, &(ls_random){.seed = 99}); /* the next one's */
            ls_tape_on_leaf(tape, on_leaf, &e[h]);
            CHECK_OK(ls_backward(tape, y));
            loss[h] = y ? ls_item(y) : NAN;
            keep_grads(grads[h]);
            CHECK_BITS(&loss[h], &loss[PLAIN], sizeof *loss);
            CHECK_BITS(grads[h], grads[PLAIN], sizeof grads[h]);
            CHECK(!strcmp(e[h].text, h == PLAIN ? rows[r].plain : rows[r].recomputed));
        }
    }
}

static void test_recompute_memory(void)
{
    int64_t kept[2], done[2];

    for (int h = PLAIN; h <= ONE_SEGMENT; h++) {
        start("segments keep their input alone");
        int64_t    before = activations();
        ls_scope   scope  = ls_tape_scope_begin(tape);
        ls_tensor *x      = data();
        for (int i = 0; i < 20; i++)
            x = call((how)h, two_layers, &weight[0], x);
        ls_tensor *loss = ls_sum(tape, x);
        ls_tape_scope_end(tape, scope, loss);
        kept[h] = activations() - before;
        CHECK_OK(ls_backward(tape, loss));
        done[h] = activations() - before;
    }
    CHECK(kept[1] * 3 < kept[0]);
    CHECK(done[0] == 64 && done[1] == 64);
}

static void test_recompute_modes(void)
{
    ls_real plain[WEIGHTS * SIZE], got[WEIGHTS * SIZE];

    start("modes are those of the first run");
    ls_tape_set_training(tape, false);
    CHECK_OK(ls_backward(tape, recomputed_model(PLAIN, two_layers)));
    keep_grads(plain);
    start("modes are those of the first run");
    ls_tape_set_training(tape, false);
    ls_tensor *loss = recomputed_model(EACH_SEGMENT, two_layers);
    ls_tape_set_training(tape, true);
    ls_tape_set_grad(tape, false);
    CHECK_OK(ls_backward(tape, loss));
    keep_grads(got);
    CHECK_BITS(plain, got, sizeof got);
    CHECK(ls_tape_get_training(tape) && !ls_tape_get_grad(tape));
    ls_tape_set_grad(tape, true);

    start("a recomputed tape goes on");
    loss = recomputed_model(EACH_SEGMENT, two_layers);
    CHECK_OK(ls_backward(tape, loss));
    CHECK_FAILS(ls_backward(tape, loss), LS_ESTATE, "used up");

    start("without recording");
    ls_tape_set_grad(tape, false);
    int64_t before = activations();
    loss           = ls_sum(tape, ls_recompute(tape, data(), two_layers, &weight[0]));
    CHECK(loss && !loss->node && activations() > before);
}

/* x may be a weight, which the segment may use by its own name as well. */
static void test_recompute_of_a_weight(void)
{
    ls_real got[2][2 * SIZE];
    events  e[2] = {{.n = 0}};

    for (int h = PLAIN; h <= ONE_SEGMENT; h++) {
        start("x is a weight");
        ls_tensor *y = call((how)h, two_layers, &weight[0], &weight[0]);
        ls_tape_on_leaf(tape, on_leaf, &e[h]);
        CHECK_OK(ls_backward(tape, ls_sum(tape, y)));
        for (int i = 0; i < 2; i++)
            memcpy(got[h] + i * SIZE, ls_tensor_grad(&weight[i]), sizeof got[h] / 2);
        CHECK(!strcmp(e[h].text, "10"));
    }
    for (int i = 0; i < SIZE; i++) /* three terms, joined in another order */
        CHECK_CLOSE(got[0][i], got[1][i], 1e-5);
    CHECK_BITS(got[0] + SIZE, got[1] + SIZE, sizeof got[0] / 2);
}

static void test_recompute_retained(void)
{
    ls_real first[WEIGHTS * SIZE] = {0}, again[WEIGHTS * SIZE] = {0};

    start("a segment is replayed twice");
    ls_tensor *loss = recomputed_model(EACH_SEGMENT, nested);
    for (int i = 0; i < 2; i++) {
        zero_grads();
        CHECK_OK(ls_backward_with(tape, loss, &(ls_backward_opts){.retain = i == 0}));
        keep_grads(i ? again : first);
    }
    CHECK_BITS(first, again, sizeof first);
    CHECK_FAILS(ls_backward(tape, loss), LS_ESTATE, "used up");
}

/* What a cheap operator made is not kept for those that read it, a segment or another one. */
static void test_rebuilt(void)
{
    ls_real   first[SIZE];
    ls_scope  scope = {0};
    const int deep  = 3000;

    for (int i = 0; i < 2; i++) {
        start(i ? "input of a segment: formed again" : "input of a segment: kept");
        if (i)
            scope = ls_tape_scope_begin(tape);
        ls_tensor *y = ls_recompute(tape, layer(data(), &weight[0]), doubled, NULL);
        if (i)
            ls_tape_scope_end(tape, scope, y);
        CHECK_OK(ls_backward(tape, ls_sum(tape, y)));
        if (i)
            CHECK_BITS(ls_tensor_grad(&weight[0]), first, sizeof first);
        else
            memcpy(first, ls_tensor_grad(&weight[0]), sizeof first);
    }
    start("a long chain of cheap operators");
    scope        = ls_tape_scope_begin(tape);
    ls_tensor *x = ls_linear(tape, data(), &weight[0], NULL);
    for (int i = 0; i < deep; i++)
        x = ls_tanh(tape, x);
    ls_tape_scope_end(tape, scope, x);
    int64_t before = activations();
    CHECK_OK(ls_backward(tape, ls_sum(tape, x)));
    CHECK(activations() < before);
}

static ls_tensor *hands_on(void *context, ls_tape *t, ls_tensor *x)
{
    (void)t;
    (void)x;
    return context;
}

static void test_recompute_of_nothing(void)
{
    events e = {0};

    start("a segment hands on a weight");
    ls_tape_on_leaf(tape, on_leaf, &e);
    ls_tensor *x = layer(data(), &weight[0]);
    ls_tensor *w = ls_recompute(tape, x, hands_on, &weight[1]);
    CHECK(w == &weight[1]);
    CHECK_OK(ls_backward(tape, ls_sum(tape, layer(x, w))));
    CHECK(!strcmp(e.text, "10"));
}

/* Boundaries inside of a segment are reached when it is replayed. */
static ls_tensor *with_boundary(void *context, ls_tape *t, ls_tensor *x)
{
    return dropped_layer(t, ls_boundary(t, dropped_layer(t, x, &weight[1]), context),
                         &weight[2]);
}

static void test_recompute_boundary(void)
{
    events           e = {0};
    marker           m = {&e, 'a'};
    ls_boundary_hook h = {reached, &m};

    start("a boundary in a segment");
    ls_tape_on_leaf(tape, on_leaf, &e);
    ls_tensor *x = ls_recompute(tape, layer(data(), &weight[0]), with_boundary, &h);
    CHECK_OK(ls_backward(tape, ls_sum(tape, layer(x, &weight[3]))));
    CHECK(!strcmp(e.text, "32a10"));
}

static ls_tensor *fails_later(void *context, ls_tape *t, ls_tensor *x)
{
    int *runs = context;
    return ++*runs > 1 ? ls_tape_fail(t, ls_fail(LS_EIO, "second run")) : layer(x, &weight[1]);
}

static void test_recompute_failure(void)
{
    int     runs = 0;
    ls_real old[SIZE];

    start("a segment fails in backward");
    CHECK_OK(ls_backward(tape, model()));
    memcpy(old, ls_tensor_grad(&weight[1]), sizeof old);
    ls_tape_reset(tape);
    ls_tensor *x    = layer(data(), &weight[0]);
    ls_tensor *loss = ls_sum(tape, ls_recompute(tape, x, fails_later, &runs));
    CHECK(loss != NULL);
    CHECK_FAILS(ls_backward(tape, loss), LS_EIO, "second run");
    CHECK(runs == 2 && ls_tape_status(tape) == LS_EIO);
    CHECK_BITS(ls_tensor_grad(&weight[1]), old, sizeof old);
}

static void close_all(void)
{
    TEST_ROW("nothing is left");
    ls_tape_free(tape);
    CHECK(activations() == 0);
    for (int i = 0; i < WEIGHTS; i++)
        ls_tensor_drop(&weight[i]);
    CHECK(ls_mem_get_stats().total == 0);
    ls_mem_trim();
    CHECK(ls_mem_get_stats().reserved == 0);
}

int main(void)
{
    ls_blas_init();
    open_all();
    test_sticky_errors();
    test_wrong_roots();
    test_other_tape();
    test_misuse();
    test_twice();
    test_seed();
    test_accumulation();
    test_scopes();
    test_no_grad();
    test_consumption();
    test_reuse();
    test_leaf_hook();
    test_leaves_off_the_path();
    test_taking();
    test_failing_hook();
    test_boundary();
    test_recompute();
    test_recompute_memory();
    test_recompute_modes();
    test_recompute_of_a_weight();
    test_recompute_retained();
    test_rebuilt();
    test_recompute_of_nothing();
    test_recompute_boundary();
    test_recompute_failure();
    close_all();
    return test_summary("tape");
}

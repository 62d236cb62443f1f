/*
 * test_fsdp.c - unusual models and steps: N ranks with shards leave the bits of one process, or
 * an error on all of them in time.
 *
 * A small net of four linear layers and a few odd ones takes steps of M micro-batches, in one
 * process and on N ranks that hold rows of it.  A row of the table says how its forward runs
 * (which may depend on the micro-batch, so ranks differ), what is a unit and what is frozen.
 * What is compared is the hash of parameters and optimizer, the norms of the last gradient and
 * a loss without recording.
 */
#include <stdlib.h>

#include "dist/strategy.h"
#include "lockstep.h"
#include "ranks.h"

enum { STEPS = 3, ROWS = 4, W = 5, LAYERS = 4, TIMEOUT_S = 3 };

/* ---- the net ---- */

typedef struct net net;

/* of micro-batch m: x (ROWS,W), a scalar loss */
typedef ls_tensor *(*net_forward)(net *n, ls_tape *tape, ls_tensor *x, int m);

typedef struct {
    ls_module     base;
    ls_parameter *p, *q; /* of one size */
} pair;

typedef struct {
    ls_module     base;
    ls_module    *inner; /* not its child */
    ls_parameter *gain;
} outer;

struct net {
    ls_module     base;
    ls_module    *layer[LAYERS];
    pair         *pair;
    outer        *outer;
    ls_parameter *scale, *tail, *head, *mean; /* (), (2), (7,W), and a buffer */
    net_forward   forward;
    int           m; /* the micro-batch that runs */
};

static bool is_even(const ls_module *m)
{
    while (m->parent)
        m = m->parent;
    return ((const net *)m)->m % 2 == 0;
}

/* x times one of two parameters, which one depends on the micro-batch */
static ls_tensor *forward_pair(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    pair *p = (pair *)self;

    (void)y;
    return ls_mul(tape, x, &(is_even(self) ? p->p : p->q)->tensor);
}

static ls_tensor *forward_outer(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    outer *o = (outer *)self;

    (void)y;
    return ls_mul(tape, ls_module_call(o->inner, tape, x), &o->gain->tensor);
}

static ls_tensor *forward_net(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    net *n = (net *)self;

    (void)y;
    return n->forward(n, tape, x, n->m);
}

static const ls_module_class pair_class  = {"pair", forward_pair};
static const ls_module_class outer_class = {"outer", forward_outer};
static const ls_module_class net_class   = {"net", forward_net};

static net *new_net(net_forward forward)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    ls_init                  init    = {LS_INIT_NORMAL, 0.5};
    ls_linear_opts           linear  = {
                   .in = W, .out = W, .bias = true, .weight_init = init, .bias_init = init};
    net *n = ls_module_new(&net_class, sizeof *n, NULL, "");

    for (int i = 0; i < LAYERS; i++)
        n->layer[i] = ls_linear_new(&n->base, names[i], &linear);
    n->pair         = ls_module_new(&pair_class, sizeof *n->pair, &n->base, "pair");
    n->pair->p      = ls_module_add_parameter(&n->pair->base, "p", LS_SHAPE1(W), init);
    n->pair->q      = ls_module_add_parameter(&n->pair->base, "q", LS_SHAPE1(W), init);
    n->outer        = ls_module_new(&outer_class, sizeof *n->outer, &n->base, "outer");
    n->outer->gain  = ls_module_add_parameter(&n->outer->base, "gain", LS_SHAPE1(W), init);
    n->outer->inner = n->layer[1];
    n->scale        = ls_module_add_parameter(&n->base, "scale", LS_SHAPE0, init);
    n->tail         = ls_module_add_parameter(&n->base, "tail", LS_SHAPE1(2), init);
    n->head         = ls_module_add_parameter(&n->base, "head", LS_SHAPE2(7, W), init);
    n->mean         = ls_module_add_buffer(&n->base, "mean", LS_SHAPE1(W), init);
    n->forward      = forward;
    return n;
}

/* ---- forwards ---- */

static ls_tensor *call(net *n, ls_tape *tape, int i, ls_tensor *x)
{
    return ls_module_call(n->layer[i], tape, x);
}

/* What the root has itself: a scalar, a vector shorter than the ranks are many, a buffer. */
static ls_tensor *finish(net *n, ls_tape *tape, ls_tensor *x)
{
    ls_tensor *y =
        ls_mul(tape, ls_add(tape, ls_tanh(tape, x), &n->mean->tensor), &n->scale->tensor);
    ls_tensor *t = ls_mul(tape, &n->tail->tensor, &n->tail->tensor);

    return ls_add(tape, ls_sum(tape, y), ls_sum(tape, t));
}

static ls_tensor *layers(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    (void)m;
    for (int i = 0; i < LAYERS; i++)
        x = ls_tanh(tape, call(n, tape, i, x));
    return finish(n, tape, x);
}

static ls_tensor *twice(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    (void)m;
    x = call(n, tape, 1, call(n, tape, 0, x));
    x = ls_tanh(tape, call(n, tape, 0, x));
    return finish(n, tape, call(n, tape, 2, call(n, tape, 2, x)));
}

static ls_tensor *shared(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    (void)m;
    x = ls_module_call(&n->outer->base, tape, call(n, tape, 0, x));
    return finish(n, tape, call(n, tape, 2, call(n, tape, 1, x)));
}

static ls_tensor *backwards(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    (void)m;
    for (int i = LAYERS - 1; i >= 0; i--)
        x = call(n, tape, i, x);
    return finish(n, tape, x);
}

/* The order changes from one micro-batch of a rank to the next, alike on all ranks. */
static ls_tensor *by_turns(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    return m / 2 % 2 ? backwards(n, tape, x, m) : layers(n, tape, x, m);
}

static ls_tensor *one_of_two(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    (void)m;
    x = ls_module_call(&n->pair->base, tape, call(n, tape, 0, x));
    return finish(n, tape, call(n, tape, 1, x));
}

/* Odd micro-batches do without a unit. */
static ls_tensor *without_b(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    x = call(n, tape, 0, x);
    x = m % 2 ? x : call(n, tape, 1, x);
    return finish(n, tape, call(n, tape, 2, x));
}

static ls_tensor *without_last(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    x = call(n, tape, 1, call(n, tape, 0, x));
    return finish(n, tape, m % 2 ? x : call(n, tape, 2, x));
}

/* Ranks run the same units in another order. */
static ls_tensor *other_order(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    x = call(n, tape, m % 2, call(n, tape, 1 - m % 2, x));
    return finish(n, tape, call(n, tape, 2, x));
}

/* Odd micro-batches do without a parameter of the root; nobody uses head and the others. */
static ls_tensor *without_tail(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    x = ls_sum(tape, ls_mul(tape, call(n, tape, 0, x), &n->scale->tensor));
    return m % 2 ? x : ls_add(tape, x, ls_sum(tape, &n->tail->tensor));
}

/* Parameters are saved for backward through views: of the root's, and of a unit's. */
static ls_tensor *views(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    (void)m;
    ls_tensor *w = ls_transpose(tape, &n->head->tensor, 0, 1);          /* (W,7) */
    ls_tensor *v = ls_reshape(tape, &n->head->tensor, LS_SHAPE2(W, 7)); /* other rows */
    ls_tensor *a = ls_slice(tape, &n->head->tensor, 0, 1, 1);           /* (1,W) */
    ls_tensor *h = call(n, tape, 0, ls_mul(tape, x, ls_reshape(tape, a, LS_SHAPE1(W))));

    h = ls_add(tape, ls_matmul(tape, h, w, false, false), ls_matmul(tape, h, v, false, false));
    return ls_add(tape, finish(n, tape, call(n, tape, 1, x)), ls_sum(tape, ls_tanh(tape, h)));
}

static ls_tensor *run_layer(void *layer, ls_tape *tape, ls_tensor *x)
{
    return ls_tanh(tape, ls_module_call(layer, tape, x));
}

static ls_tensor *recomputed(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    (void)m;
    x = ls_dropout(tape, x, 0.25);
    for (int i = 0; i < LAYERS; i++)
        x = ls_recompute(tape, x, run_layer, n->layer[i]);
    return finish(n, tape, call(n, tape, 0, x));
}

static ls_tensor *head_loss(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    int32_t want[ROWS];

    for (int i = 0; i < ROWS; i++)
        want[i] = (i + m) % 7;
    return ls_head_cross_entropy(tape, x, &n->head->tensor,
                                 ls_tape_input(tape, LS_I32, LS_SHAPE1(ROWS), want), -100);
}

/* Gradients that are formed in forward, twice of the same weight. */
static ls_tensor *two_heads(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    ls_tensor *h     = ls_tanh(tape, call(n, tape, 0, x));
    ls_tensor *first = head_loss(n, tape, h, m);

    return ls_add(tape, first, head_loss(n, tape, call(n, tape, 1, h), m + 1));
}

/* A weight of the root that a head uses and, before it, a product: as tied embeddings. */
static ls_tensor *tied(net *n, ls_tape *tape, ls_tensor *x, int m)
{
    int32_t    some[ROWS] = {m % 7, 3, (m + 1) % 7, 3};
    ls_tensor *ids        = ls_tape_input(tape, LS_I32, LS_SHAPE1(ROWS), some);
    ls_tensor *h          = ls_add(tape, ls_embedding(tape, &n->head->tensor, ids), x);

    return head_loss(n, tape, call(n, tape, 1, call(n, tape, 0, h)), m);
}

/* ---- rows ---- */

typedef enum { SAME, EITHER, ERROR } verdict; /* either: if no error, the same */

typedef struct {
    const char *name;
    net_forward forward;
    const char *backend;
    int         ranks, micros;
    const char *units;    /* children by the first letters of their names */
    const char *opts;     /* prefetch, and words: kept zero1 zero2 local copies strict */
    const char *frozen;   /* parameters, by their names between blanks */
    bool        before;   /* values and optimizer are made before sharding */
    bool        two;      /* two forwards, one backward of their sum */
    bool        evaluate; /* between steps */
    bool        ddp;
    int         optimizer; /* 0: AdamW, 1: SGD with momentum, 2: SGD */
    verdict     verdict;
    const char *text; /* of an error, on every rank */
} row;

static const row rows[] = {
    {"plain", layers, "shm", 2, 4, "abcd", .opts = "1"},
    {"prefetch 0", layers, "tcp", 2, 4, "abcd", .opts = "0"},
    {"prefetch 3", layers, "mixed", 4, 4, "abcd", .opts = "3"},
    {"prefetch 9, local", layers, "threads", 3, 6, "abcd", .opts = "9 local copies"},
    {"kept", layers, "threads", 4, 12, "abcd", .opts = "2 kept"},
    {"gradients", layers, "shm", 2, 6, "abcd", .opts = "1 zero2 copies"},
    {"optimizer, local", layers, "shm", 3, 6, "abcd", .opts = "0 zero1 local"},
    {"no units but the root", layers, "shm", 4, 8, "", .opts = "1 copies"},
    {"one rank", layers, "shm", 1, 3, "abcd", .opts = "1"},
    {"eight ranks, some without rows", layers, "threads", 8, 8, "abcd", .opts = "1 copies"},
    {"every module a unit", one_of_two, "shm", 2, 4, "abcdpo", .opts = "0"},

    {"SGD with momentum", layers, "shm", 2, 4, "abcd", .opts = "1 copies", .optimizer = 1},
    {"SGD", layers, "shm", 4, 4, "abcd", .opts = "1", .optimizer = 2},
    {"made before", layers, "shm", 3, 3, "abcd", .opts = "1 local copies", .before = true},
    {"made before, SGD", layers, "shm", 2, 4, "abcd", .opts = "1", .before = true,
     .optimizer = 1},
    {"made before, gradients", layers, "tcp", 2, 4, "abcd", .opts = "0 zero2", .before = true},

    {"frozen first module", layers, "shm", 2, 4, "abcd", .opts = "1 copies",
     .frozen = "a.weight a.bias"},
    {"mixed", layers, "shm", 2, 4, "abcd", .opts = "1",
     .frozen = "a.bias b.bias c.weight d.bias scale"},
    {"frozen unit", layers, "threads", 4, 8, "abcd", .opts = "1 copies",
     .frozen = "b.weight b.bias"},
    {"one is trained", layers, "shm", 2, 2, "abcd", .opts = "1",
     .frozen = "a.weight a.bias b.weight b.bias c.weight c.bias d.weight scale tail"},
    {"frozen root", layers, "shm", 2, 4, "abcd", .opts = "1 copies", .frozen = "scale tail"},
    {"frozen, recomputed", recomputed, "shm", 2, 4, "abcd", .opts = "1",
     .frozen = "a.bias b.weight c.weight c.bias"},
    {"frozen, gradients", layers, "shm", 2, 4, "abcd", .opts = "0 zero2 copies",
     .frozen = "a.weight c.bias"},

    {"units called twice", twice, "shm", 2, 4, "abcd", .opts = "1"},
    {"units called twice, prefetch 0", twice, "shm", 2, 4, "abcd", .opts = "0 copies"},
    {"units called twice, kept", twice, "shm", 4, 8, "abcd", .opts = "2 kept"},
    {"units called twice, local", twice, "shm", 2, 4, "abcd", .opts = "1 local copies"},
    {"a unit in two places", shared, "shm", 2, 4, "abcdo", .opts = "1"},
    {"a unit in two places, prefetch 0", shared, "shm", 2, 4, "abcd", .opts = "0 copies"},
    {"another order than registered", backwards, "shm", 2, 4, "abcd", .opts = "2"},
    {"the order changes", by_turns, "threads", 2, 8, "abcd", .opts = "1 copies"},
    {"the order changes, prefetch 3", by_turns, "shm", 2, 8, "abcd", .opts = "3"},

    {"one of two", one_of_two, "shm", 2, 2, "abp", .opts = "1 copies"},
    {"one of two, four ranks", one_of_two, "shm", 4, 12, "abp", .opts = "1"},
    {"one of two, local", one_of_two, "shm", 3, 3, "abp", .opts = "0 local copies"},
    {"one of two, optimizer", one_of_two, "shm", 2, 4, "abp", .opts = "0 zero1"},
    {"one of two, refused", one_of_two, "shm", 2, 2, "abp", .opts = "1 strict copies",
     .verdict = ERROR, .text = "pair.p, pair.q"},

    {"unused", without_tail, "shm", 2, 4, "abcd", .opts = "1"},
    {"unused, local", without_tail, "shm", 2, 4, "abcd", .opts = "0 local copies"},
    {"unused, three", without_tail, "tcp", 3, 3, "abcd", .opts = "1 local"},
    {"unused, refused", without_tail, "shm", 2, 2, "abcd", .opts = "1 strict", .verdict = ERROR,
     .text = "tail"},
    {"unused on all, refused", without_tail, "threads", 3, 3, "abcd",
     .opts = "1 local strict copies", .verdict = ERROR, .text = "b.weight (on any rank)"},

    {"a unit on some", without_b, "shm", 2, 2, "abcd", .opts = "0", .verdict = EITHER},
    {"a unit on some, prefetch 1", without_b, "shm", 2, 2, "abcd", .opts = "1 copies",
     .verdict = EITHER},
    {"a unit on some, kept", without_b, "tcp", 4, 4, "abcd", .opts = "1 kept",
     .verdict = EITHER},
    {"a unit on some, gradients", without_b, "shm", 2, 4, "abcd", .opts = "0 zero2",
     .verdict = EITHER},
    {"the last on some", without_last, "shm", 2, 2, "abc", .opts = "0 copies",
     .verdict = EITHER},
    {"the last on some, prefetch 1", without_last, "shm", 2, 2, "abc", .opts = "1",
     .verdict = EITHER},
    {"the last on some, kept", without_last, "shm", 2, 2, "abc", .opts = "0 kept copies",
     .verdict = EITHER},
    {"the last on some, optimizer", without_last, "shm", 2, 2, "abc", .opts = "0 zero1",
     .verdict = EITHER},
    {"another order on some", other_order, "shm", 2, 2, "abc", .opts = "0 copies",
     .verdict = EITHER},
    {"another order on some, prefetch 2", other_order, "tcp", 2, 2, "abc", .opts = "2",
     .verdict = EITHER},

    {"views", views, "shm", 2, 4, "abcd", .opts = "1"},
    {"views, local", views, "shm", 3, 6, "abcd", .opts = "0 local copies"},
    {"recomputed", recomputed, "shm", 2, 4, "abcd", .opts = "1"},
    {"recomputed, kept", recomputed, "threads", 4, 8, "abcd", .opts = "2 kept copies"},
    {"recomputed, local", recomputed, "shm", 2, 4, "abcd", .opts = "0 local"},
    {"two forwards", layers, "shm", 2, 4, "abcd", .opts = "1 copies", .two = true},
    {"two forwards, kept", layers, "shm", 2, 4, "abcd", .opts = "1 kept", .two = true},
    {"two forwards, local", layers, "threads", 3, 6, "abcd", .opts = "0 local copies",
     .two = true},
    {"two forwards, recomputed", recomputed, "shm", 2, 4, "abcd", .opts = "1", .two = true},
    {"evaluations", layers, "shm", 2, 4, "abcd", .opts = "1 copies", .evaluate = true},
    {"evaluations, kept", layers, "shm", 4, 4, "abcd", .opts = "2 kept", .evaluate = true},
    {"evaluations, optimizer", twice, "threads", 2, 4, "abcd", .opts = "1 zero1 copies",
     .evaluate = true},

    {"two heads", two_heads, "shm", 2, 4, "ab", .opts = "1"},
    {"two heads, four ranks", two_heads, "shm", 4, 12, "ab", .opts = "0 copies"},
    {"two heads, local", two_heads, "shm", 3, 6, "ab", .opts = "0 local"},
    {"two heads, two forwards", two_heads, "shm", 2, 4, "ab", .opts = "0 kept copies",
     .two = true},
    {"two heads, ddp", two_heads, "shm", 2, 6, "", .opts = "", .ddp = true},
    {"two heads, ddp, local", two_heads, "shm", 3, 6, "", .opts = "local copies", .ddp = true},
    {"two heads, two forwards, ddp", two_heads, "shm", 4, 4, "", .opts = "", .ddp = true,
     .two = true},
    {"tied", tied, "shm", 4, 4, "ab", .opts = "1 copies"},
    {"tied, two forwards", tied, "shm", 2, 6, "ab", .opts = "0 zero2", .two = true},
    {"tied, ddp", tied, "shm", 2, 6, "", .opts = " copies", .ddp = true},
};

/* ---- a training ---- */

typedef struct {
    char      params[LS_SHA256_HEX], state[LS_SHA256_HEX];
    double    norm, loss; /* of the last step; without recording */
    float     largest;
    ls_status status;
    char      text[400];
} outcome;

typedef struct {
    const row       *row;
    net             *net;
    ls_named_tensor *list, *state; /* parameters; and buffers */
    int              n, n_state;
    ls_optimizer    *optimizer;
    ls_tape         *tape;
    ls_strategy      strategy;
    ls_comm         *world; /* NULL: alone */
} training;

static ls_optimizer *new_optimizer(const training *t)
{
    static const ls_optimizer_opts opts[] = {
        {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
        {.type = LS_OPTIM_SGD, .lr = 0.01, .momentum = 0.9, .weight_decay = 0.01},
        {.type = LS_OPTIM_SGD, .lr = 0.01}};

    return ls_optimizer_new(t->list, t->n, &opts[t->row->optimizer]);
}

static bool is_named(const char *names, const char *name)
{
    char padded[300], word[64];

    snprintf(padded, sizeof padded, " %s ", names ? names : "");
    snprintf(word, sizeof word, " %s ", name);
    return strstr(padded, word) != NULL;
}

static ls_fsdp_opts fsdp_opts(const row *r)
{
    return (ls_fsdp_opts){.kind = is_named(r->opts, "zero1")   ? LS_SHARD_OPTIMIZER
                                  : is_named(r->opts, "zero2") ? LS_SHARD_GRADIENTS
                                                               : LS_SHARD_FULL,
                          .reshard_after_forward = !is_named(r->opts, "kept"),
                          .prefetch              = atoi(r->opts),
                          .blocks                = is_named(r->opts, "local"),
                          .find_unused           = !is_named(r->opts, "strict"),
                          .no_share              = is_named(r->opts, "copies")};
}

static ls_status shard(training *t, ls_fsdp **fsdp)
{
    ls_fsdp_opts opts   = fsdp_opts(t->row);
    ls_status    status = LS_OK;

    for (ls_module *c = t->net->base.children; c && !status; c = c->next)
        if (strchr(t->row->units, c->path[0]))
            status = ls_fsdp_shard(c, t->world, &opts);
    return status ? status : ls_fsdp_new(&t->net->base, t->world, &opts, fsdp);
}

static ls_status distribute(training *t)
{
    ls_fsdp_opts o   = fsdp_opts(t->row);
    ls_ddp_opts  ddp = {.find_unused = o.find_unused, .interleaved = !o.blocks};
    ls_fsdp     *f;
    ls_ddp      *d;
    ls_status    status;

    if (!t->world)
        return ls_strategy_single(&t->strategy, t->list, t->n);
    status = t->row->ddp ? ls_ddp_new(t->world, t->state, t->n_state, &ddp, &d) : shard(t, &f);
    if (!status && t->row->ddp)
        ls_strategy_ddp(&t->strategy, d);
    else if (!status)
        ls_strategy_fsdp(&t->strategy, f);
    return status;
}

static ls_status open_training(training *t, const row *r, ls_comm *world)
{
    bool     before = r->before || r->ddp || !world;
    uint64_t seed   = world && before ? (uint64_t)ls_comm_rank(world) : 0; /* rank 0's win */

    *t       = (training){.row = r, .net = new_net(r->forward), .world = world};
    t->list  = ls_module_list(&t->net->base, false, &t->n);
    t->state = ls_module_list(&t->net->base, true, &t->n_state);
    t->tape  = ls_tape_new();
    for (int i = 0; i < t->n; i++)
        t->list[i].tensor->requires_grad = !is_named(r->frozen, t->list[i].name);
    if (before) {
        CHECK_OK(ls_module_init(&t->net->base, seed));
        t->optimizer = new_optimizer(t);
    }
    ls_status status = distribute(t);
    if (!status && !before) {
        status       = ls_module_init(&t->net->base, seed);
        t->optimizer = new_optimizer(t);
    }
    return status;
}

static void close_training(training *t)
{
    ls_tape_free(t->tape);
    ls_strategy_close(&t->strategy, true);
    ls_optimizer_free(t->optimizer);
    free(t->list);
    free(t->state);
    ls_module_free(&t->net->base);
}

static ls_tensor *forward_once(training *t, int step, int m, int part)
{
    ls_real x[ROWS * W];

    for (int i = 0; i < ROWS * W; i++)
        x[i] = (ls_real)((step * 7 + m * 13 + part * 5 + i * 11) % 17 - 8) / 8;
    t->net->m = m;
    return ls_module_call(&t->net->base, t->tape,
                          ls_tape_input(t->tape, LS_REAL, LS_SHAPE2(ROWS, W), x));
}

static ls_tensor *micro_loss(training *t, int step, int m)
{
    ls_random random = {7, (uint32_t)step, (uint32_t)(m * ROWS)};

    ls_tape_reset(t->tape);
    ls_tape_set_random(t->tape, &random);
    ls_tensor *loss = forward_once(t, step, m, 0);
    return t->row->two ? ls_add(t->tape, loss, forward_once(t, step, m, 1)) : loss;
}

static ls_status micros(training *t, int step)
{
    int       size = t->world ? t->row->ranks : 1, each = t->row->micros / size;
    ls_status status = ls_strategy_begin(&t->strategy, t->tape);

    for (int k = 0; k < each && !status; k++) {
        ls_strategy_no_sync(&t->strategy, k < each - 1);
        int m  = (int)ls_strategy_micro(&t->strategy, t->row->micros, k);
        status = ls_backward(t->tape, micro_loss(t, step, m));
        if (!status)
            status = ls_strategy_end_micro(&t->strategy);
    }
    return ls_strategy_finish(&t->strategy, t->tape, status);
}

/* Both norms, of what all ranks own. */
static ls_status norms(training *t, outcome *o)
{
    ls_exact_sum squares;
    ls_status    status;

    ls_exact_sum_init(&squares);
    status     = ls_grad_squares(t->list, t->n, &squares);
    o->largest = (float)ls_grad_largest(t->list, t->n);
    if (!status && t->world && ls_strategy_shards(&t->strategy)) {
        ls_exact_sum_carry(&squares);
        status =
            ls_comm_all_reduce(t->world, &squares, &squares, LS_EXACT_WORDS, LS_I64, LS_SUM);
        if (!status)
            status = ls_comm_all_reduce(t->world, &o->largest, &o->largest, 1, LS_F32, LS_MAX);
    }
    o->norm = ls_grad_norm(&squares, 1);
    return status;
}

/* All ranks compute the same. */
static ls_status evaluate(training *t, outcome *o)
{
    ls_status status;

    ls_tape_reset(t->tape);
    bool       grad = ls_tape_set_grad(t->tape, false);
    ls_tensor *loss = forward_once(t, 1, 1, 0);
    o->loss         = loss ? ls_item(loss) : NAN;
    status          = ls_tape_status(t->tape);
    ls_tape_set_grad(t->tape, grad);
    return status;
}

static ls_status train(training *t, outcome *o)
{
    ls_status status = LS_OK;

    for (int step = 1; step <= STEPS && !status; step++) {
        status = micros(t, step);
        if (!status)
            status = norms(t, o);
        if (!status)
            ls_optimizer_step(t->optimizer, 0.5);
        if (!status && t->row->evaluate)
            status = evaluate(t, o);
    }
    return status;
}

static ls_status hashes(const training *t, outcome *o)
{
    int                    n;
    const ls_named_tensor *moments = ls_optimizer_state(t->optimizer, &n);
    ls_status              status  = ls_params_sha256(t->state, (size_t)t->n_state, o->params);

    return status ? status
                  : ls_state_sha256(&(ls_training_state){t->state, (size_t)t->n_state, moments,
                                                         (size_t)n, STEPS},
                                    o->state);
}

static void run_training(const row *r, ls_comm *world, outcome *o)
{
    training t;

    memset(o, 0, sizeof *o);
    o->status = open_training(&t, r, world);
    if (!o->status)
        o->status = train(&t, o);
    if (!o->status)
        o->status = hashes(&t, o);
    if (o->status)
        snprintf(o->text, sizeof o->text, "%s", ls_error_message());
    close_training(&t);
}

/* ---- the judge ---- */

typedef struct {
    const row *row;
    outcome   *out; /* [ranks], shared */
} job;

static void body(ls_comm *world, void *context)
{
    const job *j = context;

    run_training(j->row, world, &j->out[ls_comm_rank(world)]);
}

static void check_same(const outcome *got, const outcome *want, int rank)
{
    CHECK(rank || !strcmp(got->params, want->params));
    CHECK(rank || !strcmp(got->state, want->state));
    CHECK_BITS(&got->norm, &want->norm, sizeof want->norm);
    CHECK_BITS(&got->largest, &want->largest, sizeof want->largest);
    CHECK_BITS(&got->loss, &want->loss, sizeof want->loss);
}

/* One for all, or all for one. */
static void judge(const row *r, const outcome *out, const outcome *want)
{
    int failed = 0;

    for (int i = 0; i < r->ranks; i++)
        failed += out[i].status != LS_OK;
    if (!CHECK(failed == 0 || failed == r->ranks) || !CHECK(r->verdict != SAME || !failed) ||
        !CHECK(r->verdict != ERROR || failed))
        for (int i = 0; i < r->ranks; i++)
            printf("  rank %d: %s\n", i, out[i].status ? out[i].text : "fine");
    if (r->verdict == EITHER)
        printf("  %s: %s\n", r->name, failed ? out[0].text : "fine");
    for (int i = 0; i < r->ranks; i++)
        if (!out[i].status)
            check_same(&out[i], want, i);
        else if (r->text && !CHECK(strstr(out[i].text, r->text)))
            printf("  rank %d: %s\n", i, out[i].text);
}

static void run_row(const row *r)
{
    ranks_opts opts  = {.backend   = r->backend,
                        .n         = r->ranks,
                        .timeout_s = r->verdict == EITHER ? TIMEOUT_S : 0,
                        .limit_s   = 30};
    size_t     bytes = (size_t)r->ranks * sizeof(outcome);
    outcome   *out   = ranks_shared(bytes), want;
    job        j     = {r, out};

    TEST_ROW(r->name);
    run_training(r, NULL, &want);
    CHECK(want.status == LS_OK && isfinite(want.norm) && want.norm > 0);
    CHECK(ranks_run(&opts, body, &j) == 0);
    judge(r, out, &want);
    ranks_unshare(out, bytes);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (argc < 2 || !strcmp(argv[1], rows[i].name))
            run_row(&rows[i]);
    return test_summary("fsdp");
}

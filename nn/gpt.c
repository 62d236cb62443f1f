/*
 * gpt.c - embeddings, blocks, final norm, head.
 *
 * V vocabulary, C channels, T context.  A tied head reads wte.weight; there is no second
 * parameter, so there is one gradient and one entry in a file.
 */
#include "nn/gpt.h"

#include "nn/kv_cache_impl.h"

#include <math.h>
#include <stdio.h>

typedef struct {
    ls_module            base;
    ls_gpt_opts          opts;
    ls_embedding_module *wte, *wpe;
    ls_module           *first_block;
    ls_module           *ln_f;
    ls_embedding_module
                *lm_head; /* rows of the vocabulary, as an embedding's; NULL when tied */
    bool         next;    /* the logits of the last position alone: in ls_gpt_next() */
    ls_kv_cache *cache;   /* NULL: none */
} gpt;

static ls_tensor *run_block(void *context, ls_tape *tape, ls_tensor *x)
{
    return ls_module_call(context, tape, x);
}

/* Positions that come before the first token given. */
static int64_t past_of(const gpt *g)
{
    return g->cache ? g->cache->length : 0;
}

/* x + wpe[0..T-1], or the T rows from where the cache ends; the same for every sequence */
static ls_tensor *add_positions(gpt *g, ls_tape *tape, ls_tensor *x)
{
    int64_t    t   = x->shape.dim[1];
    ls_tensor *ids = ls_tape_tensor(tape, LS_I32, LS_SHAPE1(t));

    for (int64_t i = 0; ids && i < t; i++)
        ls_ints(ids)[i] = (int32_t)(past_of(g) + i);
    return ls_add(tape, x, ls_module_call(&g->wpe->base, tape, ids));
}

static ls_tensor *check_ids(const gpt *g, ls_tape *tape, ls_tensor *ids)
{
    ls_shape_text text;

    if (!ids)
        return ls_tape_fail(tape, ls_fail(LS_EINVAL, "gpt: tokens are NULL"));
    if (ids->shape.ndim != 2 || ids->shape.dim[1] > g->opts.context - past_of(g))
        return ls_tape_fail(tape,
                            ls_fail(LS_ESHAPE, "gpt: tokens %s, want (B,T) with T <= %lld",
                                    ls_shape_print(&ids->shape, &text),
                                    (long long)(g->opts.context - past_of(g))));
    return ids;
}

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *ids, ls_tensor *targets)
{
    gpt *g = (gpt *)self;

    if (ls_tape_status(tape) || !check_ids(g, tape, ids))
        return NULL;
    ls_tensor *x = ls_module_call(&g->wte->base, tape, ids);
    if (g->wpe && x)
        x = add_positions(g, tape, x);
    x            = ls_dropout(tape, x, g->opts.dropout);
    ls_module *b = g->first_block;
    for (int64_t i = 0; i < g->opts.n_layer; i++, b = b->next)
        x = g->opts.recompute ? ls_recompute(tape, x, run_block, b)
                              : ls_module_call(b, tape, x);
    if (g->next && x)
        x = ls_slice(tape, x, 1, x->shape.dim[1] - 1, 1);
    x               = ls_module_call(g->ln_f, tape, x);
    ls_tensor *head = &(g->lm_head ? g->lm_head : g->wte)->weight->tensor;
    if (targets)
        return ls_head_cross_entropy(tape, x, head, targets, LS_IGNORE);
    return ls_linear(tape, x, head, NULL);
}

static const ls_module_class class = {"gpt", forward};

static ls_status check_next(const gpt *g, const ls_tensor *ids, const ls_kv_cache *cache)
{
    ls_shape_text text;

    if (g->base.kind != &class)
        return ls_fail(LS_EINVAL, "gpt_next: the module is a %s, want a gpt",
                       g->base.kind->type);
    if (!ids || ids->shape.ndim != 2 || ids->shape.dim[1] < 1 ||
        (cache && ids->shape.dim[0] != 1))
        return ls_fail(LS_ESHAPE, "gpt_next: tokens %s, want (%s,T) with T >= 1",
                       ids ? ls_shape_print(&ids->shape, &text) : "NULL", cache ? "1" : "B");
    return cache ? ls__kv_cache_fits(cache, &g->opts) : LS_OK;
}

ls_tensor *ls_gpt_next(ls_module *model, ls_tape *tape, ls_tensor *ids, ls_kv_cache *cache)
{
    gpt *g = (gpt *)model;

    if (ls_tape_status(tape))
        return NULL;
    if (!model)
        return ls_tape_fail(tape, ls_fail(LS_EINVAL, "gpt_next: the module is NULL"));
    ls_status status = check_next(g, ids, cache);
    if (status)
        return ls_tape_fail(tape, status);
    bool grad = ls_tape_set_grad(tape, false), training = ls_tape_set_training(tape, false);
    g->next  = true;
    g->cache = cache;
    if (cache)
        ls__kv_cache_attach(cache, model);
    ls_tensor *logits = ls_module_call(model, tape, ids);
    if (cache)
        ls__kv_cache_detach(model);
    if (cache && logits)
        cache->length += ids->shape.dim[1];
    g->next  = false;
    g->cache = NULL;
    ls_tape_set_grad(tape, grad);
    ls_tape_set_training(tape, training);
    return logits;
}

static bool add_blocks(gpt *g, const ls_gpt_opts *o)
{
    ls_init       init = {LS_INIT_NORMAL, 0.02};
    ls_init       proj = {LS_INIT_NORMAL, 0.02 / sqrt(2 * (double)o->n_layer)};
    ls_block_opts b    = {
           .norm      = {o->norm, o->d_model, o->bias, o->norm_eps},
           .attention = {.width = o->d_model,
                         .heads = {(int)o->n_head, (int)o->n_kv_head, o->dropout, o->rope_base},
                         .rope  = o->rope,
                         .bias  = o->bias,
                         .init  = init,
                         .proj_init = proj},
           .mlp       = {o->mlp, o->d_model, o->d_ff, o->bias, init, proj},
           .dropout   = o->dropout,
    };

    for (int64_t i = 0; i < o->n_layer; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%lld", (long long)i);
        ls_module *m = ls_block_new(&g->base, name, &b);
        if (!m)
            return false;
        if (!g->first_block)
            g->first_block = m;
    }
    return true;
}

static bool add_parts(gpt *g, const ls_gpt_opts *o)
{
    ls_init      init = {LS_INIT_NORMAL, 0.02};
    ls_norm_opts norm = {o->norm, o->d_model, o->bias, o->norm_eps};

    g->wte = ls_embedding_new(&g->base, "wte", o->vocab_size, o->d_model, init);
    if (!o->rope)
        g->wpe = ls_embedding_new(&g->base, "wpe", o->context, o->d_model, init);
    if (!g->wte || (!o->rope && !g->wpe) || !add_blocks(g, o))
        return false;
    g->ln_f = ls_norm_new(&g->base, "ln_f", &norm);
    if (!o->tie_embeddings)
        g->lm_head = ls_embedding_new(&g->base, "lm_head", o->vocab_size, o->d_model, init);
    return g->ln_f && (g->lm_head || o->tie_embeddings);
}

/* What makes the sizes below fit each other. */
static ls_status check_opts(const ls_gpt_opts *o)
{
    const struct {
        const char *name;
        int64_t     value;
    } sizes[] = {
        {"vocab_size", o->vocab_size}, {"n_layer", o->n_layer}, {"n_head", o->n_head},
        {"d_model", o->d_model},       {"d_ff", o->d_ff},       {"context", o->context}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1)
            return ls_fail(LS_EINVAL, "gpt: %s is %lld, want at least 1", sizes[i].name,
                           (long long)sizes[i].value);
    if (o->d_model % o->n_head)
        return ls_fail(LS_EINVAL, "gpt: d_model %lld, want a multiple of n_head %lld",
                       (long long)o->d_model, (long long)o->n_head);
    if (o->n_kv_head < 0 || (o->n_kv_head && o->n_head % o->n_kv_head))
        return ls_fail(LS_EINVAL, "gpt: n_kv_head %lld, want a divisor of n_head %lld",
                       (long long)o->n_kv_head, (long long)o->n_head);
    if (o->rope && o->d_model / o->n_head % 2)
        return ls_fail(LS_EINVAL, "gpt: rope with heads of %lld channels, want an even number",
                       (long long)(o->d_model / o->n_head));
    return LS_OK;
}

ls_module *ls_gpt_new(const ls_gpt_opts *opts)
{
    if (!opts) {
        ls_fail(LS_EINVAL, "gpt: the options are NULL");
        return NULL;
    }
    if (check_opts(opts))
        return NULL;
    gpt *g = ls_module_new(&class, sizeof *g, NULL, "");
    if (!g)
        return NULL;
    g->opts = *opts;
    if (!add_parts(g, opts)) {
        ls_module_free(&g->base);
        return NULL;
    }
    return &g->base;
}

int64_t ls_gpt_matmul_weights(const ls_gpt_opts *o)
{
    int64_t kv   = o->n_kv_head ? o->n_kv_head : o->n_head;
    int64_t qkv  = o->d_model / o->n_head * (o->n_head + 2 * kv) * o->d_model;
    int64_t proj = o->d_model * o->d_model;
    int64_t mlp  = (o->mlp == LS_MLP_SWIGLU ? 3 : 2) * o->d_model * o->d_ff;

    return o->n_layer * (qkv + proj + mlp) + o->vocab_size * o->d_model;
}

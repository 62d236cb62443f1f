/*
 * kv_cache.c - memory of the cache, and how the blocks find their parts of it.
 */
#include "nn/kv_cache_impl.h"

#include <stdlib.h>

#include "core/kernels/cached_attention.h"
#include "core/kernels/rope.h"

enum { DEFAULT_BASE = 10000 };

static void set_sizes(ls_kv_cache *c, const ls_gpt_opts *o)
{
    c->layers   = o->n_layer;
    c->heads    = o->n_head;
    c->kv_heads = o->n_kv_head ? o->n_kv_head : o->n_head;
    c->size     = o->d_model / o->n_head;
    c->capacity = o->context;
}

/* Cuts one block into the layers' parts, the angles and the scratch. */
static ls_status allocate(ls_kv_cache *c, bool rope)
{
    int64_t  part   = c->kv_heads * c->size * c->capacity;
    int64_t  angles = rope ? c->capacity * c->size : 0;
    int64_t  total  = 2 * c->layers * part + angles;
    ls_shape shape  = LS_SHAPE3(2 * c->layers, c->kv_heads * c->size, c->capacity);
    ls_real *at;

    if (ls_shape_check(&shape, LS_REAL))
        return LS_ESHAPE;
    total += ls_k_cached_attention_scratch(c->heads, c->capacity);
    c->block_bytes = (size_t)total * sizeof *at;
    c->block = at = ls_mem_alloc(c->block_bytes, LS_MEM_ACTIVATIONS);
    if (!at)
        return LS_ENOMEM;
    for (int64_t i = 0; i < c->layers; i++, at += 2 * part)
        c->layer[i] = (ls_kv_layer){c, at, at + part};
    c->angles  = at;
    c->scratch = at + angles;
    return LS_OK;
}

ls_kv_cache *ls_kv_cache_new(const ls_gpt_opts *o)
{
    ls_kv_cache *c = ls_calloc(1, sizeof *c + (size_t)o->n_layer * sizeof c->layer[0]);

    if (!c)
        return NULL;
    set_sizes(c, o);
    if (allocate(c, o->rope)) {
        free(c);
        return NULL;
    }
    if (o->rope)
        ls_k_rope_table(c->angles, c->capacity, c->size,
                        o->rope_base != 0 ? o->rope_base : DEFAULT_BASE);
    return c;
}

void ls_kv_cache_free(ls_kv_cache *c)
{
    if (!c)
        return;
    ls_mem_free(c->block, c->block_bytes, LS_MEM_ACTIVATIONS);
    free(c);
}

int64_t ls_kv_cache_length(const ls_kv_cache *c)
{
    return c->length;
}

void ls_kv_cache_clear(ls_kv_cache *c)
{
    c->length = 0;
}

ls_status ls__kv_cache_fits(const ls_kv_cache *c, const ls_gpt_opts *o)
{
    ls_kv_cache want;

    set_sizes(&want, o);
    if (c->layers == want.layers && c->heads == want.heads && c->kv_heads == want.kv_heads &&
        c->size == want.size && c->capacity == want.capacity)
        return LS_OK;
    return ls_fail(LS_ESHAPE,
                   "kv_cache: made for %lld layers, %lld and %lld heads of %lld, context %lld; "
                   "the model has %lld, %lld, %lld, %lld, %lld",
                   (long long)c->layers, (long long)c->heads, (long long)c->kv_heads,
                   (long long)c->size, (long long)c->capacity, (long long)want.layers,
                   (long long)want.heads, (long long)want.kv_heads, (long long)want.size,
                   (long long)want.capacity);
}

/* Layers used so far, and the next one. */
static const ls_kv_layer *attach(ls_module *m, const ls_kv_layer *layer)
{
    if (ls__attention_use_cache(m, layer) && layer)
        layer++;
    for (ls_module *child = m->children; child; child = child->next)
        layer = attach(child, layer);
    return layer;
}

void ls__kv_cache_attach(const ls_kv_cache *c, ls_module *root)
{
    attach(root, c->layer);
}

void ls__kv_cache_detach(ls_module *root)
{
    attach(root, NULL);
}

/*
 * kv_cache_impl.h - what the cache, the attention that fills it and the GPT share.
 */
#ifndef LS_NN_KV_CACHE_IMPL_H
#define LS_NN_KV_CACHE_IMPL_H

#include "nn/gpt.h"

/* Of one block: keys (K,D,capacity), values (K,capacity,D). */
typedef struct {
    const ls_kv_cache *cache;
    ls_real           *keys, *values;
} ls_kv_layer;

/* H query heads, K key/value heads, D = size channels of a head. */
struct ls_kv_cache {
    int64_t     layers, heads, kv_heads, size, capacity;
    int64_t     length; /* tokens held; all layers agree between calls */
    ls_real    *block;  /* all memory below, block_bytes of it */
    size_t      block_bytes;
    ls_real    *angles;  /* of rope (capacity,2,D/2) */
    ls_real    *scratch; /* of ls_k_cached_attention() */
    ls_kv_layer layer[];
};

/* ESHAPE for a cache that was made for other options. */
LS_MUST_CHECK ls_status ls__kv_cache_fits(const ls_kv_cache *cache, const ls_gpt_opts *opts);

/* Gives the attention modules below root its layers, in the order of the tree; or NULL again.
 */
void ls__kv_cache_attach(const ls_kv_cache *cache, ls_module *root);
void ls__kv_cache_detach(ls_module *root);

/* False for a module that is no attention. */
bool ls__attention_use_cache(ls_module *m, const ls_kv_layer *layer);

#endif

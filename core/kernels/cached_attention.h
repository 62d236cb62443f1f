/*
 * cached_attention.h - attention of one sequence's newest tokens over all that came before.
 *
 * T new tokens behind P past ones, H query heads, K key/value heads, D channels of a head.  The
 * keys of a head lie channel by channel, (D,capacity), so that the scores of a query are sums
 * of rows; the values token by token, (capacity,D).  Query head h uses key/value head
 * h / (H / K).  A task is one query head; shapes alone decide every bit.
 */
#ifndef LS_CORE_KERNELS_CACHED_ATTENTION_H
#define LS_CORE_KERNELS_CACHED_ATTENTION_H

#include "core/dtype.h"

typedef struct {
    int64_t        t, past, capacity; /* t + past <= capacity */
    int64_t        h, k, d;
    const ls_real *qkv;     /* (T,(H+2K)*D), heads turned where the model turns them */
    ls_real       *keys;    /* (K,D,capacity): the new ones are added */
    ls_real       *values;  /* (K,capacity,D): likewise */
    ls_real       *scratch; /* ls_k_cached_attention_scratch(h, capacity) elements */
    ls_real       *out;     /* (T,H*D) */
} ls_cached_attention_args;

/* softmax(q k^T / sqrt(D)) v, token i seeing the first past + i + 1. */
void ls_k_cached_attention(const ls_cached_attention_args *a);

/* Elements of the scratch: a band of scores for each query head. */
int64_t ls_k_cached_attention_scratch(int64_t heads, int64_t capacity);

#endif

/*
 * kv_cache.h - the keys and values of one sequence, so that its next token costs one position.
 *
 *     ls_kv_cache *c      = ls_kv_cache_new(&opts);
 *     ls_tensor   *logits = ls_gpt_next(gpt, tape, prompt, c);     all of the prompt
 *     ...choose a token, ls_tape_reset(tape)...
 *     logits              = ls_gpt_next(gpt, tape, one_token, c);  and so on
 *
 * Positions count from the sequence's start, so a cache that is full cannot slide: clear it and
 * begin again with the tokens that shall stay.
 */
#ifndef LS_NN_KV_CACHE_H
#define LS_NN_KV_CACHE_H

#include <stdint.h>

typedef struct ls_kv_cache ls_kv_cache;
struct ls_gpt_opts;

/*
 * An empty cache with room for opts->context tokens, 2 * n_layer * n_kv_head * D * context
 * numbers; NULL: out of memory.
 */
ls_kv_cache *ls_kv_cache_new(const struct ls_gpt_opts *opts);
void         ls_kv_cache_free(ls_kv_cache *cache); /* NULL is allowed */

/* Tokens that it holds. */
int64_t ls_kv_cache_length(const ls_kv_cache *cache);

/* Forgets all tokens. */
void ls_kv_cache_clear(ls_kv_cache *cache);

#endif

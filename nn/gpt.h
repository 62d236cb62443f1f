/*
 * gpt.h - a decoder-only Transformer, GPT-2 style or Llama style by its options.
 */
#ifndef LS_NN_GPT_H
#define LS_NN_GPT_H

#include "nn/kv_cache.h"
#include "nn/layers.h"

/* The fields are the keys of docs/config.md under `model`; none has a default but n_kv_head. */
typedef struct ls_gpt_opts {
    int64_t      vocab_size, n_layer;
    int64_t      n_head;    /* divides d_model; with rope d_model / n_head is even */
    int64_t      n_kv_head; /* divides n_head; 0: n_head */
    int64_t      d_model, d_ff, context;
    double       dropout; /* 0 <= p < 1 */
    bool         bias, tie_embeddings;
    ls_norm_kind norm;
    double       norm_eps;
    ls_mlp_kind  mlp;
    bool         rope; /* else learned positions */
    double       rope_base;
    bool         recompute; /* the blocks' activations, in backward */
} ls_gpt_opts;

/*
 * The model, without values (ls_module_init gives them); to be freed with ls_module_free().
 * NULL: options that do not fit each other (EINVAL), sizes beyond any memory (ESHAPE), or out
 * of memory.
 *
 *     ls_module_call(gpt, tape, ids)                 (B,T) I32 -> logits (B,T,V)
 *     ls_module_call_with(gpt, tape, ids, targets)   -> scalar, the sum of all tokens' losses
 *
 * Targets of LS_IGNORE count for nothing.  T may be shorter than the context.
 */
ls_module *ls_gpt_new(const ls_gpt_opts *opts);

/* Weights that stand in matrix products, each once, the head included: 6 flops a token and
 * weight. */
int64_t ls_gpt_matmul_weights(const ls_gpt_opts *opts);

/*
 * For generating text: the logits (B,1,V) of what follows the last token, without gradients and
 * dropout.  With a cache, ids (1,T) are the T tokens behind those that the cache holds, and are
 * added to it; together they must not exceed the context.  Without one, ids (B,T) are all
 * tokens.  Both give the same logits up to rounding.  On failure NULL, the tape has failed and
 * the cache is as before.
 */
ls_tensor *ls_gpt_next(ls_module *model, ls_tape *tape, ls_tensor *ids, ls_kv_cache *cache);

#endif

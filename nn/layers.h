/*
 * layers.h - the modules that models are made of.
 *
 * Each constructor registers the module with its parent under a name and returns it, or NULL
 * (out of memory; what was made stays the parent's).  Options are copied.  Names and shapes of
 * parameters are those of docs/architecture.md, section 4: weights are (out,in).
 *
 * B sequences, T tokens, C = width channels.
 */
#ifndef LS_NN_LAYERS_H
#define LS_NN_LAYERS_H

#include "autograd/ops.h"
#include "nn/module.h"

/* A target that counts for nothing, as in PyTorch. */
enum { LS_IGNORE = -100 };

/* x (...,in) -> (...,out); weight (out,in), bias (out) where asked for. */
typedef struct {
    int64_t in, out;
    bool    bias;
    ls_init weight_init, bias_init;
} ls_linear_opts;
ls_module *ls_linear_new(ls_module *parent, const char *name, const ls_linear_opts *opts);

/* The same with a result for products and activations alone: BF16 where the weight is. */
ls_module *ls_linear_narrow_new(ls_module *parent, const char *name,
                                const ls_linear_opts *opts);

/* ids (...) I32 -> (...,width); weight (rows,width). */
typedef struct {
    ls_module     base;
    ls_parameter *weight;
} ls_embedding_module;
ls_embedding_module *ls_embedding_new(ls_module *parent, const char *name, int64_t rows,
                                      int64_t width, ls_init init);

/* Layer norm or RMS norm over the last dimension; weight (width), bias for a layer norm. */
typedef enum { LS_NORM_LAYER, LS_NORM_RMS } ls_norm_kind;
typedef struct {
    ls_norm_kind kind;
    int64_t      width;
    bool         bias; /* of a layer norm */
    double       eps;
} ls_norm_opts;
ls_module *ls_norm_new(ls_module *parent, const char *name, const ls_norm_opts *opts);

/* Causal self-attention with its two projections, qkv and proj: (B,T,C) -> (B,T,C). */
typedef struct {
    int64_t  width; /* a multiple of heads.n_head */
    ls_heads heads;
    bool     rope, bias;
    ls_init  init, proj_init; /* of the weights; biases start at 0 */
} ls_attention_opts;
ls_module *ls_attention_new(ls_module *parent, const char *name, const ls_attention_opts *opts);

/* fc, activation, proj; or, for swiglu, silu(gate) * up, proj: (...,C) -> (...,C). */
typedef enum { LS_MLP_GELU, LS_MLP_GELU_TANH, LS_MLP_SWIGLU } ls_mlp_kind;
typedef struct {
    ls_mlp_kind kind;
    int64_t     width, hidden;
    bool        bias;
    ls_init     init, proj_init;
} ls_feedforward_opts;
ls_module *ls_feedforward_new(ls_module *parent, const char *name,
                              const ls_feedforward_opts *opts);

/* Pre-norm block, (B,T,C) -> (B,T,C): x + dropout(attn(ln_1 x)), then x + dropout(mlp(ln_2 x)).
 */
typedef struct {
    ls_norm_opts        norm;
    ls_attention_opts   attention;
    ls_feedforward_opts mlp;
    double              dropout;
} ls_block_opts;
ls_module *ls_block_new(ls_module *parent, const char *name, const ls_block_opts *opts);

#endif

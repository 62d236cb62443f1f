/*
 * mlp.h - a multi-layer perceptron classifier.
 */
#ifndef LS_NN_MLP_H
#define LS_NN_MLP_H

#include "nn/layers.h"

typedef enum { LS_MLP_RELU, LS_MLP_ERF_GELU, LS_MLP_TANH } ls_mlp_activation;

typedef struct {
    int               n_sizes; /* at least 2 */
    const int64_t    *sizes;   /* in, hidden ..., out */
    ls_mlp_activation activation;
} ls_mlp_opts;

/*
 * layers.0, layers.1, ... with the activation between them; initial values uniform as
 * PyTorch's nn.Linear: bound 1 / sqrt(in).  To be freed with ls_module_free().  NULL: fewer
 * than two sizes or one below 1 (EINVAL), one too large (ESHAPE), or out of memory.  sizes is
 * not kept.
 *
 *     ls_module_call(mlp, tape, x)                (N,in) -> logits (N,out)
 *     ls_module_call_with(mlp, tape, x, targets)  targets (N) I32 -> scalar, the sum of losses
 */
ls_module *ls_mlp_new(const ls_mlp_opts *opts);

#endif

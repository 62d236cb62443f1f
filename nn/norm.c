/*
 * norm.c - layer norm and RMS norm as modules.
 */
#include "nn/layers.h"

typedef struct {
    ls_module     base;
    ls_norm_kind  kind;
    double        eps;
    ls_parameter *weight, *bias;
} norm;

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    norm *n = (norm *)self;

    (void)y;
    if (n->kind == LS_NORM_RMS)
        return ls_rmsnorm(tape, x, &n->weight->tensor, n->eps);
    return ls_layernorm(tape, x, &n->weight->tensor, n->bias ? &n->bias->tensor : NULL, n->eps);
}

static const ls_module_class class = {"norm", forward};

ls_module *ls_norm_new(ls_module *parent, const char *name, const ls_norm_opts *o)
{
    norm *n    = ls_module_new(&class, sizeof *n, parent, name);
    bool  bias = o->bias && o->kind == LS_NORM_LAYER;
    if (!n)
        return NULL;
    n->kind   = o->kind;
    n->eps    = o->eps;
    n->weight = ls_module_add_parameter(&n->base, "weight", LS_SHAPE1(o->width),
                                        (ls_init){LS_INIT_CONSTANT, 1});
    if (bias)
        n->bias = ls_module_add_parameter(&n->base, "bias", LS_SHAPE1(o->width),
                                          (ls_init){LS_INIT_CONSTANT, 0});
    return n->weight && (n->bias || !bias) ? &n->base : NULL;
}

/*
 * linear.c - the linear module.
 */
#include "nn/layers.h"

typedef struct {
    ls_module     base;
    ls_parameter *weight, *bias;
    bool          narrow;
} linear;

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    linear    *l    = (linear *)self;
    ls_tensor *bias = l->bias ? &l->bias->tensor : NULL;

    (void)y;
    return l->narrow ? ls_linear_narrow(tape, x, &l->weight->tensor, bias)
                     : ls_linear(tape, x, &l->weight->tensor, bias);
}

static const ls_module_class class = {"linear", forward};

ls_module *ls_linear_new(ls_module *parent, const char *name, const ls_linear_opts *o)
{
    linear *l = ls_module_new(&class, sizeof *l, parent, name);
    if (!l)
        return NULL;
    l->weight =
        ls_module_add_parameter(&l->base, "weight", LS_SHAPE2(o->out, o->in), o->weight_init);
    if (o->bias)
        l->bias = ls_module_add_parameter(&l->base, "bias", LS_SHAPE1(o->out), o->bias_init);
    return l->weight && (l->bias || !o->bias) ? &l->base : NULL;
}

ls_module *ls_linear_narrow_new(ls_module *parent, const char *name, const ls_linear_opts *o)
{
    ls_module *m = ls_linear_new(parent, name, o);

    if (m)
        ((linear *)m)->narrow = true;
    return m;
}

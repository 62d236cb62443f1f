/*
 * mlp.c - linear layers with an activation between them.
 */
#include "nn/mlp.h"

#include <math.h>
#include <stdio.h>

typedef struct {
    ls_module         base;
    ls_mlp_activation activation;
} mlp;

static ls_tensor *activate(const mlp *m, ls_tape *tape, ls_tensor *x)
{
    switch (m->activation) {
    case LS_MLP_ERF_GELU:
        return ls_gelu(tape, x);
    case LS_MLP_TANH:
        return ls_tanh(tape, x);
    case LS_MLP_RELU:
        break;
    }
    return ls_relu(tape, x);
}

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *targets)
{
    mlp *m = (mlp *)self;

    for (ls_module *c = self->children; c; c = c->next) {
        x = ls_module_call(c, tape, x);
        if (c->next)
            x = activate(m, tape, x);
    }
    return targets ? ls_cross_entropy(tape, x, targets, LS_IGNORE) : x;
}

static const ls_module_class class = {"mlp", forward};

ls_module *ls_mlp_new(const ls_mlp_opts *o)
{
    if (!o || (o->n_sizes > 0 && !o->sizes)) {
        ls_fail(LS_EINVAL, "mlp: the options or their sizes are NULL");
        return NULL;
    }
    if (o->n_sizes < 2) {
        ls_fail(LS_EINVAL, "mlp: %d sizes, want at least 2", o->n_sizes);
        return NULL;
    }
    for (int i = 0; i < o->n_sizes; i++)
        if (o->sizes[i] < 1) {
            ls_fail(LS_EINVAL, "mlp: size %d is %lld, want at least 1", i,
                    (long long)o->sizes[i]);
            return NULL;
        }
    mlp *m = ls_module_new(&class, sizeof *m, NULL, "");
    if (!m)
        return NULL;
    m->activation = o->activation;
    for (int i = 0; i + 1 < o->n_sizes; i++) {
        char    name[32];
        ls_init init = {LS_INIT_UNIFORM, 1 / sqrt((double)o->sizes[i])};
        snprintf(name, sizeof name, "layers.%d", i);
        ls_linear_opts linear = {o->sizes[i], o->sizes[i + 1], true, init, init};
        bool           last   = i + 2 == o->n_sizes;
        if (!(last ? ls_linear_new : ls_linear_narrow_new)(&m->base, name, &linear)) {
            ls_module_free(&m->base);
            return NULL;
        }
    }
    return &m->base;
}

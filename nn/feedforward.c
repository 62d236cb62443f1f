/*
 * feedforward.c - the position-wise part of a block.
 */
#include "nn/layers.h"

typedef struct {
    ls_module   base;
    ls_mlp_kind kind;
    ls_module  *fc, *gate, *up, *proj;
} feedforward;

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    feedforward *f = (feedforward *)self;
    ls_tensor   *hidden;

    (void)y;
    if (f->kind == LS_MLP_SWIGLU)
        hidden =
            ls_swiglu(tape, ls_module_call(f->gate, tape, x), ls_module_call(f->up, tape, x));
    else if (f->kind == LS_MLP_GELU)
        hidden = ls_gelu(tape, ls_module_call(f->fc, tape, x));
    else
        hidden = ls_gelu_tanh(tape, ls_module_call(f->fc, tape, x));
    return ls_module_call(f->proj, tape, hidden);
}

static const ls_module_class class = {"mlp", forward};

ls_module *ls_feedforward_new(ls_module *parent, const char *name, const ls_feedforward_opts *o)
{
    feedforward   *f    = ls_module_new(&class, sizeof *f, parent, name);
    ls_init        zero = {LS_INIT_CONSTANT, 0};
    ls_linear_opts in   = {o->width, o->hidden, o->bias, o->init, zero};
    ls_linear_opts out  = {o->hidden, o->width, o->bias, o->proj_init, zero};
    if (!f)
        return NULL;
    f->kind = o->kind;
    if (o->kind == LS_MLP_SWIGLU) {
        f->gate = ls_linear_narrow_new(&f->base, "gate", &in);
        f->up   = ls_linear_narrow_new(&f->base, "up", &in);
    } else {
        f->fc = ls_linear_narrow_new(&f->base, "fc", &in);
    }
    f->proj = ls_linear_new(&f->base, "proj", &out);
    return f->proj && (f->fc || (f->gate && f->up)) ? &f->base : NULL;
}

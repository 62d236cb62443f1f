/*
 * block.c - a pre-norm Transformer block (Radford et al. 2019; Touvron et al. 2023).
 */
#include "nn/layers.h"

typedef struct {
    ls_module  base;
    double     dropout;
    ls_module *ln_1, *attn, *ln_2, *mlp;
} block;

static ls_tensor *branch(ls_tape *tape, ls_tensor *x, ls_module *norm, ls_module *inner,
                         double p)
{
    ls_tensor *y = ls_module_call(inner, tape, ls_module_call(norm, tape, x));
    return ls_residual(tape, x, y, p);
}

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    block *b = (block *)self;

    (void)y;
    x = branch(tape, x, b->ln_1, b->attn, b->dropout);
    return branch(tape, x, b->ln_2, b->mlp, b->dropout);
}

static const ls_module_class class = {"block", forward};

ls_module *ls_block_new(ls_module *parent, const char *name, const ls_block_opts *o)
{
    block *b = ls_module_new(&class, sizeof *b, parent, name);
    if (!b)
        return NULL;
    b->dropout = o->dropout;
    b->ln_1    = ls_norm_new(&b->base, "ln_1", &o->norm);
    b->attn    = ls_attention_new(&b->base, "attn", &o->attention);
    b->ln_2    = ls_norm_new(&b->base, "ln_2", &o->norm);
    b->mlp     = ls_feedforward_new(&b->base, "mlp", &o->mlp);
    return b->ln_1 && b->attn && b->ln_2 && b->mlp ? &b->base : NULL;
}

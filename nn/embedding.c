/*
 * embedding.c - the embedding module; its weight is open, since a tied head reads it.
 */
#include "nn/layers.h"

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    ls_embedding_module *e = (ls_embedding_module *)self;

    (void)y;
    return ls_embedding(tape, &e->weight->tensor, x);
}

static const ls_module_class class = {"embedding", forward};

ls_embedding_module *ls_embedding_new(ls_module *parent, const char *name, int64_t rows,
                                      int64_t width, ls_init init)
{
    ls_embedding_module *e = ls_module_new(&class, sizeof *e, parent, name);
    if (!e)
        return NULL;
    e->weight = ls_module_add_parameter(&e->base, "weight", LS_SHAPE2(rows, width), init);
    return e->weight ? e : NULL;
}

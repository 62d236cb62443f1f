/*
 * attention.c - self-attention: one projection to queries, keys and values, heads, one back.
 */
#include "nn/layers.h"

typedef struct {
    ls_module  base;
    ls_heads   heads;
    bool       rope;
    ls_module *qkv, *proj;
} attention;

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    attention *a   = (attention *)self;
    ls_tensor *qkv = ls_module_call(a->qkv, tape, x);

    (void)y;
    if (a->rope)
        qkv = ls_rope(tape, qkv, &a->heads);
    return ls_module_call(a->proj, tape, ls_attention(tape, qkv, &a->heads));
}

static const ls_module_class class = {"attention", forward};

ls_module *ls_attention_new(ls_module *parent, const char *name, const ls_attention_opts *o)
{
    attention *a      = ls_module_new(&class, sizeof *a, parent, name);
    ls_init    zero   = {LS_INIT_CONSTANT, 0};
    int64_t    kv     = o->heads.n_kv_head ? o->heads.n_kv_head : o->heads.n_head;
    int64_t    packed = o->width / o->heads.n_head * (o->heads.n_head + 2 * kv);
    if (!a)
        return NULL;
    a->heads = o->heads;
    a->rope  = o->rope;
    a->qkv   = ls_linear_new(&a->base, "qkv",
                             &(ls_linear_opts){o->width, packed, o->bias, o->init, zero, true});
    a->proj  = ls_linear_new(
         &a->base, "proj",
         &(ls_linear_opts){o->width, o->width, o->bias, o->proj_init, zero, false});
    return a->qkv && a->proj ? &a->base : NULL;
}

/*
 * attention.c - self-attention: one projection to queries, keys and values, heads, one back.
 */
#include "core/kernels/cached_attention.h"
#include "core/kernels/rope.h"
#include "nn/kv_cache_impl.h"
#include "nn/layers.h"

typedef struct {
    ls_module  base;
    ls_heads   heads;
    bool       rope;
    ls_module *qkv, *proj;

    const ls_kv_layer *cached; /* during ls_gpt_next(); else NULL */
} attention;

/* The heads at the positions that the cache does not hold yet. */
static ls_tensor *turn(const ls_kv_cache *c, ls_tape *tape, ls_tensor *qkv)
{
    ls_tensor *turned = ls_tape_tensor(tape, LS_REAL, qkv->shape);

    if (turned)
        ls_k_rope(ls_reals(turned), ls_reals(qkv),
                  &(ls_rope_args){.batch  = 1,
                                  .time   = qkv->shape.dim[1],
                                  .heads  = c->heads + 2 * c->kv_heads,
                                  .turned = c->heads + c->kv_heads,
                                  .size   = c->size,
                                  .table  = c->angles + c->length * c->size});
    return turned;
}

/* Of one sequence: new keys and values go into the cache, the queries see all that is there. */
static ls_tensor *attend_cached(const attention *a, ls_tape *tape, ls_tensor *qkv)
{
    const ls_kv_cache *c = a->cached->cache;

    if (qkv && a->rope)
        qkv = turn(c, tape, qkv);
    if (!qkv)
        return NULL;
    int64_t    t   = qkv->shape.dim[1];
    ls_tensor *out = ls_tape_tensor(tape, LS_REAL, LS_SHAPE3(1, t, c->heads * c->size));
    if (out)
        ls_k_cached_attention(&(ls_cached_attention_args){.t        = t,
                                                          .past     = c->length,
                                                          .capacity = c->capacity,
                                                          .h        = c->heads,
                                                          .k        = c->kv_heads,
                                                          .d        = c->size,
                                                          .qkv      = ls_reals(qkv),
                                                          .keys     = a->cached->keys,
                                                          .values   = a->cached->values,
                                                          .scratch  = c->scratch,
                                                          .out      = ls_reals(out)});
    return out;
}

static ls_tensor *forward(ls_module *self, ls_tape *tape, ls_tensor *x, ls_tensor *y)
{
    attention *a   = (attention *)self;
    ls_tensor *qkv = ls_module_call(a->qkv, tape, x);

    (void)y;
    if (a->cached)
        return ls_module_call(a->proj, tape, attend_cached(a, tape, qkv));
    if (a->rope)
        qkv = ls_rope(tape, qkv, &a->heads);
    return ls_module_call(a->proj, tape, ls_attention(tape, qkv, &a->heads));
}

static const ls_module_class class = {"attention", forward};

bool ls__attention_use_cache(ls_module *m, const ls_kv_layer *layer)
{
    if (m->kind != &class)
        return false;
    ((attention *)m)->cached = layer;
    return true;
}

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
    a->qkv   = ls_linear_narrow_new(&a->base, "qkv",
                                    &(ls_linear_opts){o->width, packed, o->bias, o->init, zero});
    a->proj  = ls_linear_new(&a->base, "proj",
                             &(ls_linear_opts){o->width, o->width, o->bias, o->proj_init, zero});
    return a->qkv && a->proj ? &a->base : NULL;
}

/*
 * heads_impl.h - sizes of a packed projection (attention, rope).
 *
 * B batch, T time, H query heads, K key/value heads, D channels of a head.
 */
#ifndef LS_AUTOGRAD_OPS_HEADS_IMPL_H
#define LS_AUTOGRAD_OPS_HEADS_IMPL_H

#include "autograd/ops.h"

typedef struct {
    int64_t b, t, h, k, d;
} ls__head_sizes;

/* attr.i = {n_head, n_kv_head} */
static inline ls_attr ls__heads_attr(const ls_heads *heads)
{
    return (ls_attr){.i = {heads->n_head, heads->n_kv_head ? heads->n_kv_head : heads->n_head}};
}

static inline ls_status ls__head_sizes_of(const ls_node *call, ls__head_sizes *out)
{
    const ls_tensor *x = call->in[0];
    int64_t          h = call->attr.i[0], k = call->attr.i[1], parts = h + 2 * k;
    ls_shape_text    text;

    *out = (ls__head_sizes){0};
    if ((x->dtype != LS_REAL && x->dtype != LS_BF16) || x->shape.ndim != 3 || h < 1 || k < 1 ||
        h % k || x->shape.dim[2] < parts || x->shape.dim[2] % parts)
        return ls_fail(LS_ESHAPE, "%s: %s %s with %lld query and %lld key heads",
                       call->op->name, ls_dtype_name(x->dtype),
                       ls_shape_print(&x->shape, &text), (long long)h, (long long)k);
    *out = (ls__head_sizes){x->shape.dim[0], x->shape.dim[1], h, k, x->shape.dim[2] / parts};
    return LS_OK;
}

#endif

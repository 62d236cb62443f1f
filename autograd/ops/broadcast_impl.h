/*
 * broadcast_impl.h - shapes of add and mul: b is a's shape or its trailing dimensions.
 */
#ifndef LS_AUTOGRAD_OPS_BROADCAST_IMPL_H
#define LS_AUTOGRAD_OPS_BROADCAST_IMPL_H

#include <string.h>

#include "autograd/op.h"
#include "core/kernels/reduce.h"

/* How often b stands in a. */
static inline int64_t ls__broadcast_rows(const ls_node *call)
{
    int64_t n = ls_tensor_numel(call->in[1]);
    return n ? ls_tensor_numel(call->in[0]) / n : 0;
}

static inline size_t ls__broadcast_scratch(const ls_node *call)
{
    return ls_k_columns_scratch(ls__broadcast_rows(call), ls_tensor_numel(call->in[1]));
}

static inline ls_status ls__infer_broadcast(const ls_node *call, ls_plan *plan)
{
    const ls_shape *a = &call->in[0]->shape, *b = &call->in[1]->shape;
    int             lead = a->ndim - b->ndim;
    ls_shape_text   at, bt;

    if (call->in[0]->dtype != LS_REAL || call->in[1]->dtype != LS_REAL)
        return ls_fail(LS_ESHAPE, "%s: dtypes %s and %s", call->op->name,
                       ls_dtype_name(call->in[0]->dtype), ls_dtype_name(call->in[1]->dtype));
    if (lead < 0 || memcmp(a->dim + lead, b->dim, (size_t)b->ndim * sizeof *b->dim))
        return ls_fail(LS_ESHAPE, "%s: %s and %s", call->op->name, ls_shape_print(a, &at),
                       ls_shape_print(b, &bt));
    plan->shape = *a;
    plan->dtype = LS_REAL;
    return LS_OK;
}

#endif

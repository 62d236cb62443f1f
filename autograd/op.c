/*
 * op.c - checks and sizes that the rules of several operators share.
 */
#include "autograd/op_impl.h"

static ls_status want_dtype(const ls_node *call, int i, ls_dtype dtype)
{
    if (call->in[i]->dtype == dtype)
        return LS_OK;
    return ls_fail(LS_ESHAPE, "%s: input %d is %s, want %s", call->op->name, i,
                   ls_dtype_name(call->in[i]->dtype), ls_dtype_name(dtype));
}

ls_status ls__want_real(const ls_node *call, int i)
{
    return want_dtype(call, i, LS_REAL);
}

bool ls__is_bf16(const ls_tensor *t)
{
    return t->dtype == LS_BF16;
}

ls_status ls__want_one_float(const ls_node *call, int first)
{
    ls_dtype dtype = ls__is_bf16(call->in[first]) ? LS_BF16 : LS_REAL;

    for (int i = first; i < call->n_in; i++) {
        ls_status status = want_dtype(call, i, dtype);
        if (status)
            return status;
    }
    return LS_OK;
}

ls_status ls__shape_mismatch(const ls_node *call, const char *want)
{
    ls_shape_text a, b;

    return ls_fail(LS_ESHAPE, "%s: %s and %s, want %s", call->op->name,
                   ls_shape_print(&call->in[0]->shape, &a),
                   ls_shape_print(&call->in[1]->shape, &b), want);
}

ls_status ls__infer_same(const ls_node *call, ls_plan *plan)
{
    plan->dtype = LS_REAL;
    plan->shape = call->in[0]->shape;
    return ls__want_real(call, 0);
}

ls_status ls__infer_like(const ls_node *call, ls_plan *plan)
{
    plan->dtype = call->in[0]->dtype;
    plan->shape = call->in[0]->shape;
    return ls__want_one_float(call, 0);
}

ls_status ls__infer_rows(const ls_node *call, ls_plan *plan)
{
    ls_shape_text text;

    if (call->in[0]->shape.ndim == 0 || ls__last(call->in[0]) == 0)
        return ls_fail(LS_ESHAPE, "%s: shape %s has no rows of at least one element",
                       call->op->name, ls_shape_print(&call->in[0]->shape, &text));
    return ls__infer_same(call, plan);
}

ls_status ls__check_targets(const ls_node *call, int i, int64_t n, int32_t ignore)
{
    ls_status status = want_dtype(call, i, LS_I32);
    if (status)
        return status;
    const int32_t *target = ls_ints(call->in[i]);
    for (int64_t at = 0; at < ls_tensor_numel(call->in[i]); at++)
        if ((target[at] < 0 || target[at] >= n) && target[at] != ignore)
            return ls_fail(LS_EINVAL, "%s: target %d at position %lld, want 0 to %lld, or %d",
                           call->op->name, target[at], (long long)at, (long long)n - 1, ignore);
    return LS_OK;
}

void ls__set_wide(ls_tensor *scalar, double value)
{
    scalar->wide        = value;
    scalar->is_wide     = true;
    ls_reals(scalar)[0] = (ls_real)value;
}

int64_t ls__last(const ls_tensor *t)
{
    return t->shape.dim[t->shape.ndim - 1];
}

int64_t ls__rows(const ls_tensor *t)
{
    int64_t rows = 1;

    for (int i = 0; i < t->shape.ndim - 1; i++)
        rows *= t->shape.dim[i];
    return rows;
}

int ls__dim(const ls_shape *shape, int64_t dim)
{
    int64_t at = dim < 0 ? dim + shape->ndim : dim;
    return at >= 0 && at < shape->ndim ? (int)at : -1;
}

/*
 * reshape.c - the same elements under another shape.
 */
#include <string.h>

#include "autograd/ops.h"

static ls_status mismatch(const ls_node *call, const ls_shape *want)
{
    ls_shape_text a, b;

    return ls_fail(LS_ESHAPE, "reshape: %s (%lld elements) to %s",
                   ls_shape_print(&call->in[0]->shape, &a),
                   (long long)ls_tensor_numel(call->in[0]), ls_shape_print(want, &b));
}

/* Fills in the dimension that is -1, if there is one. */
static ls_status complete(const ls_node *call, ls_shape *shape)
{
    int64_t known = 1, all = ls_tensor_numel(call->in[0]);
    int     open = -1;

    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < -1 || (shape->dim[i] == -1 && open >= 0))
            return mismatch(call, shape);
        if (shape->dim[i] == -1)
            open = i;
        else if (__builtin_mul_overflow(known, shape->dim[i], &known))
            return mismatch(call, shape);
    }
    if (open >= 0 ? known == 0 || all % known : known != all)
        return mismatch(call, shape);
    if (open >= 0)
        shape->dim[open] = all / known;
    return LS_OK;
}

/* attr.i: number of dimensions, then their sizes */
static ls_status infer(const ls_node *call, ls_plan *plan)
{
    int ndim = (int)call->attr.i[0];

    if (ndim < 0 || ndim > LS_MAX_DIMS)
        return ls_fail(LS_ESHAPE, "reshape: to %d dimensions, want 0 to %d", ndim, LS_MAX_DIMS);
    plan->shape.ndim = ndim;
    memcpy(plan->shape.dim, &call->attr.i[1], sizeof plan->shape.dim);
    plan->dtype  = call->in[0]->dtype;
    plan->view   = true;
    plan->offset = call->in[0]->offset;

    ls_status status = complete(call, &plan->shape);
    ls_shape_strides(&plan->shape, plan->stride);
    return status;
}

/* The view is all there is. */
static void forward(ls_node *call)
{
    (void)call;
}

const ls_op ls_op_reshape = {
    .name = "reshape", .n_in = 1, .infer = infer, .forward = forward, .passes = LS_SAVE_IN0};

ls_tensor *ls_reshape(ls_tape *tape, ls_tensor *x, ls_shape shape)
{
    ls_attr attr = {.i = {shape.ndim}};

    memcpy(&attr.i[1], shape.dim, sizeof shape.dim);
    return ls_tape_apply(tape, &ls_op_reshape, &x, 1, &attr);
}

/*
 * slice.c - elements start .. start + length - 1 along one dimension.
 */
#include <string.h>

#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/strided.h"

/* attr.i: dimension (may count from the end), start, length */
static ls_status infer(const ls_node *call, ls_plan *plan)
{
    const ls_tensor *x     = call->in[0];
    int              dim   = ls__dim(&x->shape, call->attr.i[0]);
    int64_t          start = call->attr.i[1], length = call->attr.i[2];
    ls_shape_text    text;

    if (dim < 0)
        return ls_fail(LS_EINVAL, "slice: dimension %lld of %s", (long long)call->attr.i[0],
                       ls_shape_print(&x->shape, &text));
    if (start < 0 || length < 0 || length > x->shape.dim[dim] - start)
        return ls_fail(LS_ESHAPE, "slice: %lld elements from %lld on in dimension %d of %s",
                       (long long)length, (long long)start, dim,
                       ls_shape_print(&x->shape, &text));
    plan->dtype          = x->dtype;
    plan->shape          = x->shape;
    plan->shape.dim[dim] = length;
    plan->view           = true;
    plan->offset         = x->offset + start * x->stride[dim];
    memcpy(plan->stride, x->stride, sizeof plan->stride);
    return LS_OK;
}

/* The view is all there is. */
static void forward(ls_node *call)
{
    (void)call;
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    const ls_shape *shape = &call->in[0]->shape;
    int             dim   = ls__dim(shape, call->attr.i[0]);
    int64_t         stride[LS_MAX_DIMS];

    if (!din[0].data)
        return;
    if (!din[0].add)
        ls_k_fill(din[0].data, 0, ls_shape_numel(shape), false);
    ls_shape_strides(shape, stride);
    ls_k_scatter_strided(din[0].data + call->attr.i[1] * stride[dim], dout, shape->ndim,
                         call->out->shape.dim, stride, din[0].add);
}

const ls_op ls_op_slice = {.name     = "slice",
                           .n_in     = 1,
                           .infer    = infer,
                           .forward  = forward,
                           .backward = backward,
                           .strided  = true};

ls_tensor *ls_slice(ls_tape *tape, ls_tensor *x, int dim, int64_t start, int64_t length)
{
    return ls_tape_apply(tape, &ls_op_slice, &x, 1, &(ls_attr){.i = {dim, start, length}});
}

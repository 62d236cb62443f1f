/*
 * permute.c - dimension i of the result is dimension order[i] of x.
 */
#include <string.h>

#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "autograd/tape_impl.h"
#include "core/kernels/strided.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    const ls_tensor *x    = call->in[0];
    unsigned         seen = 0;

    *plan = (ls_plan){.shape  = x->shape,
                      .dtype  = x->dtype,
                      .view   = true,
                      .offset = x->offset,
                      .saves  = plan->saves};
    for (int i = 0; i < x->shape.ndim; i++) {
        int64_t from = call->attr.i[i];
        if (from < 0 || from >= x->shape.ndim || seen & (1u << from))
            return ls_fail(LS_EINVAL,
                           "permute: dimension %lld at place %d, want each of 0 to %d once",
                           (long long)from, i, x->shape.ndim - 1);
        seen |= 1u << from;
        plan->shape.dim[i] = x->shape.dim[from];
        plan->stride[i]    = x->stride[from];
    }
    return LS_OK;
}

/* The view is all there is. */
static void forward(ls_node *call)
{
    (void)call;
}

/* Walks dx in its own order: its dimension order[i] is dimension i of dout. */
static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    const ls_shape *shape = &call->in[0]->shape;
    int64_t         of_out[LS_MAX_DIMS], of_in[LS_MAX_DIMS];

    if (!din[0].data)
        return;
    ls_shape_strides(&call->out->shape, of_out);
    for (int i = 0; i < shape->ndim; i++)
        of_in[call->attr.i[i]] = of_out[i];
    ls_k_gather_strided(din[0].data, dout, shape->ndim, shape->dim, of_in, din[0].add);
}

const ls_op ls_op_permute = {.name     = "permute",
                             .n_in     = 1,
                             .infer    = infer,
                             .forward  = forward,
                             .backward = backward,
                             .strided  = true};

ls_tensor *ls_permute(ls_tape *tape, ls_tensor *x, const int *order)
{
    ls_attr attr = {0};

    if (!order)
        return ls__tape_null(tape, "permute: the order");
    for (int i = 0; x && i < x->shape.ndim; i++)
        attr.i[i] = order[i];
    return ls_tape_apply(tape, &ls_op_permute, &x, 1, &attr);
}

ls_tensor *ls_transpose(ls_tape *tape, ls_tensor *x, int dim0, int dim1)
{
    int order[LS_MAX_DIMS] = {0, 1, 2, 3, 4};

    if (!x || ls_tape_status(tape))
        return ls_permute(tape, x, order);
    int a = ls__dim(&x->shape, dim0), b = ls__dim(&x->shape, dim1);
    if (a < 0 || b < 0)
        return ls_tape_fail(tape, ls_fail(LS_EINVAL,
                                          "transpose: dimensions %d and %d of a tensor with %d",
                                          dim0, dim1, x->shape.ndim));
    order[a] = b;
    order[b] = a;
    return ls_permute(tape, x, order);
}

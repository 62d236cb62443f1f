/*
 * scale.c - factor * x.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/elementwise.h"

static void forward(ls_node *call)
{
    ls_k_scale(ls_reals(call->out), ls_reals(call->in[0]), (ls_real)call->attr.f[0],
               ls_tensor_numel(call->out), false);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    if (din[0].data)
        ls_k_scale(din[0].data, dout, (ls_real)call->attr.f[0], ls_tensor_numel(call->out),
                   din[0].add);
}

const ls_op ls_op_scale = {.name     = "scale",
                           .n_in     = 1,
                           .infer    = ls__infer_same,
                           .forward  = forward,
                           .backward = backward};

ls_tensor *ls_scale(ls_tape *tape, ls_tensor *x, double factor)
{
    return ls_tape_apply(tape, &ls_op_scale, &x, 1, &(ls_attr){.f = {factor}});
}

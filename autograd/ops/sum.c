/*
 * sum.c - of all elements.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    plan->dtype                 = LS_REAL;
    plan->forward_scratch_bytes = ls_k_sum_scratch(ls_tensor_numel(call->in[0]));
    return ls__want_real(call, 0);
}

static void forward(ls_node *call)
{
    const ls_tensor *x = call->in[0];

    ls__set_wide(call->out, ls_k_sum(ls_reals(x), ls_tensor_numel(x), call->scratch));
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    if (din[0].data)
        ls_k_fill(din[0].data, dout[0], ls_tensor_numel(call->in[0]), din[0].add);
}

const ls_op ls_op_sum = {
    .name = "sum", .n_in = 1, .infer = infer, .forward = forward, .backward = backward};

ls_tensor *ls_sum(ls_tape *tape, ls_tensor *x)
{
    return ls_tape_apply(tape, &ls_op_sum, &x, 1, NULL);
}

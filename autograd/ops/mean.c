/*
 * mean.c - of all elements: their sum, divided in double.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    int64_t n = ls_tensor_numel(call->in[0]);

    if (n == 0)
        return ls_fail(LS_ESHAPE, "mean: of no elements");
    plan->dtype                 = LS_REAL;
    plan->forward_scratch_bytes = ls_k_sum_scratch(n);
    return ls__want_real(call, 0);
}

static void forward(ls_node *call)
{
    const ls_tensor *x = call->in[0];
    int64_t          n = ls_tensor_numel(x);

    ls__set_wide(call->out, ls_k_sum(ls_reals(x), n, call->scratch) / (double)n);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    int64_t n = ls_tensor_numel(call->in[0]);

    if (din[0].data)
        ls_k_fill(din[0].data, (ls_real)((double)dout[0] / (double)n), n, din[0].add);
}

const ls_op ls_op_mean = {
    .name = "mean", .n_in = 1, .infer = infer, .forward = forward, .backward = backward};

ls_tensor *ls_mean(ls_tape *tape, ls_tensor *x)
{
    return ls_tape_apply(tape, &ls_op_mean, &x, 1, NULL);
}

/*
 * rmsnorm.c - x / sqrt(mean(x^2) + eps) * w over the last dimension.
 *
 *     x (...,C), w (C);  aux: 1 / sqrt(...) of each row, double
 */
#include "core/kernels/rmsnorm.h"

#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/reduce.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_status status = ls__infer_rows(call, plan);

    if (!status)
        status = ls__want_one_float(call, 1);
    if (status)
        return status;
    plan->dtype  = call->in[1]->dtype;
    int64_t rows = ls__rows(call->in[0]), n = ls__last(call->in[0]);
    if (call->in[1]->shape.ndim != 1 || call->in[1]->shape.dim[0] != n)
        return ls__shape_mismatch(call, "a weight for each element of the last dimension");
    plan->aux_bytes = (size_t)rows * sizeof(double);
    if (call->in[1]->requires_grad)
        plan->backward_scratch_bytes = ls_k_columns_scratch(rows, n);
    return LS_OK;
}

static ls_rmsnorm_args arguments_of(const ls_node *call)
{
    bool half = ls__is_bf16(call->in[1]);

    return (ls_rmsnorm_args){.x    = ls_reals(call->in[0]),
                             .w    = half ? NULL : ls_reals(call->in[1]),
                             .w16  = half ? ls_halves(call->in[1]) : NULL,
                             .rstd = ls_aux(call),
                             .rows = ls__rows(call->in[0]),
                             .n    = ls__last(call->in[0])};
}

static void forward(ls_node *call)
{
    ls_rmsnorm_args a = arguments_of(call);
    ls_k_rmsnorm(ls_tensor_data(call->out), &a, call->attr.f[0]);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    ls_rmsnorm_args a = arguments_of(call);

    if (din[0].data)
        ls_k_rmsnorm_dx(din[0].data, dout, &a, din[0].add);
    if (din[1].data)
        ls_k_rmsnorm_dw(din[1].data, dout, &a, din[1].add, call->scratch);
}

const ls_op ls_op_rmsnorm = {.name     = "rmsnorm",
                             .n_in     = 2,
                             .infer    = infer,
                             .forward  = forward,
                             .backward = backward,
                             .saves    = LS_SAVE_IN0 | LS_SAVE_IN1,
                             .rebuilds = true};

ls_tensor *ls_rmsnorm(ls_tape *tape, ls_tensor *x, ls_tensor *w, double eps)
{
    return ls_tape_apply(tape, &ls_op_rmsnorm, (ls_tensor *[]){x, w}, 2,
                         &(ls_attr){.f = {eps}});
}

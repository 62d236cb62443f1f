/*
 * cast.c - between ls_real and BF16.
 *
 * Gradients are of ls_real on both sides, so the output's is the input's.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/bf16.h"

/* attr.i: the dtype */
static ls_status infer(const ls_node *call, ls_plan *plan)
{
    int64_t dtype = call->attr.i[0];

    if (dtype != LS_REAL && dtype != LS_BF16)
        return ls_fail(LS_EINVAL, "cast: to dtype %lld, want that of ls_real or BF16",
                       (long long)dtype);
    plan->dtype = (ls_dtype)dtype;
    plan->shape = call->in[0]->shape;
    return ls__want_one_float(call, 0);
}

static void forward(ls_node *call)
{
    const ls_tensor *x = call->in[0], *y = call->out;

    if (ls__is_bf16(y))
        ls_k_bf16_round(ls_halves(y), ls_reals(x), ls_tensor_numel(x));
    else
        ls_k_bf16_widen(ls_reals(y), ls_halves(x), ls_tensor_numel(x));
}

const ls_op ls_op_cast = {
    .name = "cast", .n_in = 1, .infer = infer, .forward = forward, .passes = LS_SAVE_IN0};

ls_tensor *ls_cast(ls_tape *tape, ls_tensor *x, ls_dtype dtype)
{
    if (x && !ls_tape_status(tape) && x->dtype == dtype)
        return x;
    return ls_tape_apply(tape, &ls_op_cast, &x, 1, &(ls_attr){.i = {dtype}});
}

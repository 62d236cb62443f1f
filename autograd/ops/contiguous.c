/*
 * contiguous.c - the same values in row-major order.
 *
 * A gradient is row-major whatever its tensor's strides, so it passes on as it is.
 */
#include "autograd/ops.h"
#include "core/kernels/strided.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    plan->dtype = call->in[0]->dtype;
    plan->shape = call->in[0]->shape;
    return LS_OK;
}

static void forward(ls_node *call)
{
    const ls_tensor *x = call->in[0];

    ls_k_copy_strided(ls_tensor_data(call->out), ls_tensor_data(x), ls_dtype_bytes(x->dtype),
                      x->shape.ndim, x->shape.dim, x->stride);
}

const ls_op ls_op_contiguous = {.name    = "contiguous",
                                .n_in    = 1,
                                .infer   = infer,
                                .forward = forward,
                                .strided = true,
                                .passes  = LS_SAVE_IN0};

ls_tensor *ls_contiguous(ls_tape *tape, ls_tensor *x)
{
    if (x && !ls_tape_status(tape) && ls_tensor_is_contiguous(x))
        return x;
    return ls_tape_apply(tape, &ls_op_contiguous, &x, 1, NULL);
}

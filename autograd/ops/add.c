/*
 * add.c - a + b, b repeated over a's leading dimensions.
 *
 * Where the shapes are equal the gradient is handed on as it is; a repeated b gets the sum
 * over its repetitions, in row blocks that the shape fixes.
 */
#include "autograd/ops.h"
#include "autograd/ops/broadcast_impl.h"
#include "core/kernels/elementwise.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_status status = ls__infer_broadcast(call, plan);

    if (!status && ls_tensor_numel(call->in[0]) != ls_tensor_numel(call->in[1]))
        plan->backward_scratch_bytes = ls__broadcast_scratch(call);
    return status;
}

static void forward(ls_node *call)
{
    int64_t  n = ls_tensor_numel(call->in[1]), rows = ls__broadcast_rows(call);
    ls_real *y = ls_reals(call->out);

    if (rows == 1)
        ls_k_add(y, ls_reals(call->in[0]), ls_reals(call->in[1]), n);
    else
        ls_k_add_rows(y, ls_reals(call->in[0]), ls_reals(call->in[1]), rows, n);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    if (din[1].data)
        ls_k_columns(&(ls_columns){.y       = din[1].data,
                                   .a       = dout,
                                   .rows    = ls__broadcast_rows(call),
                                   .n       = ls_tensor_numel(call->in[1]),
                                   .add     = din[1].add,
                                   .scratch = call->scratch});
}

const ls_op ls_op_add = {.name     = "add",
                         .n_in     = 2,
                         .infer    = infer,
                         .forward  = forward,
                         .backward = backward,
                         .passes   = LS_SAVE_IN0 | LS_SAVE_IN1};

ls_tensor *ls_add(ls_tape *tape, ls_tensor *a, ls_tensor *b)
{
    return ls_tape_apply(tape, &ls_op_add, (ls_tensor *[]){a, b}, 2, NULL);
}

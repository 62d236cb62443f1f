/*
 * log_softmax.c - x - log sum exp(x) over the last dimension.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/softmax.h"

static void forward(ls_node *call)
{
    ls_k_log_softmax(ls_reals(call->out), ls_reals(call->in[0]), ls__rows(call->out),
                     ls__last(call->out));
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    if (din[0].data)
        ls_k_log_softmax_backward(din[0].data, dout, ls_reals(call->out), ls__rows(call->out),
                                  ls__last(call->out), din[0].add);
}

const ls_op ls_op_log_softmax = {.name     = "log_softmax",
                                 .n_in     = 1,
                                 .infer    = ls__infer_rows,
                                 .forward  = forward,
                                 .backward = backward,
                                 .saves    = LS_SAVE_OUT};

ls_tensor *ls_log_softmax(ls_tape *tape, ls_tensor *x)
{
    return ls_tape_apply(tape, &ls_op_log_softmax, &x, 1, NULL);
}

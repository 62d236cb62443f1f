/*
 * activation.c - relu, gelu (both forms), silu and tanh: one rule over a table of functions.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/elementwise.h"

static ls_activation function_of(const ls_node *call)
{
    return (ls_activation)call->attr.i[0];
}

static void forward(ls_node *call)
{
    int64_t n = ls_tensor_numel(call->out);

    if (ls__is_bf16(call->in[0]))
        ls_k_activation_bf16(function_of(call), ls_halves(call->out), ls_halves(call->in[0]),
                             n);
    else
        ls_k_activation(function_of(call), ls_reals(call->out), ls_reals(call->in[0]), n);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    int64_t n = ls_tensor_numel(call->out);

    if (din[0].data && ls__is_bf16(call->in[0]))
        ls_k_activation_backward_bf16(function_of(call), din[0].data, dout,
                                      ls_halves(call->in[0]), n, din[0].add);
    else if (din[0].data)
        ls_k_activation_backward(function_of(call), din[0].data, dout, ls_reals(call->in[0]), n,
                                 din[0].add);
}

#define ACTIVATION(name_, function)                                                     \
    const ls_op ls_op_##name_ = {.name     = #name_,                                    \
                                 .n_in     = 1,                                         \
                                 .infer    = ls__infer_like,                            \
                                 .forward  = forward,                                   \
                                 .backward = backward,                                  \
                                 .saves    = LS_SAVE_IN0,                               \
                                 .rebuilds = true};                                     \
    ls_tensor  *ls_##name_(ls_tape *tape, ls_tensor *x)                                 \
    {                                                                                   \
        return ls_tape_apply(tape, &ls_op_##name_, &x, 1, &(ls_attr){.i = {function}}); \
    }

ACTIVATION(relu, LS_ACT_RELU)
ACTIVATION(gelu, LS_ACT_GELU)
ACTIVATION(gelu_tanh, LS_ACT_GELU_TANH)
ACTIVATION(silu, LS_ACT_SILU)
ACTIVATION(tanh, LS_ACT_TANH)

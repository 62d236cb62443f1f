/*
 * swiglu.c - silu(gate) * up.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/elementwise.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_status status = ls__infer_like(call, plan);

    if (!status && !ls_shape_equal(&call->in[0]->shape, &call->in[1]->shape))
        status = ls__shape_mismatch(call, "equal shapes");
    return status;
}

static void forward(ls_node *call)
{
    int64_t n = ls_tensor_numel(call->out);

    if (ls__is_bf16(call->out))
        ls_k_swiglu_bf16(ls_halves(call->out), ls_halves(call->in[0]), ls_halves(call->in[1]),
                         n);
    else
        ls_k_swiglu(ls_reals(call->out), ls_reals(call->in[0]), ls_reals(call->in[1]), n);
}

static void backward_bf16(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    const uint16_t *gate = ls_halves(call->in[0]), *up = ls_halves(call->in[1]);
    int64_t         n = ls_tensor_numel(call->out);

    ls_k_swiglu_dgate_bf16(din[0].data, dout, gate, up, n, din[0].add);
    ls_k_swiglu_dup_bf16(din[1].data, dout, gate, n, din[1].add);
}

static void backward_real(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    const ls_real *gate = ls_reals(call->in[0]), *up = ls_reals(call->in[1]);
    int64_t        n = ls_tensor_numel(call->out);

    ls_k_swiglu_dgate(din[0].data, dout, gate, up, n, din[0].add);
    ls_k_swiglu_dup(din[1].data, dout, gate, n, din[1].add);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    if (ls__is_bf16(call->out))
        backward_bf16(call, dout, din);
    else
        backward_real(call, dout, din);
}

const ls_op ls_op_swiglu = {.name     = "swiglu",
                            .n_in     = 2,
                            .infer    = infer,
                            .forward  = forward,
                            .backward = backward,
                            .saves    = LS_SAVE_IN0 | LS_SAVE_IN1,
                            .rebuilds = true};

ls_tensor *ls_swiglu(ls_tape *tape, ls_tensor *gate, ls_tensor *up)
{
    return ls_tape_apply(tape, &ls_op_swiglu, (ls_tensor *[]){gate, up}, 2, NULL);
}

/*
 * residual.c - x + dropout(y) in one pass: the end of a residual branch.
 *
 * The bits of add(x, dropout(y)).  The gradient of x is the output's, handed on as it is.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/dropout.h"

enum { X, Y };

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    double    p      = call->attr.f[0];
    ls_status status = ls__want_real(call, X);

    if (!status)
        status = ls__want_real(call, Y);
    if (status)
        return status;
    if (call->in[X]->shape.ndim < 1 ||
        !ls_shape_equal(&call->in[X]->shape, &call->in[Y]->shape))
        return ls__shape_mismatch(call, "equal ones, (sequences, ...)");
    if (!(p >= 0 && p < 1))
        return ls_fail(LS_EINVAL, "residual: probability %g, want 0 <= p < 1", p);
    plan->shape = call->in[X]->shape;
    plan->dtype = LS_REAL;
    return LS_OK;
}

static ls_dropout_args args_of(const ls_node *call)
{
    return (ls_dropout_args){call->random.seed, call->random.step, call->random.first_sequence,
                             call->site, call->attr.f[0]};
}

static void forward(ls_node *call)
{
    ls_dropout_args d         = args_of(call);
    int64_t         sequences = call->out->shape.dim[0];

    if (sequences)
        ls_k_residual(&d, ls_reals(call->out), ls_reals(call->in[X]), ls_reals(call->in[Y]),
                      sequences, ls_tensor_numel(call->out) / sequences);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    ls_dropout_args d         = args_of(call);
    int64_t         sequences = call->out->shape.dim[0];

    if (din[Y].data && sequences)
        ls_k_dropout(&d, din[Y].data, dout, sequences, ls_tensor_numel(call->out) / sequences,
                     din[Y].add);
}

const ls_op ls_op_residual = {.name     = "residual",
                              .n_in     = 2,
                              .infer    = infer,
                              .forward  = forward,
                              .backward = backward,
                              .random   = true,
                              .passes   = LS_SAVE_IN0};

ls_tensor *ls_residual(ls_tape *tape, ls_tensor *x, ls_tensor *y, double p)
{
    if (p == 0 || !ls_tape_get_training(tape))
        return ls_add(tape, x, y);
    return ls_tape_apply(tape, &ls_op_residual, (ls_tensor *[]){x, y}, 2, &(ls_attr){.f = {p}});
}

/*
 * dropout.c - zeroes elements at random, reproducibly.
 */
#include "core/kernels/dropout.h"
#include "autograd/ops.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    const ls_tensor *x = call->in[0];
    double           p = call->attr.f[0];

    if (x->dtype != LS_REAL || x->shape.ndim < 1)
        return ls_fail(LS_ESHAPE, "dropout: %s with %d dimensions, want (sequences, ...)",
                       ls_dtype_name(x->dtype), x->shape.ndim);
    if (!(p >= 0 && p < 1))
        return ls_fail(LS_EINVAL, "dropout: probability %g, want 0 <= p < 1", p);
    plan->shape = x->shape;
    plan->dtype = LS_REAL;
    return LS_OK;
}

static void apply(const ls_node *call, ls_real *y, const ls_real *x, bool add)
{
    int64_t         sequences = call->out->shape.dim[0];
    ls_dropout_args d = {call->random.seed, call->random.step, call->random.first_sequence,
                         call->site, call->attr.f[0]};

    if (sequences)
        ls_k_dropout(&d, y, x, sequences, ls_tensor_numel(call->out) / sequences, add);
}

static void forward(ls_node *call)
{
    apply(call, ls_reals(call->out), ls_reals(call->in[0]), false);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    if (din[0].data)
        apply(call, din[0].data, dout, din[0].add);
}

const ls_op ls_op_dropout = {.name     = "dropout",
                             .n_in     = 1,
                             .infer    = infer,
                             .forward  = forward,
                             .backward = backward,
                             .random   = true};

ls_tensor *ls_dropout(ls_tape *tape, ls_tensor *x, double p)
{
    if (x && (p == 0 || !ls_tape_get_training(tape)))
        return ls_tape_status(tape) ? NULL : x;
    return ls_tape_apply(tape, &ls_op_dropout, &x, 1, &(ls_attr){.f = {p}});
}

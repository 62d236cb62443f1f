/*
 * cross_entropy.c - sum over rows of -log softmax(logits)[target].
 *
 *     logits (...,V), targets (...) I32;  aux: log sum exp of each row, double
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/softmax.h"

static ls_scored scored_of(const ls_node *call)
{
    return (ls_scored){.logits = ls_reals(call->in[0]),
                       .target = ls_ints(call->in[1]),
                       .ignore = (int32_t)call->attr.i[0],
                       .rows   = ls__rows(call->in[0]),
                       .n      = ls__last(call->in[0])};
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_status status = ls__infer_rows(call, plan);

    if (!status)
        status = ls__check_targets(call, 1, ls__last(call->in[0]), (int32_t)call->attr.i[0]);
    if (status)
        return status;
    ls_shape lead = call->in[0]->shape;
    lead.ndim--;
    if (!ls_shape_equal(&lead, &call->in[1]->shape))
        return ls__shape_mismatch(call, "one target for each row");
    plan->shape                 = LS_SHAPE0;
    plan->aux_bytes             = (size_t)ls__rows(call->in[0]) * sizeof(double);
    plan->forward_scratch_bytes = plan->aux_bytes;
    return LS_OK;
}

static void forward(ls_node *call)
{
    ls_scored s = scored_of(call);

    ls_k_cross_entropy(call->scratch, ls_aux(call), &s);
    ls__set_wide(call->out, ls_k_add_losses(0, call->scratch, s.rows));
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    ls_scored s = scored_of(call);

    if (din[0].data)
        ls_k_cross_entropy_backward(din[0].data, ls_aux(call), &s, dout[0], din[0].add);
}

const ls_op ls_op_cross_entropy = {.name     = "cross_entropy",
                                   .n_in     = 2,
                                   .infer    = infer,
                                   .forward  = forward,
                                   .backward = backward,
                                   .saves    = LS_SAVE_IN0 | LS_SAVE_IN1};

ls_tensor *ls_cross_entropy(ls_tape *tape, ls_tensor *logits, ls_tensor *targets,
                            int32_t ignore)
{
    return ls_tape_apply(tape, &ls_op_cross_entropy, (ls_tensor *[]){logits, targets}, 2,
                         &(ls_attr){.i = {ignore}});
}

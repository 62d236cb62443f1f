/*
 * evaluate.c - the mean loss of a token sequence.
 */
#include "cli/evaluate.h"

#include "core/exact_sum.h"

ls_tensor *ls_batch_loss(ls_module *model, ls_tape *tape, const ls_sampler *sampler, int64_t q,
                         int64_t n)
{
    ls_shape   shape   = LS_SHAPE2(n, sampler->context);
    ls_tensor *inputs  = ls_tape_tensor(tape, LS_I32, shape);
    ls_tensor *targets = ls_tape_tensor(tape, LS_I32, shape);

    if (!inputs || !targets)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        ls_sampler_fill(sampler, q + i, ls_ints(inputs) + i * sampler->context,
                        ls_ints(targets) + i * sampler->context);
    return ls_module_call_with(model, tape, inputs, targets);
}

static ls_status sum_losses(const ls_evaluation *e, const ls_sampler *sampler,
                            int64_t sequences, ls_exact_sum *sum)
{
    int64_t rank = e->ranks ? e->ranks->rank : 0, size = e->ranks ? e->ranks->size : 1;
    int64_t end = e->together
                      ? (sequences - 1 + size * e->micro) / (size * e->micro) * size * e->micro
                      : sequences;

    for (int64_t at = rank * e->micro; at < end; at += size * e->micro) {
        bool    counts = at < sequences; /* else what others compute is only taken part in */
        int64_t q      = counts ? at : 0;
        int64_t n      = sequences - q < e->micro ? sequences - q : e->micro;
        if (e->stop && *e->stop)
            return ls_fail(LS_EINTERRUPTED, "evaluation interrupted");
        ls_tape_reset(e->tape);
        ls_tensor *loss = ls_batch_loss(e->model, e->tape, sampler, q, n);
        if (!loss)
            return ls_tape_status(e->tape);
        if (counts)
            ls_exact_sum_add(sum, ls_item(loss));
    }
    return LS_OK;
}

ls_status ls_evaluate(const ls_evaluation *e, double *loss, int64_t *tokens)
{
    ls_sampler   sampler;
    ls_exact_sum sum;
    ls_status status = ls_sampler_init(&sampler, e->tokens, e->context, LS_ORDER_SEQUENTIAL, 0);

    if (status)
        return status;
    int64_t sequences = ls_sampler_sequence_count(&sampler);
    if (e->limit > 0 && e->limit < sequences)
        sequences = e->limit;
    ls_exact_sum_init(&sum);
    bool grad     = ls_tape_set_grad(e->tape, false);
    bool training = ls_tape_set_training(e->tape, false);
    status        = sum_losses(e, &sampler, sequences, &sum);
    if (e->ranks && !e->together) /* together the others wait in a forward */
        status = ls_ranks_agree(e->ranks, status);
    if (!status && e->ranks)
        status = ls_ranks_sum(e->ranks, &sum, NULL, 0);
    ls_tape_set_grad(e->tape, grad);
    ls_tape_set_training(e->tape, training);
    ls_tape_reset(e->tape);
    if (status)
        return ls_fail_in(status, "evaluation");
    *loss = ls_exact_sum_round(&sum) / ((double)sequences * (double)e->context);
    if (tokens)
        *tokens = sequences * e->context;
    return LS_OK;
}

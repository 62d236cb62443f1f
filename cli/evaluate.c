/*
 * evaluate.c - the mean loss of a token sequence.
 */
#include "cli/evaluate.h"

#include "cli/classify.h"
#include "core/clock.h"
#include "core/exact_sum.h"

ls_tensor *ls_batch_loss(ls_module *model, ls_tape *tape, const ls_sampler *sampler, int64_t q,
                         int64_t n)
{
    if (sampler->rows)
        return ls_rows_loss(model, tape, sampler, q, n, NULL);
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

/*
 * A share of an evaluation.  In round k rank r has micro-batch k N + r, where there is one.
 *
 * Note [ending an evaluation together]
 * A rank that was interrupted, or failed, cannot just leave the others, and asking all after
 * every round would cost.  So ranks look at each other after the first round, and then after as
 * many rounds as take half a second, by the slowest rank's clock: a number that all get from
 * the same all_reduce.  It at most doubles, for one quick round says little of those to come.
 */
typedef struct {
    const ls_evaluation *e;
    const ls_sampler    *sampler;
    int64_t              sequences;
    int                  rank, size;
    int64_t              next;    /* the round before which ranks look at each other */
    int64_t              looked;  /* that before which they last did, */
    int64_t              since;   /* and when */
    ls_status            own;     /* failed: no more micro-batches here */
    int64_t              correct; /* rows told right so far */
    bool                 over;    /* on all ranks: one does not go on */
} share;

static const int64_t LOOK_NS = 500000000;

static share share_of(const ls_evaluation *e, const ls_sampler *sampler, int64_t sequences)
{
    return (share){.e         = e,
                   .sampler   = sampler,
                   .sequences = sequences,
                   .rank      = e->ranks ? e->ranks->rank : 0,
                   .size      = e->ranks ? e->ranks->size : 1,
                   .next      = 1,
                   .since     = ls_now_ns()};
}

static ls_status interrupted(void)
{
    return ls_fail(LS_EINTERRUPTED, "evaluation interrupted");
}

static ls_status look_around(share *s, int64_t round)
{
    int64_t   rounds    = round - s->looked;
    int64_t   each      = (ls_now_ns() - s->since) / rounds;
    int64_t   values[3] = {s->e->stop ? *s->e->stop : 0, s->own != LS_OK, each};
    ls_status status    = ls_ranks_max(s->e->ranks, values, 3);
    int64_t   fitting   = 1 + LOOK_NS / (values[2] + 1);

    s->looked = round;
    s->since  = ls_now_ns();
    s->next   = round + (fitting < 2 * rounds ? fitting : 2 * rounds);
    s->over   = status || values[0] || values[1];
    if (status)
        return status;
    return values[0] && !s->own ? interrupted() : LS_OK;
}

/* The one at sequence `at`, or, beyond the last, one that others compute and this rank only
 * takes part in. */
static ls_status micro_batch(share *s, int64_t at, ls_exact_sum *sum)
{
    const ls_evaluation *e      = s->e;
    bool                 counts = at < s->sequences;
    int64_t              q      = counts ? at : 0;
    int64_t              n      = s->sequences - q < e->micro ? s->sequences - q : e->micro;

    if (!counts && !e->together)
        return LS_OK;
    ls_tape_reset(e->tape);
    int64_t    right = 0;
    ls_tensor *loss  = e->rows ? ls_rows_loss(e->model, e->tape, s->sampler, q, n, &right)
                               : ls_batch_loss(e->model, e->tape, s->sampler, q, n);
    if (!loss)
        return ls_tape_status(e->tape);
    if (counts) {
        ls_exact_sum_add(sum, ls_item(loss));
        s->correct += right;
    }
    return LS_OK;
}

/* Alone it ends at once; so does a failure where the others wait in a forward. */
static ls_status look(share *s, int64_t round)
{
    if (s->own)
        s->over = s->size == 1 || s->e->together;
    else if (s->size == 1 && s->e->stop && *s->e->stop)
        return interrupted();
    return s->size > 1 && !s->over && round == s->next ? look_around(s, round) : LS_OK;
}

static ls_status sum_losses(share *s, ls_exact_sum *sum)
{
    int64_t   together = s->size * s->e->micro;
    ls_status status   = LS_OK;

    for (int64_t round = 0; round * together < s->sequences && !status && !s->over; round++) {
        int64_t q = round * together + s->rank * s->e->micro;
        status    = look(s, round);
        if (!status && !s->over && !s->own)
            s->own = micro_batch(s, q, sum);
    }
    return s->own ? s->own : status;
}

ls_status ls_evaluate(const ls_evaluation *e, double *loss, int64_t *tokens)
{
    ls_sampler   sampler;
    ls_exact_sum sum;
    ls_status    status =
        e->rows ? ls_sampler_init_rows(&sampler, e->rows, LS_ORDER_SEQUENTIAL, 0)
                   : ls_sampler_init(&sampler, e->tokens, e->context, LS_ORDER_SEQUENTIAL, 0);

    if (status)
        return status;
    int64_t sequences = ls_sampler_sequence_count(&sampler);
    if (e->limit > 0 && e->limit < sequences)
        sequences = e->limit;
    ls_exact_sum_init(&sum);
    bool  grad     = ls_tape_set_grad(e->tape, false);
    bool  training = ls_tape_set_training(e->tape, false);
    share mine     = share_of(e, &sampler, sequences);
    status         = sum_losses(&mine, &sum);
    if (e->ranks && !(e->together && mine.own)) /* then the others wait in a forward */
        status = ls_ranks_agree(e->ranks, status);
    if (!status && e->ranks)
        status = ls_ranks_sum(e->ranks, &sum, &mine.correct, 1);
    ls_tape_set_grad(e->tape, grad);
    ls_tape_set_training(e->tape, training);
    ls_tape_reset(e->tape);
    if (status)
        return ls_fail_in(status, "evaluation");
    *loss = ls_exact_sum_round(&sum) / ((double)sequences * (double)sampler.context);
    if (tokens)
        *tokens = sequences * sampler.context;
    if (e->correct)
        *e->correct = mine.correct;
    return LS_OK;
}

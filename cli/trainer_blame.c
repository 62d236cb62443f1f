/*
 * trainer_blame.c - whose fault it is that a step is not finite.
 *
 * The step is a pure function, so it is computed once more, with a look at everything: first
 * the parameters, then each micro-batch's loss and the gradients of its leaves, in their order.
 */
#include <math.h>
#include <stdio.h>

#include "cli/trainer_impl.h"

/* The search for the culprit: which leaf's gradient is the first that is not finite. */
typedef struct {
    const ls_trainer *t;
    const char       *name;
} search;

static bool all_finite(const ls_real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static const char *name_of(const ls_trainer *t, const ls_tensor *p)
{
    for (int i = 0; i < t->n; i++)
        if (t->parameters[i].tensor == p)
            return t->parameters[i].name;
    return "?";
}

static ls_status look_at_leaf(void *context, ls_tensor *leaf)
{
    search *s = context;

    if (!s->name && leaf->grad && !all_finite(ls_tensor_grad(leaf), ls_tensor_numel(leaf)))
        s->name = name_of(s->t, leaf);
    ls_tensor_zero_grad(leaf);
    return LS_OK;
}

static ls_status blame_parameter(const char *name, int64_t step)
{
    if (step == 1)
        return ls_fail(LS_ENOTFINITE, "step 1: parameter %s is not finite from the start",
                       name);
    return ls_fail(LS_ENOTFINITE,
                   "step %lld: parameter %s is not finite; the update of step %lld made it so",
                   (long long)step, name, (long long)step - 1);
}

static ls_status blame_parameters(const ls_trainer *t, int64_t step)
{
    for (int i = 0; i < t->n; i++) {
        const ls_tensor *p = ls_tensor_owned(t->parameters[i].tensor);
        if (!all_finite(ls_reals(p), ls_tensor_numel(p)))
            return blame_parameter(t->parameters[i].name, step);
    }
    return LS_OK;
}

static ls_status blame_micro(ls_trainer *t, int64_t done, int64_t m)
{
    search     s = {.t = t};
    ls_tensor *l = ls__trainer_micro_loss(t, done, m);

    ls_tape_on_leaf(t->tape, look_at_leaf, &s);
    ls_status status = ls_backward(t->tape, l);
    ls_tape_on_leaf(t->tape, NULL, NULL);
    if (status || (isfinite(ls_item(l)) && !s.name))
        return status;
    return ls_fail(LS_ENOTFINITE,
                   "step %lld, micro-batch %lld: the loss is %g, %s%s; the step was not taken",
                   (long long)done + 1, (long long)m, fabs(ls_item(l)),
                   s.name ? "the first gradient that is not finite is that of "
                          : "gradients are finite",
                   s.name ? s.name : "");
}

/* The first of this rank's micro-batches that is not finite; all are computed where forwards
 * are collective. */
static ls_status blame_micros(ls_trainer *t, int64_t done)
{
    int64_t   micros = t->cfg->batch.global / t->cfg->batch.micro;
    bool      all    = ls_strategy_shards(&t->strategy);
    char      text[400];
    ls_status first = LS_OK;

    for (int64_t k = 0; k < micros / t->ranks->size && (all || !first); k++) {
        ls_status status = blame_micro(t, done, ls_strategy_micro(&t->strategy, micros, k));
        if (!status || first)
            continue;
        first = status;
        snprintf(text, sizeof text, "%s", ls_error_message());
    }
    return first ? ls_fail(first, "%s", text) : LS_OK;
}

ls_status ls__trainer_blame(ls_trainer *t, int64_t done)
{
    ls_status status = ls_ranks_agree(t->ranks, blame_parameters(t, done + 1));

    for (int i = 0; i < t->n; i++)
        ls_tensor_zero_grad(
            t->parameters[i].tensor); /* the step's sum, to which backward would add */
    if (!status)
        status = blame_micros(t, done);
    status = ls_ranks_agree(t->ranks, status);
    if (status)
        return status;
    return ls_fail(
        LS_ENOTFINITE,
        "step %lld: the sum of the micro-batches' gradients is not finite, though each is",
        (long long)done + 1);
}

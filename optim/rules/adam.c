/*
 * adam.c - Adam and AdamW.
 *
 * Constants are worked out in double and rounded once, as PyTorch does for its scalars.
 */
#include <math.h>

#include "core/kernels/adam.h"
#include "optim/rule_impl.h"

static void step(const ls_optim_update *u, double decay, double l2)
{
    const ls_optimizer_opts *o = u->opts;
    double                   t = (double)u->t;
    ls_adam_args             a = {
                    .scale        = (ls_real)u->scale,
                    .decay        = (ls_real)decay,
                    .l2           = (ls_real)l2,
                    .one_minus_b1 = (ls_real)(1 - o->beta1),
                    .b2           = (ls_real)o->beta2,
                    .one_minus_b2 = (ls_real)(1 - o->beta2),
                    .step_size    = (ls_real)(o->lr / (1 - pow(o->beta1, t))),
                    .root_bias2   = (ls_real)sqrt(1 - pow(o->beta2, t)),
                    .eps          = (ls_real)o->eps,
    };

    ls_k_adam(&a, u->p, u->g, u->state[0], u->state[1], u->n);
}

static void adam(const ls_optim_update *u)
{
    step(u, 1, u->decay);
}

static void adamw(const ls_optim_update *u)
{
    step(u, 1 - u->opts->lr * u->decay, 0);
}

const ls_optim_rule ls__optim_adam  = {.state = {"exp_avg", "exp_avg_sq"}, .step = adam};
const ls_optim_rule ls__optim_adamw = {
    .state = {"exp_avg", "exp_avg_sq"}, .step = adamw, .weight_decay = 0.1};

/*
 * sgd.c - gradient descent, with momentum or without.
 */
#include "core/kernels/adam.h"
#include "optim/rule_impl.h"

static int states(const ls_optimizer_opts *opts)
{
    return opts->momentum != 0;
}

static void step(const ls_optim_update *u)
{
    const ls_optimizer_opts *o = u->opts;
    ls_sgd_args              a = {.scale    = (ls_real)u->scale,
                                  .l2       = (ls_real)u->decay,
                                  .momentum = (ls_real)o->momentum,
                                  .lr       = (ls_real)o->lr,
                                  .first    = u->first};

    ls_k_sgd(&a, u->p, u->g, states(o) ? u->state[0] : NULL, u->n);
}

const ls_optim_rule ls__optim_sgd = {
    .state = {"momentum"}, .states = states, .step = step, .has_momentum = true};

/*
 * optimizer.h - SGD with momentum, Adam and AdamW over named parameters.
 *
 * Gradients are sums; ls_optimizer_step(opt, scale) uses g * (float)scale, where scale holds
 * the one division by the tokens that count and the clipping's coefficient (architecture.md,
 * rule 5).  Weight decay never touches parameters with fewer than two dimensions.  A parameter
 * without a gradient is left alone, as in PyTorch.
 *
 * Of a sharded parameter (tensor.h) the rank's own rows are updated, and state exists for these
 * alone, whether the optimizer was made before the sharding or after it.
 */
#ifndef LS_OPTIM_OPTIMIZER_H
#define LS_OPTIM_OPTIMIZER_H

#include <stdbool.h>

#include "core/tensor.h"

typedef struct ls_optimizer ls_optimizer;

/*
 * X(TYPE, name) for each optimizer; name as in optim.type.  A new one is a line here and a file
 * in optim/rules/.
 */
#define LS_OPTIM_LIST(X) \
    X(ADAMW, adamw)      \
    X(ADAM, adam)        \
    X(SGD, sgd)

typedef enum {
#define X(TYPE, name) LS_OPTIM_##TYPE,
    LS_OPTIM_LIST(X)
#undef X
} ls_optim_type;

/* No field has a default: a beta of 0 is 0. */
typedef struct {
    ls_optim_type type;
    double        lr;
    double        beta1, beta2, eps; /* Adam, AdamW; eps stands outside the root */
    double        momentum;          /* SGD; 0: none */
    double        weight_decay;      /* decoupled in AdamW, added to the gradient elsewhere */
} ls_optimizer_opts;

/*
 * State for these parameters, zeroed (their own values are not looked at); the list is borrowed
 * and must outlive the optimizer.  NULL: out of memory, options that are NULL or of no type, or
 * n < 0 (EINVAL), or a list that is NULL, so that a failed ls_module_list() may be handed on.
 */
ls_optimizer *ls_optimizer_new(const ls_named_tensor *parameters, int n,
                               const ls_optimizer_opts *opts);
void          ls_optimizer_free(ls_optimizer *opt); /* NULL is allowed */

/* Drops the parameters' gradients; without it the next backward adds to them. */
void ls_optimizer_zero_grad(ls_optimizer *opt);

void    ls_optimizer_set_lr(ls_optimizer *opt, double lr);
int64_t ls_optimizer_steps(const ls_optimizer *opt); /* taken so far */

/*
 * One update from the parameters' gradients, which stay as they are; scale multiplies each of
 * them first.  The count of steps (Adam's t) goes up by one, whoever has a gradient.
 */
void ls_optimizer_step(ls_optimizer *opt, double scale);

/*
 * The state tensors, "exp_avg.<name>", "exp_avg_sq.<name>" or "momentum.<name>", in the order
 * of the parameters; owned by the optimizer.  Sharded as their parameters are, from the first
 * step after the sharding on.
 */
const ls_named_tensor *ls_optimizer_state(const ls_optimizer *opt, int *n);

/*
 * Cuts the state of parameters that have been sharded since it was made, as the next step
 * would; for who loads or saves before it.
 */
void ls_optimizer_shard_state(ls_optimizer *opt);

/*
 * For a state that was loaded: so many steps were taken.  started[i] (NULL: all) says whether
 * parameter i has had a gradient in them: the first one begins SGD's momentum.
 */
void ls_optimizer_resume(ls_optimizer *opt, int64_t steps, const bool *started);
bool ls_optimizer_has_started(const ls_optimizer *opt, int i);

/* Bytes of state that these options ask for. */
int64_t ls_optimizer_state_bytes(const ls_optimizer_opts *opts, int64_t parameter_elements);

/* Of a type: its name, the weight decay that it usually has, and whether momentum is for it. */
const char *ls_optim_name(ls_optim_type type);
double      ls_optim_usual_decay(ls_optim_type type);
bool        ls_optim_has_momentum(ls_optim_type type);

#endif

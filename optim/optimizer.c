/*
 * optimizer.c - the state of an optimizer, and who is updated; optim/rules/ say how.
 */
#include "optim/optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "optim/rule_impl.h"

static const struct {
    const char          *name;
    const ls_optim_rule *rule;
} types[] = {
#define X(TYPE, name) [LS_OPTIM_##TYPE] = {#name, &ls__optim_##name},
    LS_OPTIM_LIST(X)
#undef X
};
enum { TYPES = sizeof types / sizeof *types };

struct ls_optimizer {
    const ls_optim_rule   *rule;
    const ls_named_tensor *parameters;
    int                    n;
    ls_optimizer_opts      opts;
    int64_t                steps;
    int                    kinds;
    ls_named_tensor       *state; /* n * kinds: kind after kind of a parameter */
    ls_tensor             *tensors;
    ls_shard              *shards;  /* of tensors whose parameter is sharded */
    bool                  *started; /* had a gradient; SGD's momentum begins with the first */
};

const char *ls_optim_name(ls_optim_type type)
{
    return types[type].name;
}

double ls_optim_usual_decay(ls_optim_type type)
{
    return types[type].rule->weight_decay;
}

bool ls_optim_has_momentum(ls_optim_type type)
{
    return types[type].rule->has_momentum;
}

static int kinds_of(const ls_optimizer_opts *o)
{
    const ls_optim_rule *rule = types[o->type].rule;
    int                  n    = 0;

    if (rule->states)
        return rule->states(o);
    while (n < LS_OPTIM_MOST_STATES && rule->state[n])
        n++;
    return n;
}

/* State i is sharded as its parameter is. */
static void take_shape(ls_optimizer *opt, int i)
{
    const ls_shard *of = opt->parameters[i / opt->kinds].tensor->shard;

    if (!of)
        return;
    opt->shards[i] =
        (ls_shard){ls_tensor_header(LS_REAL, of->rows.shape), of->first, of->group};
    opt->tensors[i].shard = &opt->shards[i];
}

static ls_status make_state(ls_optimizer *opt, int i)
{
    const ls_named_tensor *p = &opt->parameters[i / opt->kinds];
    char *name               = ls_sprintf("%s.%s", opt->rule->state[i % opt->kinds], p->name);

    opt->tensors[i] = ls_tensor_header(LS_REAL, p->tensor->shape);
    opt->state[i]   = (ls_named_tensor){name, &opt->tensors[i]};
    take_shape(opt, i);
    ls_tensor *t = ls_tensor_owned(&opt->tensors[i]);
    if (!name || ls_tensor_materialize(t, LS_MEM_OPTIM))
        return ls_fail_in(LS_ENOMEM, "optimizer state of %s", p->name);
    memset(ls_tensor_data(t), 0, ls_tensor_bytes(t));
    return LS_OK;
}

/* Not an error of its own: a list that could not be made. */
static ls_status check(const ls_named_tensor *parameters, int n, const ls_optimizer_opts *opts)
{
    if (!parameters)
        return LS_EINVAL;
    if (!opts || n < 0)
        return ls_fail(LS_EINVAL, "optimizer: %d parameters%s", n,
                       opts ? "" : ", options that are NULL");
    if ((int)opts->type < 0 || (int)opts->type >= TYPES)
        return ls_fail(LS_EINVAL, "optimizer: %d is the number of no type, there are %d",
                       (int)opts->type, TYPES);
    return LS_OK;
}

ls_optimizer *ls_optimizer_new(const ls_named_tensor *parameters, int n,
                               const ls_optimizer_opts *opts)
{
    ls_optimizer *opt = check(parameters, n, opts) ? NULL : ls_calloc(1, sizeof *opt);

    if (!opt)
        return NULL;
    opt->rule        = types[opts->type].rule;
    opt->parameters  = parameters;
    opt->n           = n;
    opt->opts        = *opts;
    opt->kinds       = kinds_of(opts);
    size_t count     = (size_t)n * (size_t)opt->kinds;
    opt->state       = ls_calloc(count, sizeof *opt->state);
    opt->tensors     = opt->state ? ls_calloc(count, sizeof *opt->tensors) : NULL;
    opt->shards      = opt->tensors ? ls_calloc(count, sizeof *opt->shards) : NULL;
    opt->started     = opt->shards ? ls_calloc((size_t)n, sizeof *opt->started) : NULL;
    ls_status status = opt->started ? LS_OK : LS_ENOMEM;
    for (size_t i = 0; i < count && !status; i++)
        status = make_state(opt, (int)i);
    if (!status)
        return opt;
    ls_optimizer_free(opt);
    return NULL;
}

void ls_optimizer_free(ls_optimizer *opt)
{
    if (!opt)
        return;
    for (int i = 0; opt->tensors && i < opt->n * opt->kinds; i++) {
        ls_tensor_drop(&opt->tensors[i]);
        ls_tensor_drop(ls_tensor_owned(&opt->tensors[i]));
        free((char *)opt->state[i].name);
    }
    free(opt->started);
    free(opt->shards);
    free(opt->tensors);
    free(opt->state);
    free(opt);
}

void ls_optimizer_zero_grad(ls_optimizer *opt)
{
    for (int i = 0; i < opt->n; i++) {
        ls_tensor_zero_grad(opt->parameters[i].tensor);
        ls_tensor_zero_grad(ls_tensor_owned(opt->parameters[i].tensor));
    }
}

void ls_optimizer_set_lr(ls_optimizer *opt, double lr)
{
    opt->opts.lr = lr;
}

int64_t ls_optimizer_steps(const ls_optimizer *opt)
{
    return opt->steps;
}

static double decay_of(const ls_optimizer *opt, const ls_tensor *p)
{
    return p->shape.ndim < 2 ? 0 : opt->opts.weight_decay;
}

static ls_real *state_of(ls_optimizer *opt, int i)
{
    return ls_reals(ls_tensor_owned(&opt->tensors[i]));
}

static void update(ls_optimizer *opt, int i, double scale)
{
    ls_tensor      *p = ls_tensor_owned(opt->parameters[i].tensor);
    ls_optim_update u = {.opts  = &opt->opts,
                         .scale = scale,
                         .decay = decay_of(opt, p),
                         .t     = opt->steps,
                         .first = !opt->started[i],
                         .p     = ls_reals(p),
                         .g     = ls_tensor_grad(p),
                         .n     = ls_tensor_numel(p)};

    for (int k = 0; k < opt->kinds; k++)
        u.state[k] = state_of(opt, i * opt->kinds + k);
    opt->rule->step(&u);
    opt->started[i] = true;
}

/*
 * State i was made for all rows, and its parameter has been sharded since: the other rows go.
 * Where there is no memory for a smaller copy the rows stay in the old one.
 */
static void cut_state(ls_optimizer *opt, int i)
{
    ls_tensor *whole = &opt->tensors[i];

    if (whole->shard || !opt->parameters[i / opt->kinds].tensor->shard)
        return;
    take_shape(opt, i);
    ls_tensor *rows = &whole->shard->rows;
    ls_real   *from = ls_reals(whole) + ls_tensor_owned_first(whole);
    if (ls_tensor_materialize(rows, LS_MEM_OPTIM)) {
        rows->storage = ls_storage_retain(whole->storage);
        rows->offset  = ls_tensor_owned_first(whole);
    } else if (ls_tensor_numel(rows)) {
        memcpy(ls_reals(rows), from, ls_tensor_bytes(rows));
    }
    ls_tensor_drop(whole);
}

void ls_optimizer_shard_state(ls_optimizer *opt)
{
    for (int i = 0; i < opt->n * opt->kinds; i++)
        cut_state(opt, i);
}

void ls_optimizer_resume(ls_optimizer *opt, int64_t steps, const bool *started)
{
    opt->steps = steps;
    for (int i = 0; i < opt->n; i++)
        opt->started[i] = steps && (!started || started[i]);
}

bool ls_optimizer_has_started(const ls_optimizer *opt, int i)
{
    return opt->started[i];
}

void ls_optimizer_step(ls_optimizer *opt, double scale)
{
    opt->steps++;
    ls_optimizer_shard_state(opt);
    for (int i = 0; i < opt->n; i++)
        if (ls_tensor_owned(opt->parameters[i].tensor)->grad)
            update(opt, i, scale);
}

const ls_named_tensor *ls_optimizer_state(const ls_optimizer *opt, int *n)
{
    *n = opt->n * opt->kinds;
    return opt->state;
}

int64_t ls_optimizer_state_bytes(const ls_optimizer_opts *opts, int64_t parameter_elements)
{
    return kinds_of(opts) * parameter_elements * (int64_t)sizeof(ls_real);
}

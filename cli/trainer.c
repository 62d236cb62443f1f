/*
 * trainer.c - steps and evaluations.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/params.h"
#include "cli/evaluate.h"
#include "cli/host_data.h"
#include "cli/model.h"
#include "cli/token_cache.h"
#include "cli/trainer_impl.h"
#include "core/clock.h"
#include "optim/grad_norm.h"

static ls_status load_data(ls_trainer *t, const char *tokenizer)
{
    ls_dataset_opts opts  = ls_dataset_opts_of(t->cfg);
    ls_token_store  cache = ls_token_cache(t->cfg);

    opts.store          = &cache;
    opts.tokenizer_json = tokenizer;
    ls_status status    = ls_host_data_load(t->ranks, &opts, &t->shared, &t->data);

    if (status)
        return status;
    if (t->data.train_rows.rows)
        return ls_sampler_init_rows(&t->sampler, &t->data.train_rows, ls_order_of(t->cfg),
                                    (uint64_t)t->cfg->run.seed);
    return ls_sampler_init(&t->sampler, &t->data.train, t->cfg->model.context,
                           ls_order_of(t->cfg), (uint64_t)t->cfg->run.seed);
}

/* Configs, before anything is made of them. */
static ls_status compare_configs(const ls_trainer *t)
{
    char     *text   = ls_config_shared(t->cfg);
    ls_status status = ls_ranks_agree(t->ranks, text ? LS_OK : LS_ENOMEM);

    if (!status)
        status = ls_ranks_compare(t->ranks, text);
    free(text);
    return status;
}

static ls_status make_model(ls_trainer *t)
{
    t->model = ls_model_new(t->cfg, t->data.vocab_size);
    if (!t->model)
        return LS_ENOMEM;
    t->parameters = ls_module_list(t->model, false, &t->n);
    t->state      = ls_module_list(t->model, true, &t->n_state);
    return t->parameters && t->state ? LS_OK : LS_ENOMEM;
}

/* Values, of all parameters or of this rank's rows, and what goes with them. */
static ls_status fill_model(ls_trainer *t)
{
    ls_optimizer_opts opts = ls_optimizer_opts_of(t->cfg);
    ls_status status = ls_model_fill(t->cfg, t->model, t->parameters, t->n, t->data.tokenizer);

    bool replicas = !t->parallel.shards; /* which rounds by itself */
    if (!status && replicas && t->cfg->parallel.param_dtype == LS_CFG_DTYPE_BF16)
        status = ls_working_new(t->parameters, t->n, &t->working);
    if (status)
        return status;
    t->optimizer = ls_optimizer_new(t->parameters, t->n, &opts);
    t->tape      = ls_tape_new();
    t->schedule  = ls_schedule_of(t->cfg);
    return t->optimizer && t->tape ? LS_OK : LS_ENOMEM;
}

/* From a model without memory to one that its ranks share. */
static ls_status distribute(ls_trainer *t)
{
    const ls_config *cfg = t->cfg;
    ls_status        status =
        ls_parallel_choose(cfg, t->ranks, t->model, t->data.vocab_size, &t->parallel);

    if (!status)
        status = ls_parallel_shard(&t->parallel, cfg, t->ranks, t->model, &t->strategy);
    if (!status)
        status = ls_ranks_agree(t->ranks, fill_model(t));
    if (!status)
        status = ls_parallel_wrap(
            &t->parallel, cfg, t->ranks,
            &(ls_model_tensors){t->parameters, t->n, t->state, t->n_state}, &t->strategy);
    return ls_ranks_agree(t->ranks, status);
}

ls_status ls_trainer_new(const ls_config *cfg, const ls_ranks *ranks, ls_trainer **trainer)
{
    return ls_trainer_new_with(cfg, ranks, NULL, trainer);
}

ls_status ls_trainer_new_with(const ls_config *cfg, const ls_ranks *ranks,
                              const char *tokenizer, ls_trainer **trainer)
{
    ls_trainer *t = ls_calloc(1, sizeof *t);

    *trainer = NULL;
    if (!t)
        return LS_ENOMEM;
    t->cfg           = cfg;
    t->ranks         = ranks;
    t->accuracy      = NAN;
    ls_status status = compare_configs(t);
    if (!status)
        status = ls_ranks_agree(ranks, load_data(t, tokenizer));
    if (!status)
        status = ls_ranks_agree(ranks, make_model(t));
    if (!status)
        status = distribute(t);
    if (status) {
        ls_trainer_free(t);
        return status;
    }
    *trainer = t;
    return LS_OK;
}

void ls_trainer_set_failed(ls_trainer *t)
{
    if (t)
        t->failed = true;
}

void ls_trainer_free(ls_trainer *t)
{
    if (!t)
        return;
    ls_tape_free(t->tape);
    ls_strategy_close(&t->strategy, !t->failed);
    ls_optimizer_free(t->optimizer);
    free(t->stored);
    ls_working_free(t->working);
    free(t->parameters);
    free(t->state);
    ls_module_free(t->model);
    ls_dataset_close(&t->data);
    ls_shared_free(t->shared);
    free(t);
}

/* Of the data, consumed by so many steps. */
static int64_t sequences_before(const ls_trainer *t, int64_t done)
{
    return t->resumed_sequence + (done - t->resumed_step) * t->cfg->batch.global;
}

ls_tensor *ls__trainer_micro_loss(ls_trainer *t, int64_t done, int64_t m)
{
    const ls_config *cfg    = t->cfg;
    int64_t          first  = m * cfg->batch.micro;
    ls_random        random = {(uint64_t)cfg->run.seed, (uint32_t)(done + 1), (uint32_t)first};

    ls_tape_reset(t->tape);
    ls_tape_set_random(t->tape, &random);
    return ls_batch_loss(t->model, t->tape, &t->sampler, sequences_before(t, done) + first,
                         cfg->batch.micro);
}

/* Micro-batch k of this rank. */
static ls_status run_micro(ls_trainer *t, int64_t done, int64_t k, int64_t each,
                           ls_exact_sum *loss)
{
    int64_t micros = t->cfg->batch.global / t->cfg->batch.micro;
    int64_t m = ls_strategy_micro(&t->strategy, micros, k), forward = ls_now_ns();

    ls_strategy_no_sync(&t->strategy, k < each - 1);
    ls_tensor *l = ls__trainer_micro_loss(t, done, m);
    ls_trace_until_now(t->trace, LS_SPAN_FORWARD, forward, m);
    int64_t   backward = ls_now_ns();
    ls_status status   = ls_backward(t->tape, l);
    ls_trace_until_now(t->trace, LS_SPAN_BACKWARD, backward, m);
    if (!status)
        status = ls_strategy_end_micro(&t->strategy);
    if (!status)
        ls_exact_sum_add(loss, ls_item(l));
    return status;
}

static ls_status run_micros(ls_trainer *t, int64_t done, ls_exact_sum *loss)
{
    int64_t   each   = t->cfg->batch.global / t->cfg->batch.micro / t->ranks->size;
    ls_status status = ls_strategy_begin(&t->strategy, t->tape);

    for (int64_t k = 0; k < each && !status; k++)
        status = run_micro(t, done, k, each, loss);
    return ls_strategy_finish(&t->strategy, t->tape, status);
}

/* Losses, signals and failures of all ranks, and their one opinion of the latter two. */
static ls_status gather_step(ls_trainer *t, int caught, ls_status own, ls_exact_sum *loss,
                             ls_step_result *r)
{
    int64_t   flags[3] = {caught == SIGINT, caught && caught != SIGINT, own != LS_OK};
    int64_t   start    = ls_now_ns();
    ls_status status   = ls_ranks_sum(t->ranks, loss, flags, 3);

    if (t->ranks->world)
        ls_trace_until_now(t->trace, LS_SPAN_AGREE, start, 0);
    if (!status && flags[2])
        status = ls_ranks_agree(t->ranks, own);
    if (!t->ranks->world)
        r->signal = caught;
    else
        r->signal = flags[1] ? SIGTERM : flags[0] ? SIGINT : 0;
    ls_strategy_stats stats = ls_strategy_get_stats(&t->strategy);
    r->comm_ns              = stats.comm_ns;
    r->exposed_ns           = stats.exposed_ns;
    return status;
}

/* Of all rows, whoever has them. */
static ls_status sum_squares(ls_trainer *t, ls_exact_sum *squares)
{
    ls_status status = ls_grad_squares(t->parameters, t->n, squares);

    if (!ls_strategy_shards(&t->strategy))
        return status;
    status = ls_ranks_agree(t->ranks, status);
    return status ? status : ls_ranks_sum(t->ranks, squares, NULL, 0);
}

static ls_status take_step(ls_trainer *t, int caught, ls_step_result *r)
{
    int64_t      done  = ls_optimizer_steps(t->optimizer);
    double       count = (double)(t->cfg->batch.global * t->cfg->model.context);
    ls_exact_sum loss, squares;

    ls_exact_sum_init(&loss);
    ls_exact_sum_init(&squares);
    *r               = (ls_step_result){.step = done + 1, .tokens = (int64_t)count};
    ls_status status = run_micros(t, done, &loss);
    if (t->working)
        ls_working_take_gradients(t->working);
    if (!status)
        status = gather_step(t, caught, sum_squares(t, &squares), &loss, r);
    if (status)
        return ls_fail_in(status, "step %lld", (long long)done + 1);
    r->loss      = ls_exact_sum_round(&loss) / count;
    r->lr        = ls_schedule_lr(&t->schedule, done + 1);
    r->grad_norm = ls_grad_norm(&squares, count);
    if (!isfinite(r->loss) || !isfinite(r->grad_norm))
        return ls__trainer_blame(t, done);
    int64_t start = ls_now_ns();
    ls_optimizer_set_lr(t->optimizer, r->lr);
    ls_optimizer_step(t->optimizer,
                      ls_clip_coefficient(r->grad_norm, t->cfg->optim.clip_norm) / count);
    if (t->working)
        ls_working_update(t->working);
    ls_trace_until_now(t->trace, LS_SPAN_UPDATE, start, 0);
    return LS_OK;
}

ls_status ls_trainer_step(ls_trainer *t, int caught, ls_step_result *r)
{
    int64_t start = ls_now_ns();

    ls_trace_set_step(t->trace, ls_optimizer_steps(t->optimizer) + 1);
    ls_status status = take_step(t, caught, r);
    ls_trace_until_now(t->trace, LS_SPAN_STEP, start, 0);
    return status;
}

ls_status ls_trainer_check(ls_trainer *t)
{
    int64_t every = t->cfg->parallel.check_every, done = ls_optimizer_steps(t->optimizer);

    if (!every || done % every)
        return LS_OK;
    ls_status status = ls_strategy_check(&t->strategy);
    return status ? ls_fail_in(status, "after step %lld", (long long)done) : LS_OK;
}

double ls_trainer_accuracy(const ls_trainer *t)
{
    return t->accuracy;
}

bool ls_trainer_has_validation(const ls_trainer *t)
{
    return t->data.val.count > 0 || t->data.val_rows.rows > 0;
}

ls_status ls_trainer_validate(ls_trainer *t, int64_t batches, const atomic_int *stop,
                              double *loss)
{
    const ls_table *rows    = t->data.val_rows.rows ? &t->data.val_rows : NULL;
    int64_t         correct = 0, n = 0;
    ls_evaluation   e = {.model    = t->model,
                         .rows     = rows,
                         .correct  = &correct,
                         .tape     = t->tape,
                         .tokens   = &t->data.val,
                         .context  = t->cfg->model.context,
                         .micro    = t->cfg->batch.micro,
                         .limit    = batches * t->cfg->batch.global,
                         .stop     = stop,
                         .together = ls_strategy_shards(&t->strategy),
                         .ranks    = t->ranks};

    int64_t   start  = ls_now_ns();
    ls_status status = ls_evaluate(&e, loss, &n);
    ls_trace_until_now(t->trace, LS_SPAN_EVALUATION, start, 0);
    t->accuracy = rows && !status ? (double)correct / (double)n : NAN;
    return status;
}

static ls_status list_tensors(ls_trainer *t)
{
    int                    n_optimizer;
    const ls_named_tensor *optimizer = ls_optimizer_state(t->optimizer, &n_optimizer);
    size_t                 n         = (size_t)(t->n_state + n_optimizer);

    t->stored = ls_calloc(n + 1, sizeof *t->stored);
    if (!t->stored)
        return LS_ENOMEM;
    for (int i = 0; i < t->n_state; i++)
        t->stored[t->n_stored++] =
            (ls_stored_tensor){t->state[i].name, t->state[i].tensor, LS_KIND_BUFFER};
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->n_state; k++)
            if (t->state[k].tensor == t->parameters[i].tensor)
                t->stored[k].kind = LS_KIND_PARAMETER;
    for (int i = 0; i < n_optimizer; i++)
        t->stored[t->n_stored++] =
            (ls_stored_tensor){optimizer[i].name, optimizer[i].tensor, LS_KIND_OPTIMIZER};
    return LS_OK;
}

ls_status ls_trainer_tensors(ls_trainer *t, const ls_stored_tensor **list, size_t *n)
{
    ls_status status = LS_OK;

    ls_optimizer_shard_state(t->optimizer);
    if (!t->stored)
        status = list_tensors(t);
    *list = t->stored;
    *n    = t->n_stored;
    return status;
}

/* A rank whose shard of a parameter is empty may not know that it has started. */
static ls_status agree_on_started(const ls_trainer *t, bool *started)
{
    int64_t  *flags  = ls_calloc((size_t)t->n + 1, sizeof *flags);
    ls_status status = ls_ranks_agree(t->ranks, flags ? LS_OK : LS_ENOMEM);

    for (int i = 0; i < t->n && !status && flags; i++)
        flags[i] = ls_optimizer_has_started(t->optimizer, i);
    if (!status)
        status = ls_ranks_max(t->ranks, flags, t->n);
    for (int i = 0; i < t->n && !status && flags; i++)
        started[i] = flags[i] != 0;
    free(flags);
    return status;
}

ls_status ls_trainer_get_place(const ls_trainer *t, ls_trainer_place *place)
{
    int64_t done = ls_optimizer_steps(t->optimizer);

    *place           = (ls_trainer_place){.step         = done,
                                          .sequences    = sequences_before(t, done),
                                          .started      = ls_calloc((size_t)t->n + 1, sizeof(bool)),
                                          .n_parameters = t->n,
                                          .accuracy     = t->accuracy};
    ls_status status = ls_ranks_agree(t->ranks, place->started ? LS_OK : LS_ENOMEM);
    return status || !place->started ? status : agree_on_started(t, place->started);
}

void ls_trainer_resume(ls_trainer *t, const ls_trainer_place *place)
{
    ls_strategy_changed(&t->strategy);
    if (t->working)
        ls_working_update(t->working);
    ls_optimizer_resume(t->optimizer, place->step, place->started);
    t->accuracy         = place->accuracy;
    t->resumed_step     = place->step;
    t->resumed_sequence = place->sequences;
    t->schedule         = ls_schedule_of(t->cfg);
}

const char *ls_trainer_parameter_name(const ls_trainer *t, int i)
{
    return i < t->n ? t->parameters[i].name : NULL;
}

ls_status ls_trainer_hashes(const ls_trainer *t, char params[LS_SHA256_HEX],
                            char state[LS_SHA256_HEX])
{
    int                    n;
    const ls_named_tensor *moments = ls_optimizer_state(t->optimizer, &n);
    ls_status              status  = ls_params_sha256(t->parameters, (size_t)t->n, params);

    if (status)
        return status;
    return ls_state_sha256(&(ls_training_state){t->parameters, (size_t)t->n, moments, (size_t)n,
                                                ls_optimizer_steps(t->optimizer)},
                           state);
}

void ls_trainer_set_trace(ls_trainer *t, ls_trace *trace)
{
    t->trace = trace;
    ls_strategy_set_trace(&t->strategy, trace);
}

const char *ls_trainer_strategy(const ls_trainer *t)
{
    return ls_strategy_name(&t->strategy);
}

const ls_parallelism *ls_trainer_parallel(const ls_trainer *t)
{
    return &t->parallel;
}

int ls_trainer_groups(const ls_trainer *t)
{
    return ls_strategy_get_stats(&t->strategy).groups;
}

void ls_trainer_set_profile(ls_trainer *t, ls_profile *profile)
{
    ls_tape_set_profile(t->tape, profile);
}

int64_t ls_trainer_vocab_size(const ls_trainer *t)
{
    return t->data.vocab_size;
}

int64_t ls_trainer_parameter_count(const ls_trainer *t)
{
    return ls_module_parameter_count(t->model);
}

const ls_dataset *ls_trainer_data(const ls_trainer *t)
{
    return &t->data;
}

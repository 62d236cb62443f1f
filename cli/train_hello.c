/*
 * train_hello.c - what a run says of itself at its start: machine, data, model, ranks, and what
 * it goes on from.
 */
#include <string.h>

#include "cli/train_impl.h"
#include "core/kernels/gemm.h"
#include "core/kernels/gemm_bf16.h"

static void say_ranks(const ls__run *r)
{
    const ls_config *cfg = r->cfg;
    int              n   = r->ranks.size;

    const ls_parallelism *p      = ls_trainer_parallel(r->trainer);
    bool                  shards = p->shards;
    int                   groups = ls_trainer_groups(r->trainer);

    if (p->why[0])
        ls_log_info(r->log, "parallel.strategy %s", p->why);
    ls_log_info(r->log, "ranks: %d over %s, %s, %d %s%s, micro-batches %s", n,
                ls_comm_transport(r->ranks.world), ls_trainer_strategy(r->trainer), groups,
                shards ? "unit" : "bucket", groups == 1 ? "" : "s",
                !p->interleaved ? "in blocks"
                : shards        ? "interleaved, so one reduce_scatter a unit and micro-batch"
                                : "interleaved, so one all_reduce a bucket and micro-batch");
    if (p->overruled)
        ls_log_info(r->log,
                    "parallel.accumulate \"%s\" would not give the bits of one process on %d "
                    "ranks: micro-batches are summed the other way",
                    p->interleaved ? "local" : "sharded", n);
    if (cfg->parallel.compress == LS_CFG_COMPRESS_BF16 && n > 1 && !shards)
        ls_log_warning(
            r->log,
            "parallel.compress \"bf16\": gradients keep 8 bits of their 24 between "
            "ranks; this run repeats its bits on %d ranks, but they are not those of "
            "one process",
            n);
    else if (shards && cfg->parallel.reduce_dtype == LS_CFG_DTYPE_BF16 && n > 1)
        ls_log_warning(
            r->log,
            "parallel.reduce_dtype \"bf16\": gradients keep 8 bits of their 24 between "
            "ranks; this run repeats its bits on %d ranks, but they are not those of "
            "one process",
            n);
    else if (!p->canonical)
        ls_log_warning(r->log,
                       "neither %d ranks nor their micro-batches each are a power of two: this "
                       "run repeats its "
                       "bits on %d ranks, but not those of one process",
                       n, n);
}

/* A line for each checkpoint that was passed over, and where the run goes on. */
static void say_resumed(const ls__run *r)
{
    const ls_resume *from = &r->resume;

    for (const char *line = from->refused.data; line && *line;) {
        int n = (int)strcspn(line, "\n");
        ls_log_warning(r->log, "%.*s", n, line);
        line += n + (line[n] != '\0');
    }
    if (!from->view)
        return;
    const char *path = from->candidates.path[from->at];
    if (strcmp(from->state.machine, ls_blas_describe()))
        ls_log_warning(r->log,
                       "%s was written with %s: from here on the bits may be others than those "
                       "of a run on that machine",
                       path, from->state.machine);
    if (r->last.step >= r->target)
        ls_log_info(r->log, "step %lld of %lld is reached already: %s, verified",
                    (long long)r->last.step, (long long)r->target, path);
    else
        ls_log_info(r->log, "going on after step %lld, from %s, verified",
                    (long long)r->last.step, path);
}

static void say_batches(const ls__run *r)
{
    const ls_config *cfg        = r->cfg;
    long long        parameters = ls_trainer_parameter_count(r->trainer);
    long long        global = cfg->batch.global, micro = cfg->batch.micro;

    if (cfg->model.type == LS_CFG_MODEL_MLP)
        ls_log_info(r->log,
                    "model: %lld parameters; batches of %lld rows in micro-batches of %lld; "
                    "%lld steps",
                    parameters, global, micro, (long long)cfg->run.steps);
    else
        ls_log_info(r->log,
                    "model: %lld parameters; batches of %lld sequences of %lld tokens in "
                    "micro-batches of %lld; %lld steps",
                    parameters, global, (long long)cfg->model.context, micro,
                    (long long)cfg->run.steps);
}

void ls__run_say_hello(const ls__run *r)
{
    const ls_config  *cfg  = r->cfg;
    const ls_dataset *data = ls_trainer_data(r->trainer);

    ls_log_info(r->log, "lockstep %s: run %s in %s", LS_VERSION, cfg->run.name, cfg->run.dir);
    ls_log_info(r->log, "%s; %lld thread%s", ls_blas_describe(), (long long)cfg->run.threads,
                cfg->run.threads == 1 ? "" : "s");
    if (cfg->parallel.param_dtype == LS_CFG_DTYPE_BF16)
        ls_log_info(r->log, "parameters in bf16, masters in f32; products of bf16: %s",
                    ls_gemm_bf16_describe());
    if (ls_blas_held_back())
        ls_log_warning(r->log, "%s", ls_blas_held_back());
    if (data->train_rows.rows)
        ls_log_info(r->log, "data: %lld training rows, %lld validation rows, %d classes",
                    (long long)data->train_rows.rows, (long long)data->val_rows.rows,
                    data->vocab_size);
    else
        ls_log_info(r->log, "data: %lld training tokens, %lld validation tokens, vocabulary %d",
                    (long long)data->train.count, (long long)data->val.count, data->vocab_size);
    say_batches(r);
    if (r->ranks.world)
        say_ranks(r);
    say_resumed(r);
}

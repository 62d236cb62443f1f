/*
 * train.c - the run around the steps.
 */
#include "cli/train.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/metrics.h"
#include "cli/model.h"
#include "cli/plan.h"
#include "cli/progress.h"
#include "cli/run_dir.h"
#include "cli/saving.h"
#include "cli/tracing.h"
#include "cli/trainer.h"
#include "core/kernels/gemm.h"
#include "core/kernels/gemm_bf16.h"
#include "core/log.h"

typedef struct {
    const ls_config *cfg;
    int64_t          target; /* the step to end after */
    int              lock;   /* of the run's directory; -1: none */
    ls_resume        resume; /* what it goes on from */
    ls_saving        saving;
    bool             keeps; /* a checkpoint of this run may be made: the files are open */
    ls_ranks         ranks;
    ls_trainer      *trainer;
    ls_log          *log;
    ls_metrics      *metrics; /* of rank 0 */
    ls_tracing      *tracing; /* NULL with log.trace false */
    ls_progress      progress;
    ls_step_result   last;
    int64_t          tokens;    /* since step 1 */
    int64_t          validated; /* step of the last evaluation, 0: none */
    double           val_loss;
    double           logged_at; /* when the last line was logged */
    int64_t          logged;    /* its step */
    ls_status        lost; /* a log that could not be written: the run's status at its end */
    char             lost_text[512]; /* the first of them */
} run;

/*
 * Set by SIGINT and SIGTERM, on whichever thread; the second one ends the process as if nobody
 * caught it.
 */
static atomic_int caught;

static void on_signal(int number)
{
    caught = number;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

/* Alone: as soon as a signal came.  In a job: when a step has told all ranks of it. */
static bool is_stopping(const run *r)
{
    return r->ranks.size > 1 ? r->last.signal != 0 : caught != 0;
}

static void catch_signals(void)
{
    struct sigaction stops   = {.sa_handler = on_signal};
    struct sigaction ignored = {.sa_handler = SIG_IGN};

    sigemptyset(&stops.sa_mask);
    sigemptyset(&ignored.sa_mask);
    sigaction(SIGINT, &stops, NULL);
    sigaction(SIGTERM, &stops, NULL);
    sigaction(SIGPIPE, &ignored, NULL); /* nobody reads the progress any more: go on */
}

static ls_status check_logs(run *r)
{
    ls_status status = ls_metrics_check(r->metrics);

    if (!status)
        status = ls_tracing_check(r->tracing);
    return status ? status : ls_log_check(r->log);
}

/* A warning for each file that was lost since the last look; the run goes on. */
static void look_after_logs(run *r)
{
    ls_status status;

    while ((status = check_logs(r))) {
        ls_progress_clear(&r->progress);
        ls_log_warning(r->log, "%s", ls_error_message());
        if (!r->lost)
            snprintf(r->lost_text, sizeof r->lost_text, "%s", ls_error_message());
        r->lost = status;
    }
}

static ls_status open_log(run *r)
{
    const ls_config *cfg   = r->cfg;
    bool             quiet = cfg->log.progress == LS_CFG_PROGRESS_NONE;
    char            *path  = ls_run_dir_path(cfg->run.dir, "log.txt");

    r->log           = ls_log_new(stderr, quiet ? LS_LOG_WARNING : LS_LOG_INFO);
    ls_status status = path && r->log ? ls_log_open(r->log, path) : LS_ENOMEM;
    free(path);
    return status;
}

/* The other ranks say nothing and write nothing. */
static ls_status open_nothing(run *r)
{
    r->log = ls_log_new(NULL, LS_LOG_ERROR);
    return r->log ? LS_OK : LS_ENOMEM;
}

static ls_status open_directory(run *r, char **aside)
{
    const ls_config *cfg = r->cfg;

    *aside = NULL;
    if (!r->resume.in_place)
        return ls_run_dir_open(cfg->run.dir, aside);
    ls_status status = ls_run_dir_reopen(cfg->run.dir);
    if (!status && r->resume.candidates.named)
        status = ls_run_dir_move_later(cfg->run.dir, r->last.step, aside);
    return status ? status : ls_metrics_cut(cfg->run.dir, r->last.step);
}

static ls_status open_files(run *r)
{
    const ls_config *cfg = r->cfg;
    char            *aside, *json;
    ls_status        status = open_directory(r, &aside);

    if (!status && r->lock < 0)
        status = ls_run_dir_lock(cfg->run.dir, &r->lock);
    if (!status)
        status = open_log(r);
    if (!status && aside)
        ls_log_info(r->log, "files of an earlier run are now in %s", aside);
    free(aside);
    if (status)
        return ls_blame_config(status);
    json   = ls_config_json(cfg);
    status = json ? ls_run_dir_write(cfg->run.dir, "config.json", json) : LS_ENOMEM;
    free(json);
    if (!status)
        status =
            ls_metrics_open(cfg->run.dir,
                            &(ls_metrics_opts){.jsonl       = cfg->log.jsonl,
                                               .tensorboard = cfg->log.tensorboard,
                                               .from = r->resume.in_place ? r->last.step : 0},
                            &r->metrics);
    return status;
}

static ls_status open_trace(run *r)
{
    if (!r->cfg->log.trace)
        return LS_OK;
    ls_status status = ls_tracing_open(r->cfg->run.dir, &r->ranks, &r->tracing);
    ls_trainer_set_trace(r->trainer, ls_tracing_spans(r->tracing));
    return ls_blame_config(status);
}

static ls_status end_trace(run *r)
{
    ls_status status = ls_tracing_collect(r->tracing, true);
    int64_t   lost   = ls_tracing_lost(r->tracing);

    if (lost)
        ls_log_warning(r->log, "trace.json: %lld spans of a rank were too many for one step",
                       (long long)lost);
    return status;
}

static void say_ranks(run *r)
{
    const ls_config *cfg = r->cfg;
    int              n   = r->ranks.size;

    const ls_parallelism *p      = ls_trainer_parallel(r->trainer);
    bool                  shards = p->strategy == LS_CFG_STRATEGY_FSDP;
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
static void say_resumed(run *r)
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

static void say_batches(run *r)
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

static void say_hello(run *r)
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

/* A terminal that can take back what stands in its last line. */
static bool is_terminal(void)
{
    const char *name = getenv("TERM");

    return isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb");
}

static void start_progress(run *r)
{
    const ls_config *cfg = r->cfg;

    r->progress = (ls_progress){
        .log        = r->log,
        .silent     = cfg->log.progress == LS_CFG_PROGRESS_NONE || r->ranks.rank,
        .live       = cfg->log.progress == LS_CFG_PROGRESS_AUTO && is_terminal(),
        .first      = r->last.step + 1,
        .last       = r->target,
        .step_flops = ls_model_step_flops(cfg, ls_trainer_vocab_size(r->trainer)),
    };
    if (!r->progress.silent)
        r->progress.peak_flops = ls_measure_sgemm(512, 5);
    ls_mem_reset_peaks(); /* of the steps, not of loading and measuring */
    r->progress.started = r->logged_at = ls_now();
    r->logged                          = r->last.step;
}

static ls_metrics_line line_of(const run *r, double now)
{
    int64_t steps = r->last.step - r->logged;
    double  per   = (now - r->logged_at) / (double)(steps ? steps : 1);

    return (ls_metrics_line){.step         = r->last,
                             .tokens       = r->tokens,
                             .tokens_per_s = per > 0 ? (double)r->last.tokens / per : 0,
                             .step_ms      = per * 1e3,
                             .mem          = ls_mem_get_stats(),
                             .rss          = ls_resident_bytes()};
}

/* Every log.every steps, and the first and the last one, whatever ends the run. */
static bool is_logged(const run *r)
{
    int64_t step = r->last.step;

    return step % r->cfg->log.every == 0 || step == 1 || step == r->target || is_stopping(r);
}

/* What is the largest over ranks is what a step needs. */
static ls_status largest_of_ranks(const run *r, ls_metrics_line *l)
{
    enum { VALUES = LS_MEM_COUNT + 4 };
    int64_t *peak = l->mem.peak, values[VALUES];

    memcpy(values, peak, LS_MEM_COUNT * sizeof *peak);
    values[LS_MEM_COUNT]     = l->mem.total_peak;
    values[LS_MEM_COUNT + 1] = l->rss;
    values[LS_MEM_COUNT + 2] = l->step.comm_ns;
    values[LS_MEM_COUNT + 3] = l->step.exposed_ns;
    ls_status status         = ls_ranks_max(&r->ranks, values, VALUES);
    memcpy(peak, values, LS_MEM_COUNT * sizeof *peak);
    l->mem.total_peak  = values[LS_MEM_COUNT];
    l->rss             = values[LS_MEM_COUNT + 1];
    l->step.comm_ns    = values[LS_MEM_COUNT + 2];
    l->step.exposed_ns = values[LS_MEM_COUNT + 3];
    return status;
}

static ls_status report_step(run *r)
{
    bool            logged = is_logged(r);
    double          now    = ls_now();
    ls_metrics_line line   = line_of(r, now);
    ls_status       status = logged ? largest_of_ranks(r, &line) : LS_OK;

    if (status)
        return status;
    ls_progress_step(&r->progress, &line, logged);
    if (!logged)
        return LS_OK;
    ls_metrics_step(r->metrics, &line);
    r->logged    = r->last.step;
    r->logged_at = now;
    look_after_logs(r);
    return LS_OK;
}

/* Some rank was told to stop in an evaluation, which ended on all: they agree on the signal. */
static ls_status agree_on_signal(run *r)
{
    int64_t   number = caught;
    ls_status status = ls_ranks_max(&r->ranks, &number, 1);

    r->last.signal = (int)number;
    return status ? status : LS_EINTERRUPTED;
}

static ls_status validate(run *r)
{
    double    start = ls_now();
    ls_status status =
        ls_trainer_validate(r->trainer, r->cfg->eval.batches, &caught, &r->val_loss);

    if (status == LS_EINTERRUPTED)
        return agree_on_signal(r);
    if (status)
        return status;
    r->validated = r->last.step;
    r->logged_at += ls_now() - start; /* the steps' speed does not include it */
    double accuracy = ls_trainer_accuracy(r->trainer);
    ls_metrics_validation(r->metrics, r->last.step, r->val_loss, accuracy);
    ls_progress_clear(&r->progress);
    if (isnan(accuracy))
        ls_log_info(r->log, "step %lld  validation loss %.4f", (long long)r->last.step,
                    r->val_loss);
    else
        ls_log_info(r->log, "step %lld  validation loss %.4f, accuracy %.4f",
                    (long long)r->last.step, r->val_loss, accuracy);
    return LS_OK;
}

static bool validation_is_due(const run *r)
{
    bool end = r->last.step == r->cfg->run.steps;

    return ls_trainer_has_validation(r->trainer) && r->validated != r->last.step &&
           (end || (r->cfg->eval.every && r->last.step % r->cfg->eval.every == 0));
}

static ls_run_counters counters_of(const run *r)
{
    return (ls_run_counters){.step      = r->last.step,
                             .tokens    = r->tokens,
                             .loss      = r->last.loss,
                             .validated = r->validated,
                             .val_loss  = r->val_loss};
}

/* The last step's checkpoint is made when all else of it is done (end_saving). */
static ls_status save_step(run *r)
{
    ls_run_counters counters = counters_of(r);

    if (r->last.step >= r->target || is_stopping(r))
        return LS_OK;
    ls_status status = ls_saving_step(&r->saving, &counters);
    r->keeps         = r->keeps && !status;
    return status;
}

static ls_status take_steps(run *r)
{
    ls_status status = LS_OK;

    while (r->last.step < r->target && !is_stopping(r) && !status) {
        ls_step_result step;
        status = ls_trainer_step(r->trainer, caught, &step);
        if (status)
            break;
        r->last = step;
        r->tokens += r->last.tokens;
        status = report_step(r);
        if (!status)
            status = ls_trainer_check(r->trainer);
        if (!status && validation_is_due(r))
            status = validate(r);
        if (!status)
            status = ls_tracing_collect(r->tracing, false);
        if (!status)
            status = save_step(r);
    }
    ls_progress_clear(&r->progress);
    return status == LS_EINTERRUPTED ? LS_OK : status;
}

/* A signal that came after the last step's report. */
static ls_status report_late(run *r)
{
    return r->logged < r->last.step ? report_step(r) : LS_OK;
}

/*
 * Waits for the save under way and saves the last step: always where the run ends before its
 * end, and as checkpoint.save_at_end says where it does not.
 */
static ls_status end_saving(run *r)
{
    bool            early    = r->last.step < r->cfg->run.steps;
    ls_run_counters counters = counters_of(r);

    return ls_saving_end(&r->saving, &counters, early || r->cfg->checkpoint.save_at_end);
}

/*
 * Summary of the last step, also after a signal or a failed step.  Rank 0 writes it; where
 * parameters are sharded the others give theirs to the hashes.
 */
static ls_status finish(run *r)
{
    const ls_config *cfg    = r->cfg;
    bool             writes = !r->ranks.rank;
    ls_summary       s      = {.steps          = r->last.step,
                               .final_loss     = r->last.loss,
                               .has_validation = r->validated > 0,
                               .val_loss       = r->val_loss,
                               .val_accuracy   = ls_trainer_accuracy(r->trainer),
                               .world_size     = r->ranks.size,
                               .strategy       = ls_trainer_strategy(r->trainer),
                               .seconds        = ls_now() - r->progress.started,
                               .tokens         = r->tokens};
    ls_status        status = ls_trainer_hashes(r->trainer, s.params_sha256, s.state_sha256);

    if (!status && writes)
        status = ls_summary_write(cfg->run.dir, &s);
    if (!status && writes)
        ls_log_info(r->log, "%s after step %lld of %lld in %.1f s; parameters' sha256 %.16s",
                    s.steps < cfg->run.steps ? "stopped" : "done", (long long)s.steps,
                    (long long)cfg->run.steps, s.seconds, s.params_sha256);
    return status;
}

static ls_status finish_if_needed(run *r)
{
    bool takes_part = ls_trainer_parallel(r->trainer)->strategy == LS_CFG_STRATEGY_FSDP;

    return !r->ranks.rank || takes_part ? finish(r) : LS_OK;
}

/*
 * No rank ends before the last file is written: the launcher would end the others, and rank 0
 * while it saves.  From here on there is nothing that a signal could ask for.
 */
static ls_status leave_together(run *r, ls_status own)
{
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    ls_status        status  = ls_ranks_agree(&r->ranks, own);

    sigemptyset(&ignored.sa_mask);
    if (r->ranks.size > 1) {
        sigaction(SIGINT, &ignored, NULL);
        sigaction(SIGTERM, &ignored, NULL);
    }
    return status;
}

/*
 * A step failed: the run ends, but what the steps before it have reached is kept.  In a job
 * only where all ranks are there and failed alike: with one lost, the others are ended at any
 * moment.
 */
static ls_status rescue(run *r, ls_status failure)
{
    char message[1024];

    snprintf(message, sizeof message, "%s", ls_error_message());
    if (!r->last.step || !r->keeps || ls_ranks_agree(&r->ranks, LS_OK))
        return ls_fail(failure, "%s", message);
    if (end_saving(r) || finish_if_needed(r))
        ls_log_warning(r->log, "the state after step %lld is lost: %s", (long long)r->last.step,
                       ls_error_message());
    (void)!leave_together(r, LS_OK);
    return ls_fail(failure, "%s", message);
}

/* What the run goes on from is in the trainer; so are its counters here. */
static ls_status load(run *r)
{
    ls_status status = ls_resume_load(&r->resume, r->trainer);

    if (status || !r->resume.view)
        return status;
    const ls_run_counters *c = &r->resume.state.counters;
    r->last                  = (ls_step_result){.step = c->step, .loss = c->loss};
    r->tokens                = c->tokens;
    r->validated             = c->validated;
    r->val_loss              = c->val_loss;
    return LS_OK;
}

/* Nothing is written until the trainer stands and holds what it is to go on from. */
static ls_status make_trainer(run *r, ls_config *cfg, const ls_train_opts *opts)
{
    ls_status status = r->ranks.rank ? LS_OK : ls_run_dir_lock(cfg->run.dir, &r->lock);

    status = ls_ranks_agree(&r->ranks, status);
    if (!status)
        status = ls_resume_find(cfg, opts, &r->ranks, &r->resume);
    if (status)
        return status;
    status = ls_trainer_new_with(cfg, &r->ranks, ls_resume_tokenizer(&r->resume), &r->trainer);
    return status ? ls_blame_config(status) : load(r);
}

static ls_status open_saving(run *r)
{
    r->saving        = (ls_saving){.cfg     = r->cfg,
                                   .ranks   = &r->ranks,
                                   .trainer = r->trainer,
                                   .log     = r->log,
                                   .prints  = &r->resume.prints,
                                   .saved   = r->resume.in_place ? r->last.step : 0};
    ls_status status = ls_saving_open(&r->saving);
    r->keeps         = !status;
    return status;
}

/* The last checkpoint, then the summary; a save that failed does not keep the summary away. */
static ls_status end_run(run *r)
{
    char      message[1024];
    ls_status saved = end_saving(r);

    snprintf(message, sizeof message, "%s", ls_error_message());
    ls_status status = leave_together(r, finish_if_needed(r));
    return saved ? ls_fail(saved, "%s", message) : status;
}

static ls_status train(run *r, ls_config *cfg, const ls_train_opts *opts)
{
    ls_status status = make_trainer(r, cfg, opts);

    if (status)
        return status;
    if (caught && r->ranks.size == 1)
        return LS_OK; /* nothing was written yet, and nothing will be */
    status = ls_ranks_agree(&r->ranks, r->ranks.rank ? open_nothing(r) : open_files(r));
    if (!status)
        status = open_trace(r);
    if (!status)
        status = open_saving(r);
    if (status)
        return status;
    if (!r->ranks.rank)
        say_hello(r);
    start_progress(r);
    if (r->last.step && validation_is_due(r))
        status = validate(r); /* that of the step it goes on from was interrupted */
    if (!status)
        status = take_steps(r);
    if (status)
        return rescue(r, status);
    status = report_late(r);
    if (!status)
        status = end_trace(r);
    if (!status)
        status = end_run(r);
    look_after_logs(r);
    return !status && r->lost ? ls_fail(r->lost, "%s", r->lost_text) : status;
}

/* log.txt shows what the terminal does: the error line too, which the caller prints. */
static void log_failure(run *r)
{
    if (!r->log)
        return;
    ls_progress_clear(&r->progress);
    ls_log_set_stream(r->log, NULL);
    ls_log_info(r->log, "lockstep: error: %s", ls_error_message());
}

ls_status ls_train(ls_config *cfg, const ls_train_opts *opts, int *signal)
{
    int64_t   steps  = cfg->run.steps;
    run       r      = {.cfg    = cfg,
                        .lock   = -1,
                        .target = opts->stop_at && opts->stop_at < steps ? opts->stop_at : steps};
    ls_status status = ls_ranks_join(cfg, &r.ranks); /* until then a signal may end it */
    catch_signals();
    if (!status)
        status = ls_ranks_agree(&r.ranks, ls_start_compute(cfg));
    if (!status)
        status = train(&r, cfg, opts);
    if (status) {
        ls_ranks_tell(&r.ranks);
        ls_trainer_set_failed(r.trainer);
        log_failure(&r);
    }
    ls_saving_close(&r.saving);
    ls_resume_close(&r.resume);
    ls_tracing_close(r.tracing);
    ls_metrics_close(r.metrics);
    ls_log_free(r.log);
    ls_trainer_free(r.trainer);
    *signal = r.ranks.size > 1 ? r.last.signal : caught;
    ls_ranks_leave(&r.ranks, !status);
    ls_stop_compute();
    if (r.lock >= 0)
        close(r.lock);
    return status;
}

ls_status ls_train_dry_run(const ls_config *cfg)
{
    ls_dataset_opts opts = ls_dataset_opts_of(cfg);
    ls_dataset      data;
    ls_status       status = ls_dataset_load(&opts, &data);

    if (status)
        return ls_blame_config(status);
    int64_t    vocab = data.vocab_size;
    ls_module *model = ls_model_new(cfg, vocab);
    char      *json  = ls_config_json(cfg);
    ls_dataset_close(&data);
    if (model && json) {
        ls_plan_world  one = {.size = 1, .shares = true};
        ls_plan_model  m   = ls_plan_model_of(cfg, vocab, model);
        ls_memory_plan p   = ls_memory_plan_of(cfg, vocab, &m, LS_PLAN_SINGLE, &one);
        printf(
            "{\"config\":%s,\n\"vocab_size\":%lld,\"parameters\":%lld,\n\"memory_bytes\":{"
            "\"params\":%lld,\"grads\":%lld,\"optim\":%lld,\"activations\":%lld,\"comm\":%lld,"
            "\"total\":%lld}}\n",
            json, (long long)vocab, (long long)m.parameters, (long long)p.params,
            (long long)p.grads, (long long)p.optim, (long long)p.activations, (long long)p.comm,
            (long long)p.total);
    } else {
        status = LS_ENOMEM;
    }
    free(json);
    ls_module_free(model);
    return status;
}

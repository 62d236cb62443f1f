/*
 * train.c - the run around the steps.
 */
#include "cli/train.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/model.h"
#include "cli/run_dir.h"
#include "cli/train_impl.h"
#include "core/kernels/gemm.h"

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
static bool is_stopping(const ls__run *r)
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

/* A terminal that can take back what stands in its last line. */
static bool is_terminal(void)
{
    const char *name = getenv("TERM");

    return isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb");
}

static void start_progress(ls__run *r)
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

static ls_metrics_line line_of(const ls__run *r, double now)
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
static bool is_logged(const ls__run *r)
{
    int64_t step = r->last.step;

    return step % r->cfg->log.every == 0 || step == 1 || step == r->target || is_stopping(r);
}

/* What is the largest over ranks is what a step needs. */
static ls_status largest_of_ranks(const ls__run *r, ls_metrics_line *l)
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

static ls_status report_step(ls__run *r)
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
    ls__run_look_after_logs(r);
    return LS_OK;
}

/* Some rank was told to stop in an evaluation, which ended on all: they agree on the signal. */
static ls_status agree_on_signal(ls__run *r)
{
    int64_t   number = caught;
    ls_status status = ls_ranks_max(&r->ranks, &number, 1);

    r->last.signal = (int)number;
    return status ? status : LS_EINTERRUPTED;
}

static ls_status validate(ls__run *r)
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

static bool validation_is_due(const ls__run *r)
{
    bool end = r->last.step == r->cfg->run.steps;

    return ls_trainer_has_validation(r->trainer) && r->validated != r->last.step &&
           (end || (r->cfg->eval.every && r->last.step % r->cfg->eval.every == 0));
}

static ls_run_counters counters_of(const ls__run *r)
{
    return (ls_run_counters){.step      = r->last.step,
                             .tokens    = r->tokens,
                             .loss      = r->last.loss,
                             .validated = r->validated,
                             .val_loss  = r->val_loss};
}

/* The last step's checkpoint is made when all else of it is done (end_saving). */
static ls_status save_step(ls__run *r)
{
    ls_run_counters counters = counters_of(r);

    if (r->last.step >= r->target || is_stopping(r))
        return LS_OK;
    ls_status status = ls_saving_step(&r->saving, &counters);
    r->keeps         = r->keeps && !status;
    return status;
}

static ls_status take_steps(ls__run *r)
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
static ls_status report_late(ls__run *r)
{
    return r->logged < r->last.step ? report_step(r) : LS_OK;
}

/*
 * Waits for the save under way and saves the last step: always where the run ends before its
 * end, and as checkpoint.save_at_end says where it does not.
 */
static ls_status end_saving(ls__run *r)
{
    bool            early    = r->last.step < r->cfg->run.steps;
    ls_run_counters counters = counters_of(r);

    return ls_saving_end(&r->saving, &counters, early || r->cfg->checkpoint.save_at_end);
}

/*
 * Summary of the last step, also after a signal or a failed step.  Rank 0 writes it; where
 * parameters are sharded the others give theirs to the hashes.
 */
static ls_status finish(ls__run *r)
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

static ls_status finish_if_needed(ls__run *r)
{
    bool takes_part = ls_trainer_parallel(r->trainer)->shards;

    return !r->ranks.rank || takes_part ? finish(r) : LS_OK;
}

/*
 * No rank ends before the last file is written: the launcher would end the others, and rank 0
 * while it saves.  From here on there is nothing that a signal could ask for.
 */
static ls_status leave_together(ls__run *r, ls_status own)
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
static ls_status rescue(ls__run *r, ls_status failure)
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
static ls_status load(ls__run *r)
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
static ls_status make_trainer(ls__run *r, ls_config *cfg, const ls_train_opts *opts)
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

static ls_status open_saving(ls__run *r)
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
static ls_status end_run(ls__run *r)
{
    char      message[1024];
    ls_status saved = end_saving(r);

    snprintf(message, sizeof message, "%s", ls_error_message());
    ls_status status = leave_together(r, finish_if_needed(r));
    return saved ? ls_fail(saved, "%s", message) : status;
}

static ls_status train(ls__run *r, ls_config *cfg, const ls_train_opts *opts)
{
    ls_status status = make_trainer(r, cfg, opts);

    if (status)
        return status;
    if (caught && r->ranks.size == 1)
        return LS_OK; /* nothing was written yet, and nothing will be */
    status = ls_ranks_agree(&r->ranks,
                            r->ranks.rank ? ls__run_open_nothing(r) : ls__run_open_files(r));
    if (!status)
        status = ls__run_open_trace(r);
    if (!status)
        status = open_saving(r);
    if (status)
        return status;
    if (!r->ranks.rank)
        ls__run_say_hello(r);
    start_progress(r);
    if (r->last.step && validation_is_due(r))
        status = validate(r); /* that of the step it goes on from was interrupted */
    if (!status)
        status = take_steps(r);
    if (status)
        return rescue(r, status);
    status = report_late(r);
    if (!status)
        status = ls__run_end_trace(r);
    if (!status)
        status = end_run(r);
    ls__run_look_after_logs(r);
    return !status && r->lost ? ls_fail(r->lost, "%s", r->lost_text) : status;
}

/* log.txt shows what the terminal does: the error line too, which the caller prints. */
static void log_failure(ls__run *r)
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
    ls__run   r      = {.cfg    = cfg,
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

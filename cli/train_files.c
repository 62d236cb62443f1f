/*
 * train_files.c - the files that a run writes besides its checkpoints.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/run_dir.h"
#include "cli/train_impl.h"

static ls_status check_logs(ls__run *r)
{
    ls_status status = ls_metrics_check(r->metrics);

    if (!status)
        status = ls_tracing_check(r->tracing);
    return status ? status : ls_log_check(r->log);
}

void ls__run_look_after_logs(ls__run *r)
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

static ls_status open_log(ls__run *r)
{
    const ls_config *cfg   = r->cfg;
    bool             quiet = cfg->log.progress == LS_CFG_PROGRESS_NONE;
    char            *path  = ls_run_dir_path(cfg->run.dir, "log.txt");

    r->log           = ls_log_new(stderr, quiet ? LS_LOG_WARNING : LS_LOG_INFO);
    ls_status status = path && r->log ? ls_log_open(r->log, path) : LS_ENOMEM;
    free(path);
    return status;
}

ls_status ls__run_open_nothing(ls__run *r)
{
    r->log = ls_log_new(NULL, LS_LOG_ERROR);
    return r->log ? LS_OK : LS_ENOMEM;
}

static ls_status open_directory(ls__run *r, char **aside)
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

ls_status ls__run_open_files(ls__run *r)
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

ls_status ls__run_open_trace(ls__run *r)
{
    if (!r->cfg->log.trace)
        return LS_OK;
    ls_status status = ls_tracing_open(r->cfg->run.dir, &r->ranks, &r->tracing);
    ls_trainer_set_trace(r->trainer, ls_tracing_spans(r->tracing));
    return ls_blame_config(status);
}

ls_status ls__run_end_trace(ls__run *r)
{
    ls_status status = ls_tracing_collect(r->tracing, true);
    int64_t   lost   = ls_tracing_lost(r->tracing);

    if (lost)
        ls_log_warning(r->log, "trace.json: %lld spans of a rank were too many for one step",
                       (long long)lost);
    return status;
}

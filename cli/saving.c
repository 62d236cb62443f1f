/*
 * saving.c - see saving.h.
 */
#include "cli/saving.h"

#include <stdlib.h>
#include <string.h>

#include "cli/run_dir.h"
#include "core/alloc.h"

ls_status ls_saving_open(ls_saving *s)
{
    const ls_config        *cfg = s->cfg;
    const ls_stored_tensor *list;
    size_t                  n;

    s->store        = ls_run_dir_path(cfg->run.dir, "checkpoints");
    size_t    bytes = s->store ? strlen(s->store) : 0;
    ls_status status =
        ls_ranks_share(s->ranks, &s->store, &bytes); /* rank 0's run.dir counts */
    if (!status)
        status = ls_ranks_agree(s->ranks, ls_trainer_tensors(s->trainer, &list, &n));
    if (status)
        return status;
    ls_saver_opts opts = {.store      = s->store,
                          .comm       = s->ranks->world,
                          .keep       = (int)cfg->checkpoint.keep,
                          .best       = cfg->checkpoint.best,
                          .async      = cfg->checkpoint.async,
                          .compressed = cfg->checkpoint.compress,
                          .timeout_s  = cfg->checkpoint.timeout_s};
    return ls_saver_new(&opts, list, n, &s->saver);
}

void ls_saving_close(ls_saving *s)
{
    ls_saver_free(s->saver);
    free(s->store);
    *s = (ls_saving){0};
}

/* ---- ends ---- */

static void say_saved(const ls_saving *s, const ls_save_end *e)
{
    if (e->no_snapshot)
        ls_log_warning(s->log,
                       "step %lld: no memory for a snapshot of the state; it was saved before "
                       "training went on",
                       (long long)e->step);
    ls_log_info(s->log, "step %lld  saved %.1f MiB in %.2f s, training waited %.3f s",
                (long long)e->step, (double)e->bytes / (1 << 20), e->seconds, e->stall_s);
}

/* `last`: nothing comes after it that could make up for a failure. */
static ls_status look_at_end(ls_saving *s, const ls_save_end *e, bool last)
{
    if (!e->step)
        return LS_OK;
    if (!e->status) {
        s->saved = e->step;
        say_saved(s, e);
        return LS_OK;
    }
    if (last || s->cfg->checkpoint.on_error == LS_CFG_ON_ERROR_STOP)
        return ls_fail(e->status, "step %lld is not saved: %s", (long long)e->step, e->text);
    ls_log_warning(s->log, "step %lld is not saved: %s; %s %lld", (long long)e->step, e->text,
                   s->saved ? "the last checkpoint is that of step" : "checkpoints so far:",
                   (long long)s->saved);
    return LS_OK;
}

/* ---- begin ---- */

static ls_status begin_with(ls_saving *s, const ls_trainer_place *place,
                            const ls_run_counters *counters, bool wait, ls_save_end *end)
{
    char     *state     = ls_train_state_print(s->cfg, s->trainer, place, counters, s->prints);
    char     *config    = ls_config_json(s->cfg);
    char     *tokenizer = ls_tokenizer_to_json(ls_trainer_data(s->trainer)->tokenizer);
    bool      made      = state && config && tokenizer;
    ls_status status    = ls_ranks_agree(s->ranks, made ? LS_OK : LS_ENOMEM);

    if (!status)
        status = ls_saver_begin(s->saver,
                                &(ls_save_facts){.step      = place->step,
                                                 .strategy  = ls_trainer_strategy(s->trainer),
                                                 .state     = state,
                                                 .config    = config,
                                                 .tokenizer = tokenizer,
                                                 .wait      = wait},
                                end);
    free(tokenizer);
    free(config);
    free(state);
    return status;
}

static ls_status begin(ls_saving *s, const ls_run_counters *counters, bool wait,
                       ls_save_end *end)
{
    ls_trainer_place place;
    ls_status        status = ls_trainer_get_place(s->trainer, &place);

    if (!status)
        status = begin_with(s, &place, counters, wait, end);
    free(place.started);
    return status;
}

static ls_status wait_for_last(ls_saving *s, bool last)
{
    ls_save_end end;
    ls_status   status = ls_saver_wait(s->saver, &end);

    return status ? status : look_at_end(s, &end, last);
}

ls_status ls_saving_step(ls_saving *s, const ls_run_counters *counters)
{
    int64_t     every = s->cfg->checkpoint.every;
    ls_save_end end;
    ls_status   status = ls_saver_poll(s->saver, &end);

    if (!status)
        status = look_at_end(s, &end, false);
    if (!status && every && !s->warm && !s->cfg->run.memory_mb)
        ls_saver_warm(s->saver); /* when training has what it needs */
    s->warm = true;
    if (status || !every || counters->step % every)
        return status;
    status = wait_for_last(s, false);
    if (!status)
        status = begin(s, counters, false, &end);
    return status ? status : look_at_end(s, &end, false);
}

ls_status ls_saving_end(ls_saving *s, const ls_run_counters *counters, bool must)
{
    ls_save_end end;
    ls_status   status = wait_for_last(s, !must);

    if (status || !must || !counters->step || s->saved == counters->step)
        return status;
    status = begin(s, counters, true, &end);
    return status ? status : look_at_end(s, &end, true);
}

/*
 * resume.c - see resume.h.
 */
#include "cli/resume.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/load.h"
#include "cli/config_compare.h"
#include "cli/run_dir.h"
#include "cli/train.h"
#include "core/alloc.h"

/* ---- candidates ---- */

static bool is_never(const ls_train_opts *o)
{
    return o->resume && !strcmp(o->resume, "never");
}

static bool is_path(const ls_train_opts *o)
{
    return o->resume && strcmp(o->resume, "never") && strcmp(o->resume, "auto");
}

static ls_status candidates_of_path(ls_resume *r)
{
    const char *path   = r->opts->resume;
    ls_status   status = ls_blame_config(ls_candidates_of(path, &r->candidates));

    if (status)
        return ls_fail_in(status, "--resume");
    if (strcmp(r->cfg->model.init, "random"))
        return ls_fail(LS_ECONFIG, "--resume %s excludes model.init, which starts over", path);
    if (r->candidates.n)
        return LS_OK;
    return ls_fail(
        LS_ECONFIG,
        "--resume %s: no checkpoint; a file of parameters alone starts a new run, as "
        "model.init",
        path);
}

/* On rank 0. */
static ls_status find_candidates(ls_resume *r)
{
    if (is_never(r->opts))
        return LS_OK;
    if (is_path(r->opts))
        return candidates_of_path(r);
    struct stat info;
    char       *store  = ls_run_dir_path(r->cfg->run.dir, "checkpoints");
    ls_status   status = store ? LS_OK : LS_ENOMEM;
    if (store && !stat(store, &info))
        status = ls_candidates_of(store, &r->candidates);
    free(store);
    return status;
}

/* Rank 0's list, as paths with a NUL behind each. */
static char *joined(const ls_candidates *c, size_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < c->n; i++)
        *bytes += strlen(c->path[i]) + 1;
    char *text = ls_calloc(*bytes + 1, 1), *out = text;
    for (int i = 0; text && i < c->n; i++) {
        size_t n = strlen(c->path[i]) + 1;
        memcpy(out, c->path[i], n);
        out += n;
    }
    return text;
}

static ls_status split(const char *text, int n, ls_candidates *c)
{
    c->path = ls_calloc((size_t)n + 1, sizeof *c->path);
    if (!c->path)
        return LS_ENOMEM;
    for (int i = 0; i < n; i++, text += strlen(text) + 1) {
        c->path[i] = ls_strdup(text);
        if (!c->path[i])
            return LS_ENOMEM;
        c->n++;
    }
    return LS_OK;
}

static ls_status share_candidates(ls_resume *r)
{
    size_t  bytes    = 0;
    int64_t facts[2] = {r->candidates.n, r->candidates.named};

    if (!r->ranks->world)
        return LS_OK;
    char     *text   = r->ranks->rank ? NULL : joined(&r->candidates, &bytes);
    ls_status status = ls_ranks_share(r->ranks, &text, &bytes);
    if (!status)
        status = ls_comm_broadcast(r->ranks->world, facts, 2, LS_I64, 0);
    if (!status)
        status = ls_ranks_agree(
            r->ranks, r->ranks->rank ? split(text, (int)facts[0], &r->candidates) : LS_OK);
    r->candidates.named = facts[1] != 0;
    free(text);
    return status;
}

/* ---- the same manifest on all ranks, of this training ---- */

static ls_status compare_manifests(const ls_resume *r, uint32_t crc)
{
    int64_t   ends[2] = {crc, -(int64_t)crc};
    ls_status status  = ls_ranks_max(r->ranks, ends, 2);

    if (status || ends[0] == -ends[1])
        return status;
    return ls_fail(LS_EMISMATCH,
                   "%s: the ranks see different files under this name; a run's directory must "
                   "be the same one for all of them",
                   r->candidates.path[r->at]);
}

static ls_status open_view(ls_resume *r)
{
    const char    *path   = r->candidates.path[r->at];
    ls_checkpoint *c      = NULL;
    ls_status      status = ls_ranks_agree(r->ranks, ls_checkpoint_open_folder(path, &c));

    if (status || !c) {
        ls_checkpoint_close(c);
        return status;
    }
    uint32_t crc = c->manifest.crc;
    status       = ls_ranks_agree(r->ranks, ls_view_new(c, LS_VIEW_STATE, &r->view));
    return status ? status : compare_manifests(r, crc);
}

static ls_status compare_config(ls_resume *r)
{
    const char *path = r->candidates.path[r->at];
    const char *text = ls_safetensors_metadata(r->view, "config");
    ls_config   then;
    ls_status   status = ls_config_parse(&then, text, path, NULL, 0);

    if (status)
        return ls_fail_in(status, "the config in %s", path);
    ls_config_adopt_schedule(r->cfg, r->state.schedule_steps, r->state.min_lr);
    status = ls_config_compare(r->cfg, &then, path, &r->opts->allow);
    r->keeps_tokenizer =
        !strcmp(r->cfg->data.tokenizer, "char") && !strcmp(then.data.tokenizer, "char");
    ls_config_free(&then);
    if (!status && r->cfg->optim.schedule.warmup >= r->cfg->optim.schedule.steps)
        status = ls_fail(LS_ECONFIG,
                         "optim.schedule.warmup %lld must be below the %lld steps of the "
                         "checkpoint's schedule",
                         (long long)r->cfg->optim.schedule.warmup,
                         (long long)r->cfg->optim.schedule.steps);
    return status;
}

static ls_status check(ls_resume *r)
{
    const char *path = r->candidates.path[r->at];
    ls_status   status =
        ls_train_state_parse(ls_safetensors_metadata(r->view, "state"), path, &r->state);

    if (!status)
        status = compare_config(r);
    if (status)
        return status;
    status        = ls_train_state_compare_data(&r->state, r->cfg, &r->prints);
    r->other_data = status == LS_ECONFIG;
    return r->other_data && r->opts->new_data ? LS_OK : status;
}

static void close_one(ls_resume *r)
{
    ls_train_state_close(&r->state);
    ls_safetensors_close(r->view);
    r->view = NULL;
}

static bool may_pass_over(const ls_resume *r, ls_status status)
{
    return ls_is_damage(status) && !r->candidates.named;
}

static void pass_over(ls_resume *r)
{
    ls_strbuf_format(&r->refused, "%s is passed over: %s\n", r->candidates.path[r->at],
                     ls_error_message());
    close_one(r);
    r->at++;
}

static ls_status none_left(const ls_resume *r, ls_status status)
{
    return ls_fail_in(status,
                      "none of the %d checkpoints of the run is valid (--resume never starts "
                      "over); the oldest",
                      r->candidates.n);
}

/* Opens candidate r->at, or an older one. */
static ls_status open_next(ls_resume *r)
{
    while (r->at < r->candidates.n) {
        ls_status status = open_view(r);
        if (!status)
            status = ls_ranks_agree(r->ranks, check(r));
        if (!status || !may_pass_over(r, status))
            return status;
        if (r->at + 1 == r->candidates.n)
            return none_left(r, status);
        pass_over(r);
    }
    return LS_OK;
}

/* ---- find ---- */

/* Is the folder of that path the store of run.dir? */
static bool is_in_place(const ls_resume *r, const char *path)
{
    struct stat a, b;
    char       *parent = ls_sprintf("%s/..", path);
    char       *store  = ls_run_dir_path(r->cfg->run.dir, "checkpoints");
    bool        same   = parent && store && !stat(parent, &a) && !stat(store, &b) &&
                a.st_dev == b.st_dev && a.st_ino == b.st_ino;

    free(store);
    free(parent);
    return same;
}

static ls_status share_list(const ls_ranks *ranks, ls_fingerprint **list, int64_t *n)
{
    ls_status status = ls_comm_broadcast(ranks->world, n, 1, LS_I64, 0);

    if (status)
        return status;
    if (!*list)
        *list = ls_calloc((size_t)*n + 1, sizeof **list);
    status = ls_ranks_agree(ranks, *list ? LS_OK : LS_ENOMEM);
    return status
               ? status
               : ls_comm_broadcast(ranks->world, *list, *n * (int64_t)sizeof **list, LS_U8, 0);
}

/* Rank 0 looks at the files for all: what their tokens are all have compared. */
static ls_status make_prints(ls_resume *r)
{
    ls_status status = LS_OK;

    if (!r->ranks->rank)
        status = ls_blame_config(ls_data_prints_make(r->cfg, &r->prints));
    status = ls_ranks_agree(r->ranks, status);
    if (status || !r->ranks->world)
        return status;
    status = share_list(r->ranks, &r->prints.train, &r->prints.n_train);
    return status ? status : share_list(r->ranks, &r->prints.val, &r->prints.n_val);
}

ls_status ls_resume_find(ls_config *cfg, const ls_train_opts *opts, const ls_ranks *ranks,
                         ls_resume *r)
{
    *r               = (ls_resume){.cfg = cfg, .opts = opts, .ranks = ranks};
    ls_status status = ls_config_check_keys(&opts->allow, "--allow-change");
    status           = ls_ranks_agree(ranks, status);
    if (!status)
        status = make_prints(r);
    if (!status)
        status = ls_ranks_agree(ranks, ranks->rank ? LS_OK : find_candidates(r));
    if (!status)
        status = share_candidates(r);
    if (!status)
        status = open_next(r);
    if (!status && r->view)
        r->in_place = is_in_place(r, r->candidates.path[r->at]);
    return status;
}

const char *ls_resume_tokenizer(const ls_resume *r)
{
    return r->view && r->keeps_tokenizer ? ls_safetensors_metadata(r->view, "tokenizer") : NULL;
}

/* ---- load ---- */

/* The same text has the same tokens only with the same tokenizer. */
static ls_status compare_tokenizer(const ls_resume *r, const ls_trainer *trainer)
{
    char     *now    = ls_tokenizer_to_json(ls_trainer_data(trainer)->tokenizer);
    ls_status status = now ? LS_OK : LS_ENOMEM;

    if (now && strcmp(now, ls_safetensors_metadata(r->view, "tokenizer")))
        status = ls_fail(
            LS_ECONFIG, "%s: its tokenizer has another vocabulary than that of this run's data",
            r->candidates.path[r->at]);
    free(now);
    return status;
}

static ls_status load_tensors(ls_resume *r, ls_trainer *trainer)
{
    const ls_stored_tensor *list;
    size_t                  n;
    ls_status               status = ls_trainer_tensors(trainer, &list, &n);

    status = ls_ranks_agree(r->ranks, status);
    if (!status && r->ranks->rank >= 0)
        status = ls_ranks_agree(r->ranks, compare_tokenizer(r, trainer));
    return status ? status : ls_checkpoint_load(r->view, list, n, r->ranks->world);
}

static ls_status set_place(ls_resume *r, ls_trainer *trainer)
{
    ls_trainer_place place  = {.step      = r->state.counters.step,
                               .sequences = r->other_data ? 0 : r->state.counters.sequences};
    ls_status        status = ls_train_state_started(&r->state, trainer, &place);

    if (!status)
        ls_trainer_resume(trainer, &place);
    free(place.started);
    return ls_ranks_agree(r->ranks, status);
}

ls_status ls_resume_load(ls_resume *r, ls_trainer *trainer)
{
    ls_status status = LS_OK;

    while (r->view) {
        status = load_tensors(r, trainer);
        if (!status)
            return set_place(r, trainer);
        if (!may_pass_over(r, status))
            return status;
        if (r->at + 1 == r->candidates.n)
            return none_left(r, status);
        pass_over(r);
        status = open_next(r);
        if (status)
            return status;
    }
    return LS_OK;
}

void ls_resume_close(ls_resume *r)
{
    close_one(r);
    ls_candidates_free(&r->candidates);
    ls_data_prints_free(&r->prints);
    ls_strbuf_free(&r->refused);
}

/*
 * train_state.c - see train_state.h.
 */
#include "cli/train_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/kernels/gemm.h"
#include "core/strbuf.h"
#include "data/sampler.h"

/* ---- fingerprints ---- */

static ls_status make_prints(const char *key, const ls_cfg_paths *paths,
                             ls_fingerprint **prints, int64_t *n)
{
    ls_status status = LS_OK;

    *prints = ls_calloc((size_t)paths->count + 1, sizeof **prints);
    if (!*prints)
        return LS_ENOMEM;
    *n = paths->count;
    for (int64_t i = 0; i < *n && !status; i++)
        status = ls_fingerprint_file(paths->item[i], &(*prints)[i]);
    return status ? ls_fail_in(status, "%s", key) : LS_OK;
}

ls_status ls_data_prints_make(const ls_config *cfg, ls_data_prints *prints)
{
    *prints = (ls_data_prints){0};
    ls_status status =
        make_prints("data.train", &cfg->data.train, &prints->train, &prints->n_train);

    if (!status)
        status = make_prints("data.val", &cfg->data.val, &prints->val, &prints->n_val);
    if (status)
        ls_data_prints_free(prints);
    return status;
}

void ls_data_prints_free(ls_data_prints *prints)
{
    free(prints->train);
    free(prints->val);
    *prints = (ls_data_prints){0};
}

/* ---- printing ---- */

static void add_double(ls_strbuf *t, const char *key, double x, bool there)
{
    char number[LS_JSON_DOUBLE_BYTES];

    ls_json_print_double(number, sizeof number, x);
    ls_strbuf_format(t, "\"%s\":%s", key, there ? number : "null");
}

static void add_text(ls_strbuf *t, const char *key, const char *text)
{
    ls_strbuf_format(t, "\"%s\":", key);
    ls_strbuf_json(t, text, strlen(text));
}

static void add_files(ls_strbuf *t, const char *key, const ls_cfg_paths *paths,
                      const ls_fingerprint *prints)
{
    ls_strbuf_format(t, "\"%s\":[", key);
    for (int64_t i = 0; i < paths->count; i++) {
        ls_strbuf_format(t, "%s{", i ? "," : "");
        add_text(t, "path", paths->item[i]);
        ls_strbuf_format(t, ",\"bytes\":%lld,\"crc32\":\"%08x\"}", (long long)prints[i].bytes,
                         prints[i].crc);
    }
    ls_strbuf_add(t, "]", 1);
}

static void add_schedule(ls_strbuf *t, const ls_config *cfg)
{
    static const char *const types[] = {"cosine", "constant", "linear"};

    ls_strbuf_format(t, ",\"schedule\":{\"type\":\"%s\",\"steps\":%lld,\"warmup\":%lld,",
                     types[cfg->optim.schedule.type], (long long)cfg->optim.schedule.steps,
                     (long long)cfg->optim.schedule.warmup);
    add_double(t, "lr", cfg->optim.lr, true);
    ls_strbuf_add(t, ",", 1);
    add_double(t, "min_lr", cfg->optim.schedule.min_lr, true);
    ls_strbuf_add(t, "}", 1);
}

static void add_not_started(ls_strbuf *t, const ls_trainer *trainer,
                            const ls_trainer_place *place)
{
    const char *comma = "";

    ls_strbuf_format(t, ",\"not_started\":[");
    for (int i = 0; i < place->n_parameters; i++) {
        if (place->started[i])
            continue;
        const char *name = ls_trainer_parameter_name(trainer, i);
        ls_strbuf_format(t, "%s", comma);
        ls_strbuf_json(t, name, strlen(name));
        comma = ",";
    }
    ls_strbuf_add(t, "]", 1);
}

static void add_counters(ls_strbuf *t, const ls_run_counters *c)
{
    ls_strbuf_format(t, ",\"tokens\":%lld,", (long long)c->tokens);
    add_double(t, "loss", c->loss, c->step > 0);
    ls_strbuf_add(t, ",", 1);
    add_double(t, "val_loss", c->val_loss, c->validated && c->validated == c->step);
    ls_strbuf_format(t, ",\"last_val\":");
    if (!c->validated) {
        ls_strbuf_format(t, "null");
        return;
    }
    ls_strbuf_format(t, "{\"step\":%lld,", (long long)c->validated);
    add_double(t, "loss", c->val_loss, true);
    ls_strbuf_add(t, "}", 1);
}

static int64_t epoch_of(const ls_config *cfg, const ls_trainer *trainer, int64_t sequences)
{
    const ls_dataset *data  = ls_trainer_data(trainer);
    int64_t           whole = data->train_rows.rows;

    if (cfg->model.type == LS_CFG_MODEL_GPT)
        whole = (data->train.count - 1) / cfg->model.context;

    return whole > 0 ? sequences / whole : 0;
}

char *ls_train_state_print(const ls_config *cfg, const ls_trainer *trainer,
                           const ls_trainer_place *place, const ls_run_counters *counters,
                           const ls_data_prints *prints)
{
    ls_strbuf t = {0};

    ls_strbuf_format(&t, "{\"step\":%lld,\"sequences\":%lld,\"epoch\":%lld,\"seed\":%lld",
                     (long long)place->step, (long long)place->sequences,
                     (long long)epoch_of(cfg, trainer, place->sequences),
                     (long long)cfg->run.seed);
    add_counters(&t, counters);
    add_schedule(&t, cfg);
    ls_strbuf_add(&t, ",", 1);
    add_double(&t, "val_accuracy", place->accuracy, !isnan(place->accuracy));
    ls_strbuf_format(&t, ",\"data\":{");
    add_files(&t, "train", &cfg->data.train, prints->train);
    ls_strbuf_add(&t, ",", 1);
    add_files(&t, "val", &cfg->data.val, prints->val);
    ls_strbuf_add(&t, "}", 1);
    add_not_started(&t, trainer, place);
    ls_strbuf_add(&t, ",", 1);
    add_text(&t, "machine", ls_blas_describe());
    ls_strbuf_add(&t, "}", 1);
    if (!ls_strbuf_status(&t))
        return t.data; /* the caller's */
    ls_strbuf_free(&t);
    return NULL;
}

/* ---- reading ---- */

static ls_status missing(const char *name, const char *member)
{
    return ls_fail(LS_EFORMAT, "%s: its state has no \"%s\", which going on needs", name,
                   member);
}

static ls_status read_evaluation(const ls_json *root, const char *name, ls_run_counters *c)
{
    const ls_json *last = ls_json_find(root, "last_val");

    if (!last)
        return missing(name, "last_val");
    if (last->kind == LS_JSON_NULL)
        return LS_OK;
    ls_status status = ls_json_get_int(root, "last_val.step", 1, INT64_MAX, &c->validated);
    return status ? status : ls_json_get_double(root, "last_val.loss", &c->val_loss);
}

static ls_status read_accuracy(const ls_json *root, const char *name, double *accuracy)
{
    const ls_json *found = ls_json_find(root, "val_accuracy");

    *accuracy = (double)NAN;
    if (!found)
        return missing(name, "val_accuracy");
    return found->kind == LS_JSON_NULL ? LS_OK
                                       : ls_json_get_double(root, "val_accuracy", accuracy);
}

static ls_status read_members(const ls_json *root, const char *name, ls_train_state *s)
{
    ls_run_counters *c = &s->counters;
    int64_t          ignored;
    ls_status        status = ls_json_get_int(root, "step", 1, INT64_MAX, &c->step);

    if (!status)
        status = ls_json_get_int(root, "sequences", 0, INT64_MAX, &c->sequences);
    if (!status)
        status = ls_json_get_int(root, "seed", 0, INT64_MAX, &ignored);
    if (!status)
        status = ls_json_get_int(root, "tokens", 0, INT64_MAX, &c->tokens);
    if (!status)
        status = ls_json_get_double(root, "loss", &c->loss);
    if (!status)
        status = read_evaluation(root, name, c);
    if (!status)
        status = ls_json_get_int(root, "schedule.steps", 1, INT64_MAX, &s->schedule_steps);
    if (!status)
        status = ls_json_get_double(root, "schedule.min_lr", &s->min_lr);
    if (!status)
        status = read_accuracy(root, name, &s->accuracy);
    if (!status)
        status = ls_json_get_string(root, "machine", &s->machine);
    if (!status && !ls_json_find(root, "data.train"))
        status = missing(name, "data.train");
    if (!status && !ls_json_find(root, "data.val"))
        status = missing(name, "data.val");
    if (!status && !ls_json_find(root, "not_started"))
        status = missing(name, "not_started");
    return status;
}

ls_status ls_train_state_parse(const char *text, const char *name, ls_train_state *s)
{
    *s               = (ls_train_state){0};
    ls_status status = ls_json_parse(text, strlen(text), name, &s->doc);

    if (!status && ls_json_root(s->doc)->kind != LS_JSON_OBJECT)
        status = ls_fail(LS_EFORMAT, "%s: its state is %s, expected an object", name,
                         ls_json_kind_name(ls_json_root(s->doc)));
    else if (!status) {
        status = read_members(ls_json_root(s->doc), name, s);
        if (status)
            status = ls_fail_in(status, "%s: state", name);
    }
    if (status)
        ls_train_state_close(s);
    return status;
}

void ls_train_state_close(ls_train_state *s)
{
    ls_json_free(s->doc);
    *s = (ls_train_state){0};
}

/* ---- comparing data ---- */

static ls_status compare_file(const char *key, const ls_json *then, const char *path,
                              const ls_fingerprint *now)
{
    int64_t     bytes = 0;
    const char *crc = NULL, *old_path = NULL;
    char        own[16];
    ls_status   status = ls_json_get_int(then, "bytes", 0, INT64_MAX, &bytes);

    if (!status)
        status = ls_json_get_string(then, "crc32", &crc);
    if (!status)
        status = ls_json_get_string(then, "path", &old_path);
    if (status)
        return status;
    snprintf(own, sizeof own, "%08x", now->crc);
    if (bytes == now->bytes && !strcmp(own, crc))
        return LS_OK;
    return ls_fail(LS_ECONFIG,
                   "%s: %s (%lld bytes, CRC-32 %s) is not the file of the checkpoint, %s (%lld "
                   "bytes, CRC-32 %s); --new-data says that it is meant",
                   key, path, (long long)now->bytes, own, old_path, (long long)bytes, crc);
}

static ls_status compare_files(const ls_json *root, const char *key, const ls_cfg_paths *paths,
                               const ls_fingerprint *prints)
{
    const ls_json *list = ls_json_find(root, key), *then = list->child;
    ls_status      status = LS_OK;

    if (list->kind != LS_JSON_ARRAY || (int64_t)list->count != paths->count)
        return ls_fail(LS_ECONFIG,
                       "%s: %lld files, the checkpoint was written with %zu; --new-data says "
                       "that it is meant",
                       key, (long long)paths->count, list->count);
    for (int64_t i = 0; i < paths->count && !status; i++, then = then->next)
        status = compare_file(key, then, paths->item[i], &prints[i]);
    return status;
}

ls_status ls_train_state_compare_data(const ls_train_state *s, const ls_config *cfg,
                                      const ls_data_prints *prints)
{
    const ls_json *root   = ls_json_root(s->doc);
    ls_status      status = compare_files(root, "data.train", &cfg->data.train, prints->train);

    return status ? status : compare_files(root, "data.val", &cfg->data.val, prints->val);
}

/* ---- parameters without a gradient ---- */

static int place_of(const ls_trainer *trainer, const char *name)
{
    const char *own;

    for (int i = 0; (own = ls_trainer_parameter_name(trainer, i)); i++)
        if (!strcmp(own, name))
            return i;
    return -1;
}

ls_status ls_train_state_started(const ls_train_state *s, const ls_trainer *trainer,
                                 ls_trainer_place *place)
{
    const ls_json *list = ls_json_find(ls_json_root(s->doc), "not_started");
    int            n    = 0;

    while (ls_trainer_parameter_name(trainer, n))
        n++;
    place->n_parameters = n;
    place->accuracy     = s->accuracy;
    place->started      = ls_calloc((size_t)n + 1, sizeof *place->started);
    if (!place->started)
        return LS_ENOMEM;
    for (int i = 0; i < n; i++)
        place->started[i] = true;
    for (const ls_json *e = list->child; e; e = e->next) {
        int at = e->kind == LS_JSON_STRING ? place_of(trainer, e->text) : -1;
        if (at < 0)
            return ls_fail(LS_EFORMAT, "state: not_started names no parameter of the model");
        place->started[at] = false;
    }
    return LS_OK;
}

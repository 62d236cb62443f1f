/*
 * config_compare.c - values as they print, key by key of the table.
 */
#include "cli/config_compare.h"

#include <stdlib.h>
#include <string.h>

#include "cli/config_impl.h"
#include "core/alloc.h"
#include "core/strbuf.h"

/* Sections and keys that may differ; a section ends in a dot. */
static const char *const free_keys[] = {
    "parallel.", "log.",      "eval.",         "checkpoint.", "run.threads", "run.dir",
    "run.name",  "run.steps", "run.memory_mb", "data.train",  "data.val"};

/* But not these. */
static const char *const fixed_keys[] = {"parallel.param_dtype", "parallel.reduce_dtype",
                                         "parallel.compress"};

static bool is_among(const char *const *list, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        size_t bytes = strlen(list[i]);
        if (!strcmp(list[i], key) ||
            (list[i][bytes - 1] == '.' && !strncmp(list[i], key, bytes)))
            return true;
    }
    return false;
}

static bool may_differ(const char *key, const ls_arg_list *allowed)
{
    if (is_among(allowed->item, (size_t)allowed->n, key))
        return true;
    if (is_among(fixed_keys, sizeof fixed_keys / sizeof *fixed_keys, key))
        return false;
    return is_among(free_keys, sizeof free_keys / sizeof *free_keys, key);
}

ls_status ls_config_check_keys(const ls_arg_list *keys, const char *option)
{
    for (int i = 0; i < keys->n; i++) {
        const char *near = ls__config_nearest(keys->item[i], false);
        if (ls__config_find(keys->item[i]) >= 0)
            continue;
        if (near)
            return ls_fail(LS_ECONFIG, "%s %s: no such key; did you mean %s?", option,
                           keys->item[i], near);
        return ls_fail(LS_ECONFIG, "%s %s: no such key", option, keys->item[i]);
    }
    return LS_OK;
}

/* Freed with free(); NULL: ENOMEM. */
static char *value_of(const ls_config *cfg, const config_key *key)
{
    char  *text = NULL;
    size_t n    = 0;
    FILE  *f    = open_memstream(&text, &n);

    if (!f)
        return NULL;
    ls__config_print_value(f, cfg, key);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

static ls_status compare_key(const ls_config *now, const ls_config *then, const config_key *key,
                             ls_strbuf *found)
{
    char     *a = value_of(now, key), *b = value_of(then, key);
    ls_status status = a && b ? LS_OK : LS_ENOMEM;

    if (!status && strcmp(a, b))
        ls_strbuf_format(found, "%s%s is %.80s, the checkpoint has %.80s",
                         found->used ? "; " : "", key->path, a, b);
    free(a);
    free(b);
    return status;
}

ls_status ls_config_compare(const ls_config *now, const ls_config *then, const char *name,
                            const ls_arg_list *allowed)
{
    ls_strbuf found  = {0};
    ls_status status = LS_OK;

    for (int i = 0; i < ls__config_n_keys && !status; i++) {
        const config_key *key = &ls__config_keys[i];
        if (may_differ(key->path, allowed))
            continue;
        if (ls__config_belongs(key, now) && ls__config_belongs(key, then))
            status = compare_key(now, then, key, &found);
    }
    if (!status && found.failed)
        status = LS_ENOMEM;
    if (!status && found.used)
        status = ls_fail(LS_ECONFIG,
                         "%s is of another training: %s (--allow-change KEY says that it is "
                         "meant, --resume never starts over)",
                         name, found.data);
    ls_strbuf_free(&found);
    return status;
}

void ls_config_adopt_schedule(ls_config *cfg, int64_t steps, double min_lr)
{
    if (!cfg->optim.schedule.steps_given)
        cfg->optim.schedule.steps = steps;
    if (!cfg->optim.schedule.min_lr_given)
        cfg->optim.schedule.min_lr = min_lr;
}

/*
 * checkpoints.c - see checkpoints.h.
 */
#include "cli/checkpoints.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/store.h"
#include "core/alloc.h"

bool ls_is_damage(ls_status status)
{
    return status == LS_EIO || status == LS_EFORMAT;
}

void ls_candidates_free(ls_candidates *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->path[i]);
    free(c->path);
    *c = (ls_candidates){0};
}

static bool is_there(const char *folder, const char *name)
{
    struct stat info;
    char       *path  = ls_sprintf("%s/%s", folder, name);
    bool        there = path && !lstat(path, &info);

    free(path);
    return there;
}

/* A folder with a checkpoint's name is one, also where its manifest is lost. */
static bool is_checkpoint(const char *path)
{
    const char *slash = strrchr(path, '/');

    return is_there(path, "manifest.json") || !strncmp(slash ? slash + 1 : path, "step-", 5);
}

static ls_status add_store(const char *store, ls_candidates *c)
{
    int64_t  *steps;
    int       n;
    ls_status status = ls_store_list(store, &steps, &n);

    c->path = status ? NULL : ls_calloc((size_t)n + 1, sizeof *c->path);
    if (!status && !c->path)
        status = LS_ENOMEM;
    for (int i = 0; i < n && !status; i++) {
        c->path[c->n] = ls_store_path(store, steps[i]);
        status        = c->path[c->n] ? LS_OK : LS_ENOMEM;
        c->n += !status;
    }
    free(steps);
    return status;
}

static ls_status add_one(const char *path, ls_candidates *c)
{
    c->named = true;
    c->path  = ls_calloc(1, sizeof *c->path);
    if (c->path)
        c->path[0] = ls_strdup(path);
    c->n = c->path && c->path[0];
    return c->n ? LS_OK : LS_ENOMEM;
}

static ls_status add_folder(const char *path, ls_candidates *c)
{
    if (is_checkpoint(path))
        return add_one(path, c);
    if (!is_there(path, "checkpoints"))
        return add_store(path, c);
    char     *store  = ls_sprintf("%s/checkpoints", path);
    ls_status status = store ? add_store(store, c) : LS_ENOMEM;
    free(store);
    return status;
}

ls_status ls_candidates_of(const char *path, ls_candidates *c)
{
    struct stat info;
    char       *plain = ls_strdup(path);

    *c = (ls_candidates){0};
    if (!plain)
        return LS_ENOMEM;
    for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/';)
        plain[--n] = '\0';
    ls_status status = LS_OK;
    if (stat(plain, &info) < 0)
        status = ls_fail(LS_EIO, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        status = add_folder(plain, c);
    free(plain);
    if (status)
        ls_candidates_free(c);
    return status;
}

ls_status ls_candidate_open(const char *path, ls_view_of what, ls_safetensors **file)
{
    ls_checkpoint *c;
    ls_status      status = ls_checkpoint_open_folder(path, &c);

    *file = NULL;
    if (status)
        return status;
    status = ls_checkpoint_verify(c);
    if (!status)
        return ls_view_new(c, what, file);
    ls_checkpoint_close(c);
    return status;
}

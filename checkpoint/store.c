#define _GNU_SOURCE /* renameat2: Linux's exchange of two names */
/*
 * store.c - names, the commit, and what is removed when.
 *
 * Nothing is followed: a symbolic link is never a checkpoint and never entered when removing.
 */
#include "checkpoint/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "checkpoint/atomic_file.h"
#include "checkpoint/manifest.h"
#include "core/alloc.h"
#include "core/json.h"

static const char temporary_prefix[] = ".tmp-step-", trash_prefix[] = ".trash-";

/* ---- names ---- */

const char *ls_store_step_name(int64_t step, ls_step_name *name)
{
    snprintf(name->text, sizeof name->text, "step-%08lld", (long long)step);
    return name->text;
}

char *ls_store_path(const char *store, int64_t step)
{
    ls_step_name name;

    return ls_sprintf("%s/%s", store, ls_store_step_name(step, &name));
}

char *ls_store_temporary(const char *store, int64_t step, int attempt)
{
    ls_step_name name;

    return ls_sprintf("%s/.tmp-%s-%d", store, ls_store_step_name(step, &name), attempt);
}

/* The step of a name that ls_store_step_name() would give, else -1. */
static int64_t step_of(const char *name)
{
    ls_step_name again;
    char        *end;

    if (strncmp(name, "step-", 5) || strlen(name) > 23 || name[5] < '0' || name[5] > '9')
        return -1;
    long long step = strtoll(name + 5, &end, 10);
    return *end || strcmp(ls_store_step_name(step, &again), name) ? -1 : (int64_t)step;
}

static bool is_directory(int at, const char *name)
{
    struct stat info;

    return !fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) && S_ISDIR(info.st_mode);
}

/* ---- lists ---- */

static int downwards(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x > y ? -1 : x < y;
}

static ls_status add_step(int64_t **steps, int *n, int *room, int64_t step)
{
    if (*n == *room) {
        int      more  = *room ? 2 * *room : 16;
        int64_t *grown = ls_calloc((size_t)more, sizeof *grown);
        if (!grown)
            return LS_ENOMEM;
        if (*n)
            memcpy(grown, *steps, (size_t)*n * sizeof *grown);
        free(*steps);
        *steps = grown;
        *room  = more;
    }
    (*steps)[(*n)++] = step;
    return LS_OK;
}

ls_status ls_store_list(const char *store, int64_t **steps, int *n)
{
    DIR           *dir    = opendir(store);
    int            room   = 0;
    ls_status      status = LS_OK;
    struct dirent *entry;

    *steps = NULL;
    *n     = 0;
    if (!dir)
        return errno == ENOENT ? LS_OK : ls_fail(LS_EIO, "%s: %s", store, strerror(errno));
    while (!status && (entry = readdir(dir))) {
        int64_t step = step_of(entry->d_name);
        if (step >= 0 && is_directory(dirfd(dir), entry->d_name))
            status = add_step(steps, n, &room, step);
    }
    closedir(dir);
    if (status) {
        free(*steps);
        *steps = NULL;
        *n     = 0;
    } else if (*n) {
        qsort(*steps, (size_t)*n, sizeof **steps, downwards);
    }
    return status;
}

/* ---- removing ---- */

/* Files of a folder, one level deep: that is all that a checkpoint has. */
static void empty(int fd)
{
    DIR           *dir = fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        close(fd);
        return;
    }
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

static void remove_folder(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return;
    empty(fd);
    unlinkat(at, name, AT_REMOVEDIR);
}

void ls_store_abandon(const char *temporary)
{
    remove_folder(AT_FDCWD, temporary);
}

static bool is_leftover(const char *name)
{
    return !strncmp(name, temporary_prefix, sizeof temporary_prefix - 1) ||
           !strncmp(name, trash_prefix, sizeof trash_prefix - 1) ||
           !strncmp(name, ".latest.tmp-", 12);
}

static void remove_leftover(int at, const char *name)
{
    if (is_directory(at, name))
        remove_folder(at, name);
    else
        unlinkat(at, name, 0);
}

static ls_status remove_leftovers(const char *store)
{
    DIR           *dir = opendir(store);
    struct dirent *entry;

    if (!dir)
        return ls_fail(LS_EIO, "%s: %s", store, strerror(errno));
    while ((entry = readdir(dir)))
        if (is_leftover(entry->d_name))
            remove_leftover(dirfd(dir), entry->d_name);
    closedir(dir);
    return LS_OK;
}

/* ---- making ---- */

ls_status ls_store_open(const char *store)
{
    if (mkdir(store, 0777) && errno != EEXIST)
        return ls_fail(LS_EIO, "%s cannot be made: %s", store, strerror(errno));
    return remove_leftovers(store);
}

ls_status ls_store_check_space(const char *store, uint64_t bytes)
{
    struct statvfs info;

    if (statvfs(store, &info))
        return ls_fail(LS_EIO, "%s: %s", store, strerror(errno));
    double room = (double)info.f_bavail * (double)info.f_frsize, need = 1.1 * (double)bytes;
    if (room >= need)
        return LS_OK;
    return ls_fail(LS_EIO, "%s: %s: %.1f MiB are free, %.1f MiB are needed", store,
                   strerror(ENOSPC), room / (1 << 20), need / (1 << 20));
}

ls_status ls_store_begin(const char *temporary)
{
    if (!mkdir(temporary, 0777))
        return LS_OK;
    if (errno == EEXIST) {
        ls_store_abandon(temporary);
        if (!mkdir(temporary, 0777))
            return LS_OK;
    }
    return ls_fail(LS_EIO, "%s cannot be made: %s", temporary, strerror(errno));
}

/* ---- the commit ---- */

/* The two change places in one instant; the old one is the temporary folder then. */
static ls_status exchange(const char *temporary, const char *path)
{
    if (!renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE))
        return LS_OK;
    return ls_fail(LS_EIO, "%s is there already and cannot be replaced: %s", path,
                   strerror(errno));
}

static ls_status take_name(const char *temporary, const char *path, bool *replaced)
{
    *replaced = false;
    if (!rename(temporary, path))
        return LS_OK;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return ls_fail(LS_EIO, "%s: renaming it to %s: %s", temporary, path, strerror(errno));
    *replaced = true;
    return exchange(temporary, path);
}

ls_status ls_store_commit(const char *store, const char *temporary, int64_t step)
{
    bool      replaced = false;
    char     *path     = ls_store_path(store, step);
    ls_status status   = path ? take_name(temporary, path, &replaced) : LS_ENOMEM;

    if (!status)
        status = ls_sync_directory(store);
    if (!status && replaced)
        ls_store_abandon(temporary); /* not before its name is the new one's on the disk */
    free(path);
    return status;
}

ls_status ls_store_set_latest(const char *store, int64_t step)
{
    ls_step_name   name;
    ls_atomic_file f;
    char          *path   = ls_sprintf("%s/latest", store);
    ls_status      status = path ? ls_atomic_begin(&f, path) : LS_ENOMEM;

    if (!status) {
        char text[40];
        int  n = snprintf(text, sizeof text, "%s\n", ls_store_step_name(step, &name));
        status = ls_atomic_write(&f, text, (size_t)n);
        if (!status)
            status = ls_atomic_commit(&f);
        ls_atomic_abandon(&f);
    }
    free(path);
    return status;
}

/* ---- pruning ---- */

static ls_status check_size(int at, const char *checkpoint, const ls_manifest_file *f)
{
    struct stat info;

    if (fstatat(at, f->name, &info, AT_SYMLINK_NOFOLLOW))
        return ls_fail(LS_EIO, "%s/%s: %s", checkpoint, f->name, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ls_fail(LS_EFORMAT, "%s/%s: is not a regular file", checkpoint, f->name);
    if ((uint64_t)info.st_size == f->bytes)
        return LS_OK;
    return ls_fail(LS_EFORMAT, "%s/%s: %s: expected %llu bytes, found %lld", checkpoint,
                   f->name, (uint64_t)info.st_size < f->bytes ? "truncated" : "too long",
                   (unsigned long long)f->bytes, (long long)info.st_size);
}

static ls_status check_files(const char *checkpoint, const ls_manifest *m)
{
    int       at     = open(checkpoint, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ls_status status = LS_OK;

    if (at < 0)
        return ls_fail(LS_EIO, "%s: %s", checkpoint, strerror(errno));
    for (size_t i = 0; i < m->n_files && !status; i++)
        status = check_size(at, checkpoint, &m->file[i]);
    close(at);
    return status;
}

static ls_status read_manifest(const char *checkpoint, ls_manifest *m)
{
    char     *path   = ls_sprintf("%s/manifest.json", checkpoint);
    ls_status status = path ? ls_manifest_read(path, m) : LS_ENOMEM;

    free(path);
    return status;
}

/* The manifest of a complete one; its step is that of its name. */
static ls_status check(const char *checkpoint, int64_t step, ls_manifest *m)
{
    ls_status status = read_manifest(checkpoint, m);

    if (status)
        return status;
    status = check_files(checkpoint, m);
    if (!status && step >= 0 && m->step != step)
        status = ls_fail(LS_EFORMAT, "%s: its manifest is of step %lld", checkpoint,
                         (long long)m->step);
    if (status)
        ls_manifest_free(m);
    return status;
}

ls_status ls_store_check(const char *checkpoint)
{
    const char *slash  = strrchr(checkpoint, '/');
    ls_manifest m      = {0};
    ls_status   status = check(checkpoint, step_of(slash ? slash + 1 : checkpoint), &m);

    ls_manifest_free(&m);
    return status;
}

/* The state's "val_loss" of this very step; false: none. */
static bool find_val_loss(const ls_manifest *m, double *loss)
{
    ls_json_doc *doc;
    bool         found;

    if (ls_json_parse(m->state, strlen(m->state), "state", &doc))
        return false;
    found = !ls_json_get_double(ls_json_root(doc), "val_loss", loss);
    ls_json_free(doc);
    return found;
}

typedef struct {
    const char *store;
    int64_t    *steps;
    int         n;
    int64_t     best; /* -1: none */
} pruning;

static bool is_complete(const pruning *p, int64_t step, bool *has_loss, double *loss)
{
    ls_manifest m;
    char       *path     = ls_store_path(p->store, step);
    bool        complete = path && !check(path, step, &m);

    if (complete) {
        *has_loss = find_val_loss(&m, loss);
        ls_manifest_free(&m);
    }
    free(path);
    return complete;
}

static void find_best(pruning *p, int64_t newest)
{
    double lowest = 0, loss = 0;
    bool   has_loss = false;

    for (int i = 0; i < p->n; i++)
        if (p->steps[i] <= newest && is_complete(p, p->steps[i], &has_loss, &loss) &&
            has_loss && (p->best < 0 || loss < lowest)) {
            p->best = p->steps[i];
            lowest  = loss;
        }
}

static ls_status discard(const char *store, int64_t step)
{
    ls_step_name name;
    char        *path = ls_store_path(store, step);
    char *trash = ls_sprintf("%s/%s%s", store, trash_prefix, ls_store_step_name(step, &name));
    ls_status status = path && trash ? LS_OK : LS_ENOMEM;

    if (!status) {
        ls_store_abandon(trash);
        if (rename(path, trash))
            status = ls_fail(LS_EIO, "%s cannot be removed: %s", path, strerror(errno));
        else
            ls_store_abandon(trash);
    }
    free(trash);
    free(path);
    return status;
}

static ls_status prune(pruning *p, int64_t step, int keep)
{
    int       kept   = 1;
    ls_status status = LS_OK;
    bool      has_loss;
    double    loss;

    for (int i = 0; i < p->n && !status; i++) {
        int64_t s = p->steps[i];
        if (s >= step || s == p->best)
            continue;
        if (kept >= keep)
            status = discard(p->store, s);
        else
            kept += is_complete(p, s, &has_loss, &loss);
    }
    return status;
}

ls_status ls_store_prune(const char *store, int64_t step, int keep, bool best)
{
    pruning   p      = {.store = store, .best = -1};
    ls_status status = ls_store_list(store, &p.steps, &p.n);

    if (!status && best)
        find_best(&p, step);
    if (!status)
        status = prune(&p, step, keep);
    free(p.steps);
    return status;
}

/*
 * run_dir.c - making, moving aside, writing.
 */
#include "cli/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/atomic_file.h"
#include "checkpoint/store.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/tfevents.h"

enum { MOST_PREVIOUS = 100000 };

/* What a run leaves behind, in any version (docs/contract of files); nothing else is touched.
 */
static const char *const files[] = {
    "config.json",        "log.txt",    "metrics.jsonl", "summary.json",
    "params.safetensors", "trace.json", "report.html",   "checkpoints"};
enum { N_FILES = sizeof files / sizeof *files };

char *ls_run_dir_path(const char *dir, const char *name)
{
    return ls_sprintf("%s/%s", dir, name);
}

static ls_status make_directory(const char *path)
{
    struct stat st;

    if (!mkdir(path, 0777))
        return LS_OK;
    if (errno == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode))
        return LS_OK;
    return ls_fail(LS_EIO, "run directory %s cannot be made: %s", path,
                   strerror(errno == EEXIST ? ENOTDIR : errno));
}

static ls_status make_with_parents(const char *dir)
{
    char     *path   = ls_strdup(dir);
    ls_status status = path ? LS_OK : LS_ENOMEM;

    for (char *slash = path; slash && !status;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        status = make_directory(path);
        if (slash)
            *slash = '/';
    }
    free(path);
    return status;
}

ls_status ls_make_parents(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return LS_OK;
    char     *dir    = ls_sprintf("%.*s", (int)(slash - path), path);
    ls_status status = dir ? make_with_parents(dir) : LS_ENOMEM;
    free(dir);
    return status;
}

/* A directory that exists may still not take files. */
static ls_status prove_writable(const char *dir)
{
    if (access(dir, W_OK | X_OK))
        return ls_fail(LS_EIO, "run directory %s is not writable: %s", dir, strerror(errno));
    return LS_OK;
}

static bool exists(const char *dir, const char *name)
{
    struct stat st;
    char       *path  = ls_run_dir_path(dir, name);
    bool        found = path && !lstat(path, &st);

    free(path);
    return found;
}

/* Files whose names only start alike; the caller closes the folder. */
static const char *next_events(DIR *folder)
{
    struct dirent *entry;

    while (folder && (entry = readdir(folder)))
        if (!strncmp(entry->d_name, LS_TFEVENTS_PREFIX, strlen(LS_TFEVENTS_PREFIX)))
            return entry->d_name;
    return NULL;
}

static void close_folder(DIR *folder)
{
    if (folder)
        closedir(folder);
}

/* By the holder of the lock, so nobody is writing these; a report may be just being written.
 * What cannot be removed is in nobody's way. */
static void remove_leftovers(const char *dir)
{
    for (int i = 0; i < N_FILES; i++) {
        char *path = strcmp(files[i], "report.html") ? ls_run_dir_path(dir, files[i]) : NULL;
        if (path)
            ls_atomic_sweep(path);
        free(path);
    }
    char *store = ls_run_dir_path(dir, "checkpoints");
    if (store && exists(dir, "checkpoints"))
        (void)!ls_store_open(store);
    free(store);
}

static bool any_file(const char *dir)
{
    DIR *folder = opendir(dir);
    bool found  = next_events(folder) != NULL;

    close_folder(folder);
    for (int i = 0; i < N_FILES && !found; i++)
        found = exists(dir, files[i]);
    return found;
}

static ls_status new_previous(const char *dir, char **out)
{
    for (int i = 1; i <= MOST_PREVIOUS; i++) {
        char *path = ls_sprintf("%s/previous-%d", dir, i);
        if (!path)
            return LS_ENOMEM;
        if (!mkdir(path, 0777)) {
            *out = path;
            return LS_OK;
        }
        int error = errno;
        free(path);
        if (error != EEXIST)
            return ls_fail(LS_EIO, "%s/previous-%d cannot be made: %s", dir, i,
                           strerror(error));
    }
    return ls_fail(LS_EIO, "%s holds %d earlier runs already", dir, MOST_PREVIOUS);
}

static ls_status move_file(const char *dir, const char *to, const char *name)
{
    char     *from = ls_run_dir_path(dir, name), *into = ls_run_dir_path(to, name);
    ls_status status = from && into ? LS_OK : LS_ENOMEM;

    if (!status && rename(from, into))
        status = ls_fail(LS_EIO, "%s cannot be moved to %s: %s", from, into, strerror(errno));
    free(into);
    free(from);
    return status;
}

static ls_status move_events(const char *dir, const char *to)
{
    DIR        *folder = opendir(dir);
    ls_status   status = LS_OK;
    const char *name;

    while (!status && (name = next_events(folder)))
        status = move_file(dir, to, name);
    close_folder(folder);
    return status;
}

static ls_status move_aside(const char *dir, char **aside)
{
    ls_status status = new_previous(dir, aside);

    for (int i = 0; i < N_FILES && !status; i++)
        if (exists(dir, files[i]))
            status = move_file(dir, *aside, files[i]);
    if (!status)
        status = move_events(dir, *aside);
    if (status) {
        free(*aside);
        *aside = NULL;
    }
    return status;
}

ls_status ls_run_dir_open(const char *dir, char **aside)
{
    ls_status status = make_with_parents(dir);

    *aside = NULL;
    if (!status)
        status = prove_writable(dir);
    if (!status)
        remove_leftovers(dir);
    if (!status && any_file(dir))
        status = move_aside(dir, aside);
    return status;
}

ls_status ls_run_dir_reopen(const char *dir)
{
    ls_status status = make_with_parents(dir);

    if (!status)
        status = prove_writable(dir);
    if (!status)
        remove_leftovers(dir);
    return status;
}

enum { WAIT_S = 10, LOOKS_A_SECOND = 20 };

ls_status ls_run_dir_lock(const char *dir, int *lock)
{
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0)
        return LS_OK; /* whoever makes it tells what is wrong with it */
    for (int i = 0; i <= WAIT_S * LOOKS_A_SECOND; i++) {
        if (!flock(*lock, LOCK_EX | LOCK_NB))
            return LS_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        ls_sleep_ns(1000000000 / LOOKS_A_SECOND);
    }
    bool held = errno == EWOULDBLOCK;
    close(*lock);
    *lock = -1;
    return held ? ls_fail(LS_EIO,
                          "run directory %s is in use: another process trains there, and has "
                          "not ended within %d s",
                          dir, WAIT_S)
                : LS_OK;
}

static ls_status move_steps(const char *store, const char *to, int64_t step)
{
    int64_t  *steps;
    int       n;
    ls_status status = ls_store_list(store, &steps, &n);

    for (int i = 0; i < n && !status; i++) {
        ls_step_name name;
        if (steps[i] > step)
            status = move_file(store, to, ls_store_step_name(steps[i], &name));
    }
    free(steps);
    return status;
}

static ls_status any_later(const char *store, int64_t step, bool *later)
{
    int64_t  *steps;
    int       n;
    ls_status status = ls_store_list(store, &steps, &n);

    *later = n && steps[0] > step;
    free(steps);
    return status;
}

ls_status ls_run_dir_move_later(const char *dir, int64_t step, char **aside)
{
    bool      later = false;
    char     *store = ls_run_dir_path(dir, "checkpoints"), *to = NULL;
    ls_status status = store ? any_later(store, step, &later) : LS_ENOMEM;

    *aside = NULL;
    if (!status && later) {
        status = new_previous(dir, aside);
        to     = status ? NULL : ls_run_dir_path(*aside, "checkpoints");
        if (!status)
            status = to ? make_directory(to) : LS_ENOMEM;
        if (!status)
            status = move_steps(store, to, step);
    }
    free(to);
    free(store);
    return status;
}

ls_status ls_run_dir_write(const char *dir, const char *name, const char *text)
{
    ls_atomic_file f;
    char          *path   = ls_run_dir_path(dir, name);
    ls_status      status = path ? ls_atomic_begin(&f, path) : LS_ENOMEM;

    if (!status) {
        status = ls_atomic_write(&f, text, strlen(text));
        if (!status)
            status = ls_atomic_commit(&f);
        ls_atomic_abandon(&f);
    }
    free(path);
    return status;
}

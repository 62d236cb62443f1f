/*
 * atomic_folder.c - make beside, fill, rename.
 */
#include "checkpoint/atomic_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"

enum { ATTEMPTS = 1000 };

/* The folder's path without slashes at its end, and what holds it. */
static ls_status set_names(ls_atomic_folder *f, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    f->path = ls_sprintf("%.*s", (int)n, path);
    if (!f->path)
        return LS_ENOMEM;
    const char *slash = strrchr(f->path, '/');
    f->parent =
        slash ? ls_sprintf("%.*s", (int)(slash - f->path + 1), f->path) : ls_strdup(".");
    return f->parent ? LS_OK : LS_ENOMEM;
}

/* Free, or an empty folder: what a rename may take the place of. */
static ls_status check_free(const char *path)
{
    struct stat    info;
    struct dirent *entry;
    bool           empty = true;

    if (lstat(path, &info) < 0)
        return errno == ENOENT ? LS_OK : ls_fail(LS_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return ls_fail(LS_EIO, "%s: is there already, expected a new folder", path);
    DIR *d = opendir(path);
    if (!d)
        return ls_fail(LS_EIO, "%s: %s", path, strerror(errno));
    while ((entry = readdir(d)) != NULL)
        empty = empty && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."));
    closedir(d);
    return empty ? LS_OK
                 : ls_fail(LS_EIO, "%s: is not empty, expected a new folder or an empty one",
                           path);
}

static ls_status make_temporary(ls_atomic_folder *f)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        char *name = ls_sprintf("%s.tmp-%ld-%d", f->path, (long)getpid(), i);
        if (!name)
            return LS_ENOMEM;
        if (mkdir(name, 0777) == 0) {
            f->temporary = name;
            return LS_OK;
        }
        free(name);
        if (errno != EEXIST)
            break;
    }
    return ls_fail(LS_EIO, "%s: making a folder beside it: %s", f->path, strerror(errno));
}

ls_status ls_atomic_folder_begin(ls_atomic_folder *f, const char *path)
{
    *f = (ls_atomic_folder){0};
    if (!*path)
        return ls_fail(LS_EINVAL, "'' is not the name of a folder to write");
    ls_status status = set_names(f, path);
    if (!status)
        status = check_free(f->path);
    if (!status)
        status = make_temporary(f);
    if (status)
        ls_atomic_folder_abandon(f);
    return status;
}

char *ls_atomic_folder_file(const ls_atomic_folder *f, const char *name)
{
    return ls_sprintf("%s/%s", f->temporary, name);
}

/* The new name is on the disk when the folder that holds it is; some file systems cannot. */
static ls_status sync_parent(const ls_atomic_folder *f)
{
    int fd   = open(f->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc   = fd < 0 ? -1 : fsync(fd);
    int code = errno;

    if (fd >= 0)
        close(fd);
    if (rc < 0 && code != EINVAL && code != ENOTSUP)
        return ls_fail(LS_EIO, "%s: fsync of its folder: %s", f->path, strerror(code));
    return LS_OK;
}

ls_status ls_atomic_folder_commit(ls_atomic_folder *f)
{
    if (rename(f->temporary, f->path) < 0)
        return ls_fail(LS_EIO, "%s: renaming the new folder to it: %s", f->path,
                       strerror(errno));
    free(f->temporary);
    f->temporary = NULL;
    return sync_parent(f);
}

static void remove_files(const char *path)
{
    struct dirent *entry;
    DIR           *d = opendir(path);

    while (d && (entry = readdir(d)) != NULL)
        unlinkat(dirfd(d), entry->d_name, 0); /* "." and ".." fail, as they should */
    if (d)
        closedir(d);
    rmdir(path);
}

void ls_atomic_folder_abandon(ls_atomic_folder *f)
{
    if (f->temporary)
        remove_files(f->temporary);
    free(f->temporary);
    free(f->parent);
    free(f->path);
    *f = (ls_atomic_folder){0};
}

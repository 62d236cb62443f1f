/*
 * atomic_file.c - write beside, sync, rename over.
 */
#include "checkpoint/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"

enum { ATTEMPTS = 1000, BASE_BYTES = 200 }; /* names end at 255 bytes on most file systems */

static ls_status io_error(const ls_atomic_file *f, const char *verb, int code)
{
    return ls_fail(LS_EIO, "%s: %s: %s", f->path, verb, strerror(code));
}

/* Splits path; LS_EINVAL where no file can be meant. */
static ls_status set_names(ls_atomic_file *f, const char *path, const char **base)
{
    const char *slash = strrchr(path, '/');

    *base = slash ? slash + 1 : path;
    if (!**base || !strcmp(*base, ".") || !strcmp(*base, ".."))
        return ls_fail(LS_EINVAL, "'%s' is not the name of a file to write", path);
    f->path = ls_strdup(path);
    if (!f->path)
        return LS_ENOMEM;
    f->directory = slash ? ls_sprintf("%.*s", (int)(slash - path + 1), path) : ls_strdup("./");
    return f->directory ? LS_OK : LS_ENOMEM;
}

/* What rename would replace must be a file: never a device, never a directory. */
static ls_status check_target(const ls_atomic_file *f)
{
    struct stat info;

    if (stat(f->path, &info) == 0 && !S_ISREG(info.st_mode))
        return ls_fail(LS_EIO, "%s: %s, expected a regular file or none", f->path,
                       S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file");
    return LS_OK;
}

/* What the names of all temporary files of this base start with; formats add what tells apart.
 */
#define TEMPORARY ".%.*s.tmp-"

static ls_status open_temporary(ls_atomic_file *f, const char *base)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        free(f->temporary);
        f->temporary = ls_sprintf("%s" TEMPORARY "%ld-%d", f->directory, BASE_BYTES, base,
                                  (long)getpid(), i);
        if (!f->temporary)
            return LS_ENOMEM;
        f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (f->fd >= 0)
            return LS_OK;
        if (errno != EEXIST && errno != EINTR)
            break;
    }
    int code = errno;
    free(f->temporary); /* not ours */
    f->temporary = NULL;
    return io_error(f, "creating a temporary file beside it", code);
}

ls_status ls_atomic_begin(ls_atomic_file *f, const char *path)
{
    const char *base;

    *f               = (ls_atomic_file){.fd = -1};
    ls_status status = set_names(f, path, &base);
    if (!status)
        status = check_target(f);
    if (!status)
        status = open_temporary(f, base);
    if (status)
        ls_atomic_abandon(f);
    return status;
}

ls_status ls_atomic_write(ls_atomic_file *f, const void *data, size_t bytes)
{
    const char *p = data;

    while (bytes) {
        ssize_t n = write(f->fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return io_error(f, "writing", n ? errno : EIO);
        p += n;
        bytes -= (size_t)n;
    }
    return LS_OK;
}

/* EINTR of close leaves the descriptor closed on Linux, and fsync has proved the data. */
static ls_status sync_and_close(ls_atomic_file *f)
{
    int rc;

    do
        rc = fsync(f->fd);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        return io_error(f, "fsync", errno);
    rc    = close(f->fd);
    f->fd = -1;
    return rc < 0 && errno != EINTR ? io_error(f, "closing", errno) : LS_OK;
}

static ls_status sync_names(const char *directory, const char *path)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return ls_fail(LS_EIO, "%s: opening its directory: %s", path, strerror(errno));
    int rc   = fsync(fd);
    int code = errno;
    close(fd);
    if (rc < 0 && code != EINVAL && code != ENOTSUP)
        return ls_fail(LS_EIO, "%s: fsync of its directory: %s", path, strerror(code));
    return LS_OK;
}

ls_status ls_sync_directory(const char *directory)
{
    return sync_names(directory, directory);
}

ls_status ls_atomic_commit(ls_atomic_file *f)
{
    ls_status status = sync_and_close(f);

    if (status)
        return status;
    if (rename(f->temporary, f->path) < 0)
        return io_error(f, "renaming the new file over it", errno);
    free(f->temporary);
    f->temporary = NULL;
    return sync_names(f->directory, f->path);
}

void ls_atomic_abandon(ls_atomic_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->temporary)
        unlink(f->temporary);
    free(f->path);
    free(f->directory);
    free(f->temporary);
    *f = (ls_atomic_file){.fd = -1};
}

void ls_atomic_sweep(const char *path)
{
    ls_atomic_file f = {.fd = -1};
    const char    *base;
    struct dirent *entry;
    char          *start  = NULL;
    DIR           *folder = NULL;

    if (!set_names(&f, path, &base)) {
        start  = ls_sprintf(TEMPORARY, BASE_BYTES, base);
        folder = f.directory ? opendir(f.directory) : NULL;
    }
    while (start && folder && (entry = readdir(folder)))
        if (!strncmp(entry->d_name, start, strlen(start)))
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    free(start);
    ls_atomic_abandon(&f);
}

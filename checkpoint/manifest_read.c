/*
 * manifest_read.c - the text of a manifest out of its file.
 *
 * No link is followed, nothing but a regular file is read, and not more of it than a manifest
 * may have.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/manifest.h"
#include "core/alloc.h"

static ls_status read_text(int fd, const char *path, char *text, size_t n)
{
    size_t at = 0;

    while (at < n) {
        ssize_t got = pread(fd, text + at, n - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ls_fail(LS_EIO, "%s: reading at byte %zu: %s", path, at,
                           got ? strerror(errno) : "it ends there");
        at += (size_t)got;
    }
    return LS_OK;
}

static ls_status open_manifest(const char *path, int *fd, size_t *bytes)
{
    struct stat info;

    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (*fd < 0 || fstat(*fd, &info) < 0)
        return ls_fail(LS_EIO, "%s: %s", path,
                       errno == ELOOP ? "is a symbolic link" : strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ls_fail(LS_EIO, "%s: is not a regular file", path);
    if (info.st_size > LS_MANIFEST_MOST_BYTES)
        return ls_fail(LS_EFORMAT, "%s: %lld bytes, expected at most %d", path,
                       (long long)info.st_size, LS_MANIFEST_MOST_BYTES);
    *bytes = (size_t)info.st_size;
    return LS_OK;
}

ls_status ls_manifest_read(const char *path, ls_manifest *m)
{
    size_t    bytes = 0;
    int       fd;
    char     *text   = NULL;
    ls_status status = open_manifest(path, &fd, &bytes);

    *m = (ls_manifest){0};
    if (!status && !(text = ls_calloc(bytes + 1, 1)))
        status = ls_fail_in(LS_ENOMEM, "%s", path);
    if (!status && text)
        status = read_text(fd, path, text, bytes);
    if (!status && text)
        status = ls_manifest_parse(text, bytes, path, m);
    free(text);
    if (fd >= 0)
        close(fd);
    return status;
}

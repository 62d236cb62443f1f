/*
 * fingerprint.c - see fingerprint.h.
 */
#include "data/fingerprint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/gz.h"

enum { BLOCK = 64 * 1024, BLOCKS = 64, WHOLE = 64 << 20 };

static ls_status add_block(int fd, const char *path, int64_t offset, int64_t bytes,
                           char *buffer, uint32_t *crc)
{
    for (int64_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, buffer + at, (size_t)(bytes - at), offset + at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ls_fail(LS_EIO, "%s: cannot be read at byte %lld: %s", path,
                           (long long)(offset + at), n ? strerror(errno) : "it ends there");
        at += n;
    }
    *crc = ls_crc32(*crc, buffer, (size_t)bytes);
    return LS_OK;
}

static ls_status add_blocks(int fd, const char *path, char *buffer, ls_fingerprint *p)
{
    bool      whole  = p->bytes <= WHOLE;
    int64_t   n      = whole ? (p->bytes + BLOCK - 1) / BLOCK : BLOCKS;
    ls_status status = LS_OK;

    for (int64_t i = 0; i < n && !status; i++) {
        int64_t offset = whole ? i * BLOCK : (p->bytes - BLOCK) / (BLOCKS - 1) * i;
        if (!whole && i == n - 1)
            offset = p->bytes - BLOCK;
        int64_t bytes = p->bytes - offset < BLOCK ? p->bytes - offset : BLOCK;
        status        = add_block(fd, path, offset, bytes, buffer, &p->crc);
    }
    return status;
}

ls_status ls_fingerprint_file(const char *path, ls_fingerprint *print)
{
    struct stat info;

    *print = (ls_fingerprint){0};
    if (stat(path, &info))
        return ls_fail(LS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return LS_OK; /* a pipe gives its bytes once, to who needs them */
    int       fd     = open(path, O_RDONLY | O_CLOEXEC);
    char     *buffer = ls_mem_alloc(BLOCK, LS_MEM_OTHER);
    ls_status status = buffer ? LS_OK : LS_ENOMEM;
    if (!status && fd < 0)
        status = ls_fail(LS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    print->bytes = info.st_size;
    if (!status)
        status = add_blocks(fd, path, buffer, print);
    ls_mem_free(buffer, BLOCK, LS_MEM_OTHER);
    if (fd >= 0)
        close(fd);
    return status;
}

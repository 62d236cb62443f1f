/*
 * chunk_io.c - see chunk_io.h.
 */
#include "checkpoint/chunk_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/safetensors.h"
#include "core/alloc.h"
#include "core/gz.h"

enum { PIECE_BYTES = 1 << 20, MOST_STORED = 1 << 30 };

ls_status ls_checkpoint_open_folder(const char *path, ls_checkpoint **out)
{
    ls_checkpoint *c        = ls_calloc(1, sizeof *c);
    char          *manifest = ls_sprintf("%s/manifest.json", path);

    *out             = NULL;
    ls_status status = c && manifest ? LS_OK : LS_ENOMEM;
    if (c)
        c->folder = -1;
    if (!status)
        status = ls_manifest_read(manifest, &c->manifest);
    if (!status) {
        c->path   = ls_strdup(path);
        c->fd     = ls_calloc(c->manifest.n_files + 1, sizeof *c->fd);
        c->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        status    = !c->path || !c->fd ? LS_ENOMEM : LS_OK;
        if (!status && c->folder < 0)
            status = ls_fail(LS_EIO, "%s: %s", path, strerror(errno));
    }
    for (size_t i = 0; c && c->fd && i < c->manifest.n_files; i++)
        c->fd[i] = -1;
    free(manifest);
    if (status) {
        ls_checkpoint_close(c);
        return status;
    }
    *out = c;
    return LS_OK;
}

void ls_checkpoint_close(ls_checkpoint *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->fd && i < c->manifest.n_files; i++)
        if (c->fd[i] >= 0)
            close(c->fd[i]);
    if (c->folder >= 0)
        close(c->folder);
    ls_mem_free(c->stored, c->stored_room, LS_MEM_OTHER);
    ls_mem_free(c->raw, c->raw_room, LS_MEM_OTHER);
    free(c->fd);
    free(c->path);
    ls_manifest_free(&c->manifest);
    free(c);
}

/* ---- files ---- */

static ls_status open_file(ls_checkpoint *c, size_t i)
{
    const ls_manifest_file *f = &c->manifest.file[i];
    struct stat             info;

    if (c->fd[i] >= 0)
        return LS_OK;
    int fd = openat(c->folder, f->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) < 0) {
        ls_status status = ls_fail(LS_EIO, "%s/%s: %s", c->path, f->name,
                                   errno == ELOOP ? "is a symbolic link" : strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (S_ISREG(info.st_mode) && (uint64_t)info.st_size == f->bytes) {
        c->fd[i] = fd;
        return LS_OK;
    }
    close(fd);
    if (!S_ISREG(info.st_mode))
        return ls_fail(LS_EFORMAT, "%s/%s: is not a regular file", c->path, f->name);
    return ls_fail(LS_EFORMAT, "%s/%s: %s: expected %llu bytes, found %lld", c->path, f->name,
                   (uint64_t)info.st_size < f->bytes ? "truncated" : "too long",
                   (unsigned long long)f->bytes, (long long)info.st_size);
}

static ls_status read_at(ls_checkpoint *c, size_t i, uint64_t offset, void *buffer,
                         size_t bytes)
{
    const ls_manifest_file *f      = &c->manifest.file[i];
    ls_status               status = open_file(c, i);
    char                   *out    = buffer;

    while (!status && bytes) {
        ssize_t n = pread(c->fd[i], out, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ls_fail(LS_EIO, "%s/%s: reading at byte %llu: %s", c->path, f->name,
                           (unsigned long long)offset,
                           n ? strerror(errno) : "the file was cut meanwhile");
        out += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return status;
}

ls_status ls_checkpoint_check_file(ls_checkpoint *c, size_t i)
{
    const ls_manifest_file *f      = &c->manifest.file[i];
    ls_status               status = open_file(c, i);
    char                    buffer[4096];
    uint32_t                crc = 0;

    for (uint64_t at = 0; at < f->header_bytes && !status; at += sizeof buffer) {
        size_t n = f->header_bytes - at < sizeof buffer ? (size_t)(f->header_bytes - at)
                                                        : sizeof buffer;
        status   = read_at(c, i, at, buffer, n);
        if (!status)
            crc = ls_crc32(crc, buffer, n);
    }
    if (status || crc == f->header_crc)
        return status;
    return ls_fail(LS_EFORMAT,
                   "%s/%s: another file than the manifest's, or damaged: the CRC-32 of its "
                   "first %llu bytes is %08x, expected %08x",
                   c->path, f->name, (unsigned long long)f->header_bytes, crc, f->header_crc);
}

/* ---- chunks ---- */

ls_status ls_chunk_check(const ls_checkpoint *c, const ls_manifest_chunk *chunk, uint32_t crc)
{
    const ls_manifest_tensor *t = &c->manifest.tensor[chunk->tensor];
    ls_st_name_text           name;

    if (crc == chunk->crc)
        return LS_OK;
    return ls_fail(LS_EFORMAT,
                   "%s/%s: damaged: tensor '%s', rows %llu to %llu, bytes %llu to %llu: CRC-32 "
                   "%08x, expected %08x",
                   c->path, c->manifest.file[chunk->file].name,
                   ls_st_print_name(t->name, &name), (unsigned long long)chunk->first,
                   (unsigned long long)(chunk->first + chunk->rows - 1),
                   (unsigned long long)chunk->offset,
                   (unsigned long long)(chunk->offset + chunk->stored - 1), crc, chunk->crc);
}

static ls_status read_plain(ls_checkpoint *c, const ls_manifest_chunk *chunk, uint64_t from,
                            char *out, uint64_t bytes, uint32_t *crc)
{
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t    n      = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        ls_status status = read_at(c, chunk->file, chunk->offset + from + at, out + at, n);
        if (status)
            return status;
        *crc = ls_crc32(*crc, out + at, n);
    }
    return LS_OK;
}

static ls_status make_room(char **block, size_t *room, uint64_t bytes)
{
    if (bytes <= *room)
        return LS_OK;
    char *grown = ls_mem_alloc((size_t)bytes, LS_MEM_OTHER);
    if (!grown)
        return LS_ENOMEM;
    ls_mem_free(*block, *room, LS_MEM_OTHER);
    *block = grown;
    *room  = (size_t)bytes;
    return LS_OK;
}

/* c->raw becomes the chunk's values.  What a stream holds beyond them is never written. */
static ls_status inflate_chunk(ls_checkpoint *c, const ls_manifest_chunk *chunk)
{
    const char *file   = c->manifest.file[chunk->file].name;
    ls_status   status = LS_OK;

    if (chunk->stored > MOST_STORED || chunk->bytes > MOST_STORED)
        status = ls_fail(LS_EFORMAT, "%s/%s: a compressed chunk of more than 2^30 bytes",
                         c->path, file);
    if (!status)
        status = make_room(&c->stored, &c->stored_room, chunk->stored);
    if (!status)
        status = read_at(c, chunk->file, chunk->offset, c->stored, (size_t)chunk->stored);
    if (!status)
        status = make_room(&c->raw, &c->raw_room, chunk->bytes);
    if (status)
        return status;
    status = ls_zlib_inflate(c->stored, (size_t)chunk->stored, c->raw, (size_t)chunk->bytes);
    if (status)
        return ls_fail_in(status, "%s/%s: byte %llu", c->path, file,
                          (unsigned long long)chunk->offset);
    return ls_chunk_check(c, chunk, ls_crc32(0, c->raw, (size_t)chunk->bytes));
}

ls_status ls_chunk_read(ls_checkpoint *c, const ls_manifest_chunk *chunk, uint64_t from,
                        void *buffer, uint64_t bytes, uint32_t *crc)
{
    if (!c->manifest.compressed)
        return read_plain(c, chunk, from, buffer, bytes, crc);
    ls_status status = inflate_chunk(c, chunk);
    if (status)
        return status;
    memcpy(buffer, c->raw + from, (size_t)bytes);
    *crc = ls_crc32(*crc, buffer, (size_t)bytes);
    return LS_OK;
}

static ls_status verify_chunk(ls_checkpoint *c, const ls_manifest_chunk *chunk, char *buffer)
{
    uint32_t crc = 0;

    if (c->manifest.compressed)
        return inflate_chunk(c, chunk);
    for (uint64_t at = 0; at < chunk->bytes; at += PIECE_BYTES) {
        uint64_t  n      = chunk->bytes - at < PIECE_BYTES ? chunk->bytes - at : PIECE_BYTES;
        ls_status status = read_plain(c, chunk, at, buffer, n, &crc);
        if (status)
            return status;
    }
    return ls_chunk_check(c, chunk, crc);
}

ls_status ls_checkpoint_verify(ls_checkpoint *c)
{
    char     *buffer = ls_mem_alloc(PIECE_BYTES, LS_MEM_OTHER);
    ls_status status = buffer ? LS_OK : LS_ENOMEM;

    for (size_t i = 0; i < c->manifest.n_files && !status; i++)
        status = ls_checkpoint_check_file(c, i);
    for (size_t i = 0; i < c->manifest.n_chunks && !status; i++)
        status = verify_chunk(c, &c->manifest.chunk[i], buffer);
    ls_mem_free(buffer, PIECE_BYTES, LS_MEM_OTHER);
    return status;
}

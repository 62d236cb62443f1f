/*
 * safetensors.c - an open file: its checked header, and reads of its data.
 */
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"

/* All `bytes` from `offset` on; less than that is an error. */
static ls_status read_at(const ls_safetensors *file, uint64_t offset, void *buffer,
                         size_t bytes)
{
    char *out = buffer;

    while (bytes) {
        ssize_t n = pread(file->fd, out, bytes < 1 << 30 ? bytes : 1 << 30, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_fail(LS_EIO, "%s: reading at byte %llu: %s", file->path,
                           (unsigned long long)offset, strerror(errno));
        if (n == 0)
            return ls_fail(LS_EIO, "%s: cut at byte %llu while it is open; expected %llu bytes",
                           file->path, (unsigned long long)offset,
                           (unsigned long long)file->file_bytes);
        out += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return LS_OK;
}

/* O_NONBLOCK: the open of a FIFO must not wait for a writer; it means nothing to a file. */
static ls_status open_regular(ls_safetensors *file)
{
    struct stat info;

    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &info) < 0)
        return ls_fail(LS_EIO, "%s: %s", file->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ls_fail(LS_EIO, "%s: %s, expected a safetensors file", file->path,
                       S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file");
    file->file_bytes = (uint64_t)info.st_size;
    return LS_OK;
}

static ls_status read_header(ls_safetensors *file)
{
    unsigned char prefix[8] = {0};
    uint64_t      length;
    size_t        have   = file->file_bytes < 8 ? (size_t)file->file_bytes : 8;
    ls_status     status = read_at(file, 0, prefix, have);

    if (!status)
        status = ls_st_header_length(file->path, prefix, file->file_bytes, &length);
    if (status)
        return status;
    char *text = ls_calloc((size_t)length + 1, 1);
    if (!text)
        return ls_fail_in(LS_ENOMEM, "%s", file->path);
    status = read_at(file, 8, text, (size_t)length);
    if (status) {
        free(text);
        return status;
    }
    file->data_offset = 8 + length;
    return ls_st_header_parse(file->path, text, length, file->file_bytes, &file->header);
}

ls_status ls_safetensors_open(const char *path, ls_safetensors **out)
{
    ls_safetensors *file = ls_calloc(1, sizeof *file);

    *out = NULL;
    if (!file)
        return LS_ENOMEM;
    file->fd         = -1;
    file->path       = ls_strdup(path);
    ls_status status = file->path ? open_regular(file) : LS_ENOMEM;
    if (!status)
        status = read_header(file);
    if (status) {
        ls_safetensors_close(file);
        return status;
    }
    *out = file;
    return LS_OK;
}

void ls_safetensors_close(ls_safetensors *file)
{
    if (!file)
        return;
    if (file->backing)
        file->backing->close(file->context);
    if (file->fd >= 0)
        close(file->fd);
    ls_st_header_free(&file->header);
    free(file->path);
    free(file);
}

const ls_st_entry *ls_safetensors_find(const ls_safetensors *file, const char *name)
{
    size_t low = 0, high = file->header.n_entries;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int    order  = strcmp(name, file->header.entry[middle].name);
        if (!order)
            return &file->header.entry[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *ls_safetensors_metadata(const ls_safetensors *file, const char *key)
{
    const ls_st_pair *pair  = file->header.pair;
    size_t            bytes = strlen(key);

    for (size_t i = 0; i < file->header.n_pairs; i++)
        if (pair[i].key_bytes == bytes && !memcmp(pair[i].key, key, bytes))
            return pair[i].value;
    return NULL;
}

ls_status ls_safetensors_read(const ls_safetensors *file, const ls_st_entry *entry,
                              uint64_t offset, void *buffer, size_t bytes)
{
    uint64_t        has = entry->end - entry->begin;
    ls_st_name_text name;

    if (offset > has || bytes > has - offset)
        return ls_fail(LS_EINVAL, "%s: tensor '%s': %zu bytes at %llu asked for, it has %llu",
                       file->path, ls_st_print_name(entry->name, &name), bytes,
                       (unsigned long long)offset, (unsigned long long)has);
    ls_status status =
        file->backing ? file->backing->read(file->context, entry, offset, buffer, bytes)
                      : read_at(file, file->data_offset + entry->begin + offset, buffer, bytes);
    return status ? ls_fail_in(status, "tensor '%s'", ls_st_print_name(entry->name, &name))
                  : LS_OK;
}

/*
 * safetensors_write.c - layout, header and data of a new file.
 *
 * Tensors are laid back to back in the reference's order: larger dtypes first, so that every
 * tensor is aligned to its element, then by name.  The header is padded with spaces to a
 * multiple of 8.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/atomic_file.h"
#include "checkpoint/json_scan.h"
#include "checkpoint/safetensors.h"
#include "core/alloc.h"
#include "core/gz.h"
#include "core/strbuf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are written as they lie");

/* A tensor and its place in the file. */
typedef struct {
    const ls_st_source *source;
    int                 rank;
    uint64_t            bytes;
} placed;

static int by_layout(const void *a, const void *b)
{
    const placed *x = a, *y = b;

    return x->rank != y->rank ? y->rank - x->rank : strcmp(x->source->name, y->source->name);
}

static int by_name(const void *a, const void *b)
{
    const placed *x = a, *y = b;

    return strcmp(x->source->name, y->source->name);
}

static ls_status check_source(const ls_st_source *t)
{
    ls_st_name_text name;
    size_t          bytes = strlen(t->name);

    if (!bytes || bytes > LS_ST_MAX_NAME || ls_json_utf8(t->name, bytes) < bytes ||
        !strcmp(t->name, "__metadata__"))
        return ls_fail(LS_EINVAL,
                       "'%s' cannot name a tensor: expected 1 to 1024 bytes of UTF-8",
                       ls_st_print_name(t->name, &name));
    if (!ls_st_dtype_bits(t->dtype))
        return ls_fail(LS_EINVAL, "tensor '%s': '%s' is not a dtype of the format",
                       ls_st_print_name(t->name, &name), t->dtype);
    if (t->ndim < 0 || t->ndim > LS_ST_MAX_DIMS)
        return ls_fail(LS_EINVAL, "tensor '%s': %d dimensions, expected at most 8",
                       ls_st_print_name(t->name, &name), t->ndim);
    return LS_OK;
}

/* Places all tensors, in the order of the file. */
static ls_status lay_out(const ls_st_source *tensors, size_t n, placed *order)
{
    ls_st_name_text name;

    for (size_t i = 0; i < n; i++) {
        const ls_st_source *t      = &tensors[i];
        ls_status           status = check_source(t);
        if (status)
            return status;
        order[i] = (placed){t, ls_st_dtype_rank(t->dtype), 0};
        if (ls_st_bytes(t->dtype, t->dim, t->ndim, &order[i].bytes))
            return ls_fail_in(LS_EINVAL, "tensor '%s'", ls_st_print_name(t->name, &name));
    }
    if (n)
        qsort(order, n, sizeof *order, by_name);
    for (size_t i = 1; i < n; i++)
        if (!by_name(&order[i - 1], &order[i]))
            return ls_fail(LS_EINVAL, "tensor '%s' given twice",
                           ls_st_print_name(order[i].source->name, &name));
    if (n)
        qsort(order, n, sizeof *order, by_layout);
    return LS_OK;
}

static ls_status add_metadata(ls_strbuf *text, const ls_st_metadata *pairs, size_t n)
{
    ls_strbuf_format(text, "{\"__metadata__\":{\"format\":\"pt\"");
    for (size_t i = 0; i < n; i++) {
        const char *key = pairs[i].key, *value = pairs[i].value;
        bool        twice = !strcmp(key, "format");
        for (size_t k = 0; k < i; k++)
            twice = twice || !strcmp(key, pairs[k].key);
        if (twice)
            return ls_fail(LS_EINVAL, "metadata key '%s' given twice", key);
        if (ls_json_utf8(key, strlen(key)) < strlen(key) ||
            ls_json_utf8(value, strlen(value)) < strlen(value))
            return ls_fail(LS_EINVAL, "metadata '%s' is not UTF-8", key);
        ls_strbuf_add(text, ",", 1);
        ls_strbuf_json(text, key, strlen(key));
        ls_strbuf_add(text, ":", 1);
        ls_strbuf_json(text, value, strlen(value));
    }
    ls_strbuf_add(text, "}", 1);
    return LS_OK;
}

static void add_tensor(ls_strbuf *text, const ls_st_source *t, uint64_t begin, uint64_t end)
{
    ls_strbuf_add(text, ",", 1);
    ls_strbuf_json(text, t->name, strlen(t->name));
    ls_strbuf_format(text, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype);
    for (int i = 0; i < t->ndim; i++)
        ls_strbuf_format(text, "%s%llu", i ? "," : "", (unsigned long long)t->dim[i]);
    ls_strbuf_format(text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                     (unsigned long long)end);
}

/* The whole header, its length in front. */
static ls_status add_header(ls_strbuf *text, const placed *order, size_t n,
                            const ls_st_metadata *pairs, size_t n_pairs)
{
    uint64_t  begin = 0;
    ls_status status;

    ls_strbuf_add(text, "\0\0\0\0\0\0\0\0", 8);
    status = add_metadata(text, pairs, n_pairs);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++) {
        uint64_t end;
        if (__builtin_add_overflow(begin, order[i].bytes, &end))
            return ls_fail(LS_EINVAL, "the tensors have more than 2^64 bytes");
        add_tensor(text, order[i].source, begin, end);
        begin = end;
    }
    ls_strbuf_add(text, "}", 1);
    while (text->used % 8 && !text->failed)
        ls_strbuf_add(text, " ", 1);
    if (ls_strbuf_status(text))
        return LS_ENOMEM;
    uint64_t length = text->used - 8;
    if (length > 100000000)
        return ls_fail(LS_EINVAL, "the header has %llu bytes, the format allows 100000000",
                       (unsigned long long)length);
    memcpy(text->data, &length, 8);
    return LS_OK;
}

enum { PIECE_BYTES = 1 << 20 }; /* stays in a core's cache between checksum and write */

static ls_status write_values(ls_atomic_file *f, const placed *p, const atomic_int *stop,
                              uint32_t *crc)
{
    const char *data = p->source->data;

    for (uint64_t at = 0; at < p->bytes; at += PIECE_BYTES) {
        size_t bytes = p->bytes - at < PIECE_BYTES ? (size_t)(p->bytes - at) : PIECE_BYTES;
        if (stop && *stop)
            return ls_fail(LS_EINTERRUPTED, "%s: writing was given up", f->path);
        if (crc)
            *crc = ls_crc32(*crc, data + at, bytes);
        ls_status status = ls_atomic_write(f, data + at, bytes);
        if (status)
            return status;
    }
    return LS_OK;
}

static ls_status write_all(ls_atomic_file *f, const ls_strbuf *header, const placed *order,
                           size_t n, const ls_st_source *first, ls_st_written *w)
{
    ls_status status = ls_atomic_write(f, header->data, header->used);
    uint64_t  at     = header->used;

    for (size_t i = 0; i < n && !status; at += order[i++].bytes) {
        size_t given = (size_t)(order[i].source - first);
        if (w) {
            w->offset[given] = at;
            w->crc[given]    = 0;
        }
        status = write_values(f, &order[i], w ? w->stop : NULL, w ? &w->crc[given] : NULL);
    }
    if (w) {
        w->header_bytes = header->used;
        w->header_crc   = ls_crc32(0, header->data, header->used);
        w->file_bytes   = at;
    }
    return status ? status : ls_atomic_commit(f);
}

static ls_status write_file(const char *path, const ls_strbuf *header, const placed *order,
                            size_t n, const ls_st_source *first, ls_st_written *written)
{
    ls_atomic_file f;
    ls_status      status = ls_atomic_begin(&f, path);

    if (!status) {
        status = write_all(&f, header, order, n, first, written);
        ls_atomic_abandon(&f);
    }
    return status;
}

ls_status ls_safetensors_write(const char *path, const ls_st_source *tensors, size_t n,
                               const ls_st_metadata *pairs, size_t n_pairs)
{
    return ls_safetensors_write_checked(path, tensors, n, pairs, n_pairs, NULL);
}

ls_status ls_safetensors_write_checked(const char *path, const ls_st_source *tensors, size_t n,
                                       const ls_st_metadata *pairs, size_t n_pairs,
                                       ls_st_written *written)
{
    if (n > LS_ST_MAX_TENSORS)
        return ls_fail(LS_EINVAL, "%s: %zu tensors, expected at most 2^20", path, n);
    ls_strbuf header = {0};
    placed   *order  = ls_calloc(n, sizeof *order);

    if (!order)
        return ls_fail_in(LS_ENOMEM, "%s", path);
    ls_status status = lay_out(tensors, n, order);
    if (!status)
        status = add_header(&header, order, n, pairs, n_pairs);
    if (status)
        ls_fail_in(status, "%s", path);
    else
        status = write_file(path, &header, order, n, tensors, written);
    ls_strbuf_free(&header);
    free(order);
    return status;
}

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
#include "checkpoint/safetensors_write_impl.h"
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

/* What was laid out, and where its values come from. */
typedef struct {
    const ls_st_source *tensors;
    const placed       *order;
    size_t              n;
    const ls_st_giver  *giver;   /* NULL: none */
    ls_st_written      *written; /* NULL: nobody asks */
} plan;

/* A file that values go into. */
typedef struct {
    ls_atomic_file    file;
    const atomic_int *stop; /* NULL: none */
    uint32_t          crc;  /* of the present tensor's values */
} sink;

static ls_status write_piece(void *to, const void *data, size_t bytes)
{
    sink *s = to;

    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        const char *piece = (const char *)data + at;
        size_t      n     = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        if (s->stop && *s->stop)
            return ls_fail(LS_EINTERRUPTED, "%s: writing was given up", s->file.path);
        s->crc           = ls_crc32(s->crc, piece, n);
        ls_status status = ls_atomic_write(&s->file, piece, n);
        if (status)
            return status;
    }
    return LS_OK;
}

static ls_status let_go(void *to, const void *data, size_t bytes)
{
    (void)to;
    (void)data;
    (void)bytes;
    return LS_OK;
}

/* The k-th of the file; `status` is how the file stands. */
static ls_status write_values(sink *f, const plan *p, size_t k, ls_status status)
{
    const ls_st_source *s = p->order[k].source;
    size_t              i = (size_t)(s - p->tensors);

    f->crc = 0;
    if (!p->giver || s->data)
        return status ? status : write_piece(f, s->data, (size_t)p->order[k].bytes);
    ls_status given = p->giver->give(p->giver->context, i, status ? let_go : write_piece, f);
    return status ? status : given;
}

/* Places and checksums, to who asks. */
static void note_header(const plan *p, const ls_strbuf *header)
{
    if (!p->written)
        return;
    p->written->header_bytes = p->written->file_bytes = header->used;
    p->written->header_crc                            = ls_crc32(0, header->data, header->used);
}

static void note_values(const plan *p, size_t k, uint32_t crc)
{
    size_t i = (size_t)(p->order[k].source - p->tensors);

    if (!p->written)
        return;
    p->written->offset[i] = p->written->file_bytes;
    p->written->crc[i]    = crc;
    p->written->file_bytes += p->order[k].bytes;
}

static ls_status write_file(const char *path, const ls_strbuf *header, const plan *p)
{
    sink      f      = {.stop = p->written ? p->written->stop : NULL};
    ls_status status = ls_atomic_begin(&f.file, path);
    bool      begun  = !status;

    if (!status)
        status = ls_atomic_write(&f.file, header->data, header->used);
    note_header(p, header);
    for (size_t k = 0; k < p->n; k++) {
        status = write_values(&f, p, k, status);
        note_values(p, k, f.crc);
    }
    if (!status)
        status = ls_atomic_commit(&f.file);
    if (begun)
        ls_atomic_abandon(&f.file);
    return status;
}

static ls_status write_tensors(const char *path, const ls_st_source *tensors, size_t n,
                               const ls_st_metadata *pairs, size_t n_pairs,
                               const ls_st_giver *giver, ls_st_written *written)
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
        status = write_file(path, &header, &(plan){tensors, order, n, giver, written});
    ls_strbuf_free(&header);
    free(order);
    return status;
}

ls_status ls_safetensors_write_given(const char *path, const ls_st_source *tensors, size_t n,
                                     const ls_st_metadata *pairs, size_t n_pairs,
                                     const ls_st_giver *giver)
{
    return write_tensors(path, tensors, n, pairs, n_pairs, giver, NULL);
}

ls_status ls__safetensors_write_checked(const char *path, const ls_st_source *tensors, size_t n,
                                        const ls_st_metadata *pairs, size_t n_pairs,
                                        ls_st_written *written)
{
    return write_tensors(path, tensors, n, pairs, n_pairs, NULL, written);
}

ls_status ls_safetensors_write(const char *path, const ls_st_source *tensors, size_t n,
                               const ls_st_metadata *pairs, size_t n_pairs)
{
    return write_tensors(path, tensors, n, pairs, n_pairs, NULL, NULL);
}

/*
 * manifest.c - the invariants of a manifest, and its text.
 */
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "core/alloc.h"
#include "core/gz.h"
#include "core/strbuf.h"

static const char *const kind_names[LS_KIND_COUNT] = {
#define X(kind, name) name,
    LS_TENSOR_KIND_MAP(X)
#undef X
};

void ls_manifest_free(ls_manifest *m)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        free(m->tensor[i].name);
    for (size_t i = 0; i < m->n_files; i++)
        free(m->file[i].name);
    free(m->tensor);
    free(m->file);
    free(m->chunk);
    free(m->strategy);
    free(m->state);
    free(m->config);
    free(m->tokenizer);
    *m = (ls_manifest){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ls_manifest_tensor *)a)->name, ((const ls_manifest_tensor *)b)->name);
}

const ls_manifest_tensor *ls_manifest_find(const ls_manifest *m, const char *name)
{
    ls_manifest_tensor key = {.name = (char *)(uintptr_t)name};

    return m->n_tensors ? bsearch(&key, m->tensor, m->n_tensors, sizeof key, by_name) : NULL;
}

/* ---- sizes ---- */

/* rows and row_bytes; the product fits, and so does every sum of chunks of it. */
static ls_status size_of(ls_manifest_tensor *t, const char *path)
{
    ls_st_name_text name;
    uint64_t        bytes;

    if (t->ndim < 0 || t->ndim > 8)
        return ls_fail(LS_EFORMAT, "%s: tensor '%s': %d dimensions, expected at most 8", path,
                       ls_st_print_name(t->name, &name), t->ndim);
    if (ls_st_bytes(ls_dtype_name(t->dtype), t->dim, t->ndim, &bytes) ||
        bytes > (uint64_t)INT64_MAX)
        return ls_fail(LS_EFORMAT, "%s: tensor '%s' has more bytes than any file", path,
                       ls_st_print_name(t->name, &name));
    t->rows      = t->ndim ? t->dim[0] : 1;
    t->row_bytes = t->rows ? bytes / t->rows : 0;
    return LS_OK;
}

/* ---- chunks of tensors ---- */

static int by_tensor(const void *a, const void *b)
{
    const ls_manifest_chunk *x = a, *y = b;

    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static ls_status bad_chunk(const ls_manifest_tensor *t, const char *path, const char *what,
                           uint64_t row)
{
    ls_st_name_text name;

    return ls_fail(LS_EFORMAT, "%s: tensor '%s': %s row %llu of %llu", path,
                   ls_st_print_name(t->name, &name), what, (unsigned long long)row,
                   (unsigned long long)t->rows);
}

/* The chunks of one tensor, sorted: no hole, no overlap, sizes as the shape says. */
static ls_status check_rows(const ls_manifest *m, const ls_manifest_tensor *t, const char *path)
{
    uint64_t at = 0, rows = t->row_bytes ? t->rows : 0; /* what is empty has no chunks */

    for (size_t i = t->first_chunk; i < t->first_chunk + t->n_chunks; i++) {
        const ls_manifest_chunk *c = &m->chunk[i];
        if (c->first != at)
            return bad_chunk(t, path, c->first > at ? "no chunk has" : "two chunks have",
                             c->first > at ? at : c->first);
        if (!c->rows || c->rows > rows - at)
            return bad_chunk(t, path, "a chunk ends beyond the last, it begins at", c->first);
        if (c->bytes != c->rows * t->row_bytes || (!m->compressed && c->stored != c->bytes))
            return bad_chunk(t, path, "another size than its shape's in the chunk at",
                             c->first);
        at += c->rows;
    }
    return at == rows ? LS_OK : bad_chunk(t, path, "no chunk has", at);
}

static ls_status check_tensors(ls_manifest *m, const char *path)
{
    ls_st_name_text name;
    size_t          at = 0;

    for (size_t i = 0; i < m->n_tensors; i++) {
        ls_manifest_tensor *t = &m->tensor[i];
        if (i && !strcmp(t[-1].name, t->name))
            return ls_fail(LS_EFORMAT, "%s: tensor '%s' is given twice", path,
                           ls_st_print_name(t->name, &name));
        for (t->first_chunk = at; at < m->n_chunks && m->chunk[at].tensor == i; at++)
            ;
        t->n_chunks      = at - t->first_chunk;
        ls_status status = check_rows(m, t, path);
        if (status)
            return status;
    }
    return LS_OK;
}

/* ---- chunks of files ---- */

static int by_place(const void *a, const void *b)
{
    const ls_manifest_chunk *x = *(const ls_manifest_chunk *const *)a,
                            *y = *(const ls_manifest_chunk *const *)b;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* A plain name, of characters that mean nothing to any shell or file system. */
static bool is_plain(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-";
    size_t            n         = strlen(name);

    return n && n <= LS_MANIFEST_MOST_NAME && name[0] != '.' && strspn(name, allowed) == n;
}

/* Chunks of file i, from *at on in the order of places, tile it. */
static ls_status check_file(const ls_manifest *m, ls_manifest_chunk *const *order, size_t *at,
                            size_t i, const char *path)
{
    const ls_manifest_file *f   = &m->file[i];
    uint64_t                end = f->header_bytes;

    for (; *at < m->n_chunks && order[*at]->file == i; ++*at) {
        const ls_manifest_chunk *c = order[*at];
        if (c->offset != end || c->stored > f->bytes - end)
            return ls_fail(LS_EFORMAT,
                           "%s: file %s: a chunk at byte %llu of %llu bytes, expected one at "
                           "byte %llu that ends by byte %llu",
                           path, f->name, (unsigned long long)c->offset,
                           (unsigned long long)c->stored, (unsigned long long)end,
                           (unsigned long long)f->bytes);
        end += c->stored;
    }
    if (end == f->bytes)
        return LS_OK;
    return ls_fail(LS_EFORMAT, "%s: file %s: its chunks end at byte %llu, it has %llu", path,
                   f->name, (unsigned long long)end, (unsigned long long)f->bytes);
}

static ls_status check_name(const ls_manifest *m, size_t i, const char *path)
{
    const ls_manifest_file *f = &m->file[i];
    ls_st_name_text         text;

    if (!is_plain(f->name))
        return ls_fail(LS_EFORMAT,
                       "%s: '%s' is not the name of a file beside it: expected letters, "
                       "digits, '.', '_' and '-' alone, and no '.' in front",
                       path, ls_st_print_name(f->name, &text));
    for (size_t k = 0; k < i; k++)
        if (!strcmp(m->file[k].name, f->name))
            return ls_fail(LS_EFORMAT, "%s: file %s is given twice", path, f->name);
    if (f->header_bytes > f->bytes || f->bytes > (uint64_t)INT64_MAX)
        return ls_fail(LS_EFORMAT, "%s: file %s: a header of %llu bytes in %llu", path, f->name,
                       (unsigned long long)f->header_bytes, (unsigned long long)f->bytes);
    return LS_OK;
}

static ls_status check_files(const ls_manifest *m, const char *path)
{
    ls_manifest_chunk **order  = ls_calloc(m->n_chunks + 1, sizeof *order);
    ls_status           status = order ? LS_OK : LS_ENOMEM;
    size_t              at     = 0;

    if (!order)
        return status;
    for (size_t i = 0; i < m->n_chunks; i++)
        order[i] = &m->chunk[i];
    qsort(order, m->n_chunks, sizeof *order, by_place);
    for (size_t i = 0; i < m->n_files && !status; i++) {
        status = check_name(m, i, path);
        if (!status)
            status = check_file(m, order, &at, i, path);
    }
    free(order);
    return status;
}

/* ---- the whole ---- */

static ls_status check_references(const ls_manifest *m, const char *path)
{
    for (size_t i = 0; i < m->n_chunks; i++)
        if (m->chunk[i].tensor >= m->n_tensors || m->chunk[i].file >= m->n_files)
            return ls_fail(LS_EFORMAT, "%s: a chunk of file %u, of %zu files", path,
                           m->chunk[i].file, m->n_files);
    return LS_OK;
}

/* A tensor's place before the sort. */
typedef struct {
    ls_manifest_tensor tensor;
    uint32_t           was;
} placed;

/* Sorts the tensors by name and renumbers the chunks. */
static ls_status sort_tensors(ls_manifest *m)
{
    placed   *order = ls_calloc(m->n_tensors + 1, sizeof *order);
    uint32_t *now   = ls_calloc(m->n_tensors + 1, sizeof *now);

    if (order && now) {
        for (size_t i = 0; i < m->n_tensors; i++)
            order[i] = (placed){m->tensor[i], (uint32_t)i};
        qsort(order, m->n_tensors, sizeof *order, by_name); /* the tensor is its first member */
        for (size_t i = 0; i < m->n_tensors; i++) {
            m->tensor[i]      = order[i].tensor;
            now[order[i].was] = (uint32_t)i;
        }
        for (size_t i = 0; i < m->n_chunks; i++)
            m->chunk[i].tensor = now[m->chunk[i].tensor];
    }
    ls_status status = order && now ? LS_OK : LS_ENOMEM;
    free(now);
    free(order);
    return status;
}

ls_status ls_manifest_check(ls_manifest *m, const char *path)
{
    ls_status status = check_references(m, path);

    for (size_t i = 0; i < m->n_tensors && !status; i++)
        status = size_of(&m->tensor[i], path);
    if (!status)
        status = sort_tensors(m);
    if (status)
        return status;
    if (m->n_chunks)
        qsort(m->chunk, m->n_chunks, sizeof *m->chunk, by_tensor);
    status = check_tensors(m, path);
    return status ? status : check_files(m, path);
}

/* ---- printing ---- */

static void add_text(ls_strbuf *t, const char *key, const char *value)
{
    ls_strbuf_format(t, ",\n\"%s\":", key);
    ls_strbuf_json(t, value, strlen(value));
}

static void add_chunk(ls_strbuf *t, const ls_manifest *m, const ls_manifest_chunk *c)
{
    ls_strbuf_format(t, "{\"file\":%u,\"first\":%llu,\"rows\":%llu,\"offset\":%llu,", c->file,
                     (unsigned long long)c->first, (unsigned long long)c->rows,
                     (unsigned long long)c->offset);
    if (m->compressed)
        ls_strbuf_format(t, "\"stored\":%llu,", (unsigned long long)c->stored);
    ls_strbuf_format(t, "\"bytes\":%llu,\"crc32\":\"%08x\"}", (unsigned long long)c->bytes,
                     c->crc);
}

static void add_tensor(ls_strbuf *t, const ls_manifest *m, const ls_manifest_tensor *e)
{
    ls_strbuf_format(t, "{\"name\":");
    ls_strbuf_json(t, e->name, strlen(e->name));
    ls_strbuf_format(t, ",\"kind\":\"%s\",\"dtype\":\"%s\",\"shape\":[", kind_names[e->kind],
                     ls_dtype_name(e->dtype));
    for (int i = 0; i < e->ndim; i++)
        ls_strbuf_format(t, "%s%llu", i ? "," : "", (unsigned long long)e->dim[i]);
    ls_strbuf_format(t, "],\"chunks\":[");
    for (size_t i = 0; i < e->n_chunks; i++) {
        if (i)
            ls_strbuf_add(t, ",", 1);
        add_chunk(t, m, &m->chunk[e->first_chunk + i]);
    }
    ls_strbuf_add(t, "]}", 2);
}

static void add_files(ls_strbuf *t, const ls_manifest *m)
{
    ls_strbuf_format(t, ",\n\"files\":[");
    for (size_t i = 0; i < m->n_files; i++) {
        const ls_manifest_file *f = &m->file[i];
        ls_strbuf_format(t,
                         "%s\n{\"name\":\"%s\",\"bytes\":%llu,\"header_bytes\":%llu,"
                         "\"header_crc32\":\"%08x\"}",
                         i ? "," : "", f->name, (unsigned long long)f->bytes,
                         (unsigned long long)f->header_bytes, f->header_crc);
    }
    ls_strbuf_add(t, "]", 1);
}

static void add_head(ls_strbuf *t, const ls_manifest *m)
{
    ls_strbuf_format(t, "{\"lockstep_checkpoint\":%d,\n\"step\":%lld,\n\"world_size\":%lld",
                     LS_MANIFEST_VERSION, (long long)m->step, (long long)m->world);
    add_text(t, "strategy", m->strategy);
    add_text(t, "codec", m->compressed ? "zlib" : "none");
    add_text(t, "state", m->state);
    add_text(t, "config", m->config);
    add_text(t, "tokenizer", m->tokenizer);
}

char *ls_manifest_print(ls_manifest *m)
{
    ls_strbuf t = {0};

    add_head(&t, m);
    add_files(&t, m);
    ls_strbuf_format(&t, ",\n\"tensors\":[");
    for (size_t i = 0; i < m->n_tensors; i++) {
        ls_strbuf_format(&t, i ? ",\n" : "\n");
        add_tensor(&t, m, &m->tensor[i]);
    }
    ls_strbuf_format(&t, "]\n");
    if (ls_strbuf_status(&t)) {
        ls_strbuf_free(&t);
        return NULL;
    }
    m->crc = ls_crc32(0, t.data, t.used);
    ls_strbuf_format(&t, ",\"crc32\":\"%08x\"}\n", m->crc);
    if (ls_strbuf_status(&t)) {
        ls_strbuf_free(&t);
        return NULL;
    }
    return t.data; /* the caller's */
}

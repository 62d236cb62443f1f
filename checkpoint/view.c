/*
 * view.c - entries out of a manifest, reads across chunks.
 */
#include "checkpoint/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/params_impl.h"
#include "core/alloc.h"

enum { PAIRS = 6 };

typedef struct {
    ls_checkpoint *checkpoint;
    char           step[24], world[24];
} view;

static ls_status read_entry(void *context, const ls_st_entry *entry, uint64_t offset,
                            void *buffer, size_t bytes)
{
    view                     *v      = context;
    const ls_manifest        *m      = &v->checkpoint->manifest;
    const ls_manifest_tensor *t      = ls_manifest_find(m, entry->name);
    char                     *out    = buffer;
    ls_status                 status = LS_OK;

    for (size_t i = t->first_chunk; i < t->first_chunk + t->n_chunks && bytes && !status; i++) {
        const ls_manifest_chunk *c     = &m->chunk[i];
        uint64_t                 begin = c->first * t->row_bytes, from = offset - begin;
        uint32_t                 crc = 0;
        if (offset < begin || from >= c->bytes)
            continue;
        size_t n = c->bytes - from < bytes ? (size_t)(c->bytes - from) : bytes;
        status   = ls_chunk_read(v->checkpoint, c, from, out, n, &crc);
        out += n;
        offset += n;
        bytes -= n;
    }
    return status;
}

static void close_view(void *context)
{
    view *v = context;

    ls_checkpoint_close(v->checkpoint);
    free(v);
}

static const ls_st_backing backing = {read_entry, close_view};

static void add_entries(const ls_manifest *m, ls_view_of what, ls_st_header *h)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const ls_manifest_tensor *t = &m->tensor[i];
        if (what == LS_VIEW_PARAMETERS && t->kind != LS_KIND_PARAMETER)
            continue;
        ls_st_entry *e = &h->entry[h->n_entries++];
        *e             = (ls_st_entry){.name  = t->name,
                                       .dtype = ls_dtype_name(t->dtype),
                                       .ndim  = t->ndim,
                                       .begin = h->data_bytes,
                                       .end   = h->data_bytes + t->rows * t->row_bytes};
        memcpy(e->dim, t->dim, sizeof e->dim);
        h->data_bytes = e->end;
    }
}

static ls_st_pair pair(const char *key, const char *value)
{
    return (ls_st_pair){key, value, strlen(key), strlen(value)};
}

/* In the order of the keys. */
static void add_pairs(view *v, ls_st_header *h)
{
    const ls_manifest *m = &v->checkpoint->manifest;

    snprintf(v->step, sizeof v->step, "%lld", (long long)m->step);
    snprintf(v->world, sizeof v->world, "%lld", (long long)m->world);
    h->pair[0] = pair("config", m->config);
    h->pair[1] = pair("state", m->state);
    h->pair[2] = pair("step", v->step);
    h->pair[3] = pair("strategy", m->strategy);
    h->pair[4] = pair("tokenizer", m->tokenizer);
    h->pair[5] = pair("world_size", v->world);
    h->n_pairs = PAIRS;
}

ls_status ls_view_new(ls_checkpoint *checkpoint, ls_view_of what, ls_safetensors **out)
{
    const ls_manifest *m = &checkpoint->manifest;
    ls_safetensors    *f = ls_calloc(1, sizeof *f);
    view              *v = ls_calloc(1, sizeof *v);

    *out = NULL;
    if (!f || !v) {
        free(f);
        free(v);
        ls_checkpoint_close(checkpoint);
        return LS_ENOMEM;
    }
    v->checkpoint   = checkpoint;
    f->fd           = -1;
    f->backing      = &backing;
    f->context      = v;
    f->path         = ls_strdup(checkpoint->path);
    f->header.entry = ls_calloc(m->n_tensors + 1, sizeof *f->header.entry);
    f->header.pair  = ls_calloc(PAIRS, sizeof *f->header.pair);
    if (!f->path || !f->header.entry || !f->header.pair) {
        ls_safetensors_close(f);
        return LS_ENOMEM;
    }
    add_entries(m, what, &f->header);
    add_pairs(v, &f->header);
    for (size_t i = 0; i < m->n_files; i++)
        f->file_bytes += m->file[i].bytes;
    *out = f;
    return LS_OK;
}

ls_checkpoint *ls_view_checkpoint(const ls_safetensors *file)
{
    return file->backing == &backing ? ((view *)file->context)->checkpoint : NULL;
}

bool ls_view_is(const ls_safetensors *file, const ls_st_entry *entry, ls_tensor_kind kind)
{
    const ls_checkpoint *c = ls_view_checkpoint(file);

    return c ? ls_manifest_find(&c->manifest, entry->name)->kind == kind
             : kind == LS_KIND_PARAMETER;
}

void ls_view_keep(ls_safetensors *file, ls_tensor_kind kind)
{
    ls_st_header *h    = &file->header;
    size_t        kept = 0;

    for (size_t i = 0; i < h->n_entries; i++)
        if (ls_view_is(file, &h->entry[i], kind))
            h->entry[kept++] = h->entry[i];
    h->n_entries = kept;
}

static bool is_kind(const void *file, const ls_st_entry *entry, int kind)
{
    return ls_view_is(file, entry, (ls_tensor_kind)kind);
}

ls_status ls_view_hashes(const ls_safetensors *file, char params[LS_SHA256_HEX],
                         char state[LS_SHA256_HEX])
{
    return ls__params_view_sha256(file, is_kind, ls_view_checkpoint(file)->manifest.step,
                                  params, state);
}

/*
 * params.c - saving and loading of named tensors.
 */
#include "checkpoint/params.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"
#include "checkpoint/params_impl.h"
#include "checkpoint/stream.h"
#include "core/alloc.h"

/* Refuses what cannot be read or written as one run of bytes. */
static ls_status check_list(const ls_named_tensor *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const ls_tensor *t = ls_tensor_owned(list[i].tensor);
        if (!t->storage || !t->storage->data)
            return ls_fail(LS_ESTATE, "tensor '%s' has no memory", list[i].name);
        if (!ls_tensor_is_contiguous(t))
            return ls_fail(LS_EINVAL, "tensor '%s' is not contiguous", list[i].name);
    }
    return LS_OK;
}

static ls_st_source source_of(const ls_named_tensor *named)
{
    const ls_tensor *t = named->tensor, *owned = ls_tensor_owned(named->tensor);
    ls_st_source     s = {.name  = named->name,
                          .dtype = ls_dtype_name(owned->dtype),
                          .ndim  = t->shape.ndim,
                          .data  = ls_tensor_is_spread(t) ? NULL : ls_tensor_data(owned)};

    for (int i = 0; i < s.ndim; i++)
        s.dim[i] = (uint64_t)t->shape.dim[i];
    return s;
}

/* Of sharded tensors the values come when they are asked for. */
static ls_status give_values(void *context, size_t i, ls_stream_take take, void *to)
{
    return ls_stream_values((const ls_named_tensor *)context + i, take, to);
}

/* What a rank does while another one writes a file of sharded tensors: the same, in order. */
static ls_status give_all(const ls_named_tensor *list, size_t n)
{
    ls_named_tensor *sorted = ls__params_sorted(list, n);
    ls_status        status = sorted ? LS_OK : LS_ENOMEM;

    for (size_t i = 0; i < n && !status; i++)
        if (!ls_stream_arrives(sorted[i].tensor))
            status = ls_stream_values(&sorted[i], NULL, NULL);
    free(sorted);
    return status;
}

ls_status ls_params_save(const char *path, const ls_named_tensor *list, size_t n,
                         const ls_st_metadata *pairs, size_t n_pairs)
{
    char      hex[LS_SHA256_HEX];
    ls_status status = ls_params_sha256(list, n, hex);

    if (status)
        return ls_fail_in(status, "%s", path ? path : "another rank's file");
    if (!path)
        return give_all(list, n);
    ls_st_source   *sources = ls_calloc(n, sizeof *sources);
    ls_st_metadata *all     = ls_calloc(n_pairs + 1, sizeof *all);
    if (!sources || !all) {
        status = ls_fail_in(LS_ENOMEM, "%s", path);
        goto out_free;
    }
    for (size_t i = 0; i < n; i++)
        sources[i] = source_of(&list[i]);
    all[0] = (ls_st_metadata){LS_PARAMS_SHA256_KEY, hex};
    for (size_t i = 0; i < n_pairs; i++)
        all[i + 1] = pairs[i];
    status = ls_safetensors_write_given(path, sources, n, all, n_pairs + 1,
                                        &(ls_st_giver){give_values, (void *)list});
out_free:
    free(all);
    free(sources);
    return status;
}

/* A file that carries its hash is read once for it before anything is changed. */
static ls_status check_values(const ls_safetensors *file)
{
    char      hex[LS_SHA256_HEX];
    ls_status status;

    if (!ls_safetensors_metadata(file, LS_PARAMS_SHA256_KEY))
        return LS_OK;
    status = ls_params_file_sha256(file, hex);
    return status ? status : ls_params_file_check(file, hex);
}

static ls_status read_all(const ls_safetensors *file, const ls_named_tensor *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const ls_tensor *t = ls_tensor_owned(list[i].tensor);
        uint64_t         first =
            (uint64_t)ls_tensor_owned_first(list[i].tensor) * ls_dtype_bytes(t->dtype);
        ls_status status = ls_safetensors_read(file, ls_safetensors_find(file, list[i].name),
                                               first, ls_tensor_data(t), ls_tensor_bytes(t));
        if (status)
            return status;
    }
    return LS_OK;
}

ls_status ls_params_load_open(const ls_safetensors *file, const ls_named_tensor *list, size_t n)
{
    ls_status status = check_list(list, n);

    if (status)
        return ls_fail_in(status, "%s", file->path);
    status = ls__params_match(file, list, n);
    if (!status)
        status = check_values(file);
    return status ? status : read_all(file, list, n);
}

ls_status ls_params_load(const char *path, const ls_named_tensor *list, size_t n)
{
    ls_safetensors *file;
    ls_status       status = check_list(list, n);

    if (status)
        return ls_fail_in(status, "%s", path);
    status = ls_safetensors_open(path, &file);
    if (!status)
        status = ls_params_load_open(file, list, n);
    ls_safetensors_close(file);
    return status;
}

typedef struct {
    ls_sha256 sha;
    ls_status status; /* the first failure; later calls do nothing */
} hash;

static void add(hash *h, const void *data, size_t bytes)
{
    if (!h->status)
        h->status = ls_sha256_update(&h->sha, data, bytes);
}

static ls_status add_block(void *context, const void *data, size_t bytes)
{
    add(context, data, bytes);
    return ((hash *)context)->status;
}

/* What stands in front of a tensor's values. */
static void add_head(hash *h, const char *name, const char *dtype, const uint64_t *dim,
                     int ndim)
{
    add(h, name, strlen(name) + 1);
    add(h, dtype, strlen(dtype) + 1);
    add(h, dim, (size_t)ndim * sizeof *dim);
}

static ls_status finish(hash *h, char hex[LS_SHA256_HEX])
{
    if (!h->status)
        return ls_sha256_final(&h->sha, hex);
    ls_sha256_close(&h->sha);
    return h->status;
}

/* Tensors in the bytewise order of their names. */
static void add_list(hash *h, const ls_named_tensor *list, size_t n)
{
    ls_named_tensor *sorted = h->status ? NULL : ls__params_sorted(list, n);

    if (!sorted) {
        h->status = h->status ? h->status : LS_ENOMEM;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        ls_st_source s = source_of(&sorted[i]);
        add_head(h, s.name, s.dtype, s.dim, s.ndim);
        ls_status status = ls_stream_values(&sorted[i], add_block, h);
        h->status        = h->status ? h->status : status;
    }
    free(sorted);
}

ls_status ls_params_sha256(const ls_named_tensor *list, size_t n, char hex[LS_SHA256_HEX])
{
    hash      h;
    ls_status status = check_list(list, n);

    if (status)
        return status;
    h.status = ls_sha256_init(&h.sha);
    add_list(&h, list, n);
    return finish(&h, hex);
}

ls_status ls_state_sha256(const ls_training_state *s, char hex[LS_SHA256_HEX])
{
    hash      h;
    ls_status status = check_list(s->parameters, s->n_parameters);

    if (!status)
        status = check_list(s->optimizer, s->n_optimizer);
    if (status)
        return status;
    h.status = ls_sha256_init(&h.sha);
    add_list(&h, s->parameters, s->n_parameters);
    add_list(&h, s->optimizer, s->n_optimizer);
    add_head(&h, "step", "I64", NULL, 0);
    add(&h, &s->step, sizeof s->step);
    return finish(&h, hex);
}

enum { BUFFER_BYTES = 1 << 20 };

static void add_file_values(hash *h, const ls_safetensors *file, const ls_st_entry *e,
                            void *buffer)
{
    uint64_t bytes = e->end - e->begin;

    for (uint64_t at = 0; at < bytes && !h->status;) {
        size_t step = bytes - at < BUFFER_BYTES ? (size_t)(bytes - at) : BUFFER_BYTES;
        h->status   = ls_safetensors_read(file, e, at, buffer, step);
        add(h, buffer, step);
        at += step;
    }
}

/* Entries of one kind (NULL: all). */
static void add_entries(hash *h, const ls_safetensors                          *file,
                        bool (*is)(const void *, const ls_st_entry *, int), int kind,
                        void *buffer)
{
    for (size_t i = 0; i < file->header.n_entries; i++) {
        const ls_st_entry *e = &file->header.entry[i];
        if (is && !is(file, e, kind))
            continue;
        add_head(h, e->name, e->dtype, e->dim, e->ndim);
        add_file_values(h, file, e, buffer);
    }
}

ls_status ls_params_file_sha256(const ls_safetensors *file, char hex[LS_SHA256_HEX])
{
    void *buffer = ls_mem_alloc(BUFFER_BYTES, LS_MEM_OTHER);
    hash  h;

    if (!buffer)
        return ls_fail_in(LS_ENOMEM, "%s", file->path);
    h.status = ls_sha256_init(&h.sha);
    add_entries(&h, file, NULL, 0, buffer);
    ls_mem_free(buffer, BUFFER_BYTES, LS_MEM_OTHER);
    return finish(&h, hex);
}

ls_status ls__params_view_sha256(const ls_safetensors *file,
                                 bool (*is)(const void *, const ls_st_entry *, int),
                                 int64_t step, char params[LS_SHA256_HEX],
                                 char state[LS_SHA256_HEX])
{
    void *buffer = ls_mem_alloc(BUFFER_BYTES, LS_MEM_OTHER);
    hash  h;

    if (!buffer)
        return ls_fail_in(LS_ENOMEM, "%s", file->path);
    h.status = ls_sha256_init(&h.sha);
    add_entries(&h, file, is, LS_KIND_PARAMETER, buffer);
    ls_status status = finish(&h, params);
    h.status         = status ? status : ls_sha256_init(&h.sha);
    add_entries(&h, file, is, LS_KIND_PARAMETER, buffer);
    add_entries(&h, file, is, LS_KIND_OPTIMIZER, buffer);
    add_head(&h, "step", "I64", NULL, 0);
    add(&h, &step, sizeof step);
    ls_mem_free(buffer, BUFFER_BYTES, LS_MEM_OTHER);
    return finish(&h, state);
}

ls_status ls_params_file_check(const ls_safetensors *file, const char *hex)
{
    const char     *wanted = ls_safetensors_metadata(file, LS_PARAMS_SHA256_KEY);
    ls_st_name_text text;

    if (!wanted || !strcmp(wanted, hex))
        return LS_OK;
    return ls_fail(
        LS_EFORMAT,
        "%s: damaged, or edited with the old metadata: its tensors have params_sha256 %s, "
        "its metadata says %s",
        file->path, hex, ls_st_print_name(wanted, &text));
}

/*
 * tensor.c - shapes, storages and headers.
 */
#include "core/tensor.h"

#include <stdio.h>
#include <string.h>

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static ls_status bad_shape(const ls_shape *shape, ls_dtype dtype, const char *what)
{
    ls_shape_text text;

    return ls_fail(LS_ESHAPE, "a tensor %s of %s %s", ls_shape_print(shape, &text),
                   ls_dtype_name(dtype), what);
}

ls_status ls_shape_check(const ls_shape *shape, ls_dtype dtype)
{
    if ((unsigned)dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_EINVAL, "%d is not a dtype", (int)dtype);
    if (shape->ndim < 0 || shape->ndim > LS_MAX_DIMS)
        return ls_fail(LS_ESHAPE, "a tensor of %d dimensions, want 0 to %d", shape->ndim,
                       LS_MAX_DIMS);
    int64_t bytes = (int64_t)ls_dtype_bytes(dtype);
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0)
            return bad_shape(shape, dtype, "has a negative dimension");
        bytes = times(bytes, shape->dim[i] ? shape->dim[i] : 1);
    }
    return bytes > LS_MAX_BYTES ? bad_shape(shape, dtype, "is too large for any memory")
                                : LS_OK;
}

int64_t ls_shape_numel(const ls_shape *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->ndim; i++)
        n = times(n, shape->dim[i]);
    return n;
}

bool ls_shape_equal(const ls_shape *a, const ls_shape *b)
{
    return a->ndim == b->ndim && !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

const char *ls_shape_print(const ls_shape *shape, ls_shape_text *buffer)
{
    char *p = buffer->text, *end = p + sizeof buffer->text;

    p += snprintf(p, (size_t)(end - p), "(");
    for (int i = 0; i < shape->ndim; i++)
        p += snprintf(p, (size_t)(end - p), "%s%lld", i ? "," : "", (long long)shape->dim[i]);
    snprintf(p, (size_t)(end - p), ")");
    return buffer->text;
}

void ls_shape_strides(const ls_shape *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int i = shape->ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step      = times(step, shape->dim[i]);
    }
}

ls_storage *ls_storage_new(size_t bytes, ls_mem_category category)
{
    ls_storage *s = ls_mem_alloc(sizeof *s, LS_MEM_OTHER);
    if (!s)
        return NULL;
    *s      = (ls_storage){.refs = 1, .bytes = bytes, .category = category};
    s->data = ls_mem_alloc(bytes, category);
    if (!s->data) {
        ls_mem_free(s, sizeof *s, LS_MEM_OTHER);
        return NULL;
    }
    return s;
}

ls_storage *ls_storage_view(void *data, size_t bytes, ls_mem_category category)
{
    ls_storage *s = ls_mem_alloc(sizeof *s, LS_MEM_OTHER);

    if (s)
        *s = (ls_storage){
            .refs = 1, .bytes = bytes, .category = category, .data = data, .is_view = true};
    return s;
}

ls_storage *ls_storage_retain(ls_storage *storage)
{
    storage->refs++;
    return storage;
}

void ls_storage_release(ls_storage *storage)
{
    if (!storage || --storage->refs > 0)
        return;
    if (!storage->is_view)
        ls_mem_free(storage->data, storage->bytes, storage->category);
    ls_mem_free(storage, sizeof *storage, LS_MEM_OTHER);
}

int64_t ls_tensor_numel(const ls_tensor *t)
{
    return ls_shape_numel(&t->shape);
}

size_t ls_tensor_bytes(const ls_tensor *t)
{
    return (size_t)ls_tensor_numel(t) * ls_dtype_bytes(t->dtype);
}

void *ls_tensor_data(const ls_tensor *t)
{
    return (char *)t->storage->data + (size_t)t->offset * ls_dtype_bytes(t->dtype);
}

bool ls_tensor_is_contiguous(const ls_tensor *t)
{
    int64_t step = 1;
    for (int i = t->shape.ndim - 1; i >= 0; i--) {
        if (t->shape.dim[i] != 1 && t->stride[i] != step)
            return false;
        step *= t->shape.dim[i];
    }
    return true;
}

ls_tensor ls_tensor_header(ls_dtype dtype, ls_shape shape)
{
    ls_tensor t = {.shape = shape, .dtype = dtype};
    ls_shape_strides(&shape, t.stride);
    return t;
}

ls_status ls_tensor_materialize(ls_tensor *t, ls_mem_category category)
{
    ls_status status = ls_shape_check(&t->shape, t->dtype);
    if (status)
        return status;
    t->storage = ls_storage_new(ls_tensor_bytes(t), category);
    return t->storage ? LS_OK : LS_ENOMEM;
}

ls_tensor *ls_tensor_owned(ls_tensor *t)
{
    return t->shard ? &t->shard->rows : t;
}

int64_t ls_tensor_rows(const ls_tensor *t)
{
    return t->shape.ndim ? t->shape.dim[0] : 1;
}

int64_t ls_tensor_row_elements(const ls_tensor *t)
{
    int64_t rows = ls_tensor_rows(t);

    return rows ? ls_tensor_numel(t) / rows : 0;
}

size_t ls_tensor_grad_bytes(const ls_tensor *t)
{
    return (size_t)ls_tensor_numel(t) * sizeof(ls_real);
}

int64_t ls_tensor_owned_first(const ls_tensor *t)
{
    return t->shard ? t->shard->first * ls_tensor_row_elements(t) : 0;
}

void ls_tensor_drop(ls_tensor *t)
{
    ls_storage_release(t->storage);
    t->storage = NULL;
    ls_tensor_zero_grad(t);
}

ls_real *ls_tensor_grad(const ls_tensor *t)
{
    return t->grad ? t->grad->data : NULL;
}

void ls_tensor_zero_grad(ls_tensor *t)
{
    ls_storage_release(t->grad);
    t->grad = NULL;
}

double ls_item(const ls_tensor *t)
{
    return t->is_wide ? t->wide : (double)ls_reals(t)[0];
}

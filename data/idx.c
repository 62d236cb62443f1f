/*
 * idx.c - MNIST's format: 0, 0, type, number of dimensions, these as big-endian 32-bit numbers,
 * then the values (http://yann.lecun.com/exdb/mnist).  Of the types the unsigned byte alone.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "core/alloc.h"
#include "data/table_impl.h"

enum { UNSIGNED_BYTE = 8, MOST_DIMS = 8 };

typedef struct {
    const char    *path;
    ls_bytes       file;
    int            dims;
    int64_t        rows, each; /* the first dimension, the product of the others */
    const uint8_t *value;
} idx;

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static ls_status check_head(const idx *x)
{
    const unsigned char *p = x->file.data;

    if (x->file.size < 8 || p[0] || p[1])
        return ls_fail(LS_EFORMAT, "%s: not an idx file: it does not begin with two zero bytes",
                       x->path);
    if (p[2] != UNSIGNED_BYTE)
        return ls_fail(
            LS_EUNSUPPORTED,
            "%s: values of type 0x%02x are not in this version, wanted 0x08 (unsigned "
            "bytes)",
            x->path, p[2]);
    if (p[3] < 1 || p[3] > MOST_DIMS || x->file.size < 4 + 4 * (size_t)p[3])
        return ls_fail(LS_EFORMAT, "%s: %d dimensions in %zu bytes, wanted 1 to %d", x->path,
                       p[3], x->file.size, (int)MOST_DIMS);
    return LS_OK;
}

static ls_status read_idx(const char *path, idx *x)
{
    *x               = (idx){.path = path, .each = 1};
    ls_status status = ls_gz_read_file(path, &x->file);

    if (!status)
        status = check_head(x);
    if (status)
        return status;
    size_t head = 4 + 4 * (size_t)x->file.data[3], values = x->file.size - head;
    bool   fits = true;
    x->dims     = x->file.data[3];
    x->rows     = load_u32(x->file.data + 4);
    x->value    = x->file.data + head;
    for (int i = 1; i < x->dims; i++)
        fits = fits &&
               !__builtin_mul_overflow(x->each, load_u32(x->file.data + 4 + 4 * i), &x->each);
    int64_t product;
    if (!fits || __builtin_mul_overflow(x->rows, x->each, &product) ||
        product != (int64_t)values)
        return ls_fail(LS_EFORMAT,
                       "%s: %zu bytes of values, its header says %" PRId64 " of %" PRId64
                       " each",
                       path, values, x->rows, x->each);
    return LS_OK;
}

static ls_status check_pair(const idx *images, const idx *labels, ls_table_shape shape)
{
    if (images->dims < 2)
        return ls_fail(LS_EFORMAT, "%s: one dimension; the images come first, then the labels",
                       images->path);
    if (labels->dims != 1)
        return ls_fail(LS_EFORMAT, "%s: %d dimensions, labels have one", labels->path,
                       labels->dims);
    if (images->each != shape.features)
        return ls_fail(LS_ECONFIG,
                       "%s: images of %" PRId64 " values, model.sizes begins with %" PRId64,
                       images->path, images->each, shape.features);
    if (images->rows != labels->rows || !labels->rows)
        return ls_fail(LS_EFORMAT, "%s: %" PRId64 " images, %s: %" PRId64 " labels",
                       images->path, images->rows, labels->path, labels->rows);
    return LS_OK;
}

static ls_status take_labels(const idx *labels, int32_t classes, int32_t *out)
{
    for (int64_t i = 0; i < labels->rows; i++) {
        out[i] = labels->value[i];
        if (out[i] >= classes)
            return ls_fail(LS_ECONFIG,
                           "%s: label %" PRId32 " at row %" PRId64
                           " (from 0), model.sizes ends with %" PRId32 " classes",
                           labels->path, out[i], i, classes);
    }
    return LS_OK;
}

/* The images' file becomes the table's memory. */
static ls_status join(idx *images, const idx *labels, ls_table_shape shape, ls_table *table)
{
    size_t   bytes = (size_t)labels->rows * sizeof(int32_t);
    int32_t *label = ls_mem_alloc(bytes, LS_MEM_OTHER);

    if (!label)
        return LS_ENOMEM;
    *table       = (ls_table){.rows     = images->rows,
                              .features = images->each,
                              .byte     = images->value,
                              .label    = label,
                              .memory   = {images->file.data, label},
                              .owned    = {images->file.capacity, bytes}};
    images->file = (ls_bytes){0};
    return take_labels(labels, shape.classes, label);
}

ls_status ls__idx_load(ls_paths paths, ls_table_shape shape, ls_table *table)
{
    idx images = {0}, labels = {0};

    if (paths.count != 2)
        return ls_fail(LS_ECONFIG, "%d file%s, data.format \"idx\" needs two: [images, labels]",
                       paths.count, paths.count == 1 ? "" : "s");
    ls_status status = read_idx(paths.path[0], &images);
    if (!status)
        status = read_idx(paths.path[1], &labels);
    if (!status)
        status = check_pair(&images, &labels, shape);
    if (!status)
        status = join(&images, &labels, shape, table);
    ls_bytes_free(&images.file);
    ls_bytes_free(&labels.file);
    return status;
}

/*
 * shard.c - see shard.h.
 */
#include "dist/shard.h"

#include <stdlib.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

ls_rows ls_shard_rows(int64_t rows, int rank, int size)
{
    int64_t chunk = rows / size + (rows % size != 0);
    int64_t first = smaller(rank * chunk, rows);

    return (ls_rows){first, smaller(chunk, rows - first)};
}

ls_shard ls_shard_header(const ls_tensor *t, ls_comm *group)
{
    ls_rows  own   = ls_shard_rows(ls_tensor_rows(t), ls_comm_rank(group), ls_comm_size(group));
    ls_shape shape = t->shape;

    if (shape.ndim)
        shape.dim[0] = own.count;
    else if (!own.count)
        shape = LS_SHAPE1(0);
    return (ls_shard){ls_tensor_header(t->dtype, shape), own.first, group};
}

/* Rank r's rows of every parameter. */
static void fill_list(ls_shard_layout *l, const ls_named_tensor *parameters, int r, int size,
                      ls_slice_segment *segments)
{
    l->slices[r].segments = segments;
    for (int i = 0; i < l->n; i++) {
        const ls_tensor *t   = parameters[i].tensor;
        int64_t          row = ls_tensor_row_elements(t);
        ls_rows          own = ls_shard_rows(ls_tensor_rows(t), r, size);
        if (own.count && row)
            segments[l->slices[r].n++] =
                (ls_slice_segment){l->offset[i] + own.first * row, own.count * row};
    }
}

ls_status ls_shard_layout_init(ls_shard_layout *l, const ls_named_tensor *parameters, int n,
                               int rank, int size)
{
    *l          = (ls_shard_layout){.n = n};
    l->offset   = ls_calloc((size_t)n + 1, sizeof *l->offset);
    l->packed   = ls_calloc((size_t)n + 1, sizeof *l->packed);
    l->slices   = ls_calloc((size_t)size, sizeof *l->slices);
    l->segments = ls_calloc((size_t)n * (size_t)size + 1, sizeof *l->segments);
    if (!l->offset || !l->packed || !l->slices || !l->segments)
        return LS_ENOMEM;
    for (int i = 0; i < n; i++) {
        const ls_tensor *t = parameters[i].tensor;
        l->offset[i]       = l->count;
        l->packed[i]       = l->owned;
        l->count += ls_tensor_numel(t);
        l->owned +=
            ls_shard_rows(ls_tensor_rows(t), rank, size).count * ls_tensor_row_elements(t);
    }
    for (int r = 0; r < size; r++)
        fill_list(l, parameters, r, size, l->segments + (int64_t)r * n);
    return LS_OK;
}

void ls_shard_layout_close(ls_shard_layout *l)
{
    free(l->offset);
    free(l->packed);
    free(l->slices);
    free(l->segments);
    *l = (ls_shard_layout){0};
}

/*
 * rows.c - see rows.h.
 */
#include "checkpoint/rows.h"

uint64_t ls_rows_of(const ls_tensor *t)
{
    return t->shape.ndim ? (uint64_t)t->shape.dim[0] : 1;
}

uint64_t ls_row_bytes_of(const ls_tensor *t)
{
    uint64_t rows = ls_rows_of(t);

    return rows ? (uint64_t)ls_shape_numel(&t->shape) / rows * ls_dtype_bytes(t->dtype) : 0;
}

static ls_row_range held_by_shard(const ls_shard *shard)
{
    return (ls_row_range){(uint64_t)shard->first, ls_rows_of(&shard->rows)};
}

ls_row_range ls_rows_share(const ls_tensor *t, int rank, int size)
{
    if (t->shard)
        return held_by_shard(t->shard);
    uint64_t rows = ls_rows_of(t), each = (rows + (uint64_t)size - 1) / (uint64_t)size;
    uint64_t first = each * (uint64_t)rank;
    if (first >= rows)
        return (ls_row_range){rows, 0};
    return (ls_row_range){first, rows - first < each ? rows - first : each};
}

char *ls_rows_at(const ls_tensor *t, uint64_t row)
{
    const ls_tensor *held  = t->shard ? &t->shard->rows : t;
    uint64_t         first = t->shard ? (uint64_t)t->shard->first : 0;

    return (char *)ls_tensor_data(held) + (row - first) * ls_row_bytes_of(t);
}

ls_status ls_rows_check(const ls_stored_tensor *t)
{
    const ls_tensor *held = t->tensor->shard ? &t->tensor->shard->rows : t->tensor;

    if (!ls_tensor_numel(held))
        return LS_OK;
    if (!held->storage || !held->storage->data)
        return ls_fail(LS_ESTATE, "tensor '%s' has no memory", t->name);
    if (!ls_tensor_is_contiguous(held))
        return ls_fail(LS_EINVAL, "tensor '%s' is not contiguous", t->name);
    return LS_OK;
}

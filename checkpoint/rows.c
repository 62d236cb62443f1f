/*
 * rows.c - see rows.h.
 */
#include "checkpoint/rows.h"

#include "dist/shard.h"

uint64_t ls_rows_of(const ls_tensor *t)
{
    return (uint64_t)ls_tensor_rows(t);
}

ls_dtype ls_rows_dtype(const ls_tensor *t)
{
    return t->shard ? t->shard->rows.dtype : t->dtype;
}

uint64_t ls_row_bytes_of(const ls_tensor *t)
{
    return ls_rows_of(t)
               ? (uint64_t)ls_tensor_row_elements(t) * ls_dtype_bytes(ls_rows_dtype(t))
               : 0;
}

ls_row_range ls_rows_share(const ls_tensor *t, int rank, int size)
{
    if (ls_tensor_is_spread(t))
        return (ls_row_range){(uint64_t)t->shard->first, ls_rows_of(&t->shard->rows)};
    ls_rows rows = ls_shard_rows(ls_tensor_rows(t), rank, size);
    return (ls_row_range){(uint64_t)rows.first, (uint64_t)rows.count};
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

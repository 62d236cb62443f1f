/*
 * stream.c - see stream.h.
 */
#include "checkpoint/stream.h"

#include "dist/comm/comm.h"
#include "dist/shard.h"

enum { BLOCK_BYTES = 1 << 20 };

bool ls_stream_arrives(const ls_tensor *t)
{
    return !ls_tensor_is_spread(t) || ls_comm_rank(t->shard->group) == 0;
}

/* Rank `owner`'s block on its way to `take` of rank 0. */
static ls_status pass_block(ls_comm *comm, int owner, const void *own, void *buffer, int64_t n,
                            ls_dtype dtype, const void **at)
{
    int me = ls_comm_rank(comm);

    *at = own;
    if (owner == 0)
        return LS_OK;
    if (me == owner)
        return ls_comm_send(comm, own, n, dtype, 0);
    *at = buffer;
    return me == 0 ? ls_comm_recv(comm, buffer, n, dtype, owner) : LS_OK;
}

typedef struct {
    ls_stream_take take;
    void          *context;
    ls_status      failed; /* of take; the blocks to come are let go by */
} receiver;

static ls_status stream_rows(const ls_tensor *t, int owner, void *buffer, receiver *r)
{
    ls_comm    *comm  = t->shard->group;
    ls_dtype    dtype = t->shard->rows.dtype;
    size_t      size  = ls_dtype_bytes(dtype);
    ls_rows     rows  = ls_shard_rows(ls_tensor_rows(t), owner, ls_comm_size(comm));
    int64_t     n = rows.count * ls_tensor_row_elements(t), block = BLOCK_BYTES / (int64_t)size;
    int         me     = ls_comm_rank(comm);
    const char *own    = me == owner && n ? ls_tensor_data(&t->shard->rows) : NULL;
    ls_status   status = LS_OK;

    for (int64_t i = 0; i < n && !status; i += block) {
        int64_t     step = n - i < block ? n - i : block;
        const void *at   = own ? own + (size_t)i * size : NULL;
        status           = pass_block(comm, owner, at, buffer, step, dtype, &at);
        if (!status && !me && !r->failed)
            r->failed = r->take(r->context, at, (size_t)step * size);
    }
    return status;
}

ls_status ls_stream_values(const ls_named_tensor *named, ls_stream_take take, void *context)
{
    const ls_tensor *t = named->tensor;
    receiver         r = {take, context, LS_OK};

    if (!ls_tensor_is_spread(t)) {
        const ls_tensor *all = ls_tensor_owned(named->tensor);
        return take(context, ls_tensor_data(all), ls_tensor_bytes(all));
    }
    void     *buffer = ls_mem_alloc(BLOCK_BYTES, LS_MEM_OTHER);
    ls_status status = buffer ? LS_OK : LS_ENOMEM;
    if (!buffer)
        ls_comm_abort(t->shard->group, ls_error_message());
    for (int owner = 0; owner < ls_comm_size(t->shard->group) && !status; owner++)
        status = stream_rows(t, owner, buffer, &r);
    ls_mem_free(buffer, BLOCK_BYTES, LS_MEM_OTHER);
    return status ? ls_fail_in(status, "tensor '%s'", named->name) : r.failed;
}

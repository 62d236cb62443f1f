/*
 * comm_calls.c - the operations by name: each fills in an ls_call.
 */
#include "dist/comm/comm.h"

ls_status ls_comm_barrier(ls_comm *comm)
{
    return ls_comm_run(comm, &(ls_call){.kind = LS_BARRIER});
}

ls_status ls_comm_broadcast(ls_comm *comm, void *out, int64_t count, ls_dtype dtype, int root)
{
    return ls_comm_run(
        comm,
        &(ls_call){
            .kind = LS_BROADCAST, .out = out, .count = count, .dtype = dtype, .root = root});
}

ls_status ls_comm_reduce(ls_comm *comm, void *out, const void *in, int64_t count,
                         ls_dtype dtype, ls_reduce_op op, int root)
{
    return ls_comm_run(comm, &(ls_call){.kind  = LS_REDUCE,
                                        .in    = in,
                                        .out   = out,
                                        .count = count,
                                        .dtype = dtype,
                                        .op    = op,
                                        .root  = root});
}

ls_status ls_comm_all_reduce(ls_comm *comm, void *out, const void *in, int64_t count,
                             ls_dtype dtype, ls_reduce_op op)
{
    return ls_comm_run(comm, &(ls_call){.kind  = LS_ALL_REDUCE,
                                        .in    = in,
                                        .out   = out,
                                        .count = count,
                                        .dtype = dtype,
                                        .op    = op});
}

ls_status ls_comm_all_gather(ls_comm *comm, void *out, const void *in, int64_t count,
                             ls_dtype dtype)
{
    return ls_comm_run(
        comm, &(ls_call){
                  .kind = LS_ALL_GATHER, .in = in, .out = out, .count = count, .dtype = dtype});
}

ls_status ls_comm_reduce_scatter(ls_comm *comm, void *out, const void *in, int64_t count,
                                 ls_dtype dtype, ls_reduce_op op)
{
    return ls_comm_run(comm, &(ls_call){.kind  = LS_REDUCE_SCATTER,
                                        .in    = in,
                                        .out   = out,
                                        .count = count,
                                        .dtype = dtype,
                                        .op    = op});
}

ls_status ls_comm_gather(ls_comm *comm, void *out, const void *in, int64_t count,
                         ls_dtype dtype, int root)
{
    return ls_comm_run(comm, &(ls_call){.kind  = LS_GATHER,
                                        .in    = in,
                                        .out   = out,
                                        .count = count,
                                        .dtype = dtype,
                                        .root  = root});
}

ls_status ls_comm_scatter(ls_comm *comm, void *out, const void *in, int64_t count,
                          ls_dtype dtype, int root)
{
    return ls_comm_run(comm, &(ls_call){.kind  = LS_SCATTER,
                                        .in    = in,
                                        .out   = out,
                                        .count = count,
                                        .dtype = dtype,
                                        .root  = root});
}

ls_status ls_comm_all_to_all(ls_comm *comm, void *out, const void *in, int64_t count,
                             ls_dtype dtype)
{
    return ls_comm_run(
        comm, &(ls_call){
                  .kind = LS_ALL_TO_ALL, .in = in, .out = out, .count = count, .dtype = dtype});
}

ls_status ls_comm_send(ls_comm *comm, const void *in, int64_t count, ls_dtype dtype, int peer)
{
    return ls_comm_run(
        comm,
        &(ls_call){.kind = LS_SEND, .in = in, .count = count, .dtype = dtype, .root = peer});
}

ls_status ls_comm_recv(ls_comm *comm, void *out, int64_t count, ls_dtype dtype, int peer)
{
    return ls_comm_run(
        comm,
        &(ls_call){.kind = LS_RECV, .out = out, .count = count, .dtype = dtype, .root = peer});
}

/*
 * comm_share.c - one block of memory for all ranks of a group, where they share memory.
 */
#include "dist/comm/comm_impl.h"
#include "dist/comm/space.h"

ls_status ls_comm_share(ls_comm *comm, void *block, size_t bytes, int owner, void **here)
{
    ls_space *space = comm->home->space;
    int64_t   place = 0;
    uint8_t   reached;

    *here = NULL;
    if (!comm->transport->meet) /* for all members alike */
        return ls_comm_check(comm);
    if (comm->rank == owner)
        place = (int64_t)space->ops->place(space, block, bytes);
    ls_status status = ls_comm_broadcast(comm, &place, 1, LS_I64, owner);
    if (status)
        return status;
    if (comm->rank == owner)
        *here = block;
    else if (place)
        *here = space->ops->address(space, comm->members[owner], (uint64_t)place, bytes);
    reached = place && *here;
    status  = ls_comm_all_reduce(comm, &reached, &reached, 1, LS_U8, LS_MIN);
    if (status || !reached)
        *here = NULL;
    return status;
}

/*
 * mpi_all_reduce.c - Open MPI's (or any MPI's) collectives under collective_peer.h.
 *
 *     mpirun -n N mpi_all_reduce check DIR | bench SIZES [REPEATS]
 */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#include "collective_peer.h"

static bool barrier(void *context)
{
    (void)context;
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool all_reduce(void *context, float *out, const float *in, size_t count)
{
    (void)context;
    return count <= INT_MAX && MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, (int)count,
                                             MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool all_gather(void *context, float *out, const float *in, size_t count)
{
    (void)context;
    return count <= INT_MAX && MPI_Allgather(in, (int)count, MPI_FLOAT, out, (int)count,
                                             MPI_FLOAT, MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool broadcast(void *context, float *out, size_t count, int root)
{
    (void)context;
    return count <= INT_MAX &&
           MPI_Bcast(out, (int)count, MPI_FLOAT, root, MPI_COMM_WORLD) == MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    collective_peer peer = {.name       = "mpi",
                            .detail     = "",
                            .barrier    = barrier,
                            .all_reduce = all_reduce,
                            .all_gather = all_gather,
                            .broadcast  = broadcast};
    bool            ok;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.n);
    ok = collective_run(&peer, argc - 1, argv + 1);
    if (!ok)
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    MPI_Finalize();
    return EXIT_SUCCESS;
}

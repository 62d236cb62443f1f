/*
 * transport_mpi_none.c - transport_mpi.h in a build without MPI.
 */
#include "dist/comm/transport_mpi.h"

static ls_status no_mpi(void)
{
    return ls_fail(LS_EUNSUPPORTED, "this build has no MPI: configure with -DLS_MPI=ON");
}

ls_status ls_mpi_start(int *rank, int *world)
{
    (void)rank;
    (void)world;
    return no_mpi();
}

void ls_mpi_end(void)
{
}

ls_status ls_transport_mpi(const int *members, int rank, int size, int tag, int64_t largest,
                           ls_transport **t)
{
    (void)members;
    (void)rank;
    (void)size;
    (void)tag;
    (void)largest;
    (void)t;
    return no_mpi();
}

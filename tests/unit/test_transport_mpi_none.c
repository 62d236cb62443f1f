/*
 * test_transport_mpi_none.c - a build without MPI says so and how to get one.
 */
#include "dist/comm/transport_mpi.h"
#include "test.h"

int main(void)
{
    int           rank, world, member = 0;
    ls_transport *t;

    TEST_ROW("no MPI");
    CHECK_FAILS(ls_mpi_start(&rank, &world), LS_EUNSUPPORTED, "-DLS_MPI=ON");
    CHECK_FAILS(ls_transport_mpi(&member, 0, 1, 0, 0, &t), LS_EUNSUPPORTED, "-DLS_MPI=ON");
    ls_mpi_end();
    return test_summary("transport_mpi_none");
}

/*
 * transport_mpi.h - a group over MPI point-to-point messages (optional: built with LS_MPI).
 *
 * MPI is a process-wide thing: the first join initialises it (unless the program has), and the
 * end of the process finalises it.  Groups of ours are not MPI communicators: they share one
 * duplicate of MPI_COMM_WORLD and differ by tag, so nothing here is collective but the start.
 */
#ifndef LS_DIST_COMM_TRANSPORT_MPI_H
#define LS_DIST_COMM_TRANSPORT_MPI_H

#include "dist/comm/transport.h"

/* Starts MPI where it is not; this process's rank and the number of ranks.  EUNSUPPORTED in a
 * build without MPI. */
LS_MUST_CHECK ls_status ls_mpi_start(int *rank, int *world);

/* Finalises it if ls_mpi_start() initialised it.  A program calls it once, at its end. */
void ls_mpi_end(void);

/*
 * members[size]: MPI ranks, copied.  tag: of this group, different from other groups' that
 * share two or more members. largest: bytes of one MPI message; longer ones go in pieces (0:
 * INT_MAX; a test gives less).
 */
LS_MUST_CHECK ls_status ls_transport_mpi(const int *members, int rank, int size, int tag,
                                         int64_t largest, ls_transport **t);

#endif

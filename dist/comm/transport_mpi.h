/*
 * transport_mpi.h - a group over MPI point-to-point messages (optional: built with LS_MPI).
 *
 * MPI is a process-wide thing: the first join initialises it (unless the program has), and the
 * end of the process finalises it.  Groups of ours are not MPI communicators: they share one
 * duplicate of MPI_COMM_WORLD and differ by tag, so nothing here is collective but the first
 * start and the end.
 *
 * MPI tells nobody that a group was closed or that a process is gone: peers that still wait
 * learn it from the guard, or run into their deadline.
 */
#ifndef LS_DIST_COMM_TRANSPORT_MPI_H
#define LS_DIST_COMM_TRANSPORT_MPI_H

#include "dist/comm/transport.h"

/*
 * Starts MPI where it is not; this process's rank and the number of ranks.  All processes call
 * it (the first time; later calls are local).  EUNSUPPORTED in a build without MPI, ESTATE when
 * MPI has been finalised: it cannot start twice.
 */
LS_MUST_CHECK ls_status ls_mpi_start(int *rank, int *world);

/*
 * Finalises it if ls_mpi_start() initialised it.  A program calls it once, at its end, in all
 * processes and after all groups are closed.
 */
void ls_mpi_end(void);

/*
 * members[size]: MPI ranks, all different, copied.  tag: of this group, different from other
 * groups' that share two or more members, also from those of groups that failed: what was on
 * its way in them may still arrive.  largest: bytes of one MPI message, the same on all
 * members; longer ones go in pieces (0: 1 MiB; a test gives less).  EINVAL names what MPI or
 * the group does not have.
 *
 * Closed in the middle of an exchange, the transport gives MPI a tenth of a second to let go of
 * the caller's buffers: those of a transfer that a peer then still takes part in should not be
 * used again.
 */
LS_MUST_CHECK ls_status ls_transport_mpi(const int *members, int rank, int size, int tag,
                                         int64_t largest, ls_transport **t);

#endif

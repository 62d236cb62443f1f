/*
 * rendezvous.h - how the ranks of a job find each other.
 *
 * A launcher tells each process its number by environment variables (torchrun's, Open MPI's,
 * MPICH's, Slurm's); from these the processes meet, prove to each other that they belong
 * together, and end up with one connected socket for each pair: what ls_join() needs.
 *
 *     one host, no secret   an abstract Unix socket named by user, port, run id and restart
 *                           count; both ends check the other's user (SO_PEERCRED)
 *     else                  TCP to MASTER_ADDR:MASTER_PORT, and LOCKSTEP_SECRET proved in both
 *                           directions by a keyed hash before anything else is read
 *
 * Rank 0 listens, on the given address only, hands each rank the table of all, and stops
 * listening when all have joined.  Pairs on one host are connected by Unix sockets (they may
 * pass memory), others by TCP.
 */
#ifndef LS_DIST_COMM_RENDEZVOUS_H
#define LS_DIST_COMM_RENDEZVOUS_H

#include "dist/comm/join.h"

/* What the environment says of this process. */
typedef struct {
    int         rank, world;
    int         local_rank, local_world; /* on this host; -1: the launcher does not say */
    char        master[256];             /* MASTER_ADDR; "" where there is none */
    int         port;        /* LOCKSTEP_PORT, else MASTER_PORT; 0 where there is none */
    char        run_id[128]; /* of the job: two jobs never meet */
    int         restart;     /* count of the launcher's restarts */
    bool        store;    /* the launcher itself listens on `port`: rank 0 takes a later one */
    const char *launcher; /* "lockstep", "torchrun", "Open MPI", "MPICH", "Slurm",
                             "environment", "none" */
} ls_launch_env;

/*
 * Reads it.  Without any launcher: rank 0 of a world of 1.  RANK and WORLD_SIZE win over what
 * MPI and Slurm say, and MPI over Slurm.  ECONFIG names the variable that is missing,
 * malformed, or does not fit another.
 */
LS_MUST_CHECK ls_status ls_launch_env_read(ls_launch_env *env);

typedef struct {
    const char *interface; /* to be reached at: a name ("eth0"), an address of this host, or
                              "^lo,docker": any but those whose names start so; NULL: the one
                              that routes to the master */
    int         ports[2];  /* first and last port to listen on; 0: any */
    double      timeout_s; /* for all to arrive; 0: 60 */
} ls_rendezvous_opts;

/*
 * Meets the others.  sockets[world] (own entry -1) are the caller's afterwards; in failure
 * there are none.  address: where this rank is reached by TCP, numeric; "" where all ranks are
 * on this host.  Errors name ranks, addresses, ports, and what to do; ETIMEOUT names the ranks
 * that did not come.
 */
LS_MUST_CHECK ls_status ls_rendezvous(const ls_launch_env *env, const ls_rendezvous_opts *opts,
                                      int *sockets, char address[64]);

/*
 * All of it: environment, rendezvous, ls_join().  rank, world, control and board of opts are
 * filled in here (the board from LOCKSTEP_BOARD_FD, freed with the world), address, ports and
 * meet's time where they are zero.  meet NULL: all defaults.  A world of 1 meets nobody.
 * backend "mpi", and "auto" under mpirun over several hosts in a build with MPI, meet through
 * MPI instead.
 */
LS_MUST_CHECK ls_status ls_world_join(const ls_join_opts *opts, const ls_rendezvous_opts *meet,
                                      ls_comm **world);

#endif

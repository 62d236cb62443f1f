/*
 * launch.h - the launcher: starts a program as the ranks of a job on this host, and ends them
 * together.
 *
 * Sets torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK,
 * MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID is not set; LOCKSTEP_RUN_ID, LOCKSTEP_RESTART,
 * LOCKSTEP_SECRET, LOCKSTEP_LISTEN_FD for rank 0 (a socket that listens already),
 * LOCKSTEP_BOARD_FD (board.h)).
 */
#ifndef LS_DIST_COMM_LAUNCH_H
#define LS_DIST_COMM_LAUNCH_H

#include <stdio.h>

#include "dist/comm/board.h"

/* Zero is the default of every member but n and argv. */
typedef struct {
    int          n;           /* ranks on this host */
    int          nodes, node; /* of how many hosts, and which of them this is; 0 nodes: 1 */
    const char  *rendezvous;  /* HOST:PORT of node 0; NULL: loopback, a free port */
    int          max_restarts;
    int          min_n;     /* smallest n to restart with; 0: n */
    char *const *argv;      /* program and arguments, NULL at the end */
    FILE        *out, *err; /* where the ranks' lines go; NULL: this process's own */
    bool         plain; /* lines of rank 0 without prefix, as `lockstep train --nproc` needs */
} ls_launch_opts;

/*
 * Runs the job to its end; *exit_status is what the launcher should exit with: the first
 * failing rank's status, 128 + signal when a signal ended it.  Fails only where nothing could
 * be started.
 */
LS_MUST_CHECK ls_status ls_launch(const ls_launch_opts *opts, int *exit_status);

#endif

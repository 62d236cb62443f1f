/*
 * launch.h - the launcher: starts a program as the ranks of a job on this host, and ends them
 * together.
 *
 *     launcher ─┬─ rank 0    each the leader of a process group of its own
 *               ├─ rank 1    stdout, stderr: pipes to the launcher; stdin: rank 0's alone
 *               └─ ...
 *
 * Environment.  Torchrun's variables: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
 * GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; and LOCKSTEP_RUN_ID,
 * LOCKSTEP_RESTART (0, then one more for every start), LOCKSTEP_SECRET (as exported, else
 * random), LOCKSTEP_BOARD_FD (board.h), and for rank 0 LOCKSTEP_LISTEN_FD, a socket that
 * listens on MASTER_ADDR:LOCKSTEP_PORT already, so that nobody can take the port.  MASTER_PORT
 * is left to the program: PyTorch's store may listen there.  What other
 * launchers say of ranks (OMPI_*, PMI*, SLURM_PROCID and its like, TORCHELASTIC_*) is taken
 * away; everything else stays.
 *
 * Output.  Lines come out whole, `[rank] ` in front, stdout as stdout and stderr as stderr,
 * byte for byte.  A last line without newline gets one; a line above 4 MiB comes in pieces, a
 * line each.  Where the launcher's own output cannot be written any more (closed pipe, full
 * disk) the job goes on and the rest is thrown away; a loss of stdout makes an exit status of
 * 0 a 1.  A reader that is slow slows the ranks down, as without a launcher.
 *
 * stdin.  Rank 0 of node 0 inherits it, the others have /dev/null.  From a terminal the
 * launcher reads and passes on, as the ranks are background jobs to it.
 *
 * Ends.  The first rank that fails (status not 0, or a signal) ends the job: after 0.25 s, in
 * which the others may notice and say so, SIGTERM to every group, SIGKILL 2 s later.  A rank
 * that exits 0 leaves the others running.  What a rank left behind in its process group is
 * ended in the same way when all ranks have ended.  SIGINT, SIGTERM and SIGHUP are passed on
 * once, and the ranks have the time they want; the second SIGINT or SIGTERM (more than 20 ms
 * later) kills at once.  After such a signal what the ranks left behind has 30 s.  SIGUSR1,
 * SIGUSR2, SIGTSTP and SIGCONT are passed on; SIGHUP and SIGTSTP that the caller ignored stay
 * so.
 *
 * Ranks die with the launcher, however that died; a guardian process kills their groups.  It
 * is no child of the launcher.  Only a process that left its rank's group (setsid) lives on.
 */
#ifndef LS_DIST_COMM_LAUNCH_H
#define LS_DIST_COMM_LAUNCH_H

#include <stdio.h>

#include "dist/comm/board.h"

enum { LS_LAUNCH_MOST = 4096 }; /* ranks on a host */

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
 * Runs the job to its end; *exit_status is what the launcher should exit with: 0 when all
 * ranks ended with it, else the first failing rank's status, 128 + signal when a signal ended
 * it; 128 + signal also for the one that was passed on, unless all ranks ended with 0.  The
 * failure is printed on `err` as one line `lockstep: error: rank 2 (pid 123) ...`, the last
 * one, after the flight recorder of a rank that was killed.  `plain`: a rank that exited by
 * itself has said why, and the line is not printed.
 *
 * A failure starts the job again up to max_restarts times, on a new port and board; status 3
 * ("this world size does not fit") with the next smaller n down to min_n, which is no restart
 * that counts, and without min_n it is the end.  A rank that was killed is taken for lost: the
 * restart has one rank less, down to min_n.
 *
 * Fails where nothing could be started: ECONFIG for wrong options, a program that is not
 * there or cannot be executed, several nodes without LOCKSTEP_SECRET; EIO with the system's
 * reason.  One job at a time in a process (ESTATE): signals are a process's.  Call it from the
 * main thread: ranks die when the calling thread ends.
 */
LS_MUST_CHECK ls_status ls_launch(const ls_launch_opts *opts, int *exit_status);

#endif

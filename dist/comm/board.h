/*
 * board.h - the job's board: memory that the parent of all ranks on a host shares with them.
 *
 *     ls_board = [ header | slot of rank 0 | slot of rank 1 | ... ]
 *     slot     = [ how it ended | flight recorder ]
 *
 * The parent (a launcher, a test) makes it before it starts the ranks, hands the file
 * descriptor down, and publishes there how each rank ended as it reaps it; ranks write their
 * flight recorder into it, so that it outlives them.  It is a memfd: no name, nothing to leak.
 */
#ifndef LS_DIST_COMM_BOARD_H
#define LS_DIST_COMM_BOARD_H

#include "core/error.h"
#include "dist/comm/recorder.h"

typedef struct ls_board ls_board;

/*
 * A new board for `world` ranks; its descriptor is ls_board_fd(), close-on-exec, and closed by
 * ls_board_free.  EINVAL for no ranks, EIO with the system's reason.
 */
LS_MUST_CHECK ls_status ls_board_new(int world, ls_board **board);

/* Maps the board behind fd (borrowed).  EINVAL where it is not one, or of another version. */
LS_MUST_CHECK ls_status ls_board_open(int fd, ls_board **board);
void                    ls_board_free(ls_board *board); /* NULL is allowed */

int ls_board_fd(const ls_board *board);
int ls_board_world(const ls_board *board);

/* The recorder of a rank, inside the board. */
ls_recorder *ls_board_recorder(ls_board *board, int rank);

/* The parent: rank ended with this status of waitpid(). */
void ls_board_ended(ls_board *board, int rank, int wait_status);

/* How rank ended: true and the status of waitpid() once the parent has published it. */
bool ls_board_how_ended(const ls_board *board, int rank, int *wait_status);

#endif

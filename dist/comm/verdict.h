/*
 * verdict.h - one failure for all ranks of a group.
 */
#ifndef LS_DIST_COMM_VERDICT_H
#define LS_DIST_COMM_VERDICT_H

#include "dist/comm/comm.h"

/*
 * Over all ranks: the failure of the lowest rank that has one becomes everybody's, with its
 * text, behind "rank R: " unless it is the failure of all.  LS_OK where none has.  Without a
 * group (NULL) it is this process's own.
 */
LS_MUST_CHECK ls_status ls_comm_agree(ls_comm *comm, ls_status own);

#endif

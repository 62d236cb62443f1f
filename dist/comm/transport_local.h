/*
 * transport_local.h - a group whose ranks share memory: "threads" and "shm".
 */
#ifndef LS_DIST_COMM_TRANSPORT_LOCAL_H
#define LS_DIST_COMM_TRANSPORT_LOCAL_H

#include "dist/comm/meet.h"
#include "dist/comm/space.h"
#include "dist/comm/transport.h"

/* This rank's control block of a group of `size`, `users` of whom can reach it.  NULL: ENOMEM.
 */
void *ls_local_block_new(ls_space *space, int size, int users);

typedef struct {
    ls_space  *space;   /* borrowed */
    const int *members; /* [size] world ranks, copied */
    void      *block;   /* this rank's, taken, in failure too */
    const uint64_t
        *places; /* [size] of all members' blocks; 0: shares no memory with this rank */
    int  rank, size;
} ls_local_opts;

/* `meet` is there when all members share the space; else only exchanges with those who do. */
LS_MUST_CHECK ls_status ls_transport_local(const ls_local_opts *opts, ls_transport **t);

#endif

/*
 * local_world.h - a world on this host, made by the program itself: N ranks without a launcher.
 *
 *     static ls_status body(ls_comm *world, void *context) { return ls_comm_barrier(world); }
 *
 *     status = ls_local_world(&(ls_local_opts){.n = 4}, body, NULL);
 *
 * The ranks are children of this process (threads of it under the backend "threads"), joined by
 * socket pairs: no port, no name, no file.
 */
#ifndef LS_DIST_COMM_LOCAL_WORLD_H
#define LS_DIST_COMM_LOCAL_WORLD_H

#include "dist/comm/join.h"

/* What a rank does.  The world is borrowed; a failure's ls_error_message() is passed on. */
typedef ls_status (*ls_local_body)(ls_comm *world, void *context);

typedef struct {
    int          n;
    ls_join_opts join; /* rank, world, control and board are filled in */
} ls_local_opts;

/*
 * Runs body as ranks 0 .. n-1 and waits for them all.  LS_OK when every body returned that;
 * else the failure of the first rank that ended with one: "rank 2: ...", or the signal that
 * ended it.  A rank that has not ended ten seconds (or join.timeout_s, if less) after a failure
 * is killed, and ranks die with this process.
 *
 * A child flushes its streams and leaves by _exit(): what this process registered with atexit()
 * does not run there.  Call it while this process has one thread of its own, as fork() wants
 * it.
 */
LS_MUST_CHECK ls_status ls_local_world(const ls_local_opts *opts, ls_local_body body,
                                       void *context);

#endif

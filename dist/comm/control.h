/*
 * control.h - the control connections of a rank: one stream socket to each peer of the world.
 *
 *     rank 0 ──┬── rank 1        before start():   hellos, file descriptors (blocking)
 *              ├── rank 2        after start():    notices, questions and answers, goodbyes,
 *              └── rank 3                          handled by one watch thread per rank
 *
 * The watch thread sleeps in poll().  The end of a connection without a goodbye is a death: it
 * fails every group that holds the peer with the text "rank 2 (pid 123, host h) was killed by
 * signal 9 (Killed) during all_reduce #17 ..." when the job's board (board.h) tells how it
 * ended, else
 * "... is gone: connection closed".  It answers questions also while this rank computes, so a
 * peer that does not answer is stopped, and one that answers but has not come is late.
 */
#ifndef LS_DIST_COMM_CONTROL_H
#define LS_DIST_COMM_CONTROL_H

#include "dist/comm/board.h"
#include "dist/comm/guard.h"

/* What ranks tell each other at the join, fixed size. */
typedef struct {
    uint64_t version; /* LS_HELLO_VERSION */
    int64_t  pid;
    char     host[64]; /* host name, for texts */
    char identity[96]; /* of the memory that it can share: boot id and namespace, or an override
                        */
    char config[64];   /* what must be the same on all ranks, hashed or as text */
    char fingerprint[128]; /* of machine and libraries (rule 7), "" where not compared */
    uint64_t token[2];     /* random; who connects to this rank must show it */
    char address[64]; /* numeric, where this rank listens for data connections; "" where not */
    uint32_t port;
    uint32_t failed; /* it cannot take part, and says so before it leaves */
    uint64_t place;  /* of the group's shared control block */
} ls_hello;

enum { LS_HELLO_VERSION = 1 };

/*
 * Takes the sockets ([world], connected, Unix or TCP; own entry ignored), also on failure.
 * The board is borrowed, or NULL.
 */
LS_MUST_CHECK ls_status ls_control_new(int rank, int world, const int *sockets, ls_board *board,
                                       ls_control **control);

/* Sends mine to all and receives theirs into all[world] (own entry set), by the deadline
 * (ls_now_ns).  ETIMEOUT and EPEER name the rank. */
LS_MUST_CHECK ls_status ls_control_hello(ls_control *control, const ls_hello *mine,
                                         ls_hello *all, int64_t deadline);

/* The same with one open file descriptor, over Unix sockets: mine (borrowed) goes to every peer
 * with wanted[peer]; fds[peer] is theirs, or -1 where not wanted or where the socket cannot
 * carry it. */
LS_MUST_CHECK ls_status ls_control_pass(ls_control *control, int mine, const bool *wanted,
                                        int *fds, int64_t deadline);

/*
 * Starts the watch thread.  failed(context, text), may be NULL, is told of every failure of a
 * group once (one that ends several groups once for all of them), from that thread or from the
 * one that found it, with no lock held.  It may not call ls_control_free().
 */
LS_MUST_CHECK ls_status ls_control_start(ls_control *control,
                                         void (*failed)(void *context, const char *text),
                                         void *context);

/* The hello of a peer, after ls_control_hello. */
const ls_hello *ls_control_peer(const ls_control *control, int rank);
/* The local address of the connection to a peer: numeric TCP, or "" for a Unix socket. */
const char     *ls_control_address(const ls_control *control, int peer, char text[64]);

/* Its socket, to see the end of it, not to read from it; -1: own entry. */
int ls_control_socket(const ls_control *control, int peer);

int ls_control_rank(const ls_control *control);
int ls_control_world(const ls_control *control);

/*
 * Ends the watch thread, says goodbye, closes the sockets.  All guards are freed by then.  In a
 * child of fork() it frees the memory and closes the child's copies; peers notice nothing.
 */
void ls_control_free(ls_control *control); /* NULL is allowed */

#endif

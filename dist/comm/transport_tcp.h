/*
 * transport_tcp.h - a group over TCP: one connection to each peer.
 */
#ifndef LS_DIST_COMM_TRANSPORT_TCP_H
#define LS_DIST_COMM_TRANSPORT_TCP_H

#include "dist/comm/transport.h"

/* A socket that listens. */
typedef struct {
    int      fd;          /* -1: none */
    char     address[64]; /* numeric, as given */
    uint32_t port;
} ls_tcp_listener;

/* Listens on a numeric address (IPv4 or IPv6), on a free port of first..last (0, 0: any).  The
 * message names the address, the ports and the system's reason. */
LS_MUST_CHECK ls_status ls_tcp_listen(const char *address, int first, int last,
                                      ls_tcp_listener *listener);
void                    ls_tcp_listener_close(ls_tcp_listener *listener);

/* Where a member of the group listens, and what a connection must show to be let in. */
typedef struct {
    char     address[64];
    uint32_t port;
    uint64_t token[2]; /* random, chosen by the member that listens; travels over the control
                          connections */
    bool     needed;   /* a connection is wanted; the same on both sides */
    int      control;  /* a socket whose end is that of the rank, borrowed; 0: none */
} ls_tcp_peer;

/*
 * Connects the group `id`: the higher rank of a pair connects to the lower one, shows its
 * token, and waits to be let in; strangers are dropped.  Takes the listener's socket, in
 * failure too, and closes it when all are there; its fd is -1 where no higher rank is needed.
 * peers[size]; the own entry holds this rank's token.  ETIMEOUT names the missing rank, its
 * address and the last reason; EPEER the one whose control connection has ended.
 *
 * Closed in a child of fork() it lets go of the child's copies; the parent's group goes on.
 */
LS_MUST_CHECK ls_status ls_transport_tcp(ls_tcp_listener *listener, uint64_t id, int rank,
                                         int size, const ls_tcp_peer *peers, int64_t deadline,
                                         ls_transport **t);

#endif

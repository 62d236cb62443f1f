/*
 * tcp_impl.h - what the parts of the TCP transport share.
 *
 *     tcp_listen.c      addresses, sockets that listen
 *     tcp_connect.c     the mesh: who dials whom, and who is let in
 *     transport_tcp.c   messages over the connections of the mesh
 */
#ifndef LS_DIST_COMM_TCP_IMPL_H
#define LS_DIST_COMM_TCP_IMPL_H

#include <sys/socket.h>

#include "dist/comm/transport_tcp.h"

typedef struct {
    struct sockaddr_storage at;
    socklen_t               length;
} ls__tcp_address;

enum { LS__TCP_NAME = 80 };

/* "10.0.0.1:80" or "[::1]:80" into text; returns text. */
const char *ls__tcp_name(char text[LS__TCP_NAME], const char *address, uint32_t port);

/* EINVAL where address is not numeric or port is above 65535. */
LS_MUST_CHECK ls_status ls__tcp_resolve(const char *address, uint32_t port,
                                        ls__tcp_address *to);

/* A non-blocking socket, closed on exec, that sends at once, as do those that it accepts; -1
 * and errno. */
int ls__tcp_socket(int family);

/* Buffers for a connection that has been made. */
void ls__tcp_tune(int fd);

/* What a group has to find: see ls_transport_tcp(). */
typedef struct {
    const ls_tcp_listener *listener;
    uint64_t               id;
    int                    rank, size;
    const ls_tcp_peer     *peers;
    int64_t                deadline;
} ls__tcp_group;

/*
 * Connects the group: fds[r] becomes the connection to rank r where peers[r] is needed.  fds[]
 * comes with -1 throughout; on failure those that are not -1 are still to be closed.
 */
LS_MUST_CHECK ls_status ls__tcp_connect(const ls__tcp_group *group, int *fds);

#endif

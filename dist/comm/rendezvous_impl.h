/*
 * rendezvous_impl.h - what the files of the rendezvous share.
 *
 *     rendezvous.c         which way, and the order of things
 *     rendezvous_host.c    rank 0: lets in who proves itself, hands out the table
 *     rendezvous_listen.c  where rank 0 listens
 *     rendezvous_guest.c   the others: find rank 0
 *     rendezvous_pairs.c   everybody connects to everybody
 *     handshake.c          messages and proofs
 *     address.c            this host's addresses
 */
#ifndef LS_DIST_COMM_RENDEZVOUS_IMPL_H
#define LS_DIST_COMM_RENDEZVOUS_IMPL_H

#include <errno.h>
#include <sys/un.h>

#include "dist/comm/address_impl.h"
#include "dist/comm/handshake_impl.h"
#include "dist/comm/rendezvous.h"

#define LS__MS INT64_C(1000000)
#define LS__SECOND (1000 * LS__MS)

enum { LS__STORE_PORTS = 32 }; /* behind MASTER_PORT, where the launcher has that itself */

/* One process at one meeting. */
typedef struct {
    const ls_launch_env      *env;
    const ls_rendezvous_opts *opts;
    const char               *secret;   /* "" where there is none */
    bool                      one_host; /* the launcher says so */
    bool                      by_unix;  /* so ranks meet on a Unix socket */
    double                    timeout_s;
    int64_t                   deadline;
    char                      place[160]; /* where rank 0 is, for texts */
    ls__whereabouts           mine;
    int                       near;  /* listens for ranks of this host, -1: none */
    ls_tcp_listener           far;   /* ... for those of others */
    ls__whereabouts          *table; /* [world] */
    unsigned char            *ways;  /* [world] those who have come to `near` */
    int                      *sockets;
} ls__meeting;

/* ---- rendezvous.c ---- */

/* Where a Unix rendezvous is. */
socklen_t ls__meeting_unix(const ls_launch_env *env, struct sockaddr_un *at);

/* The Unix socket of a rank. */
socklen_t ls__whereabouts_unix(const ls__whereabouts *at, struct sockaddr_un *un);

/* Listens for the ranks of other hosts, if there may be any, at what `interface` and the route
 * (numeric) make this rank's address. */
LS_MUST_CHECK ls_status ls__meeting_listen(ls__meeting *m, const char *route);

/* The other end belongs to this user. */
bool ls__same_user(int fd);

/* A Unix socket, non-blocking, closed on exec; -1 and errno. */
int ls__unix_socket(void);

/* Not before `due`, and no more than a second: for poll(). */
int ls__milliseconds_to(int64_t due);

static inline bool ls__would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* Bytes on their way over one connection: up to three pieces out, one in. */
typedef struct {
    int fd; /* -1: none */
    struct {
        const void *data;
        size_t      bytes;
    } out[3];
    void  *in;
    size_t in_bytes;
    size_t sent, got;
} ls__flow;

/*
 * Moves all of them, in one poll loop.  EPEER (the end of a connection) and ETIMEOUT put the
 * index of a flow that is not complete into *which.
 */
LS_MUST_CHECK ls_status ls__flows(ls__flow *flows, int n, int64_t deadline, int *which);

/* ---- the others ---- */

/* Rank 0's socket, and the numeric address at which it is reached; "" for a Unix socket. */
LS_MUST_CHECK ls_status ls__host_listen(ls__meeting *m, int *listener, char route[64]);

LS_MUST_CHECK ls_status ls__host_meet(ls__meeting *m);
LS_MUST_CHECK ls_status ls__guest_meet(ls__meeting *m);

/* Connects to lower ranks of this host; tried[r] = 1 where that worked. */
LS_MUST_CHECK ls_status ls__pairs_try(ls__meeting *m, unsigned char *tried);

/* Takes in those who came, and connects to the rest. */
LS_MUST_CHECK ls_status ls__pairs_finish(ls__meeting *m);

#endif

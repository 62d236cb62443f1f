#define _GNU_SOURCE /* accept4 */
/*
 * rendezvous_pairs.c - everybody connects to everybody, the higher rank of a pair to the lower.
 *
 * Ranks of one host by abstract Unix sockets, whose names the table tells: connect() succeeds
 * at once or not at all, before anybody accepts.  So all try, rank 0 learns what worked and
 * tells each rank which higher ones stand in its queue; the pairs that are left (other hosts,
 * other network namespaces of this one) go by TCP (tcp_connect.c).
 *
 * Who stands in the queue has sent its note before that.  One without a note is a stranger.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/rendezvous_impl.h"

/* What the connecting rank shows: the token of the other one. */
typedef struct {
    uint64_t magic, token[2];
    uint32_t from, to;
} note;

_Static_assert(sizeof(note) == 32, "no padding on the wire");

static note note_of(const ls__meeting *m, int from, int to)
{
    note n = {.magic = LS__HANDSHAKE_MAGIC, .from = (uint32_t)from, .to = (uint32_t)to};

    memcpy(n.token, m->table[to].token, sizeof n.token);
    return n;
}

/* ---- higher to lower ---- */

/* A queue that is full empties when its owner comes to it; a second is long for that. */
static int dial(const struct sockaddr_un *at, socklen_t length)
{
    int fd = ls__unix_socket();

    for (int i = 0; fd >= 0 && i < 100; i++) {
        if (!connect(fd, (const struct sockaddr *)at, length))
            return fd;
        if (errno != EAGAIN && errno != EINTR)
            break;
        ls_sleep_ns(10 * LS__MS);
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool try_one(ls__meeting *m, int rank)
{
    struct sockaddr_un at;
    note               n      = note_of(m, m->env->rank, rank);
    socklen_t          length = ls__whereabouts_unix(&m->table[rank], &at);
    int                fd     = dial(&at, length);

    if (fd < 0)
        return false;
    if (!ls__same_user(fd) || send(fd, &n, sizeof n, MSG_NOSIGNAL) != (ssize_t)sizeof n) {
        close(fd);
        return false;
    }
    m->sockets[rank] = fd;
    return true;
}

ls_status ls__pairs_try(ls__meeting *m, unsigned char *tried)
{
    int me = m->env->rank;

    for (int r = 0; r < m->env->world; r++) {
        m->table[r].identity[sizeof m->table[r].identity - 1] = '\0';
        m->table[r].address[sizeof m->table[r].address - 1]   = '\0';
    }
    for (int r = 0; r < me; r++)
        if (!strcmp(m->table[r].identity, m->table[me].identity))
            tried[r] = try_one(m, r);
    return LS_OK;
}

/* ---- lower from higher ---- */

/* The rank that shows its note; -1: a stranger. */
static int who_is_it(const ls__meeting *m, int fd)
{
    note n;

    if (!ls__same_user(fd) || recv(fd, &n, sizeof n, MSG_DONTWAIT) != (ssize_t)sizeof n)
        return -1;
    bool known = n.from > (uint32_t)m->env->rank && n.from < (uint32_t)m->env->world;
    int  from  = known ? (int)n.from : m->env->rank;
    note due   = note_of(m, from, m->env->rank);
    return ls__same_secret(&n, &due, sizeof(note)) && known && m->ways[from] &&
                   m->sockets[from] < 0
               ? from
               : -1;
}

static ls_status take_one(ls__meeting *m, int *left)
{
    struct pollfd p  = {m->near, POLLIN, 0};
    int           fd = accept4(m->near, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0 && ls__would_block(errno)) {
        (void)poll(&p, 1, ls__milliseconds_to(m->deadline));
        return LS_OK;
    }
    if (fd < 0 && errno != ECONNABORTED)
        return ls_fail(LS_EIO, "rank %d: no connection from a rank of this host: %s",
                       m->env->rank, strerror(errno));
    int from = fd < 0 ? -1 : who_is_it(m, fd);
    if (from >= 0) {
        m->sockets[from] = fd;
        --*left;
    } else if (fd >= 0) {
        close(fd);
    }
    return LS_OK;
}

static ls_status take_in(ls__meeting *m)
{
    int left = 0;

    for (int r = m->env->rank + 1; r < m->env->world; r++)
        left += m->ways[r] == 1;
    while (left) {
        if (ls_now_ns() >= m->deadline)
            return ls_fail(LS_ETIMEOUT, "rank %d: %d ranks of this host have not come",
                           m->env->rank, left);
        ls_status status = take_one(m, &left);
        if (status)
            return status;
    }
    return LS_OK;
}

/* ---- the rest ---- */

static ls_status check_reach(const ls__meeting *m, int rank)
{
    int lower = rank < m->env->rank ? rank : m->env->rank;

    if (m->table[lower].address[0])
        return LS_OK;
    return ls_fail(LS_EPEER,
                   "rank %d and rank %d are said to be on one host, but do not reach each "
                   "other's Unix sockets: other containers? Then LOCAL_WORLD_SIZE must say so, "
                   "and LOCKSTEP_SECRET is needed",
                   m->env->rank, rank);
}

static ls_status connect_far(ls__meeting *m)
{
    int          world = m->env->world, wanted = 0;
    ls_tcp_peer *peers  = ls_calloc((size_t)world, sizeof *peers);
    ls_status    status = peers ? LS_OK : LS_ENOMEM;

    for (int r = 0; r < world && !status; r++) {
        const ls__whereabouts *at = &m->table[r];
        peers[r]                  = (ls_tcp_peer){.port = at->port};
        memcpy(peers[r].address, at->address, sizeof peers[r].address);
        memcpy(peers[r].token, at->token, sizeof peers[r].token);
        peers[r].needed = r != m->env->rank && m->sockets[r] < 0;
        wanted += peers[r].needed;
        if (peers[r].needed)
            status = check_reach(m, r);
    }
    ls__tcp_group group = {&m->far, m->table[0].name[0], m->env->rank, world,
                           peers,   m->deadline};
    if (!status && wanted)
        status = ls__tcp_connect(&group, m->sockets);
    free(peers);
    return status;
}

ls_status ls__pairs_finish(ls__meeting *m)
{
    ls_status status = take_in(m);

    return status ? status : connect_far(m);
}

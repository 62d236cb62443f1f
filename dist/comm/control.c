#define _GNU_SOURCE /* SO_DOMAIN, SO_PASSCRED, eventfd: Linux's own */
/*
 * control.c - control connections: made, written to, freed.
 *
 * Every call on a socket is non-blocking, so it does not matter how the sockets came.  A stream
 * must not lose half a frame: what the kernel did not take of one stays in ls__peer.out and
 * goes first; the watch thread waits for room (POLLOUT).  A frame that finds such a rest is
 * given up: the peer has then not read its socket for hundreds of frames, that is, it is
 * stopped.
 */
#include "dist/comm/control.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/control_impl.h"

enum { GOODBYE_MS = 100 };

bool ls__control_mine(const ls_control *c)
{
    return getpid() == c->creator;
}

void ls__text_copy(char to[LS_GUARD_TEXT], const char *from)
{
    size_t n = 0;

    for (; n < LS_GUARD_TEXT - 1 && from[n]; n++)
        to[n] = (unsigned char)from[n] < ' ' || from[n] == 127 ? ' ' : from[n];
    memset(to + n, 0, LS_GUARD_TEXT - n);
}

bool ls__peer_flush(ls__peer *p)
{
    while (p->unsent) {
        const char *rest = (const char *)&p->out + sizeof p->out - p->unsent;
        ssize_t     n    = send(p->fd, rest, p->unsent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            p->unsent = 0; /* the connection is gone */
        if (n < 0)
            break;
        p->unsent -= (size_t)n;
    }
    return !p->unsent;
}

/* Under the peer's lock; false when its end remains to be sent. */
static bool send_frame(ls__peer *p, const ls__frame *frame)
{
    if (!ls__peer_flush(p))
        return true; /* given up; who waits for room is waiting already */
    p->out    = *frame;
    p->unsent = sizeof p->out;
    if (!ls__peer_flush(p) && p->unsent == sizeof p->out)
        p->unsent = 0;
    return !p->unsent;
}

void ls__control_send(ls_control *c, int peer, const ls__frame *frame)
{
    ls__peer *p = &c->peer[peer];

    if (p->fd < 0 || atomic_load(&p->left))
        return;
    pthread_mutex_lock(&p->lock);
    bool whole = send_frame(p, frame);
    pthread_mutex_unlock(&p->lock);
    if (!whole)
        ls__control_wake(c);
}

void ls__control_wake(ls_control *c)
{
    uint64_t one = 1;

    while (write(c->event, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

const char *ls__control_name(const ls_control *c, int rank, char *text, size_t size)
{
    const ls_hello *h = &c->hello[rank];

    if (h->version)
        snprintf(text, size, "rank %d (pid %lld, host %s)", rank, (long long)h->pid, h->host);
    else
        snprintf(text, size, "rank %d", rank);
    return text;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

void ls__control_report(ls_control *c, const char *text)
{
    uint64_t hash  = hash_text(text);
    bool     known = false;

    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < LS__REPORTED; i++)
        known = known || c->reported[i] == hash;
    if (!known)
        c->reported[c->next_reported++ % LS__REPORTED] = hash;
    void (*failed)(void *, const char *) = known ? NULL : c->failed;
    pthread_mutex_unlock(&c->lock);
    if (failed)
        failed(c->context, text);
}

static int family_of(int fd)
{
    int       family = -1;
    socklen_t size   = sizeof family;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) ? -1 : family;
}

/*
 * Unix sockets: the kernel is to say who sends the hello, in this process's own numbers.  TCP:
 * a host that vanishes without a word is noticed after some 15 seconds.
 */
static void prepare(int fd)
{
    int on = 1, idle = 5, interval = 2, probes = 5;

    if (family_of(fd) == AF_UNIX) {
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static ls_status take_sockets(ls_control *c, const int *sockets)
{
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank)
            continue;
        if (family_of(sockets[r]) < 0)
            return ls_fail(LS_EINVAL, "rank %d: no control connection to rank %d: %s", c->rank,
                           r, strerror(errno));
        fcntl(sockets[r], F_SETFD, FD_CLOEXEC);
        prepare(sockets[r]);
    }
    return LS_OK;
}

static void close_sockets(const int *sockets, int rank, int world)
{
    for (int r = 0; r < world; r++)
        if (r != rank && sockets[r] >= 0)
            close(sockets[r]);
}

static void free_memory(ls_control *c)
{
    free(c->polled);
    free(c->peer);
    free(c->hello);
    free(c);
}

static ls_control *allocate(int rank, int world)
{
    ls_control *c = ls_calloc(1, sizeof *c);
    size_t      n = (size_t)world;

    if (!c)
        return NULL;
    c->rank    = rank;
    c->world   = world;
    c->creator = getpid();
    c->hello   = ls_calloc(n, sizeof *c->hello);
    c->peer    = ls_calloc(n, sizeof *c->peer);
    c->polled  = ls_calloc(1 + 2 * n, sizeof *c->polled);
    if (c->hello && c->peer && c->polled)
        return c;
    free_memory(c);
    return NULL;
}

static void init_peers(ls_control *c, const int *sockets)
{
    pthread_mutex_init(&c->lock, NULL);
    for (int r = 0; r < c->world; r++) {
        pthread_mutex_init(&c->peer[r].lock, NULL);
        c->peer[r].fd    = r == c->rank ? -1 : sockets[r];
        c->peer[r].pidfd = -1;
    }
}

ls_status ls_control_new(int rank, int world, const int *sockets, ls_board *board,
                         ls_control **control)
{
    ls_status   status = LS_ENOMEM;
    ls_control *c      = allocate(rank, world);

    *control = NULL;
    if (!c)
        goto out_close;
    c->board = board;
    status   = take_sockets(c, sockets);
    if (status != LS_OK)
        goto out_free;
    c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->event < 0) {
        status = ls_fail(LS_EIO, "rank %d: eventfd: %s", rank, strerror(errno));
        goto out_free;
    }
    init_peers(c, sockets);
    *control = c;
    return LS_OK;

out_free:
    free_memory(c);
out_close:
    close_sockets(sockets, rank, world);
    return status;
}

const ls_hello *ls_control_peer(const ls_control *control, int rank)
{
    return &control->hello[rank];
}

const char *ls_control_address(const ls_control *control, int peer, char text[64])
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    struct sockaddr        *any     = (struct sockaddr *)&address;
    socklen_t               size    = sizeof address;

    text[0] = '\0';
    if (peer == control->rank || getsockname(control->peer[peer].fd, any, &size))
        return text;
    if (any->sa_family == AF_INET || any->sa_family == AF_INET6)
        if (getnameinfo(any, size, text, 64, NULL, 0, NI_NUMERICHOST))
            text[0] = '\0';
    return text;
}

int ls_control_socket(const ls_control *control, int peer)
{
    return control->peer[peer].fd;
}

int ls_control_rank(const ls_control *control)
{
    return control->rank;
}

int ls_control_world(const ls_control *control)
{
    return control->world;
}

/* A socket that is full for a moment gets the time that is left; a stopped peer's never
 * empties.
 */
static void flush_until(ls__peer *p, int64_t deadline)
{
    while (!ls__peer_flush(p) && ls_now_ns() < deadline)
        ls_sleep_ns(1000000);
}

static void send_goodbye(ls__peer *p, int64_t deadline)
{
    flush_until(p, deadline);
    if (p->unsent)
        return;
    p->out    = (ls__frame){.magic = LS__FRAME_MAGIC, .kind = LS__GOODBYE};
    p->unsent = sizeof p->out;
    flush_until(p, deadline);
}

static void say_goodbye(ls_control *c)
{
    int64_t deadline = ls_now_ns() + (int64_t)GOODBYE_MS * 1000000;

    for (int r = 0; r < c->world; r++)
        if (r != c->rank && !atomic_load(&c->peer[r].left) && !c->peer[r].deaf)
            send_goodbye(&c->peer[r], deadline);
}

void ls_control_free(ls_control *c)
{
    if (!c)
        return;
    bool mine = ls__control_mine(c);

    if (mine && c->watched)
        ls__control_end_watch(c);
    if (mine && c->started)
        say_goodbye(c);
    for (int r = 0; r < c->world; r++) {
        ls__peer *p = &c->peer[r];
        if (p->fd >= 0 && mine)
            shutdown(p->fd, SHUT_WR); /* seen as the end even where a child holds a copy */
        if (p->fd >= 0)
            close(p->fd);
        if (p->pidfd >= 0)
            close(p->pidfd);
        if (mine)
            pthread_mutex_destroy(&p->lock);
    }
    if (mine)
        pthread_mutex_destroy(&c->lock);
    close(c->event);
    free_memory(c);
}

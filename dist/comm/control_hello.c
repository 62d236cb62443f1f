#define _GNU_SOURCE /* struct ucred and pidfd_open: Linux's own */
/*
 * control_hello.c - what ranks exchange before they are watched: hellos and file descriptors.
 *
 * A swap sends one message of fixed size to each peer and receives one of the same size from
 * each, in one poll loop over both directions, so that nobody waits for anybody's order and
 * small socket buffers do no harm.  A peer may be done and already sending what comes next:
 * nothing beyond the message is read.
 *
 * On Unix sockets a message may carry a descriptor, and the kernel says who sent it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/control_impl.h"

typedef struct {
    const char *what; /* "its hello" */
    const void *out;  /* [bytes] */
    char       *in;   /* [world][bytes] */
    size_t      bytes;
    int         fd;     /* goes along; -1: none */
    int        *fds;    /* [world] what came along; NULL: none is expected */
    const bool *wanted; /* [world]; NULL: all peers */
} swap;

/* Room for one descriptor and one set of credentials; aligned for the headers in it. */
typedef union {
    char           bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr header;
} ancillary;

static bool takes_part(const ls_control *c, const swap *s, int peer)
{
    return peer != c->rank && (!s->wanted || s->wanted[peer]);
}

static void attach(struct msghdr *m, ancillary *a, int fd)
{
    memset(a, 0, sizeof *a);
    m->msg_control    = a->bytes;
    m->msg_controllen = CMSG_SPACE(sizeof fd);
    struct cmsghdr *h = CMSG_FIRSTHDR(m);
    h->cmsg_level     = SOL_SOCKET;
    h->cmsg_type      = SCM_RIGHTS;
    h->cmsg_len       = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
}

/* error: 0 for an end without one. */
static ls_status gone(const ls_control *c, const swap *s, int peer, int error)
{
    bool closed = !error || error == ECONNRESET || error == EPIPE;
    char name[160];

    return ls_fail(LS_EPEER, "%s is gone before %s came: %s",
                   ls__control_name(c, peer, name, sizeof name), s->what,
                   closed ? "connection closed" : strerror(error));
}

static bool is_later(int error)
{
    return error == EAGAIN || error == EINTR;
}

static ls_status send_some(ls_control *c, const swap *s, int peer)
{
    ls__peer     *p = &c->peer[peer];
    ancillary     a;
    struct iovec  iov = {(char *)(uintptr_t)s->out + p->sent, s->bytes - p->sent};
    struct msghdr m   = {.msg_iov = &iov, .msg_iovlen = 1};

    if (s->fd >= 0 && p->sent == 0)
        attach(&m, &a, s->fd);
    ssize_t n = sendmsg(p->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0)
        p->sent += (size_t)n;
    else if (!is_later(errno))
        return gone(c, s, peer, errno);
    return LS_OK;
}

static void keep_descriptors(const swap *s, int peer, const struct cmsghdr *h)
{
    size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

    for (size_t i = 0; i < n; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
        if (s->fds && s->fds[peer] < 0)
            s->fds[peer] = fd;
        else
            close(fd);
    }
}

static void keep_ancillary(ls_control *c, const swap *s, int peer, struct msghdr *m)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET)
            continue;
        if (h->cmsg_type == SCM_RIGHTS)
            keep_descriptors(s, peer, h);
        if (h->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(h), sizeof who);
            c->peer[peer].pid = who.pid;
        }
    }
}

static ls_status receive_some(ls_control *c, const swap *s, int peer)
{
    ls__peer     *p = &c->peer[peer];
    ancillary     a;
    struct iovec  iov = {s->in + (size_t)peer * s->bytes + p->got, s->bytes - p->got};
    struct msghdr m   = {.msg_iov        = &iov,
                         .msg_iovlen     = 1,
                         .msg_control    = a.bytes,
                         .msg_controllen = sizeof a.bytes};
    ssize_t       n   = recvmsg(p->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n == 0)
        return gone(c, s, peer, 0);
    if (n < 0)
        return is_later(errno) ? LS_OK : gone(c, s, peer, errno);
    p->got += (size_t)n;
    keep_ancillary(c, s, peer, &m);
    if (s->fds && (m.msg_flags & MSG_CTRUNC))
        return ls_fail(LS_EIO, "the file descriptor of rank %d could not be taken", peer);
    return LS_OK;
}

/* Fills c->polled with what is not done; the number of peers that are not. */
static int pending(ls_control *c, const swap *s)
{
    int n = 0;

    for (int r = 0; r < c->world; r++) {
        const ls__peer *p   = &c->peer[r];
        bool            out = p->sent < s->bytes, in = p->got < s->bytes;
        bool            waits  = takes_part(c, s, r) && (out || in);
        short           events = (short)((out ? POLLOUT : 0) | (in ? POLLIN : 0));
        c->polled[r]           = (struct pollfd){.fd = waits ? p->fd : -1, .events = events};
        n += waits;
    }
    return n;
}

static ls_status move(ls_control *c, const swap *s)
{
    ls_status status = LS_OK;

    for (int r = 0; r < c->world && status == LS_OK; r++) {
        ls__peer *p = &c->peer[r];
        if (c->polled[r].fd < 0 || !c->polled[r].revents)
            continue;
        if (p->got < s->bytes)
            status = receive_some(c, s, r);
        if (status == LS_OK && p->sent < s->bytes)
            status = send_some(c, s, r);
    }
    return status;
}

static ls_status late(const ls_control *c, const swap *s, int n)
{
    char name[160], more[48] = "";
    int  r = 0;

    while (c->polled[r].fd < 0)
        r++;
    if (n > 1)
        snprintf(more, sizeof more, ", nor did %d other%s", n - 1, n > 2 ? "s" : "");
    ls__control_name(c, r, name, sizeof name);
    if (c->peer[r].got < s->bytes)
        return ls_fail(LS_ETIMEOUT, "%s did not send %s in time%s", name, s->what, more);
    return ls_fail(LS_ETIMEOUT, "%s did not read what was sent for %s in time%s", name, s->what,
                   more);
}

static ls_status run(ls_control *c, const swap *s, int64_t deadline)
{
    for (int r = 0; r < c->world; r++)
        c->peer[r].sent = c->peer[r].got = 0;
    for (int n; (n = pending(c, s)) > 0;) {
        int64_t left = deadline - ls_now_ns();
        if (left <= 0)
            return late(c, s, n);
        int64_t ms = left / 1000000 + 1;
        poll(c->polled, (nfds_t)c->world, ms < 1000 ? (int)ms : 1000);
        ls_status status = move(c, s);
        if (status != LS_OK)
            return status;
    }
    return LS_OK;
}

#define END(text) ((text)[sizeof(text) - 1] = '\0')

/* Texts of a peer end inside their fields, whatever it sent. */
static ls_status check_hello(const ls_control *c, int peer, ls_hello *h)
{
    END(h->host);
    END(h->identity);
    END(h->config);
    END(h->fingerprint);
    END(h->address);
    for (char *p = h->host; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    if (h->version != LS_HELLO_VERSION)
        return ls_fail(LS_EMISMATCH, "rank %d says hello in version %llu, rank %d in %d", peer,
                       (unsigned long long)h->version, c->rank, LS_HELLO_VERSION);
    return LS_OK;
}

/* The end of a process is not always the end of its sockets: a child of it may hold them. */
static void open_pidfds(ls_control *c)
{
    for (int r = 0; r < c->world; r++) {
        ls__peer *p   = &c->peer[r];
        int       off = 0;
        if (p->fd < 0)
            continue;
        if (p->pid > 0 && p->pid != c->creator && p->pidfd < 0)
            p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
        setsockopt(p->fd, SOL_SOCKET, SO_PASSCRED, &off, sizeof off);
    }
}

ls_status ls_control_hello(ls_control *c, const ls_hello *mine, ls_hello *all, int64_t deadline)
{
    const swap s = {
        .what = "its hello", .out = mine, .in = (char *)all, .bytes = sizeof *mine, .fd = -1};
    ls_status status = run(c, &s, deadline);

    all[c->rank] = *mine;
    for (int r = 0; r < c->world && status == LS_OK; r++)
        status = check_hello(c, r, &all[r]);
    if (status != LS_OK)
        return status;
    memcpy(c->hello, all, (size_t)c->world * sizeof *all);
    open_pidfds(c);
    return LS_OK;
}

static bool carries_descriptors(int fd)
{
    int       family = -1;
    socklen_t size   = sizeof family;

    return fd >= 0 && !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) &&
           family == AF_UNIX;
}

static ls_status check_marks(const ls_control *c, const swap *s)
{
    for (int r = 0; r < c->world; r++)
        if (takes_part(c, s, r) && s->in[r] != *(const char *)s->out)
            return ls_fail(LS_EMISMATCH, "rank %d sent something else than %s", r, s->what);
    return LS_OK;
}

static ls_status pass(ls_control *c, const swap *s, int64_t deadline)
{
    ls_status status = run(c, s, deadline);

    if (status == LS_OK)
        status = check_marks(c, s);
    for (int r = 0; r < c->world && status != LS_OK; r++)
        if (s->fds[r] >= 0) {
            close(s->fds[r]);
            s->fds[r] = -1;
        }
    return status;
}

ls_status ls_control_pass(ls_control *c, int mine, const bool *wanted, int *fds,
                          int64_t deadline)
{
    bool     *with   = ls_calloc((size_t)c->world, sizeof *with);
    char     *in     = ls_calloc((size_t)c->world, 1);
    swap      s      = {.what   = "its file descriptor",
                        .out    = "d",
                        .in     = in,
                        .bytes  = 1,
                        .fd     = mine,
                        .fds    = fds,
                        .wanted = with};
    ls_status status = LS_ENOMEM;

    for (int r = 0; r < c->world; r++)
        fds[r] = -1;
    if (with && in) {
        for (int r = 0; r < c->world; r++)
            with[r] = wanted[r] && carries_descriptors(c->peer[r].fd);
        status = pass(c, &s, deadline);
    }
    free(in);
    free(with);
    return status;
}

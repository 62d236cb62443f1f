/*
 * transport_tcp.c - messages over TCP, without waiting.
 *
 *     wire:  [ header 48 | payload ] [ header 48 | payload ] ...     one stream a direction
 *
 * Header and payload leave in one system call.  They come in one as well, where they are small:
 * what arrives until the header is complete goes into the hall, is judged there, and its
 * payload is copied on; what follows goes straight into the caller's buffer.  Nothing is ever
 * read beyond the message that is due, so the socket is the only buffer.
 */
#define _GNU_SOURCE /* ppoll */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "dist/comm/tcp_impl.h"

enum {
    HEADER = sizeof(ls_header),
    HALL   = 8 * 1024 /* beyond it a second call costs less than the copy */
};

/* Bytes of one system call: the two directions take turns. */
#define CHUNK ((size_t)1 << 20)

/* Where an operation's exchanges with a peer are, in one direction. */
typedef struct {
    ls_descriptor what;
    uint64_t      steps;
} counter;

typedef struct {
    int     fd; /* -1: no connection */
    counter out, in;
} connection;

/* A direction of the exchange under way: bytes with the header; due == done: complete. */
typedef struct {
    size_t    due, done;
    ls_header header; /* that is sent, or expected */
} passage;

typedef struct {
    ls_transport  base;
    int           event; /* eventfd of wake() */
    pid_t         owner;
    ls_outgoing   out;
    ls_incoming   in;
    passage       sending, receiving;
    unsigned char hall[HALL];
    connection    peers[]; /* [size] */
} tcp;

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_done(const passage *p)
{
    return p->done == p->due;
}

static ls_status fail_lost(int peer, int error)
{
    bool closed = error == ECONNRESET || error == EPIPE;

    return ls_fail(LS_EPEER, "rank %d: %s", peer,
                   closed ? "connection closed" : strerror(error));
}

/* begin */

static uint64_t next_step(counter *c, const ls_descriptor *what)
{
    if (memcmp(&c->what, what, sizeof *what))
        *c = (counter){.what = *what};
    return c->steps++;
}

static passage passage_of(counter *c, const ls_descriptor *what, size_t bytes)
{
    return (passage){.due = HEADER + bytes, .header = {*what, next_step(c, what), bytes}};
}

static ls_status check_peer(const tcp *t, int peer)
{
    if (peer == LS_NO_PEER)
        return LS_OK;
    if (peer < 0 || peer >= t->base.size || t->peers[peer].fd < 0)
        return ls_fail(LS_EINVAL, "rank %d of %d has no connection to rank %d", t->base.rank,
                       t->base.size, peer);
    return LS_OK;
}

static ls_status begin(ls_transport *base, const ls_descriptor *what, ls_outgoing out,
                       ls_incoming in)
{
    tcp      *t      = (tcp *)base;
    ls_status status = check_peer(t, out.peer);

    if (!status)
        status = check_peer(t, in.peer);
    if (status)
        return status;
    t->out     = out;
    t->in      = in;
    t->sending = t->receiving = (passage){0};
    if (out.peer != LS_NO_PEER)
        t->sending = passage_of(&t->peers[out.peer].out, what, out.bytes);
    if (in.peer != LS_NO_PEER)
        t->receiving = passage_of(&t->peers[in.peer].in, what, in.bytes);
    return LS_OK;
}

/* progress */

/* What of the outgoing message comes next, at most CHUNK of payload; returns the pieces. */
static int next_pieces(tcp *t, struct iovec pieces[2])
{
    passage *p    = &t->sending;
    size_t   head = p->done < HEADER ? HEADER - p->done : 0;
    size_t   from = p->done + head - HEADER, bytes = smaller(t->out.bytes - from, CHUNK);
    int      n = 0;

    if (head)
        pieces[n++] = (struct iovec){(char *)&p->header + p->done, head};
    if (bytes) /* iovec has no const; sendmsg() only reads */
        pieces[n++] = (struct iovec){(char *)(uintptr_t)t->out.data + from, bytes};
    return n;
}

/* 0, or errno of a connection that failed. */
static int push(tcp *t, bool *moved)
{
    struct iovec  pieces[2];
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)next_pieces(t, pieces)};
    ssize_t       n       = sendmsg(t->peers[t->out.peer].fd, &message, MSG_NOSIGNAL);

    if (n < 0)
        return would_block(errno) ? 0 : errno;
    t->sending.done += (size_t)n;
    *moved = true;
    if (is_done(&t->sending))
        t->base.sent += (int64_t)t->out.bytes;
    return 0;
}

static ls_status judge(const tcp *t, const ls_header *got)
{
    const ls_header *due  = &t->receiving.header;
    int              peer = t->in.peer;
    char             text[LS_DESCRIPTOR_TEXT];
    ls_status        status = ls_descriptor_compare(&due->what, t->base.rank, &got->what, peer);

    if (status)
        return status;
    if (got->step != due->step)
        return ls_fail(LS_EMISMATCH, "rank %d is at step %llu where %llu was due (%s)", peer,
                       (unsigned long long)got->step, (unsigned long long)due->step,
                       ls_descriptor_text(text, &due->what));
    if (got->bytes != due->bytes)
        return ls_fail(LS_EMISMATCH, "rank %d sent %llu bytes where %llu were due (%s)", peer,
                       (unsigned long long)got->bytes, (unsigned long long)due->bytes,
                       ls_descriptor_text(text, &due->what));
    return LS_OK;
}

/* Something came into the hall: once the header is complete, payload goes on to the caller. */
static ls_status pass_hall(tcp *t)
{
    size_t    done = t->receiving.done;
    ls_header got;

    if (done < HEADER)
        return LS_OK;
    memcpy(&got, t->hall, HEADER);
    ls_status status = judge(t, &got);
    if (!status && done > HEADER)
        memcpy(t->in.data, t->hall + HEADER, done - HEADER);
    return status;
}

static ls_status pull(tcp *t, bool *moved)
{
    passage *p    = &t->receiving;
    bool     hall = p->done < HEADER;
    void    *to   = hall ? (char *)t->hall + p->done : (char *)t->in.data + (p->done - HEADER);
    size_t   room = hall ? smaller(p->due, HALL) - p->done : smaller(p->due - p->done, CHUNK);
    ssize_t  n    = recv(t->peers[t->in.peer].fd, to, room, 0);

    if (n < 0)
        return would_block(errno) ? LS_OK : fail_lost(t->in.peer, errno);
    if (n == 0)
        return fail_lost(t->in.peer, ECONNRESET);
    p->done += (size_t)n;
    *moved = true;
    return hall ? pass_hall(t) : LS_OK;
}

/*
 * Sends first, the peer may be waiting.  Where that fails, what the other direction has to say
 * goes before it: a peer that disagreed has said so before it hung up.
 */
static ls_status progress(ls_transport *base, bool *moved, bool *done)
{
    tcp      *t      = (tcp *)base;
    ls_status status = LS_OK;
    int       error  = 0;

    *moved = false;
    if (!is_done(&t->sending))
        error = push(t, moved);
    if (!is_done(&t->receiving))
        status = pull(t, moved);
    if (!status && error)
        status = fail_lost(t->out.peer, error);
    base->received = is_done(&t->receiving);
    *done          = is_done(&t->sending) && base->received;
    return status;
}

/* sleep and wake */

static void sleep_until(ls_transport *base, int64_t ns)
{
    tcp            *t       = (tcp *)base;
    struct timespec limit   = {ns / 1000000000, ns % 1000000000};
    struct pollfd   polls[] = {{t->event, POLLIN, 0}, {-1, POLLOUT, 0}, {-1, POLLIN, 0}};
    uint64_t        wakes;

    if (ns <= 0)
        return;
    if (!is_done(&t->sending))
        polls[1].fd = t->peers[t->out.peer].fd;
    if (!is_done(&t->receiving))
        polls[2].fd = t->peers[t->in.peer].fd;
    if (ppoll(polls, 3, &limit, NULL) > 0 && polls[0].revents)
        (void)!read(t->event, &wakes, sizeof wakes);
}

static void wake(ls_transport *base)
{
    uint64_t one = 1;

    (void)!write(((tcp *)base)->event, &one, sizeof one); /* full: a wake is pending already */
}

/* A child of fork() may hold the sockets too; the owner's close says goodbye for both. */
static void close_all(ls_transport *base)
{
    tcp *t = (tcp *)base;

    for (int r = 0; r < base->size; r++)
        if (t->peers[r].fd >= 0) {
            if (t->owner == getpid())
                shutdown(t->peers[r].fd, SHUT_RDWR);
            close(t->peers[r].fd);
        }
    if (t->event >= 0)
        close(t->event);
    free(t);
}

static const ls_transport_ops tcp_ops = {.name     = "tcp",
                                         .begin    = begin,
                                         .progress = progress,
                                         .sleep    = sleep_until,
                                         .wake     = wake,
                                         .close    = close_all};

/* Without connections; NULL with the message set. */
static tcp *tcp_new(int rank, int size)
{
    tcp *t = ls_calloc(1, sizeof *t + (size_t)size * sizeof t->peers[0]);

    if (!t)
        return NULL;
    t->base  = (ls_transport){.ops = &tcp_ops, .rank = rank, .size = size};
    t->owner = getpid();
    for (int r = 0; r < size; r++)
        t->peers[r].fd = -1;
    t->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return t;
}

static ls_status connect_all(tcp *t, const ls__tcp_group *group)
{
    int      *fds = ls_calloc((size_t)group->size, sizeof *fds);
    ls_status status;

    if (!fds)
        return LS_ENOMEM;
    for (int r = 0; r < group->size; r++)
        fds[r] = -1;
    status = ls__tcp_connect(group, fds);
    for (int r = 0; r < group->size; r++)
        t->peers[r].fd = fds[r];
    free(fds);
    return status;
}

ls_status ls_transport_tcp(ls_tcp_listener *listener, uint64_t id, int rank, int size,
                           const ls_tcp_peer *peers, int64_t deadline, ls_transport **transport)
{
    ls__tcp_group group  = {listener, id, rank, size, peers, deadline};
    tcp          *t      = tcp_new(rank, size);
    ls_status     status = t ? LS_OK : LS_ENOMEM;

    *transport = NULL;
    if (t && t->event < 0)
        status = ls_fail(LS_EIO, "eventfd: %s", strerror(errno));
    if (!status)
        status = connect_all(t, &group);
    ls_tcp_listener_close(listener);
    if (status && t)
        close_all(&t->base);
    else if (!status)
        *transport = &t->base;
    return status;
}

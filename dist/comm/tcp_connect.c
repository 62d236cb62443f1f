/*
 * tcp_connect.c - the mesh of a group over TCP: who dials whom, and who is let in.
 *
 * The higher rank of a pair dials, the lower one lets it in:
 *
 *     rank 2   ── letter { CALL,   group, from 2, to 0, token of rank 0 } ──>   rank 0
 *              <── letter { ANSWER, group, from 0, to 2, token of rank 2 } ──
 *
 * A letter shows the token of the rank that it is addressed to, which members alone know: so
 * both ends are proved.  Whoever comes without it is a stranger, and closed without a word.
 *
 * One poll loop serves everything that is under way.  A stranger that sends nothing, or slowly,
 * holds one of GUESTS places for PATIENCE_NS, less when all are taken and a newcomer wants one.
 * A member that loses its place that way dials again, as after every other failure.  A member
 * whose control connection ends is no longer waited for.
 */
#define _GNU_SOURCE /* accept4, POLLRDHUP */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/handshake_impl.h"
#include "dist/comm/tcp_impl.h"

#define CALL UINT64_C(0x6c6c61632d70636c) /* "lcp-call", "lcp-answ" */
#define ANSWER UINT64_C(0x77736e612d70636c)
#define MS INT64_C(1000000)
#define FIRST_PAUSE_NS (2 * MS) /* between two attempts; doubles */
#define LAST_PAUSE_NS (100 * MS)
#define PATIENCE_NS (2000 * MS) /* with a guest */

enum { VERSION = 1, GUESTS = 64 };

typedef struct {
    uint64_t magic, group;
    uint32_t version, zero;
    uint32_t from, to;
    uint64_t token[2];
} letter;

_Static_assert(sizeof(letter) == 48, "no padding on the wire");

/* A connection with a letter on its way to us. */
typedef struct {
    int    fd; /* -1: none */
    size_t got;
    letter in;
} inbox;

typedef struct {
    inbox   box;
    int64_t since;
} guest;

/* Towards a lower rank: box.fd < 0 between two attempts, and after the last. */
typedef struct {
    inbox   box;
    bool    connecting; /* else the call has been sent */
    int     error;      /* errno of the last attempt */
    int64_t pause, at;  /* the next attempt: when, after what pause */
} dial;

/* polls: the listener, the guests' places, the dials by rank, all control sockets by rank. */
enum { LISTENER, FIRST_GUEST, FIRST_DIAL = FIRST_GUEST + GUESTS };

typedef struct {
    const ls__tcp_group *group;
    int                 *fds;
    int                  callers; /* still to be let in */
    int                  missing; /* connections still to be made, callers among them */
    int                  strangers;
    int                  error; /* of the last accept() that failed */
    int64_t              rest;  /* no accept() before */
    guest                guests[GUESTS];
    dial                *dials; /* [rank] */
    struct pollfd       *polls;
} mesh;

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static void hang_up(inbox *box)
{
    if (box->fd >= 0)
        close(box->fd);
    box->fd = -1;
}

/* The letter that a member sends. */
static letter letter_of(const ls__tcp_group *g, uint64_t magic, int from, int to)
{
    letter l = {.magic   = magic,
                .group   = g->id,
                .version = VERSION,
                .from    = (uint32_t)from,
                .to      = (uint32_t)to};

    memcpy(l.token, g->peers[to].token, sizeof l.token);
    return l;
}

/* Into the empty buffer of a fresh connection a letter fits as a whole. */
static bool send_letter(int fd, const letter *l)
{
    errno = 0;
    return send(fd, l, sizeof *l, MSG_NOSIGNAL) == (ssize_t)sizeof *l;
}

/* Reads what is there, not a byte beyond the letter.  0, or errno of a connection that failed.
 */
static int read_letter(inbox *box)
{
    ssize_t n = recv(box->fd, (char *)&box->in + box->got, sizeof box->in - box->got, 0);

    if (n < 0)
        return would_block(errno) ? 0 : errno;
    box->got += (size_t)n;
    return n ? 0 : ECONNRESET;
}

static void joined(mesh *m, int rank, inbox *box)
{
    ls__tcp_tune(box->fd);
    m->fds[rank] = box->fd;
    box->fd      = -1;
    m->missing--;
}

/* Guests: connections that came to us. */

static bool awaited(const mesh *m, uint32_t from)
{
    const ls__tcp_group *g = m->group;

    return from > (uint32_t)g->rank && from < (uint32_t)g->size && g->peers[from].needed &&
           m->fds[from] < 0;
}

/* A guest whose letter is complete: comes in, or goes. */
static void judge(mesh *m, guest *v)
{
    const ls__tcp_group *g     = m->group;
    bool                 known = awaited(m, v->box.in.from);
    int                  from  = known ? (int)v->box.in.from : g->rank;
    letter               due   = letter_of(g, CALL, from, g->rank), answer;

    if (ls__same_secret(&v->box.in, &due, sizeof(letter)) && known) {
        answer = letter_of(g, ANSWER, g->rank, from);
        if (send_letter(v->box.fd, &answer)) {
            joined(m, from, &v->box);
            m->callers--;
            return;
        }
    }
    m->strangers++;
    hang_up(&v->box);
}

static void serve_guest(mesh *m, guest *v)
{
    if (read_letter(&v->box)) {
        m->strangers++;
        hang_up(&v->box);
    } else if (v->box.got == sizeof v->box.in) {
        judge(m, v);
    }
}

/* A free place, or that of the guest who has been here longest. */
static guest *place(mesh *m)
{
    guest *oldest = &m->guests[0];

    for (guest *v = m->guests; v < m->guests + GUESTS; v++) {
        if (v->box.fd < 0)
            return v;
        if (v->since < oldest->since)
            oldest = v;
    }
    m->strangers++;
    hang_up(&oldest->box);
    return oldest;
}

/* No more at once than there are places, so that a crowd does not keep us from the others. */
static void serve_listener(mesh *m)
{
    for (int i = 0; i < GUESTS && m->callers; i++) {
        int fd = accept4(m->group->listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (!would_block(errno) && errno != ECONNABORTED) { /* out of descriptors, say */
                m->error = errno;
                m->rest  = ls_now_ns() + LAST_PAUSE_NS;
            }
            return;
        }
        guest *v = place(m);
        *v       = (guest){.box = {.fd = fd}, .since = ls_now_ns()};
        serve_guest(m, v);
    }
}

static void drop_late_guests(mesh *m, int64_t now)
{
    for (guest *v = m->guests; v < m->guests + GUESTS; v++)
        if (v->box.fd >= 0 && now - v->since > PATIENCE_NS) {
            m->strangers++;
            hang_up(&v->box);
        }
}

/* Dials: connections that we make. */

static void try_later(dial *d, int error)
{
    hang_up(&d->box);
    d->error = error ? error : EIO;
    d->at    = ls_now_ns() + d->pause;
    d->pause = 2 * d->pause < LAST_PAUSE_NS ? 2 * d->pause : LAST_PAUSE_NS;
}

static void call(mesh *m, int rank)
{
    letter l = letter_of(m->group, CALL, m->group->rank, rank);
    dial  *d = &m->dials[rank];

    d->connecting = false;
    if (!send_letter(d->box.fd, &l))
        try_later(d, errno);
}

static ls_status start_dial(mesh *m, int rank)
{
    const ls_tcp_peer *peer = &m->group->peers[rank];
    dial              *d    = &m->dials[rank];
    ls__tcp_address    to;
    ls_status          status = ls__tcp_resolve(peer->address, peer->port, &to);

    if (status)
        return ls_fail_in(status, "rank %d", rank);
    d->box        = (inbox){.fd = ls__tcp_socket(to.at.ss_family)};
    d->connecting = true;
    if (d->box.fd >= 0 && !connect(d->box.fd, (const struct sockaddr *)&to.at, to.length))
        call(m, rank);
    else if (d->box.fd < 0 || (errno != EINPROGRESS && errno != EINTR))
        try_later(d, errno);
    return LS_OK;
}

static void finish_connecting(mesh *m, int rank)
{
    dial     *d      = &m->dials[rank];
    int       error  = 0;
    socklen_t length = sizeof error;

    if (getsockopt(d->box.fd, SOL_SOCKET, SO_ERROR, &error, &length))
        error = errno;
    if (error)
        try_later(d, error);
    else
        call(m, rank);
}

static void read_answer(mesh *m, int rank)
{
    dial  *d     = &m->dials[rank];
    letter due   = letter_of(m->group, ANSWER, rank, m->group->rank);
    int    error = read_letter(&d->box);

    if (error)
        try_later(d, error);
    else if (d->box.got < sizeof d->box.in)
        return;
    else if (ls__same_secret(&d->box.in, &due, sizeof(letter)))
        joined(m, rank, &d->box);
    else
        try_later(d, EPROTO);
}

static void serve_dial(mesh *m, int rank)
{
    if (m->dials[rank].connecting)
        finish_connecting(m, rank);
    else
        read_answer(m, rank);
}

/* A dial to this rank is still to succeed. */
static bool wanted(const mesh *m, int rank)
{
    return m->group->peers[rank].needed && m->fds[rank] < 0;
}

static struct pollfd *control_of(const mesh *m, int rank)
{
    return &m->polls[FIRST_DIAL + m->group->rank + rank];
}

static ls_status start_dials(mesh *m, int64_t now)
{
    for (int r = 0; r < m->group->rank; r++) {
        dial *d = &m->dials[r];
        if (!wanted(m, r) || d->box.fd >= 0 || now < d->at)
            continue;
        ls_status status = start_dial(m, r);
        if (status)
            return status;
    }
    return LS_OK;
}

/* The loop. */

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When something is due that no socket will tell. */
static int64_t next_due(const mesh *m)
{
    int64_t due = m->group->deadline;

    if (m->callers && m->rest)
        due = sooner(due, m->rest);
    for (const guest *v = m->guests; v < m->guests + GUESTS; v++)
        if (v->box.fd >= 0)
            due = sooner(due, v->since + PATIENCE_NS);
    for (int r = 0; r < m->group->rank; r++)
        if (wanted(m, r) && m->dials[r].box.fd < 0)
            due = sooner(due, m->dials[r].at);
    return due;
}

/* Not before it, and no more than a second. */
static int milliseconds_to(int64_t due)
{
    int64_t ns = due - ls_now_ns();

    return ns <= 0 ? 0 : (int)sooner((ns + MS - 1) / MS, 1000);
}

static void watch(mesh *m, int64_t now)
{
    struct pollfd *p = m->polls;

    if (m->rest && now >= m->rest)
        m->rest = 0;
    p[LISTENER] =
        (struct pollfd){m->callers && !m->rest ? m->group->listener->fd : -1, POLLIN, 0};
    for (int i = 0; i < GUESTS; i++)
        p[FIRST_GUEST + i] = (struct pollfd){m->guests[i].box.fd, POLLIN, 0};
    for (int r = 0; r < m->group->rank; r++) {
        const dial *d     = &m->dials[r];
        p[FIRST_DIAL + r] = (struct pollfd){d->box.fd, d->connecting ? POLLOUT : POLLIN, 0};
    }
    for (int r = 0; r < m->group->size; r++) {
        int fd            = m->group->peers[r].control;
        *control_of(m, r) = (struct pollfd){fd > 0 && wanted(m, r) ? fd : -1, POLLRDHUP, 0};
    }
}

/* What a rank sent before its end has been served: one that is still missing does not come. */
static ls_status check_gone(const mesh *m)
{
    for (int r = 0; r < m->group->size; r++)
        if (control_of(m, r)->revents && wanted(m, r))
            return ls_fail(LS_EPEER, "rank %d is gone before it was connected to rank %d", r,
                           m->group->rank);
    return LS_OK;
}

static ls_status turn(mesh *m)
{
    int64_t        now    = ls_now_ns();
    struct pollfd *p      = m->polls;
    ls_status      status = start_dials(m, now);

    if (status)
        return status;
    drop_late_guests(m, now);
    watch(m, now);
    nfds_t n     = (nfds_t)(FIRST_DIAL + m->group->rank + m->group->size);
    int    ready = poll(p, n, milliseconds_to(next_due(m)));
    if (ready < 0 && !would_block(errno))
        return ls_fail(LS_EIO, "poll: %s", strerror(errno));
    if (ready <= 0)
        return LS_OK;
    for (int r = 0; r < m->group->rank; r++)
        if (p[FIRST_DIAL + r].revents)
            serve_dial(m, r);
    for (int i = 0; i < GUESTS; i++)
        if (p[FIRST_GUEST + i].revents)
            serve_guest(m, &m->guests[i]);
    if (p[LISTENER].revents)
        serve_listener(m);
    return check_gone(m);
}

static ls_status fail_late(const mesh *m)
{
    const ls__tcp_group *g    = m->group;
    int                  late = 0;
    char                 name[LS__TCP_NAME], more[48] = "";

    while (late == g->rank || !wanted(m, late))
        late++;
    if (m->missing > 1)
        snprintf(more, sizeof more, " (and %d more ranks)", m->missing - 1);
    if (late > g->rank)
        return ls_fail(LS_ETIMEOUT,
                       "rank %d%s did not connect to rank %d at %s in time: %s, %d strangers "
                       "turned away",
                       late, more, g->rank,
                       ls__tcp_name(name, g->listener->address, g->listener->port),
                       m->error ? strerror(m->error) : "no call came", m->strangers);
    const dial *d = &m->dials[late];
    return ls_fail(LS_ETIMEOUT, "rank %d%s could not be reached at %s in time: %s", late, more,
                   ls__tcp_name(name, g->peers[late].address, g->peers[late].port),
                   d->error ? strerror(d->error) : "no answer");
}

static ls_status open_mesh(mesh *m, const ls__tcp_group *group, int *fds)
{
    size_t rank = (size_t)group->rank;

    m->group = group;
    m->fds   = fds;
    for (guest *v = m->guests; v < m->guests + GUESTS; v++)
        v->box.fd = -1;
    m->dials = ls_calloc(rank + 1, sizeof *m->dials);
    m->polls = ls_calloc(FIRST_DIAL + rank + (size_t)group->size, sizeof *m->polls);
    if (!m->dials || !m->polls)
        return LS_ENOMEM;
    for (size_t r = 0; r < rank; r++)
        m->dials[r] = (dial){.box = {.fd = -1}, .pause = FIRST_PAUSE_NS};
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && group->peers[r].needed) {
            m->missing++;
            m->callers += r > group->rank;
        }
    return LS_OK;
}

static void close_mesh(mesh *m)
{
    for (guest *v = m->guests; v < m->guests + GUESTS; v++)
        hang_up(&v->box);
    for (int r = 0; m->dials && r < m->group->rank; r++)
        hang_up(&m->dials[r].box);
    free(m->dials);
    free(m->polls);
}

ls_status ls__tcp_connect(const ls__tcp_group *group, int *fds)
{
    mesh      m      = {0};
    ls_status status = open_mesh(&m, group, fds);

    if (!status && m.callers && group->listener->fd < 0)
        status = ls_fail(LS_EINVAL, "rank %d has no socket to listen on", group->rank);
    while (!status && m.missing)
        status = ls_now_ns() < group->deadline ? turn(&m) : fail_late(&m);
    close_mesh(&m);
    return status;
}

#define _GNU_SOURCE /* SOCK_NONBLOCK and its like */
/*
 * rendezvous_guest.c - the other ranks: find rank 0, and prove themselves.
 *
 *     names ──> tries[addresses x ports] ── dial ── challenge ── proof ── verdict ──> joined
 *                    ^───────── pause ──────────┘ (refused, silent, a stranger)
 *
 * Rank 0 may start later, its name may resolve later, and under torchrun it takes one of 32
 * ports of which others may have some: so all of them are tried side by side until one proves
 * to be rank 0 of this job.  What speaks there and is not costs PATIENCE_NS at most, and is
 * remembered for the text of a failure.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/rendezvous_impl.h"

#define PATIENCE_NS (5 * LS__SECOND) /* of a connection, and with one who is not rank 0 */
#define FIRST_PAUSE_NS (2 * LS__MS)  /* between two dials of an address; doubles */
#define LAST_PAUSE_NS (100 * LS__MS) /* at most */
#define NAME_PAUSE_NS (250 * LS__MS) /* between two questions for a name */
#define LAST_WORD_NS (1000 * LS__MS) /* for rank 0's reason to arrive, after the end */

typedef enum { RESTING, DIALLING, CHALLENGED, PROVED } phase;

/* One address and port. */
typedef struct {
    union {
        struct sockaddr    any;
        struct sockaddr_un un;
        ls__tcp_address    tcp;
    } at;
    socklen_t     length;
    char          name[LS__TCP_NAME]; /* "" for a Unix socket */
    int           fd;
    phase         phase;
    int64_t       due; /* resting: the next dial; else: the end of patience */
    int64_t       pause;
    size_t        got;
    ls__session   session;
    ls__challenge challenge;
    ls__verdict   verdict;
} try;

typedef struct {
    ls__meeting   *m;
    try           *tries;
    struct pollfd *polls;
    int            n;
    int64_t        ask_at;    /* the next question for the name */
    int64_t        turned_at; /* when somebody first was not rank 0 of this job; 0: never */
    char           last[600]; /* why not, the most telling so far */
    try           *joined;
} search;

/* ---- where rank 0 may be ---- */

static void add_unix(search *s)
{
    try *t = &s->tries[s->n++];

    *t        = (try){.fd = -1, .pause = FIRST_PAUSE_NS, .session = {.secret = s->m->secret}};
    t->length = ls__meeting_unix(s->m->env, &t->at.un);
}

static void add_tcp(search *s, const ls__tcp_address *at, int port)
{
    char text[64];
    try *t = &s->tries[s->n++];

    *t        = (try){.fd = -1, .pause = FIRST_PAUSE_NS, .session = {.secret = s->m->secret}};
    t->at.tcp = *at;
    t->length = at->length;
    ls__address_set_port(&t->at.tcp, (uint32_t)port);
    ls__tcp_name(t->name, ls__address_text(at, text), (uint32_t)port);
}

/* Asks for MASTER_ADDR; what it finds is tried from then on. */
static void look_up(search *s, int64_t now)
{
    ls__tcp_address      found[LS__ADDRESSES];
    const ls_launch_env *env    = s->m->env;
    const char          *reason = "";
    int                  n     = ls__address_find(env->master, !s->m->one_host, found, &reason);
    int                  ports = env->store ? LS__STORE_PORTS : 1;

    if (!n)
        snprintf(s->last, sizeof s->last, "MASTER_ADDR=%s: %s", env->master, reason);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < ports && env->port + p + env->store <= 65535; p++)
            add_tcp(s, &found[i], env->port + p + env->store);
    s->ask_at = now + NAME_PAUSE_NS;
}

/* ---- one try ---- */

static const char *name_of(const search *s, const try *t)
{
    return t->name[0] ? t->name : s->m->place;
}

/* Ends the connection; the next dial comes after a pause. */
static void rest(try *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd    = -1;
    t->phase = RESTING;
    t->due   = ls_now_ns() + t->pause;
    t->pause = 2 * t->pause < LAST_PAUSE_NS ? 2 * t->pause : LAST_PAUSE_NS;
}

static void fail_try(search *s, try *t, const char *why)
{
    if (!s->turned_at)
        snprintf(s->last, sizeof s->last, "%.160s: %s", name_of(s, t), why);
    rest(t);
}

/* Somebody is there, but not rank 0 of this job. */
static void turn_away(search *s, try *t, const char *why)
{
    s->turned_at = s->turned_at ? s->turned_at : ls_now_ns();
    snprintf(s->last, sizeof s->last, "%.160s: %s", name_of(s, t), why);
    rest(t);
}

static void ended(search *s, try *t, int error)
{
    if (t->phase == PROVED)
        turn_away(s, t,
                  s->m->secret[0]
                      ? "who listens there does not accept this rank's LOCKSTEP_SECRET: "
                        "another secret, or another program"
                      : "who listens there does not accept this rank: another version, "
                        "or another program");
    else if (t->phase == CHALLENGED && !error)
        fail_try(s, t, "the connection was closed at once");
    else
        fail_try(s, t, strerror(error ? error : ECONNRESET));
}

/* On a Unix socket the kernel tells who listens, before a word is said. */
static void connected(search *s, try *t)
{
    if (s->m->by_unix && !ls__same_user(t->fd))
        turn_away(s, t, "another user listens there");
    else
        t->phase = CHALLENGED;
}

static void dial(search *s, try *t)
{
    t->fd    = s->m->by_unix ? ls__unix_socket() : ls__tcp_socket(t->at.any.sa_family);
    t->phase = DIALLING;
    t->got   = 0;
    t->due   = ls_now_ns() + PATIENCE_NS;
    if (t->fd >= 0 && !connect(t->fd, &t->at.any, t->length))
        connected(s, t);
    else if (t->fd >= 0 && errno == EAGAIN) /* of Unix sockets: more are coming than it holds */
        fail_try(s, t, "its queue is full");
    else if (t->fd < 0 || (errno != EINPROGRESS && errno != EINTR))
        fail_try(s, t, strerror(errno));
}

static void finish_dial(search *s, try *t)
{
    int       error  = 0;
    socklen_t length = sizeof error;

    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &length))
        error = errno;
    if (error)
        fail_try(s, t, strerror(error));
    else
        connected(s, t);
}

/* This rank, as rank 0 is to see it. */
static ls_status make_proof(search *s, try *t, ls__proof *p)
{
    ls__meeting         *m   = s->m;
    const ls_launch_env *env = m->env;

    memcpy(t->session.host, t->challenge.nonce, sizeof t->session.host);
    ls_status status = ls__random(t->session.guest, sizeof t->session.guest);
    *p               = (ls__proof){.magic   = LS__HANDSHAKE_MAGIC,
                                   .version = LS__HANDSHAKE_VERSION,
                                   .rank    = (uint32_t)env->rank,
                                   .world   = (uint32_t)env->world,
                                   .restart = (uint32_t)env->restart,
                                   .left_ns = m->deadline - ls_now_ns(),
                                   .at      = m->mine};
    memcpy(p->run_id, env->run_id, sizeof p->run_id);
    memcpy(p->nonce, t->session.guest, sizeof p->nonce);
    return status ? status
                  : ls__seal(&t->session, LS__OF_PROOF, p, offsetof(ls__proof, mac), p->mac);
}

/* The address of this rank is that of its end of the connection to rank 0. */
static ls_status listen_for_others(search *s, try *t)
{
    ls__tcp_address own = {.length = sizeof own.at};
    char            route[64];

    if (s->m->by_unix)
        return LS_OK;
    if (getsockname(t->fd, (struct sockaddr *)&own.at, &own.length))
        return ls_fail(LS_EIO, "getsockname: %s", strerror(errno));
    return ls__meeting_listen(s->m, ls__address_text(&own, route));
}

static ls_status prove(search *s, try *t)
{
    ls__proof proof;

    if (t->challenge.magic != LS__HANDSHAKE_MAGIC) {
        turn_away(s, t, "another program listens there");
        return LS_OK;
    }
    if (t->challenge.version != LS__HANDSHAKE_VERSION) {
        turn_away(s, t, "another version of Lockstep listens there");
        return LS_OK;
    }
    ls_status status = listen_for_others(s, t);
    if (!status)
        status = make_proof(s, t, &proof);
    if (status)
        return status;
    t->got   = 0;
    t->phase = PROVED;
    if (send(t->fd, &proof, sizeof proof, MSG_NOSIGNAL) != (ssize_t)sizeof proof)
        fail_try(s, t, strerror(errno));
    return LS_OK;
}

static ls_status judge(search *s, try *t)
{
    ls__verdict *v = &t->verdict;

    if (!ls__verdict_holds(&t->session, LS__OF_WELCOME, v)) {
        turn_away(s, t, "who listens there has not proved to be rank 0 of this job");
        return LS_OK;
    }
    if (v->code == LS__WELCOME)
        s->joined = t;
    else if (v->code == LS__STRANGER)
        turn_away(s, t, v->text);
    else
        return ls_fail(LS_ECONFIG, "rank %d: rank 0 at %s: %s", s->m->env->rank, name_of(s, t),
                       v->text);
    return LS_OK;
}

/* Reads what is there of a message of n bytes; true when it is complete. */
static bool receive(search *s, try *t, void *message, size_t n)
{
    ssize_t got = recv(t->fd, (char *)message + t->got, n - t->got, MSG_DONTWAIT);

    if (got < 0 && ls__would_block(errno))
        return false;
    if (got <= 0) {
        ended(s, t, got < 0 ? errno : 0);
        return false;
    }
    t->got += (size_t)got;
    return t->got == n;
}

static ls_status serve(search *s, try *t)
{
    if (t->phase == DIALLING)
        finish_dial(s, t);
    if (t->phase == CHALLENGED)
        return receive(s, t, &t->challenge, sizeof t->challenge) ? prove(s, t) : LS_OK;
    if (t->phase == PROVED)
        return receive(s, t, &t->verdict, sizeof t->verdict) ? judge(s, t) : LS_OK;
    return LS_OK;
}

/* ---- the loop ---- */

static int64_t start_dials(search *s, int64_t now)
{
    int64_t due = s->m->deadline;

    if (!s->n && !s->m->by_unix) {
        if (now >= s->ask_at)
            look_up(s, now);
        due = s->ask_at < due ? s->ask_at : due;
    }
    for (try *t = s->tries; t < s->tries + s->n; t++) {
        if (t->phase == RESTING && now >= t->due)
            dial(s, t);
        else if (t->phase != RESTING && now >= t->due)
            turn_away(s, t, "who listens there says nothing");
        due = t->due < due ? t->due : due;
    }
    return due;
}

static ls_status turn(search *s)
{
    int64_t   due    = start_dials(s, ls_now_ns());
    ls_status status = LS_OK;

    for (int i = 0; i < s->n; i++)
        s->polls[i] = (struct pollfd){s->tries[i].fd,
                                      s->tries[i].phase == DIALLING ? POLLOUT : POLLIN, 0};
    int ready = poll(s->polls, (nfds_t)s->n, ls__milliseconds_to(due));
    if (ready < 0 && errno != EINTR)
        return ls_fail(LS_EIO, "poll: %s", strerror(errno));
    for (int i = 0; i < s->n && ready > 0 && !status && !s->joined; i++)
        if (s->polls[i].revents)
            status = serve(s, &s->tries[i]);
    return status;
}

/* The same one, and nobody else, has been there for too long to be about to go. */
static bool hopeless(const search *s, int64_t now)
{
    return s->n == 1 && s->turned_at && now - s->turned_at > PATIENCE_NS;
}

static ls_status find_host(search *s)
{
    const ls_launch_env *env = s->m->env;

    if (s->m->by_unix)
        add_unix(s);
    while (!s->joined) {
        int64_t now = ls_now_ns();
        if (now >= s->m->deadline)
            return ls_fail(LS_ETIMEOUT, "rank %d did not find rank 0 at %s within %g s: %s",
                           env->rank, s->m->place, s->m->timeout_s, s->last);
        if (hopeless(s, now))
            return ls_fail(LS_EPEER, "rank %d did not find rank 0 at %s: %s", env->rank,
                           s->m->place, s->last);
        ls_status status = turn(s);
        if (status)
            return status;
    }
    return LS_OK;
}

/* ---- after the welcome ---- */

static ls_status fail_host(const search *s, ls_status status, const char *when)
{
    return ls_fail(status,
                   status == LS_ETIMEOUT
                       ? "rank %d: rank 0 at %s says nothing %s"
                       : "rank %d: rank 0 at %s is gone %s: connection closed",
                   s->m->env->rank, s->m->place, when);
}

static ls_status talk(const search *s, const void *out, size_t out_bytes, void *in,
                      size_t in_bytes, int64_t deadline, const char *when)
{
    ls__flow f = {
        .fd = s->joined->fd, .out = {{out, out_bytes}}, .in = in, .in_bytes = in_bytes};
    int       which  = 0;
    ls_status status = ls__flows(&f, 1, deadline, &which);

    return status == LS_EPEER || status == LS_ETIMEOUT ? fail_host(s, status, when) : status;
}

static ls_status wait_for_go(search *s)
{
    ls__meeting *m = s->m;
    ls__verdict *v = &s->joined->verdict;

    ls_status status = talk(s, NULL, 0, v, sizeof *v, m->deadline + LAST_WORD_NS,
                            "before all ranks have come");
    if (status)
        return status;
    if (!ls__verdict_holds(&s->joined->session, LS__OF_GO, v) ||
        (v->code != LS__GO && !v->status))
        return ls_fail(LS_EPEER, "rank %d: what rank 0 sent has been changed", m->env->rank);
    int64_t soonest = ls_now_ns() + 10 * LS__SECOND;
    m->deadline     = m->deadline > soonest ? m->deadline : soonest;
    return v->code == LS__GO ? LS_OK : ls_fail((ls_status)v->status, "%s", v->text);
}

/* A message of n bytes and its mac; out, too, where there is one. */
static ls_status swap(search *s, const void *out, size_t out_bytes, ls__mac_of what, void *in,
                      size_t n)
{
    unsigned char *all = ls_calloc(1, n + LS__MAC);
    if (!all)
        return LS_ENOMEM;
    ls_status status =
        talk(s, out, out_bytes, all, n + LS__MAC, s->m->deadline, "before all are connected");
    if (!status && !ls__sealed(&s->joined->session, what, all, n, all + n))
        status =
            ls_fail(LS_EPEER, "rank %d: what rank 0 sent has been changed", s->m->env->rank);
    if (!status)
        memcpy(in, all, n);
    free(all);
    return status;
}

static ls_status learn(search *s)
{
    ls__meeting   *m      = s->m;
    size_t         n      = (size_t)m->env->world;
    unsigned char *tried  = ls_calloc(1, n + LS__MAC);
    ls_status      status = tried ? wait_for_go(s) : LS_ENOMEM;

    if (!status)
        status = swap(s, NULL, 0, LS__OF_TABLE, m->table, n * sizeof *m->table);
    if (!status)
        status = ls__pairs_try(m, tried);
    if (!status)
        status = ls__seal(&s->joined->session, LS__OF_TRIED, tried, n, tried + n);
    if (!status)
        status = swap(s, tried, n + LS__MAC, LS__OF_WAYS, m->ways, n);
    free(tried);
    return status;
}

ls_status ls__guest_meet(ls__meeting *m)
{
    size_t n = m->by_unix ? 1 : (size_t)LS__ADDRESSES * (m->env->store ? LS__STORE_PORTS : 1);
    search s = {.m     = m,
                .tries = ls_calloc(n, sizeof(try)),
                .polls = ls_calloc(n, sizeof(struct pollfd))};

    snprintf(s.last, sizeof s.last, "no answer");
    ls_status status = s.tries && s.polls ? find_host(&s) : LS_ENOMEM;
    for (int i = 0; s.tries && i < s.n; i++)
        if (&s.tries[i] != s.joined && s.tries[i].fd >= 0)
            close(s.tries[i].fd);
    if (!status)
        status = learn(&s);
    if (s.joined)
        close(s.joined->fd);
    free(s.tries);
    free(s.polls);
    return status;
}

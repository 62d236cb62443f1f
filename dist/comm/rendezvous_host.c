#define _GNU_SOURCE /* accept4, POLLRDHUP */
/*
 * rendezvous_host.c - rank 0: lets in who proves itself, and hands out the table.
 *
 *     listener ──> callers (a few places, PATIENCE_NS each) ── proof ──> ranks[1 .. world - 1]
 *
 * One poll loop serves all.  A stranger holds one of the places until his patience ends, or
 * all are taken and a newcomer wants one; a rank that loses its place that way comes again.
 * Nothing that a caller says is looked at before his proof has held.  A rank that has joined
 * and goes away leaves its number free.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/rendezvous_impl.h"

#define PATIENCE_NS (5 * LS__SECOND) /* with a caller */
#define REST_NS (100 * LS__MS)       /* after an accept() that failed */

enum { PLACES = 64 };

/* A connection that has not proved anything. */
typedef struct {
    int         fd; /* -1: none */
    int64_t     since;
    size_t      got;
    ls__session session;
    ls__proof   proof;
} caller;

/* A rank that has joined. */
typedef struct {
    int         fd; /* -1: it has not */
    ls__session session;
} guest;

typedef struct {
    ls__meeting   *m;
    int            listener;
    int            places, strangers, missing;
    int            left; /* ranks that joined and went */
    int64_t        rest; /* no accept() before */
    int64_t        deadline;
    caller        *callers; /* [places] */
    guest         *guests;  /* [world] */
    struct pollfd *polls;   /* [1 + places + world] */
} door;

/* ---- callers ---- */

static void dismiss(door *d, caller *c)
{
    d->strangers++;
    close(c->fd);
    c->fd = -1;
}

static void answer(const caller *c, ls__verdict_code code, const char *text)
{
    ls__verdict verdict;

    if (!ls__verdict_make(&c->session, LS__OF_WELCOME, code, LS_OK, text, &verdict))
        (void)!send(c->fd, &verdict, sizeof verdict, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Has the connection of a rank that joined come to its end? */
static bool is_gone(int fd)
{
    char    byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n >= 0 || !ls__would_block(errno); /* a guest says nothing until the table comes */
}

static void forget(door *d, int rank)
{
    close(d->guests[rank].fd);
    d->guests[rank].fd = -1;
    d->missing++;
    d->left++;
}

/* The text of a refusal, "" where there is none. */
static ls__verdict_code find_objection(door *d, const ls__proof *p, char *text, size_t size)
{
    const ls_launch_env *env = d->m->env;

    text[0] = '\0';
    if (strncmp(p->run_id, env->run_id, sizeof p->run_id) != 0 ||
        p->restart != (uint32_t)env->restart) {
        snprintf(text, size,
                 "rank 0 of run \"%s\", restart %d, is here, not of run \"%.120s\", "
                 "restart %u",
                 env->run_id, env->restart, p->run_id, (unsigned)p->restart);
        return LS__STRANGER;
    }
    if (p->world != (uint32_t)env->world)
        snprintf(text, size, "rank %u came with a world of %u ranks, but rank 0 has %d",
                 (unsigned)p->rank, (unsigned)p->world, env->world);
    else if (p->rank == 0 || p->rank >= p->world)
        snprintf(text, size, "rank %u came, but rank 0 waits for ranks 1 to %d",
                 (unsigned)p->rank, env->world - 1);
    else if (d->guests[p->rank].fd >= 0 && !is_gone(d->guests[p->rank].fd))
        snprintf(text, size,
                 "a second rank %u came, but one has joined already; another job at the same "
                 "port needs its own MASTER_PORT or LOCKSTEP_RUN_ID",
                 (unsigned)p->rank);
    return text[0] ? LS__REFUSED : LS__WELCOME;
}

static void let_in(door *d, caller *c)
{
    int              rank = (int)c->proof.rank;
    ls__whereabouts *at   = &d->m->table[rank];
    int64_t          end;

    if (d->guests[rank].fd >= 0)
        forget(d, rank);
    *at                                   = c->proof.at;
    at->identity[sizeof at->identity - 1] = '\0';
    at->address[sizeof at->address - 1]   = '\0';
    d->guests[rank]                       = (guest){c->fd, c->session};
    c->fd                                 = -1;
    d->missing--;
    /* nobody waits longer than it wants to: who is the first to give up ends it for all */
    int64_t left = c->proof.left_ns > 0 ? c->proof.left_ns : 0;
    int64_t now  = ls_now_ns();
    end          = left < d->deadline - now ? now + left : d->deadline;
    d->deadline  = end;
}

static void judge(door *d, caller *c)
{
    char text[LS__VERDICT_TEXT];

    memcpy(c->session.guest, c->proof.nonce, sizeof c->session.guest);
    if (c->proof.magic != LS__HANDSHAKE_MAGIC || c->proof.version != LS__HANDSHAKE_VERSION ||
        !ls__sealed(&c->session, LS__OF_PROOF, &c->proof, offsetof(ls__proof, mac),
                    c->proof.mac)) {
        dismiss(d, c);
        return;
    }
    c->proof.run_id[sizeof c->proof.run_id - 1] = '\0';
    ls__verdict_code code = find_objection(d, &c->proof, text, sizeof text);
    answer(c, code, text);
    if (code == LS__WELCOME)
        let_in(d, c);
    else
        dismiss(d, c);
}

static void serve_caller(door *d, caller *c)
{
    char   *at = (char *)&c->proof + c->got;
    ssize_t n  = recv(c->fd, at, sizeof c->proof - c->got, MSG_DONTWAIT);

    if (n < 0 && ls__would_block(errno))
        return;
    if (n <= 0) {
        dismiss(d, c);
        return;
    }
    c->got += (size_t)n;
    if (c->got == sizeof c->proof)
        judge(d, c);
}

/* A free place, or that of the caller who has been here longest. */
static caller *find_place(door *d)
{
    caller *oldest = d->callers;

    for (caller *c = d->callers; c < d->callers + d->places; c++) {
        if (c->fd < 0)
            return c;
        if (c->since < oldest->since)
            oldest = c;
    }
    dismiss(d, oldest);
    return oldest;
}

static void greet(door *d, int fd)
{
    ls__challenge challenge = {.magic = LS__HANDSHAKE_MAGIC, .version = LS__HANDSHAKE_VERSION};
    caller       *c         = find_place(d);

    *c = (caller){.fd = fd, .since = ls_now_ns(), .session = {.secret = d->m->secret}};
    if ((d->m->by_unix && !ls__same_user(fd)) ||
        ls__random(challenge.nonce, sizeof challenge.nonce) ||
        send(fd, &challenge, sizeof challenge, MSG_NOSIGNAL) != (ssize_t)sizeof challenge) {
        dismiss(d, c);
        return;
    }
    memcpy(c->session.host, challenge.nonce, sizeof challenge.nonce);
}

/* No more at once than there are places, so that a crowd does not keep us from the others. */
static void serve_listener(door *d)
{
    for (int i = 0; i < d->places && d->missing; i++) {
        int fd = accept4(d->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (!ls__would_block(errno) && errno != ECONNABORTED) /* out of descriptors, say */
                d->rest = ls_now_ns() + REST_NS;
            return;
        }
        greet(d, fd);
    }
}

/* ---- the loop ---- */

/* When something is due that no socket will tell. */
static int64_t next_due(const door *d)
{
    int64_t due = d->deadline;

    if (d->rest && d->rest < due)
        due = d->rest;
    for (const caller *c = d->callers; c < d->callers + d->places; c++)
        if (c->fd >= 0 && c->since + PATIENCE_NS < due)
            due = c->since + PATIENCE_NS;
    return due;
}

static void watch(door *d, int64_t now)
{
    struct pollfd *p = d->polls;

    if (now >= d->rest)
        d->rest = 0;
    *p++ = (struct pollfd){d->rest ? -1 : d->listener, POLLIN, 0};
    for (const caller *c = d->callers; c < d->callers + d->places; c++)
        *p++ = (struct pollfd){c->fd, POLLIN, 0};
    for (int r = 0; r < d->m->env->world; r++)
        *p++ = (struct pollfd){d->guests[r].fd, POLLIN | POLLRDHUP, 0};
}

static ls_status turn(door *d)
{
    int64_t        now   = ls_now_ns();
    int            world = d->m->env->world;
    struct pollfd *p     = d->polls;

    for (caller *c = d->callers; c < d->callers + d->places; c++)
        if (c->fd >= 0 && now - c->since > PATIENCE_NS)
            dismiss(d, c);
    watch(d, now);
    int ready = poll(p, (nfds_t)(1 + d->places + world), ls__milliseconds_to(next_due(d)));
    if (ready < 0 && errno != EINTR)
        return ls_fail(LS_EIO, "rank 0: poll: %s", strerror(errno));
    if (ready <= 0)
        return LS_OK;
    for (int r = 1; r < world; r++)
        if (p[1 + d->places + r].revents && is_gone(d->guests[r].fd))
            forget(d, r);
    for (int i = 0; i < d->places; i++)
        if (p[1 + i].revents)
            serve_caller(d, &d->callers[i]);
    if (p[0].revents)
        serve_listener(d);
    return LS_OK;
}

/* "rank 3", "ranks 1, 3 and 9 more" */
static void list_missing(const door *d, char *text, size_t size)
{
    enum { NAMED = 12 };
    int    named = 0;
    size_t used  = (size_t)snprintf(text, size, d->missing > 1 ? "ranks" : "rank");

    for (int r = 1; r < d->m->env->world && named < NAMED; r++)
        if (d->guests[r].fd < 0)
            used += (size_t)snprintf(text + used, size - used, named++ ? ", %d" : " %d", r);
    if (named < d->missing)
        snprintf(text + used, size - used, " and %d more", d->missing - named);
}

static const char *hint(const ls__meeting *m)
{
    if (m->by_unix && !m->one_host)
        return "; ranks on other hosts need LOCKSTEP_SECRET, the same everywhere";
    if (!strcmp(m->env->launcher, "Slurm") && !getenv("SLURM_STEP_ID"))
        return "; were they started by srun?";
    return "";
}

/* Nobody goes: all who have come hear why. */
static void tell_all(const door *d, ls_status status, const char *text)
{
    ls__verdict verdict;

    for (int r = 1; r < d->m->env->world; r++) {
        const guest *g = &d->guests[r];
        if (g->fd >= 0 &&
            !ls__verdict_make(&g->session, LS__OF_GO, LS__FAILED, status, text, &verdict))
            (void)!send(g->fd, &verdict, sizeof verdict, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static ls_status call_off(const door *d)
{
    char missing[200], extra[100] = "", text[LS__VERDICT_TEXT];

    list_missing(d, missing, sizeof missing);
    if (d->left)
        snprintf(extra, sizeof extra, " (%d came and went)", d->left);
    size_t used = strlen(extra);
    if (d->strangers)
        snprintf(extra + used, sizeof extra - used, " (%d strangers turned away)",
                 d->strangers);
    snprintf(text, sizeof text,
             "%.110s of %d did not come to rank 0 at %.90s within %g s%.50s%.75s", missing,
             d->m->env->world, d->m->place, d->m->timeout_s, extra, hint(d->m));
    tell_all(d, LS_ETIMEOUT, text);
    return ls_fail(LS_ETIMEOUT, "%s", text);
}

static ls_status gather(door *d)
{
    while (d->missing) {
        if (ls_now_ns() >= d->deadline)
            return call_off(d);
        ls_status status = turn(d);
        if (status)
            return status;
    }
    close(d->listener);
    d->listener = -1;
    return LS_OK;
}

/* ---- the table ---- */

/* What goes to one rank and what it answers. */
typedef struct {
    ls__verdict   go;
    unsigned char table_mac[LS__MAC], ways_mac[LS__MAC];
} letter;

static ls_status fail_flow(ls_status status, int rank)
{
    return ls_fail(status,
                   status == LS_ETIMEOUT ? "rank %d joined, but did not answer rank 0 in time"
                                         : "rank %d joined, but left before all were connected",
                   rank);
}

static ls_status swap_tables(door *d, letter *letters, ls__flow *flows, unsigned char *tried,
                             int64_t deadline)
{
    size_t    n = (size_t)d->m->env->world, bytes = n * sizeof *d->m->table;
    ls_status status = LS_OK;
    int       which  = 0;

    for (size_t r = 1; r < n && !status; r++) {
        const ls__session *s = &d->guests[r].session;
        letter            *l = &letters[r];
        status               = ls__verdict_make(s, LS__OF_GO, LS__GO, LS_OK, "", &l->go);
        if (!status)
            status = ls__seal(s, LS__OF_TABLE, d->m->table, bytes, l->table_mac);
        flows[r] = (ls__flow){.fd       = d->guests[r].fd,
                              .out      = {{&l->go, sizeof l->go},
                                           {d->m->table, bytes},
                                           {l->table_mac, sizeof l->table_mac}},
                              .in       = tried + r * (n + LS__MAC),
                              .in_bytes = n + LS__MAC};
    }
    if (!status && (status = ls__flows(flows, (int)n, deadline, &which)))
        return fail_flow(status, which);
    for (size_t r = 1; r < n && !status; r++) {
        const unsigned char *row = tried + r * (n + LS__MAC);
        if (!ls__sealed(&d->guests[r].session, LS__OF_TRIED, row, n, row + n))
            status = ls_fail(LS_EPEER, "rank %zu: what it sent to rank 0 has been changed", r);
    }
    return status;
}

/* ways[r][q]: the higher rank q has reached r by a Unix socket. */
static ls_status send_ways(door *d, letter *letters, ls__flow *flows,
                           const unsigned char *tried, unsigned char *ways, int64_t deadline)
{
    size_t    n      = (size_t)d->m->env->world;
    ls_status status = LS_OK;
    int       which  = 0;

    for (size_t r = 0; r < n && !status; r++) {
        unsigned char *row = ways + r * n;
        for (size_t q = r + 1; q < n; q++)
            row[q] = tried[q * (n + LS__MAC) + r] == 1;
        if (!r)
            continue;
        letter *l = &letters[r];
        status    = ls__seal(&d->guests[r].session, LS__OF_WAYS, row, n, l->ways_mac);
        flows[r]  = (ls__flow){.fd  = d->guests[r].fd,
                               .out = {{row, n}, {l->ways_mac, sizeof l->ways_mac}}};
    }
    memcpy(d->m->ways, ways, n);
    if (!status && (status = ls__flows(flows, (int)n, deadline, &which)))
        return fail_flow(status, which);
    return status;
}

static ls_status hand_out(door *d)
{
    size_t         n       = (size_t)d->m->env->world;
    letter        *letters = ls_calloc(n, sizeof *letters);
    ls__flow      *flows   = ls_calloc(n, sizeof *flows);
    unsigned char *tried = ls_calloc(n, n + LS__MAC), *ways = ls_calloc(n, n);
    ls_status      status   = letters && flows && tried && ways ? LS_OK : LS_ENOMEM;
    int64_t        soonest  = ls_now_ns() + 10 * LS__SECOND;
    int64_t        deadline = d->deadline > soonest ? d->deadline : soonest;

    if (!status) {
        flows[0].fd = -1;
        status      = swap_tables(d, letters, flows, tried, deadline);
    }
    if (!status)
        status = send_ways(d, letters, flows, tried, ways, deadline);
    d->m->deadline = deadline;
    free(letters);
    free(flows);
    free(tried);
    free(ways);
    return status;
}

/* ---- all of it ---- */

static ls_status open_door(door *d, ls__meeting *m)
{
    size_t n = (size_t)m->env->world;

    *d         = (door){.m        = m,
                        .listener = -1,
                        .places   = m->env->world > PLACES ? m->env->world : PLACES,
                        .missing  = m->env->world - 1,
                        .deadline = m->deadline};
    d->callers = ls_calloc((size_t)d->places, sizeof *d->callers);
    d->guests  = ls_calloc(n, sizeof *d->guests);
    d->polls   = ls_calloc(1 + (size_t)d->places + n, sizeof *d->polls);
    for (int i = 0; d->callers && i < d->places; i++)
        d->callers[i].fd = -1;
    for (size_t r = 0; d->guests && r < n; r++)
        d->guests[r].fd = -1;
    return d->callers && d->guests && d->polls ? LS_OK : LS_ENOMEM;
}

static void close_callers(door *d)
{
    for (int i = 0; d->callers && i < d->places; i++)
        if (d->callers[i].fd >= 0)
            close(d->callers[i].fd);
    free(d->callers);
    d->callers = NULL;
}

static void close_door(door *d)
{
    close_callers(d);
    for (int r = 0; d->guests && r < d->m->env->world; r++)
        if (d->guests[r].fd >= 0)
            close(d->guests[r].fd);
    if (d->listener >= 0)
        close(d->listener);
    free(d->guests);
    free(d->polls);
}

ls_status ls__host_meet(ls__meeting *m)
{
    door      d;
    char      route[64];
    ls_status status = open_door(&d, m);

    if (!status)
        status = ls__host_listen(m, &d.listener, route);
    if (!status)
        status = gather(&d);
    close_callers(&d);
    if (!status && !m->by_unix && (status = ls__meeting_listen(m, route)))
        tell_all(&d, status, ls_error_message());
    m->table[0] = m->mine;
    if (!status)
        status = hand_out(&d);
    close_door(&d);
    return status;
}

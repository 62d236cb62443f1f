#define _GNU_SOURCE /* struct ucred, SOCK_NONBLOCK */
/*
 * rendezvous.c - from a number and a place to one connection with every other rank.
 *
 *   1. which way      one host and no secret: a Unix socket; else TCP, which wants the secret
 *   2. rank 0         is found, and has found everybody (rendezvous_host.c, rendezvous_guest.c)
 *   3. the table      tells where everybody is; pairs connect (rendezvous_pairs.c)
 *
 * No socket outlives the meeting but those of the pairs.
 */
#include "dist/comm/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/endpoint.h"
#include "dist/comm/rendezvous_impl.h"

static const char export_secret[] =
    "export LOCKSTEP_SECRET with the same value everywhere (for instance from `openssl rand "
    "-hex 32`)";

/* ---- sockets ---- */

int ls__unix_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

bool ls__same_user(int fd)
{
    struct ucred other;
    socklen_t    size = sizeof other;

    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) && other.uid == geteuid();
}

int ls__milliseconds_to(int64_t due)
{
    int64_t ns = due - ls_now_ns();

    if (ns <= 0)
        return 0;
    return ns < LS__SECOND ? (int)((ns + LS__MS - 1) / LS__MS) : 1000;
}

/* An abstract name: no file, gone with the socket. */
static socklen_t name_unix(struct sockaddr_un *at, const char *name)
{
    size_t n = strlen(name), most = sizeof at->sun_path - 1;

    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    n   = n < most ? n : most;
    memcpy(at->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

socklen_t ls__meeting_unix(const ls_launch_env *env, struct sockaddr_un *at)
{
    char name[100];

    snprintf(name, sizeof name, "lockstep/%u/%d/%016llx/%d", (unsigned)geteuid(), env->port,
             (unsigned long long)hash_text(env->run_id), env->restart);
    return name_unix(at, name);
}

socklen_t ls__whereabouts_unix(const ls__whereabouts *at, struct sockaddr_un *un)
{
    char name[60];

    snprintf(name, sizeof name, "lockstep/%016llx%016llx", (unsigned long long)at->name[0],
             (unsigned long long)at->name[1]);
    return name_unix(un, name);
}

/* ---- flows ---- */

/* The piece that is to be sent next, from where; false: all is sent. */
static bool next_piece(const ls__flow *f, const char **data, size_t *bytes)
{
    size_t before = 0;

    for (int i = 0; i < 3; i++) {
        if (f->sent < before + f->out[i].bytes) {
            *data  = (const char *)f->out[i].data + (f->sent - before);
            *bytes = before + f->out[i].bytes - f->sent;
            return true;
        }
        before += f->out[i].bytes;
    }
    return false;
}

static short flow_events(const ls__flow *f)
{
    const char *data;
    size_t      bytes;
    bool        out = next_piece(f, &data, &bytes);

    return (short)((out ? POLLOUT : 0) | (f->got < f->in_bytes ? POLLIN : 0));
}

/* False at the end of the connection. */
static bool flow_on(ls__flow *f)
{
    const char *data;
    size_t      bytes;
    ssize_t     n = 1;

    while (n > 0 && next_piece(f, &data, &bytes)) {
        n = send(f->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        f->sent += n > 0 ? (size_t)n : 0;
    }
    if (n < 0 && !ls__would_block(errno))
        return false;
    while (f->got < f->in_bytes) {
        n = recv(f->fd, (char *)f->in + f->got, f->in_bytes - f->got, MSG_DONTWAIT);
        if (n < 0)
            return ls__would_block(errno);
        if (!n)
            return false;
        f->got += (size_t)n;
    }
    return true;
}

/* Fills polls; how many flows are not complete, the first of them in *which. */
static int watch_flows(const ls__flow *flows, int n, struct pollfd *polls, int *which)
{
    int open = 0;

    for (int i = n - 1; i >= 0; i--) {
        short events = flows[i].fd < 0 ? 0 : flow_events(&flows[i]);
        polls[i]     = (struct pollfd){events ? flows[i].fd : -1, events, 0};
        if (events) {
            *which = i;
            open++;
        }
    }
    return open;
}

static ls_status run_flows(ls__flow *flows, int n, struct pollfd *polls, int64_t deadline,
                           int *which)
{
    while (watch_flows(flows, n, polls, which)) {
        if (ls_now_ns() >= deadline)
            return ls_fail(LS_ETIMEOUT, "a peer said nothing in time");
        if (poll(polls, (nfds_t)n, ls__milliseconds_to(deadline)) < 0 && errno != EINTR)
            return ls_fail(LS_EIO, "poll: %s", strerror(errno));
        for (int i = 0; i < n; i++)
            if (polls[i].fd >= 0 && polls[i].revents && !flow_on(&flows[i])) {
                *which = i;
                return ls_fail(LS_EPEER, "a peer ended the connection");
            }
    }
    return LS_OK;
}

ls_status ls__flows(ls__flow *flows, int n, int64_t deadline, int *which)
{
    struct pollfd *polls  = ls_calloc((size_t)n, sizeof *polls);
    ls_status      status = polls ? run_flows(flows, n, polls, deadline, which) : LS_ENOMEM;

    free(polls);
    return status;
}

/* ---- which way ---- */

/* Is MASTER_ADDR surely another host? */
static bool master_is_elsewhere(const ls__meeting *m)
{
    ls__tcp_address found[LS__ADDRESSES];
    const char     *reason;
    int n = m->env->master[0] ? ls__address_find(m->env->master, false, found, &reason) : 0;

    for (int i = 0; i < n; i++)
        if (ls__address_is_ours(&found[i]))
            return false;
    return n > 0;
}

static ls_status choose_unix(ls__meeting *m)
{
    m->by_unix = true;
    snprintf(m->place, sizeof m->place, "the Unix socket of user %u, port %d, run \"%.80s\"",
             (unsigned)geteuid(), m->env->port, m->env->run_id);
    if (!m->one_host && m->env->local_world > 0)
        return ls_fail(
            LS_ECONFIG,
            "%d of %d ranks are on this host: ranks of several hosts prove that they "
            "belong together; %s",
            m->env->local_world, m->env->world, export_secret);
    if (!m->one_host && m->env->rank && master_is_elsewhere(m))
        return ls_fail(LS_ECONFIG,
                       "MASTER_ADDR=%s is another host: ranks of several hosts prove that they "
                       "belong together; %s",
                       m->env->master, export_secret);
    return LS_OK;
}

static ls_status choose_tcp(ls__meeting *m)
{
    const char *missing = m->env->master[0] ? "MASTER_PORT" : "MASTER_ADDR";

    snprintf(m->place, sizeof m->place, "%.120s, port %d%s", m->env->master,
             m->env->port + m->env->store, m->env->store ? " and those after it" : "");
    if (m->env->master[0] && m->env->port)
        return LS_OK;
    return ls_fail(
        LS_ECONFIG,
        "%s is not set: ranks that may be on several hosts meet where MASTER_ADDR and "
        "MASTER_PORT say, the address of rank 0's host and a free port",
        missing);
}

static ls_status check_ports(const int ports[2])
{
    if ((!ports[0] && !ports[1]) ||
        (ports[0] >= 1 && ports[0] <= ports[1] && ports[1] <= 65535))
        return LS_OK;
    return ls_fail(LS_ECONFIG, "ports %d to %d to listen on: they count from 1 to 65535",
                   ports[0], ports[1]);
}

static ls_status choose_way(ls__meeting *m)
{
    bool told = m->env->master[0] && m->env->port;

    m->one_host = m->env->local_world == m->env->world;
    if (!m->secret[0] || (m->one_host && !told))
        return choose_unix(m);
    return choose_tcp(m);
}

/* ---- where this rank is ---- */

static ls_status listen_near(ls__meeting *m)
{
    struct sockaddr_un at;
    socklen_t          length = ls__whereabouts_unix(&m->mine, &at);

    m->near = ls__unix_socket();
    if (m->near < 0 || bind(m->near, (struct sockaddr *)&at, length) ||
        listen(m->near, SOMAXCONN))
        return ls_fail(LS_EIO, "rank %d cannot listen for ranks of this host: %s", m->env->rank,
                       strerror(errno));
    return LS_OK;
}

static ls_status introduce(ls__meeting *m)
{
    ls__identity(m->mine.identity, sizeof m->mine.identity);
    ls_status status = ls__random(m->mine.token, sizeof m->mine.token);
    if (!status)
        status = ls__random(m->mine.name, sizeof m->mine.name);
    return status ? status : listen_near(m);
}

ls_status ls__meeting_listen(ls__meeting *m, const char *route)
{
    const ls_rendezvous_opts *o = m->opts;
    char                      address[64];

    if (m->one_host)
        return LS_OK;
    ls_status status = ls__address_choose(o->interface, route, address);
    if (!status && m->far.fd >= 0 && !strcmp(m->far.address, address))
        return LS_OK;
    ls_tcp_listener_close(&m->far);
    if (!status)
        status = ls_tcp_listen(address, o->ports[0], o->ports[1], &m->far);
    if (status && o->ports[0])
        return ls_fail_in(status,
                          "rank %d (ports %d to %d are given: each rank of a host needs "
                          "one)",
                          m->env->rank, o->ports[0], o->ports[1]);
    if (status)
        return ls_fail_in(status, "rank %d", m->env->rank);
    memcpy(m->mine.address, m->far.address, sizeof m->mine.address);
    m->mine.port = m->far.port;
    return LS_OK;
}

/* ---- all of it ---- */

static ls_status meet(ls__meeting *m)
{
    ls_status status = check_ports(m->opts->ports);

    if (!status)
        status = choose_way(m);
    if (!status)
        status = introduce(m);
    if (!status)
        status = m->env->rank ? ls__guest_meet(m) : ls__host_meet(m);
    return status ? status : ls__pairs_finish(m);
}

static bool all_here(const ls__meeting *m)
{
    bool here = true;

    for (int r = 0; r < m->env->world; r++)
        here = here && !strcmp(m->table[r].identity, m->mine.identity);
    return here;
}

static void close_all(int *sockets, int world)
{
    for (int r = 0; r < world; r++) {
        if (sockets[r] >= 0)
            close(sockets[r]);
        sockets[r] = -1;
    }
}

ls_status ls_rendezvous(const ls_launch_env *env, const ls_rendezvous_opts *opts, int *sockets,
                        char address[64])
{
    const char *secret    = getenv("LOCKSTEP_SECRET");
    double      timeout_s = opts->timeout_s > 0 ? opts->timeout_s : 60;
    ls__meeting m         = {.env       = env,
                             .opts      = opts,
                             .secret    = secret ? secret : "",
                             .timeout_s = timeout_s,
                             .deadline  = ls_now_ns() + (int64_t)(timeout_s * 1e9),
                             .near      = -1,
                             .far       = {.fd = -1},
                             .sockets   = sockets};

    address[0] = '\0';
    for (int r = 0; r < env->world; r++)
        sockets[r] = -1;
    if (env->world == 1)
        return LS_OK;
    m.table          = ls_calloc((size_t)env->world, sizeof *m.table);
    m.ways           = ls_calloc((size_t)env->world, 1);
    ls_status status = m.table && m.ways ? meet(&m) : LS_ENOMEM;
    if (status)
        close_all(sockets, env->world);
    else if (!all_here(&m))
        memcpy(address, m.mine.address, sizeof m.mine.address);
    if (m.near >= 0)
        close(m.near);
    ls_tcp_listener_close(&m.far);
    free(m.table);
    free(m.ways);
    return status;
}

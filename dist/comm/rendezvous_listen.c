#define _GNU_SOURCE /* struct ucred */
/*
 * rendezvous_listen.c - where rank 0 awaits the others.
 *
 * By TCP at MASTER_ADDR and MASTER_PORT, which must be this host's; at the next free port
 * behind it where the launcher has that one for itself; on a socket that the launcher has made;
 * or on a Unix socket where all ranks are of this host.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "dist/comm/rendezvous_impl.h"

static ls_status fail_to_listen(const ls__meeting *m, const char *address)
{
    char owner[160], why[300];

    snprintf(why, sizeof why, "%s", ls_error_message());
    ls__port_owner(address, (uint32_t)m->env->port, owner, sizeof owner);
    return ls_fail(LS_EIO, "rank 0 meets the others at MASTER_ADDR, MASTER_PORT: %s%s%s", why,
                   owner[0] ? ", by " : "", owner);
}

static ls_status listen_at(ls__meeting *m, const ls__tcp_address *at, ls_tcp_listener *l)
{
    char address[64];
    int  first = m->env->port, last = first;

    if (m->env->store) {
        first++;
        last += LS__STORE_PORTS;
        last = last > 65535 ? 65535 : last;
    }
    if (ls_tcp_listen(ls__address_text(at, address), first, last, l))
        return fail_to_listen(m, address);
    ls__tcp_name(m->place, l->address, l->port);
    return LS_OK;
}

static ls_status not_ours(const ls__meeting *m, const ls__tcp_address *at)
{
    char address[64], host[64] = "?";

    gethostname(host, sizeof host - 1);
    return ls_fail(LS_ECONFIG,
                   "MASTER_ADDR=%s (%s) is no address of this host (%s), but rank 0 runs here: "
                   "it must be rank 0's",
                   m->env->master, ls__address_text(at, address), host);
}

static ls_status listen_by_tcp(ls__meeting *m, ls_tcp_listener *l)
{
    ls__tcp_address found[LS__ADDRESSES];
    const char     *reason = "";
    int             n;

    while (!(n = ls__address_find(m->env->master, !m->one_host, found, &reason))) {
        if (ls_now_ns() + 250 * LS__MS > m->deadline)
            return ls_fail(LS_ETIMEOUT, "MASTER_ADDR=%s has no address after %g s: %s",
                           m->env->master, m->timeout_s, reason);
        ls_sleep_ns(250 * LS__MS);
    }
    if (ls__address_is_any(&found[0]))
        return ls_fail(LS_ECONFIG,
                       "MASTER_ADDR=%s: an address at which others reach rank 0 is "
                       "needed",
                       m->env->master);
    for (int i = 0; i < n; i++)
        if (ls__address_is_ours(&found[i]))
            return listen_at(m, &found[i], l);
    return not_ours(m, &found[0]);
}

static ls_status listen_by_unix(ls__meeting *m, int *fd)
{
    struct sockaddr_un at;
    socklen_t          length    = ls__meeting_unix(m->env, &at);
    struct ucred       owner     = {0};
    socklen_t          size      = sizeof owner;
    char               text[160] = "";

    *fd = ls__unix_socket();
    if (*fd < 0)
        return ls_fail(LS_EIO, "no Unix socket for rank 0: %s", strerror(errno));
    if (!bind(*fd, (struct sockaddr *)&at, length) && !listen(*fd, SOMAXCONN))
        return LS_OK;
    int error = errno;
    if (!connect(*fd, (struct sockaddr *)&at, length) &&
        !getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &owner, &size))
        ls__process_text(owner.pid, text, sizeof text);
    close(*fd);
    *fd = -1;
    return ls_fail(LS_EIO,
                   "rank 0 cannot listen on %s: %s%s%s; another job of the same number? Give "
                   "each its own MASTER_PORT or LOCKSTEP_RUN_ID",
                   m->place, strerror(error), text[0] ? ", by " : "", text);
}

/* The port on which a TCP socket listens; 0 where it does not, or is none. */
static int listening_port(int fd, ls__tcp_address *at)
{
    const struct sockaddr_in  *v4        = (const struct sockaddr_in *)&at->at;
    const struct sockaddr_in6 *v6        = (const struct sockaddr_in6 *)&at->at;
    int                        listening = 0;
    socklen_t                  size      = sizeof listening;

    *at = (ls__tcp_address){.length = sizeof at->at};
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) || !listening ||
        getsockname(fd, (struct sockaddr *)&at->at, &at->length))
        return 0;
    if (at->at.ss_family == AF_INET)
        return ntohs(v4->sin_port);
    return at->at.ss_family == AF_INET6 ? ntohs(v6->sin6_port) : 0;
}

/*
 * A socket that the launcher made: *fd, or -1 where there is none.  One that does not listen at
 * MASTER_PORT is not the launcher's: an earlier meeting of this process has taken that, and the
 * number may be another's by now.
 */
static ls_status take_socket(ls__meeting *m, int *fd)
{
    const char     *text = getenv("LOCKSTEP_LISTEN_FD");
    char           *end  = NULL;
    ls__tcp_address at;
    char            address[64];

    *fd = -1;
    if (!text || !text[0])
        return LS_OK;
    long number = strtol(text, &end, 10);
    if (*end || number < 0 || number > 1 << 20 || end == text)
        return ls_fail(LS_ECONFIG, "LOCKSTEP_LISTEN_FD=\"%.40s\" is not a file descriptor",
                       text);
    if (listening_port((int)number, &at) != m->env->port)
        return LS_OK;
    ls__tcp_name(m->place, ls__address_text(&at, address), (uint32_t)m->env->port);
    *fd = (int)number;
    if (fcntl(*fd, F_SETFD, FD_CLOEXEC) || fcntl(*fd, F_SETFL, O_NONBLOCK))
        return ls_fail(LS_EIO, "LOCKSTEP_LISTEN_FD=%ld: %s", number, strerror(errno));
    return LS_OK;
}

/* Where rank 0 itself is reached: at the address that it listens on. */
static ls_status find_route(int fd, char route[64])
{
    ls__tcp_address at = {.length = sizeof at.at};

    if (getsockname(fd, (struct sockaddr *)&at.at, &at.length))
        return ls_fail(LS_EIO, "getsockname: %s", strerror(errno));
    ls__address_text(&at, route);
    return LS_OK;
}

ls_status ls__host_listen(ls__meeting *m, int *listener, char route[64])
{
    ls_tcp_listener l = {.fd = -1};
    ls_status       status;

    route[0] = '\0';
    if (m->by_unix)
        return listen_by_unix(m, listener);
    status = take_socket(m, listener);
    if (!status && *listener < 0) {
        status    = listen_by_tcp(m, &l);
        *listener = l.fd;
    }
    return status ? status : find_route(*listener, route);
}

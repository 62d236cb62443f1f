#define _GNU_SOURCE /* SOCK_CLOEXEC */
/*
 * launch_port.c - where the ranks meet: a socket that listens before any rank runs.
 *
 * A port that was only looked for could be taken by somebody else before rank 0 listens on it;
 * this one is held from the start and handed down.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/comm/launch_impl.h"

ls_status ls__address_parse(const char *text, ls__address *address)
{
    const char *colon = strrchr(text, ':'), *host = text;
    size_t      n    = colon ? (size_t)(colon - text) : 0;
    char       *end  = NULL;
    long        port = colon ? strtol(colon + 1, &end, 10) : 0;

    if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (colon && memchr(host, ':', n)) {
        return ls_fail(LS_ECONFIG, "run: --rdzv %s: an IPv6 address is written [ADDRESS]:PORT",
                       text);
    }
    if (!n || n >= sizeof address->host || colon[1] < '0' || colon[1] > '9' || *end)
        return ls_fail(LS_ECONFIG, "run: --rdzv %s, want HOST:PORT", text);
    if (port < 1 || port > 65535)
        return ls_fail(LS_ECONFIG, "run: --rdzv %s: port %ld, want 1 to 65535", text, port);
    memcpy(address->host, host, n);
    address->host[n] = '\0';
    address->port    = (int)port;
    return LS_OK;
}

static int port_of(int fd)
{
    struct sockaddr_storage at     = {0};
    socklen_t               length = sizeof at;
    char                    port[NI_MAXSERV];

    if (getsockname(fd, (struct sockaddr *)&at, &length) ||
        getnameinfo((struct sockaddr *)&at, length, NULL, 0, port, sizeof port, NI_NUMERICSERV))
        return 0;
    return (int)strtol(port, NULL, 10);
}

/* The socket, or -1 and errno. */
static int listen_on(const struct addrinfo *at)
{
    int one = 1, fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
        !bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, SOMAXCONN))
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/*
 * A name of this host often stands for 127.0.1.1 in its own /etc/hosts, where no other host
 * can reach it.
 */
static bool is_misleading(const char *host, const struct addrinfo *at)
{
    struct in6_addr number;

    if (at->ai_family != AF_INET || !strcmp(host, "localhost") ||
        inet_pton(AF_INET, host, &number) == 1)
        return false;
    return ntohl(((struct sockaddr_in *)at->ai_addr)->sin_addr.s_addr) >> 24 == 127;
}

static bool not_here(int error)
{
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

ls_status ls__listen(ls__address *address, int *fd)
{
    struct addrinfo  hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char             port[16];
    ls_status        status = LS_OK;

    *fd = -1;
    snprintf(port, sizeof port, "%d", address->port);
    if (getaddrinfo(address->host, port, &hints, &found))
        return LS_OK;
    for (struct addrinfo *at = found; at && *fd < 0 && !status; at = at->ai_next) {
        if (is_misleading(address->host, at))
            continue;
        *fd = listen_on(at);
        if (*fd < 0 && !not_here(errno))
            status = ls_fail(LS_EIO, "run: cannot listen on %s:%d: %s%s", address->host,
                             address->port, strerror(errno),
                             errno == EADDRINUSE ? "; is another job there?" : "");
    }
    freeaddrinfo(found);
    if (*fd >= 0)
        address->port = port_of(*fd);
    return status;
}

/*
 * Bound, so that the system gives it to nobody else, but not listening: who binds to it by name
 * with SO_REUSEADDR, as stores do, gets it.
 */
ls_status ls__reserve(int *port, int *fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int                on = 1;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd >= 0 && !setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
        !bind(*fd, (struct sockaddr *)&at, sizeof at)) {
        *port = port_of(*fd);
        return LS_OK;
    }
    ls_status status = ls_fail(LS_EIO, "run: no free port on loopback: %s", strerror(errno));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return status;
}

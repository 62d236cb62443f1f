/*
 * tcp_listen.c - addresses and sockets of the TCP transport.
 *
 * Addresses are numeric throughout: what a name means is the business of whoever brings the
 * ranks together, and must not depend on the resolver of each host.
 */
#define _GNU_SOURCE /* SOCK_CLOEXEC, SOCK_NONBLOCK */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dist/comm/tcp_impl.h"

/*
 * Between two ranks of one host what is under way should stay in a core's own cache: exchanges
 * of 1 to 64 MiB took half the time with 128 to 384 KiB (the system doubles the figure) as with
 * the megabytes to which the system lets the buffer grow, on cores with 1 MiB.  Smaller ones
 * cost more turns where ranks share a core.  Across a network the system chooses better.
 */
enum { LAST_PORT = 65535, LOCAL_SEND_BUFFER = 384 * 1024 };

const char *ls__tcp_name(char text[LS__TCP_NAME], const char *address, uint32_t port)
{
    const char *form = strchr(address, ':') ? "[%s]:%u" : "%s:%u";

    snprintf(text, LS__TCP_NAME, form, address, (unsigned)port);
    return text;
}

ls_status ls__tcp_resolve(const char *address, uint32_t port, ls__tcp_address *to)
{
    struct addrinfo  hints = {.ai_family   = AF_UNSPEC,
                              .ai_socktype = SOCK_STREAM,
                              .ai_flags    = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found;
    char             service[16];

    if (port > LAST_PORT)
        return ls_fail(LS_EINVAL, "port %u of address %s: at most 65535", (unsigned)port,
                       address);
    snprintf(service, sizeof service, "%u", (unsigned)port);
    int error = getaddrinfo(address, service, &hints, &found);
    if (error == EAI_MEMORY)
        return ls_fail(LS_ENOMEM, "address %s: out of memory", address);
    if (error)
        return ls_fail(LS_EINVAL, "address \"%s\" is not a numeric IPv4 or IPv6 address",
                       address);
    memcpy(&to->at, found->ai_addr, found->ai_addrlen);
    to->length = found->ai_addrlen;
    freeaddrinfo(found);
    return LS_OK;
}

/* Options that the system refuses cost speed, not correctness. */
static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

int ls__tcp_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (family == AF_INET6)
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    return fd;
}

/*
 * Listens at `to`; -1 and errno.  A port that was asked for by number may be one that an
 * earlier run left in TIME_WAIT: it is free.  One that somebody listens on stays refused.
 */
static int listen_at(const ls__tcp_address *to, bool by_number)
{
    int fd = ls__tcp_socket(to->at.ss_family);

    if (fd < 0)
        return -1;
    if (by_number)
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (!bind(fd, (const struct sockaddr *)&to->at, to->length) && !listen(fd, SOMAXCONN))
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

typedef union {
    struct sockaddr     any;
    struct sockaddr_in  v4;
    struct sockaddr_in6 v6;
} end;

static uint32_t port_of(int fd)
{
    end       at     = {0};
    socklen_t length = sizeof at;

    if (getsockname(fd, &at.any, &length))
        return 0;
    return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

/* Both ends have the same address. */
static bool is_local(int fd)
{
    end       ours = {0}, theirs = {0};
    socklen_t ours_length = sizeof ours, theirs_length = sizeof theirs;

    if (getsockname(fd, &ours.any, &ours_length) ||
        getpeername(fd, &theirs.any, &theirs_length))
        return false;
    if (ours.any.sa_family == AF_INET6)
        return !memcmp(&ours.v6.sin6_addr, &theirs.v6.sin6_addr, sizeof ours.v6.sin6_addr);
    return ours.v4.sin_addr.s_addr == theirs.v4.sin_addr.s_addr;
}

void ls__tcp_tune(int fd)
{
    if (is_local(fd))
        set_option(fd, SOL_SOCKET, SO_SNDBUF, LOCAL_SEND_BUFFER);
}

static ls_status fail_to_listen(const char *address, int first, int last)
{
    const char *reason = strerror(errno);
    char        name[LS__TCP_NAME];

    if (first == last && first)
        return ls_fail(LS_EIO, "cannot listen on %s: %s",
                       ls__tcp_name(name, address, (uint32_t)first), reason);
    if (first)
        return ls_fail(LS_EIO, "cannot listen on address %s, no port of %d to %d is free: %s",
                       address, first, last, reason);
    return ls_fail(LS_EIO, "cannot listen on address %s, any port: %s", address, reason);
}

ls_status ls_tcp_listen(const char *address, int first, int last, ls_tcp_listener *listener)
{
    ls__tcp_address to = {0};
    int             fd = -1;

    *listener = (ls_tcp_listener){.fd = -1};
    if (first < 0 || last < first || last > LAST_PORT || (!first && last))
        return ls_fail(LS_EINVAL,
                       "ports %d to %d of address %s: 1 to 65535, or 0 and 0 for any", first,
                       last, address);
    if (strlen(address) >= sizeof listener->address)
        return ls_fail(LS_EINVAL, "address \"%.80s\" is too long", address);
    for (int port = first; port <= last && fd < 0; port++) {
        ls_status status = ls__tcp_resolve(address, (uint32_t)port, &to);
        if (status)
            return status;
        fd = listen_at(&to, port != 0);
        if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
            break;
    }
    if (fd < 0)
        return fail_to_listen(address, first, last);
    listener->fd   = fd;
    listener->port = port_of(fd);
    memcpy(listener->address, address, strlen(address) + 1);
    return LS_OK;
}

void ls_tcp_listener_close(ls_tcp_listener *listener)
{
    if (listener->fd >= 0)
        close(listener->fd);
    listener->fd = -1;
}

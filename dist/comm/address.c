#define _DEFAULT_SOURCE /* getifaddrs, IFF_UP */
/*
 * address.c - at which of its addresses a host is reached.
 *
 * The best answer is the system's own: the source address of the route to the master.  A user
 * may know better, and then names an interface.  A loopback address is never offered to
 * somebody who does not come from one.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/comm/address_impl.h"

typedef union {
    const struct sockaddr     *any;
    const struct sockaddr_in  *v4;
    const struct sockaddr_in6 *v6;
} view;

static view view_of(const ls__tcp_address *a)
{
    return (view){(const struct sockaddr *)&a->at};
}

static bool take(ls__tcp_address *a, const struct sockaddr *from)
{
    if (!from || (from->sa_family != AF_INET && from->sa_family != AF_INET6))
        return false;
    a->length =
        from->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memset(&a->at, 0, sizeof a->at);
    memcpy(&a->at, from, a->length);
    return true;
}

bool ls__address_is_loopback(const ls__tcp_address *a)
{
    view v = view_of(a);

    if (a->at.ss_family == AF_INET)
        return ntohl(v.v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&v.v6->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v.v6->sin6_addr) && v.v6->sin6_addr.s6_addr[12] == 127);
}

bool ls__address_is_any(const ls__tcp_address *a)
{
    view v = view_of(a);

    if (a->at.ss_family == AF_INET)
        return v.v4->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&v.v6->sin6_addr);
}

/* But for the port. */
static bool same(const ls__tcp_address *a, const ls__tcp_address *b)
{
    view x = view_of(a), y = view_of(b);

    if (a->at.ss_family != b->at.ss_family)
        return false;
    if (a->at.ss_family == AF_INET)
        return x.v4->sin_addr.s_addr == y.v4->sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&x.v6->sin6_addr, &y.v6->sin6_addr);
}

const char *ls__address_text(const ls__tcp_address *a, char text[64])
{
    if (getnameinfo((const struct sockaddr *)&a->at, a->length, text, 64, NULL, 0,
                    NI_NUMERICHOST))
        snprintf(text, 64, "?");
    return text;
}

void ls__address_set_port(ls__tcp_address *a, uint32_t port)
{
    if (a->at.ss_family == AF_INET)
        ((struct sockaddr_in *)&a->at)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)&a->at)->sin6_port = htons((uint16_t)port);
}

/* ---- this host ---- */

/* One of the interfaces' addresses, those of interfaces that are up. */
typedef struct {
    const char     *name;
    ls__tcp_address at;
} home;

/* Fills up to n; their number.  The list is to be freed after use. */
static int list_homes(struct ifaddrs **list, home *homes, int n)
{
    int found = 0;

    *list = NULL;
    if (getifaddrs(list))
        return 0;
    for (const struct ifaddrs *i = *list; i && found < n; i = i->ifa_next)
        if ((i->ifa_flags & IFF_UP) && take(&homes[found].at, i->ifa_addr))
            homes[found++].name = i->ifa_name;
    return found;
}

enum { HOMES = 64 };

bool ls__address_is_ours(const ls__tcp_address *a)
{
    struct ifaddrs *list;
    home            homes[HOMES];
    int             n    = list_homes(&list, homes, HOMES);
    bool            ours = ls__address_is_loopback(a);

    for (int i = 0; i < n && !ours; i++)
        ours = same(a, &homes[i].at);
    freeifaddrs(list);
    return ours;
}

/* "lo (127.0.0.1, ::1), eth0 (10.0.0.2)" */
static void describe(const home *homes, int n, char *text, size_t size)
{
    size_t used = 0;
    char   address[64];

    text[0] = '\0';
    for (int i = 0; i < n && used + 100 < size; i++) {
        bool first = true;
        for (int j = 0; j < i; j++)
            first = first && strcmp(homes[j].name, homes[i].name) != 0;
        if (!first)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s (", used ? ", " : "",
                                 homes[i].name);
        for (int j = i; j < n && used + 80 < size; j++)
            if (!strcmp(homes[j].name, homes[i].name))
                used += (size_t)snprintf(text + used, size - used, "%s%s", j == i ? "" : ", ",
                                         ls__address_text(&homes[j].at, address));
        used += (size_t)snprintf(text + used, size - used, ")");
    }
}

/* ---- interfaces ---- */

/* Is the name one of "lo,docker", or does it start with one? */
static bool excluded(const char *name, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        if (n && !strncmp(name, list, n))
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

static bool has_interface(const home *homes, int n, const char *name)
{
    bool found = false;

    for (int i = 0; i < n; i++)
        found = found || !strcmp(homes[i].name, name);
    return found;
}

/* Does this home fit the wish?  A number, a name, or "^" and what it may not be. */
static bool fits(const home *h, const char *wish)
{
    ls__tcp_address number;

    if (wish[0] == '^')
        return !excluded(h->name, wish + 1);
    if (!strcmp(h->name, wish))
        return true;
    return !ls__tcp_resolve(wish, 0, &number) && same(&number, &h->at);
}

/* The route's own address first, then one of its kind, then any; -1: none. */
static int choose(const home *homes, int n, const char *wish, const ls__tcp_address *route)
{
    int best = -1, best_grade = 0;

    for (int i = 0; i < n; i++) {
        if (!fits(&homes[i], wish))
            continue;
        int grade = 1 + (homes[i].at.at.ss_family == route->at.ss_family ? 2 : 0) +
                    (same(&homes[i].at, route) ? 4 : 0) +
                    (ls__address_is_loopback(&homes[i].at) ? 0 : 1);
        if (grade > best_grade) {
            best       = i;
            best_grade = grade;
        }
    }
    return best;
}

static ls_status fail_to_choose(const home *homes, int n, const char *wish, int chosen,
                                const char *route)
{
    char there[600], address[64];

    describe(homes, n, there, sizeof there);
    if (chosen >= 0)
        return ls_fail(
            LS_ECONFIG,
            "interface \"%.60s\" (%s) is loopback, which ranks that come by %s cannot "
            "reach; there are: %s",
            wish, ls__address_text(&homes[chosen].at, address), route, there);
    if (wish[0] == '^' || has_interface(homes, n, wish))
        return ls_fail(LS_ECONFIG, "interface \"%.60s\" leaves no address; there are: %s", wish,
                       there);
    return ls_fail(
        LS_ECONFIG,
        "interface \"%.60s\": no interface and no address of this host is called so; "
        "there are: %s",
        wish, there);
}

ls_status ls__address_choose(const char *interface, const char *route, char address[64])
{
    struct ifaddrs *list;
    home            homes[HOMES];
    ls__tcp_address way;
    ls_status       status = ls__tcp_resolve(route, 0, &way);

    if (status)
        return status;
    if (!interface || !interface[0]) {
        ls__address_text(&way, address);
        return LS_OK;
    }
    int n      = list_homes(&list, homes, HOMES);
    int chosen = choose(homes, n, interface, &way);
    if (chosen < 0 ||
        (ls__address_is_loopback(&homes[chosen].at) && !ls__address_is_loopback(&way)))
        status = fail_to_choose(homes, n, interface, chosen, route);
    else
        ls__address_text(&homes[chosen].at, address);
    freeifaddrs(list);
    return status;
}

/* ---- names ---- */

/* Where this host goes out: no packet is sent, the system only chooses a route. */
static bool find_outward(int family, ls__tcp_address *at)
{
    ls__tcp_address away;
    socklen_t       length = sizeof at->at;
    int             fd     = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    /* of the blocks that are kept for documentation (RFC 5737, RFC 3849) */
    bool found = fd >= 0 &&
                 !ls__tcp_resolve(family == AF_INET ? "192.0.2.1" : "2001:db8::1", 9, &away) &&
                 !connect(fd, (const struct sockaddr *)&away.at, away.length) &&
                 !getsockname(fd, (struct sockaddr *)&at->at, &length) &&
                 !ls__address_is_loopback(at);
    at->length = length;
    if (fd >= 0)
        close(fd);
    return found;
}

/* Without a route to everywhere: the first address that is none of loopback. */
static bool find_first(ls__tcp_address *at)
{
    struct ifaddrs *list;
    home            homes[HOMES];
    int             n     = list_homes(&list, homes, HOMES);
    bool            found = false;

    for (int i = 0; i < n && !found; i++)
        if (!ls__address_is_loopback(&homes[i].at) && homes[i].at.at.ss_family == AF_INET) {
            *at   = homes[i].at;
            found = true;
        }
    freeifaddrs(list);
    return found;
}

static bool is_localhost(const char *name)
{
    ls__tcp_address number;
    size_t          n = strlen(name);

    return !strncmp(name, "localhost", 9) || !strncmp(name, "ip6-", 4) ||
           (n > 10 && !strcmp(name + n - 10, ".localhost")) ||
           !ls__tcp_resolve(name, 0, &number);
}

static int drop_loopback(ls__tcp_address *found, int n)
{
    int kept = 0;

    for (int i = 0; i < n; i++)
        if (!ls__address_is_loopback(&found[i]))
            found[kept++] = found[i];
    if (kept)
        return kept;
    ls__tcp_address out = {0};
    if (!find_outward(AF_INET, &out) && !find_outward(AF_INET6, &out) && !find_first(&out))
        return n; /* a host without a network: loopback is all there is */
    ls__address_set_port(&out, 0);
    found[0] = out;
    return 1;
}

int ls__address_find(const char *name, bool far, ls__tcp_address found[LS__ADDRESSES],
                     const char **reason)
{
    struct addrinfo  hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int              n     = 0;
    int              error = getaddrinfo(name, NULL, &hints, &list);

    if (error) {
        *reason = gai_strerror(error);
        return 0;
    }
    for (const struct addrinfo *i = list; i && n < LS__ADDRESSES; i = i->ai_next) {
        bool fresh = take(&found[n], i->ai_addr);
        for (int j = 0; j < n && fresh; j++)
            fresh = !same(&found[j], &found[n]);
        n += fresh;
    }
    freeaddrinfo(list);
    if (!n)
        *reason = "no IPv4 or IPv6 address";
    return far && n && !is_localhost(name) ? drop_loopback(found, n) : n;
}

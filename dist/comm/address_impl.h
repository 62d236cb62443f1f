/*
 * address_impl.h - the addresses of this host, and who has a port.
 */
#ifndef LS_DIST_COMM_ADDRESS_IMPL_H
#define LS_DIST_COMM_ADDRESS_IMPL_H

#include "dist/comm/tcp_impl.h"

enum { LS__ADDRESSES = 8 };

bool ls__address_is_loopback(const ls__tcp_address *a); /* 127.0.0.0/8, ::1 */
bool ls__address_is_any(const ls__tcp_address *a);      /* 0.0.0.0, :: */
bool ls__address_is_ours(const ls__tcp_address *a);     /* of this host, loopback too */

/* Numeric, without the port, into text; returns text. */
const char *ls__address_text(const ls__tcp_address *a, char text[64]);
void        ls__address_set_port(ls__tcp_address *a, uint32_t port);

/*
 * What a name or number stands for: up to LS__ADDRESSES different addresses; their number, or
 * 0 and the resolver's reason in *reason (a literal).
 *
 * Many systems give the host's own name a loopback address (127.0.1.1), which no other host
 * can reach.  Where several hosts may take part (far), such a name is taken to mean the
 * address at which this host goes out instead.
 */
int ls__address_find(const char *name, bool far, ls__tcp_address found[LS__ADDRESSES],
                     const char **reason);

/*
 * The address to be reached at: `interface` as in ls_rendezvous_opts; `route`, numeric, is the
 * source address of the way to the master.  ECONFIG lists the interfaces that exist, also for
 * a loopback address where route is none.
 */
LS_MUST_CHECK ls_status ls__address_choose(const char *interface, const char *route,
                                           char address[64]);

/*
 * Who listens at an address: "pid 123 (python3 server.py)" into text, "" where that cannot be
 * seen (of another user, in another namespace); returns text.
 */
const char *ls__port_owner(const char *address, uint32_t port, char *text, size_t size);

/* "pid 123 (python3 server.py)" into text; returns text. */
const char *ls__process_text(long pid, char *text, size_t size);

#endif

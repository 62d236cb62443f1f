/*
 * transport_mixed.h - a group some of whose ranks share memory: each pair takes its best way.
 */
#ifndef LS_DIST_COMM_TRANSPORT_MIXED_H
#define LS_DIST_COMM_TRANSPORT_MIXED_H

#include "dist/comm/transport.h"

/* `near` reaches the ranks with is_near[rank] ([size], copied), `far` the others; both are
 * taken, in failure too. */
LS_MUST_CHECK ls_status ls_transport_mixed(ls_transport *near, ls_transport *far,
                                           const bool *is_near, ls_transport **t);

#endif

/*
 * transport_faulty.h - a transport that goes wrong once, for tests.
 */
#ifndef LS_DIST_COMM_TRANSPORT_FAULTY_H
#define LS_DIST_COMM_TRANSPORT_FAULTY_H

#include "dist/comm/transport.h"

typedef enum {
    LS_FAULT_FAIL,     /* EIO, nothing is sent */
    LS_FAULT_DELAY,    /* half a second late */
    LS_FAULT_TRUNCATE, /* a byte less than was to be sent; a meeting: an element less than the
                          rank has come with; CUT where there is none */
    LS_FAULT_CUT,      /* neither this nor any later exchange or meeting moves a byte; nobody is
                          told: connections stay open, as when a cable is pulled */
    LS_FAULT_COUNT
} ls_fault;

/*
 * Wraps inner (taken, in failure too): the n-th exchange or meeting, from 1, goes wrong.  An
 * exchange is counted when it begins, a meeting when this rank puts up its posting.
 */
LS_MUST_CHECK ls_status ls_transport_faulty(ls_transport *inner, int64_t n, ls_fault fault,
                                            ls_transport **t);

#endif

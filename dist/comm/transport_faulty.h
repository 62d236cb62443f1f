/*
 * transport_faulty.h - a transport that goes wrong once, for tests.
 */
#ifndef LS_DIST_COMM_TRANSPORT_FAULTY_H
#define LS_DIST_COMM_TRANSPORT_FAULTY_H

#include "dist/comm/transport.h"

typedef enum {
    LS_FAULT_FAIL,     /* EIO, nothing is sent */
    LS_FAULT_DELAY,    /* half a second late */
    LS_FAULT_TRUNCATE, /* a byte (or element) less than was to be sent */
    LS_FAULT_CUT /* the connection ends: neither this nor any later exchange moves a byte */
} ls_fault;

/*
 * Wraps inner (taken, in failure too): the n-th exchange or meeting, from 1, goes wrong.
 */
LS_MUST_CHECK ls_status ls_transport_faulty(ls_transport *inner, int64_t n, ls_fault fault,
                                            ls_transport **t);

#endif

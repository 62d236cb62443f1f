/*
 * endpoint.h - what a process is as a rank of the world; its groups share it.
 *
 * And how a group comes about, at the join and in a split alike: each member makes what the
 * others will need to reach it (a control block, a listening socket), all show each other
 * where that is (ls_contact), and from the contacts of all each builds its transport.
 */
#ifndef LS_DIST_COMM_ENDPOINT_H
#define LS_DIST_COMM_ENDPOINT_H

#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

#include "dist/comm/control.h"
#include "dist/comm/join.h"
#include "dist/comm/space.h"
#include "dist/comm/transport_tcp.h"
#include "dist/comm/wait.h"

typedef struct {
    _Atomic int              groups; /* that hold it */
    pid_t                    pid;
    int                      rank, world;
    ls_join_opts             opts;
    const struct ls_backend *backend;
    ls_control              *control; /* NULL: the backend's launcher has brought us together */
    ls_space                *space;   /* of the heap; never NULL */
    bool                    *is_local; /* [world]: shares this rank's space */
    char           address[64];        /* to listen on; "": nobody has to be reached by TCP */
    ls_wait_policy policy;
    ls_recorder   *recorder, *own_recorder;
    FILE          *log;      /* LOCKSTEP_COMM_LOG */
    _Atomic int    next_tag; /* of MPI groups */
} ls_endpoint;

enum { LS_WORLD_ID = 1 }; /* the group of all; splits make other ids of it */

/* What a member shows the others. */
typedef struct {
    uint64_t place; /* of its control block, 0: none */
    uint64_t token[2];
    uint32_t port;
    int32_t  tag;
    int32_t  failed; /* it could not make what the group needs */
    int32_t  unused;
    char     address[64];
} ls_contact;

/* A group in the making. */
typedef struct {
    ls_endpoint    *home;
    uint64_t        id;
    int             rank, size;
    const int      *members; /* [size] world ranks */
    void           *block;
    ls_tcp_listener listener;
    ls_contact      mine;
} ls_forming;

/* Fills f->mine; a failure (also in f->mine.failed, for the others) leaves nothing behind. */
LS_MUST_CHECK ls_status ls__form_begin(ls_forming *f);
/* Undoes ls__form_begin. */
void                    ls__form_drop(ls_forming *f);
/* The transport, from the contacts [size] of all members.  f is used up, in failure too. */
LS_MUST_CHECK ls_status ls__form_transport(ls_forming *f, const ls_contact *all,
                                           int64_t deadline, ls_transport **t);

/* One reference less; the last one says goodbye and frees everything.  The control is freed
 * first. */
void ls__endpoint_release(ls_endpoint *home);

/* The host, as far as memory can be shared; also in the rendezvous. */
void ls__identity(char *identity, size_t size);

/* A communicator over t (taken, in failure too), with a reference of its own to home. */
LS_MUST_CHECK ls_status ls__comm_new(ls_endpoint *home, uint64_t id, const int *members,
                                     ls_transport *t, ls_comm **comm);

#endif

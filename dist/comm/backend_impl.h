/*
 * backend_impl.h - the ways in which the bytes of a group may move: one const table each.
 *
 * A backend answers two questions: which ranks share this one's memory (they meet there, by
 * transport_local.h), and what carries bytes to the others.  The latter is asked once a group,
 * in two rounds (endpoint.h): each member offers what the others need to reach it, then each
 * connects to all.
 *
 * A new transport is a file transport_<name>.c that defines ls__backend_<name>, and a line in
 * LS_BACKEND_LIST (join.h); parallel.backend then knows its name.
 */
#ifndef LS_DIST_COMM_BACKEND_IMPL_H
#define LS_DIST_COMM_BACKEND_IMPL_H

#include "dist/comm/endpoint.h"

typedef struct ls_backend {
    const char *name;

    /* Fills home->is_local [world] and home->space; all holds the ranks' hellos. */
    ls_status (*share)(ls_endpoint *home, const ls_hello *all, int64_t deadline);

    /* This rank's part of f->mine for those who share no memory with it.  NULL: nothing. */
    ls_status (*offer)(ls_forming *f);

    /* A transport to those; all holds the members' contacts.  NULL: everybody shares. */
    ls_status (*connect)(ls_forming *f, const ls_contact *all, int64_t deadline,
                         ls_transport **t);

    /* Its own launcher's view of who this is; NULL: ranks meet by control connections. */
    ls_status (*start)(int *rank, int *world);

    bool in_process; /* ranks are threads of one process: no launcher starts them */
} ls_backend;

#define X(BACKEND, name) extern const ls_backend ls__backend_##name;
LS_BACKEND_LIST(X)
#undef X
extern const ls_backend ls__backend_threads;

/* The backend of that name; "auto" for NULL; NULL where there is none. */
const ls_backend *ls__backend_find(const char *name);

/* For `share`: by memory that ranks of one identity pass each other, or with nobody. */
LS_MUST_CHECK ls_status ls__share_by_files(ls_endpoint *home, const ls_hello *all,
                                           int64_t deadline);
LS_MUST_CHECK ls_status ls__share_nothing(ls_endpoint *home, const ls_hello *all,
                                          int64_t deadline);

/* For `offer` and `connect`: TCP. */
LS_MUST_CHECK ls_status ls__offer_tcp(ls_forming *f);
LS_MUST_CHECK ls_status ls__connect_tcp(ls_forming *f, const ls_contact *all, int64_t deadline,
                                        ls_transport **t);

#endif

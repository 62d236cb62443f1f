/*
 * join.h - how a process becomes a rank.
 *
 * Somebody else brings the ranks together (a test that forks them, the rendezvous): each comes
 * with its number and one connected socket to every other rank.  From these ls_join() finds out
 * who shares memory with whom, makes the data connections, and returns the world's
 * communicator.
 */
#ifndef LS_DIST_COMM_JOIN_H
#define LS_DIST_COMM_JOIN_H

#include "dist/comm/comm.h"

typedef struct ls_board ls_board; /* board.h */

typedef enum { LS_EVENT_WARNING, LS_EVENT_FAILURE } ls_comm_event;

/*
 * X(BACKEND, name) for the ways in which bytes move between processes; name as in
 * ls_join_opts.  AUTO is shared memory where ranks have it, else TCP.  backend_impl.h says what
 * one is.
 */
#define LS_BACKEND_LIST(X) \
    X(AUTO, auto)          \
    X(SHM, shm)            \
    X(TCP, tcp)            \
    X(MPI, mpi)

/* Zero is the default of every member but rank, world and control. */
typedef struct {
    int rank, world;
    const int
        *control; /* [world] connected stream sockets, Unix or TCP; own entry ignored; taken */
    ls_board    *board;       /* the job's, borrowed until the world is freed; NULL: none */
    bool         board_taken; /* it is freed with the world, in failure too */
    const char  *backend; /* of LS_BACKEND_LIST, NULL is "auto"; or "threads": ranks are threads
                             of this process */
    ls_algorithm algorithm; /* forced for all operations that have it; AUTO chooses */
    bool         fast;      /* determinism "fast": AUTO may choose the ring */
    double timeout_s; /* of every wait; 0: 60.  Late ranks are named after a third of it. */
    const char
        *identity;       /* instead of this host's; ranks with different ones share no memory */
    const char *address; /* numeric, to listen on for TCP; NULL: that of the control socket,
                            loopback for Unix sockets */
    int         ports[2];    /* first and last port to listen on; 0: any */
    const char *fingerprint; /* of the machine and libraries (rule 7): ranks must agree; NULL:
                                not compared */
    int64_t fault; /* test: > 0 lets the n-th exchange or meeting of this rank go wrong ... */
    int     fault_kind; /* ... as ls_fault says (transport_faulty.h) */

    /* Told of late ranks and, once, of a failure; from any thread of this rank.  NULL: nobody.
     */
    void (*event)(void *context, ls_comm_event event, const char *text);
    void *context;
} ls_join_opts;

LS_MUST_CHECK ls_status ls_join(const ls_join_opts *opts, ls_comm **world);

#endif

/*
 * transport_mpi_impl.h - what the files of the MPI transport share.
 *
 *     transport_mpi.c          exchanges, and the transport of a group
 *     transport_mpi_process.c  MPI itself, one a process, and requests that outlive a transport
 */
#ifndef LS_DIST_COMM_TRANSPORT_MPI_IMPL_H
#define LS_DIST_COMM_TRANSPORT_MPI_IMPL_H

#include <mpi.h>
#include <pthread.h>

#include "dist/comm/transport_mpi.h"

enum {
    LS__MPI_SMALL     = 8192, /* bytes of payload that travel with their header */
    LS__MPI_UNDER_WAY = 2     /* pieces of a direction */
};

typedef enum { LS__MPI_IDLE, LS__MPI_FIRST, LS__MPI_PIECES } ls__mpi_stage;

/* One direction of an exchange. */
typedef struct ls__mpi_half ls__mpi_half;
struct ls__mpi_half {
    ls__mpi_half *next; /* among the abandoned */
    MPI_Request   requests[LS__MPI_UNDER_WAY];
    ls__mpi_stage stage;
    bool          sends;
    int           peer;
    const char   *from; /* the caller's buffer, of a half that sends */
    char         *to;   /* ... and of one that receives */
    size_t        bytes, posted, finished;
    ls_header     own; /* what this rank expects, of a half that receives */
    struct {
        ls_header     header;
        unsigned char payload[LS__MPI_SMALL];
    } first; /* as it travels */
};

/* The library's one variable besides its allocator's, because MPI is one per process. */
typedef struct {
    pthread_mutex_t lock;  /* of start, end, and the abandoned */
    pthread_mutex_t calls; /* held in every call where MPI wants one thread at a time */
    bool            started, ours, serial;
    MPI_Comm        comm;
    int             rank, world, largest_tag;
    ls__mpi_half   *abandoned;
} ls__mpi_state;

extern ls__mpi_state ls__mpi;

/* Around every call of MPI. */
void ls__mpi_enter(void);
void ls__mpi_leave(void);

/* Takes h; what MPI still holds at `until` is kept until MPI lets go of it. */
void ls__mpi_let_go(ls__mpi_half *h, int64_t until);

#endif

/*
 * space.h - memory that several ranks of a host reach: the symmetric heap.
 *
 * Every rank allocates from its own part, when it likes; what it allocates all ranks of the
 * space can address.  A pointer goes from one to another as a place: a number that the owner
 * makes and the others turn into an address of their own.
 *
 *   threads   ranks share one address space: a place is the address, and all memory has one;
 *   shm       a memfd per rank, mapped by the others piece by piece as they first need it: no
 * name in /dev/shm and no limit of a mount, gone with the last process.
 */
#ifndef LS_DIST_COMM_SPACE_H
#define LS_DIST_COMM_SPACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

typedef struct ls_space ls_space;

typedef struct {
    const char *name; /* of the transport that is made of it */
    /* Zeroed, at 64 bytes' alignment, charged to LS_MEM_COMM; NULL: ENOMEM. */
    void *(*alloc)(ls_space *s, size_t bytes);
    void (*release)(ls_space *s, void *block);
    /* The place of bytes at p, or 0 when others cannot reach all of them. */
    uint64_t (*place)(ls_space *s, const void *p, size_t bytes);
    /* The address here of bytes at a place of a world rank; NULL: ENOMEM or EINVAL. */
    void *(*address)(ls_space *s, int rank, uint64_t place, size_t bytes);
    void (*close)(ls_space *s);
} ls_space_ops;

struct ls_space {
    const ls_space_ops *ops;
    bool            any_frees; /* a block may be released by any rank, not its owner alone */
    pthread_mutex_t lock;      /* of `left` */
    void           *left;      /* of transport_local.c: blocks that others still look at */
};

LS_MUST_CHECK ls_status ls_space_threads(ls_space **space);

/*
 * A space of `world` ranks.  fd is this rank's file (ls_space_shm_file) and fds[r] that of rank
 * r, or -1 where rank r does not belong to it; all taken, in failure too.
 */
LS_MUST_CHECK ls_status ls_space_shm(int rank, int world, int fd, const int *fds,
                                     ls_space **space);

/* A file for one rank's part; EUNSUPPORTED names what the system lacks. */
LS_MUST_CHECK ls_status ls_space_shm_file(int *fd);

#endif

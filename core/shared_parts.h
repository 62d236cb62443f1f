/*
 * shared_parts.h - arrays that one process of a host makes and others read, once in memory.
 *
 *     maker                                      reader
 *     ls_shared_new(&s, &place)     -- place ->  ls_shared_open(&place, &s)
 *     work ...                                   until ls_shared_is_filled(s): wait
 *     ls_shared_fill(s, parts, n)                ls_shared_take(s)
 *     or ls_shared_fail(s, status)               ls_shared_part(s, i)
 *     ls_shared_hide(s) when all have opened
 *
 * The memory is a memfd, which readers reach as /proc/<pid>/fd/<fd> of its maker and know by
 * its inode: no name of its own, no limit of a mount, gone with the last process that has it.
 *
 *     [ header: state, failure, where the parts are | part 0 | part 1 | ... ]   each at 64
 * bytes
 */
#ifndef LS_CORE_SHARED_PARTS_H
#define LS_CORE_SHARED_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { LS_SHARED_PARTS = 8 };

typedef struct ls_shared ls_shared;

typedef struct {
    const void *data;
    size_t      bytes;
} ls_shared_array;

/* Where readers find it; fd -1: nowhere. */
typedef struct {
    int64_t  pid, fd;
    uint64_t device, inode;
} ls_shared_place;

/* Empty memory of this process; EUNSUPPORTED, ENOMEM, and then place->fd is -1. */
LS_MUST_CHECK ls_status ls_shared_new(ls_shared **s, ls_shared_place *place);

/* Another's; EUNSUPPORTED where it cannot be reached from here (another user, container). */
LS_MUST_CHECK ls_status ls_shared_open(const ls_shared_place *place, ls_shared **s);

/* Unmaps; what ls_shared_part() gave is gone.  NULL is allowed. */
void ls_shared_free(ls_shared *s);

/* The maker has nothing to give: readers get this status and the message of its failure. */
void ls_shared_fail(ls_shared *s, ls_status status);

/*
 * Copies n parts, whose memory is the caller's, and lets readers have them.  The maker reads
 * them there too; it alone is charged for them (other).  ENOMEM: also what readers get.
 */
LS_MUST_CHECK ls_status ls_shared_fill(ls_shared *s, const ls_shared_array *parts, int n);

/* From here on nobody new can open it. */
void ls_shared_hide(ls_shared *s);

/* Filled, or failed? */
bool ls_shared_is_filled(const ls_shared *s);

/* Does its maker stand still (SIGSTOP, a debugger)?  Then it fills nothing. */
bool ls_shared_is_stopped(const ls_shared *s);

/* Of a reader, once it is filled: the maker's failure, or the parts are there.  ENOMEM. */
LS_MUST_CHECK ls_status ls_shared_take(ls_shared *s);

/* Read only, at 64 bytes' alignment; no bytes for a part that does not exist. */
ls_shared_array ls_shared_part(const ls_shared *s, int i);

#endif

/*
 * atomic_file.h - a file that appears whole or not at all.
 *
 *     ls_atomic_begin(&f, path);     a temporary name in the same directory (O_EXCL)
 *     ls_atomic_write(&f, ...);      as often as needed
 *     ls_atomic_commit(&f);          fsync, close, rename over path, fsync of the directory
 *     ls_atomic_abandon(&f);         always, also after a failure; nothing after a commit
 *
 * On any failure up to the rename the old file is unchanged and the temporary one removed.  One
 * failure can come after it: when the directory cannot be synced, the new file is in place and
 * whole, but the machine could lose its name with its power; that is an error too.
 *
 * A failed fsync is final: the pages may be gone, so it is never tried again on the same file
 * (https://wiki.postgresql.org/wiki/Fsync_Errors).  A full disk shows itself at write, fsync or
 * close, and is reported from each.  A symbolic link at path is replaced by the file.
 */
#ifndef LS_CHECKPOINT_ATOMIC_FILE_H
#define LS_CHECKPOINT_ATOMIC_FILE_H

#include <stddef.h>

#include "core/error.h"

typedef struct {
    char *path, *directory, *temporary; /* owned */
    int   fd;                           /* -1 while closed */
} ls_atomic_file;

/* On failure nothing is held, and abandoning is allowed. */
LS_MUST_CHECK ls_status ls_atomic_begin(ls_atomic_file *f, const char *path);
LS_MUST_CHECK ls_status ls_atomic_write(ls_atomic_file *f, const void *data, size_t bytes);
LS_MUST_CHECK ls_status ls_atomic_commit(ls_atomic_file *f);
void                    ls_atomic_abandon(ls_atomic_file *f);

/*
 * Removes what processes that were killed after ls_atomic_begin(path) left beside it.  Whoever
 * is still writing path loses that file: its commit fails.
 */
void ls_atomic_sweep(const char *path);

/*
 * Makes the names in a directory last.  Some file systems have no sync of directories and say
 * so; that is not a failure.
 */
LS_MUST_CHECK ls_status ls_sync_directory(const char *directory);

#endif

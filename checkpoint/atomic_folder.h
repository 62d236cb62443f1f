/*
 * atomic_folder.h - a new folder of files that appears whole or not at all.
 *
 *     ls_atomic_folder_begin(&f, path);         a temporary folder beside it
 *     name = ls_atomic_folder_file(&f, "a");    paths of files to write into it
 *     ls_atomic_folder_commit(&f);              rename to path
 *     ls_atomic_folder_abandon(&f);             always; nothing after a commit
 *
 * Nothing is replaced: the path must be free, or an empty folder.  Files are flushed by who
 * writes them (atomic_file.h).
 */
#ifndef LS_CHECKPOINT_ATOMIC_FOLDER_H
#define LS_CHECKPOINT_ATOMIC_FOLDER_H

#include "core/error.h"

typedef struct {
    char *path, *parent, *temporary; /* owned */
} ls_atomic_folder;

/* EIO; on failure nothing is held, and abandoning is allowed. */
LS_MUST_CHECK ls_status ls_atomic_folder_begin(ls_atomic_folder *f, const char *path);

/* Freed with free(); NULL (ENOMEM). */
char *ls_atomic_folder_file(const ls_atomic_folder *f, const char *name);

LS_MUST_CHECK ls_status ls_atomic_folder_commit(ls_atomic_folder *f);
void                    ls_atomic_folder_abandon(ls_atomic_folder *f);

#endif

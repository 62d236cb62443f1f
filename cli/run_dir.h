/*
 * run_dir.h - the directory of a run: made at the start, an earlier run's files moved aside.
 */
#ifndef LS_CLI_RUN_DIR_H
#define LS_CLI_RUN_DIR_H

#include <stdint.h>

#include "core/error.h"

/*
 * Makes the directory and its parents and proves that files can be made in it.  What a process
 * that was killed left unfinished there is removed.  Files of an earlier run go to previous-1/,
 * previous-2/, ... inside it; *aside gets that path (freed with free()), or NULL where there
 * were none.  EIO, naming the path.
 */
LS_MUST_CHECK ls_status ls_run_dir_open(const char *dir, char **aside);

/* The same for a run that goes on: its files stay where they are. */
LS_MUST_CHECK ls_status ls_run_dir_reopen(const char *dir);

/*
 * The directory's lock, until *lock is closed or the process ends: two runs never write into
 * one directory.  Waits up to 10 s for a holder that is about to end.  A directory that is not
 * there, and a file system without locks, give *lock -1.  EIO.
 */
LS_MUST_CHECK ls_status ls_run_dir_lock(const char *dir, int *lock);

/* Moves checkpoints beyond a step into previous-N/checkpoints/; *aside as above. */
LS_MUST_CHECK ls_status ls_run_dir_move_later(const char *dir, int64_t step, char **aside);

/* Makes the directories that a path's file lies in, as far as they are missing.  EIO. */
LS_MUST_CHECK ls_status ls_make_parents(const char *path);

/* "dir/name", freed with free(); NULL: out of memory. */
char *ls_run_dir_path(const char *dir, const char *name);

/* Writes a whole small file by way of a temporary one.  EIO. */
LS_MUST_CHECK ls_status ls_run_dir_write(const char *dir, const char *name, const char *text);

#endif

/*
 * run_dir.h - the directory of a run: made at the start, an earlier run's files moved aside.
 */
#ifndef LS_CLI_RUN_DIR_H
#define LS_CLI_RUN_DIR_H

#include "core/error.h"

/*
 * Makes the directory and its parents and proves that files can be made in it.  Files of an
 * earlier run go to previous-1/, previous-2/, ... inside it; *aside gets that path (freed with
 * free()), or NULL where there were none.  EIO, naming the path.
 */
LS_MUST_CHECK ls_status ls_run_dir_open(const char *dir, char **aside);

/* Makes the directories that a path's file lies in, as far as they are missing.  EIO. */
LS_MUST_CHECK ls_status ls_make_parents(const char *path);

/* "dir/name", freed with free(); NULL: out of memory. */
char *ls_run_dir_path(const char *dir, const char *name);

/* Writes a whole small file by way of a temporary one.  EIO. */
LS_MUST_CHECK ls_status ls_run_dir_write(const char *dir, const char *name, const char *text);

#endif

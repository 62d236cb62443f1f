/*
 * checkpoints.h - which checkpoints a PATH on the command line names.
 */
#ifndef LS_CLI_CHECKPOINTS_H
#define LS_CLI_CHECKPOINTS_H

#include <stdbool.h>

#include "checkpoint/view.h"

/* Paths, the one to be tried first in front; owned. */
typedef struct {
    char **path;
    int    n;
    bool   named; /* the one checkpoint was named itself: none takes its place */
} ls_candidates;

/*
 * PATH is a checkpoint's folder, or that of a run or its checkpoints/, whose newest comes
 * first. None in an ordinary file, and in a folder that has no checkpoints (n is 0).  EIO for a
 * path that is not there.
 */
LS_MUST_CHECK ls_status ls_candidates_of(const char *path, ls_candidates *c);
void                    ls_candidates_free(ls_candidates *c); /* {0} is allowed */

/* Opens and verifies all of it. */
LS_MUST_CHECK ls_status ls_candidate_open(const char *path, ls_view_of what,
                                          ls_safetensors **file);

/* Would another checkpoint do instead, after this failure to read one? */
bool ls_is_damage(ls_status status);

#endif

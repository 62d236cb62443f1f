/*
 * nproc.h - `--nproc N`: a command starts itself again as the ranks of a job.
 */
#ifndef LS_CLI_NPROC_H
#define LS_CLI_NPROC_H

#include "cli/config.h"

/*
 * Starts N ranks of this program with the command's arguments (its name first) without
 * --nproc, and waits for their end; what every rank would refuse is refused once, before there
 * are any.  Returns the exit status of the command, and has reported what went wrong.
 */
int ls_nproc_launch(const ls_config *cfg, const char *nproc, int argc, char **argv);

/* What it would refuse of these: ECONFIG, or EWORLD where N ranks do not fit the batch. */
LS_MUST_CHECK ls_status ls_nproc_check(const ls_config *cfg, const char *nproc,
                                       const char *command);

#endif

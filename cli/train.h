/*
 * train.h - a whole run: directory, log, steps, evaluations, the end.
 */
#ifndef LS_CLI_TRAIN_H
#define LS_CLI_TRAIN_H

#include "cli/config.h"
#include "cli/resume.h"

/*
 * Trains as cfg and opts say; cfg's schedule becomes that of the checkpoint that it goes on
 * from.  Failures before the first file is written come back as ECONFIG where a file or key
 * that the config names is at fault.  *signal gets the number of the signal that ended the run
 * early (its state is saved), else 0.
 */
LS_MUST_CHECK ls_status ls_train(ls_config *cfg, const ls_train_opts *opts, int *signal);

/* Prints the resolved config, parameter count and memory estimate as one JSON object. */
LS_MUST_CHECK ls_status ls_train_dry_run(const ls_config *cfg);

/* A failure while a config's own files are read is the config's: ECONFIG, same message. */
ls_status ls_blame_config(ls_status status);

/*
 * What a run's bits depend on beside its config, in text: BLAS and, where the config's products
 * are of bf16, what multiplies them.
 */
enum { LS_KERNELS_TEXT = 128 };
const char *ls_describe_kernels(const ls_config *cfg, char text[LS_KERNELS_TEXT]);

/* BLAS held to one thread and tested; a pool of run.threads in use; the memory limit set. */
LS_MUST_CHECK ls_status ls_start_compute(const ls_config *cfg);
void                    ls_stop_compute(void);

#endif

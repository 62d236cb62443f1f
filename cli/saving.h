/*
 * saving.h - a run's checkpoints: when one is due, what it says, what becomes of a failure.
 */
#ifndef LS_CLI_SAVING_H
#define LS_CLI_SAVING_H

#include "checkpoint/save.h"
#include "cli/train_state.h"
#include "core/log.h"

typedef struct {
    const ls_config      *cfg;
    const ls_ranks       *ranks;
    ls_trainer           *trainer;
    ls_log               *log;    /* rank 0's; the others' says nothing */
    const ls_data_prints *prints; /* of cfg's data */
    char                 *store;
    ls_saver             *saver;
    bool                  warm; /* the first step is over */
    int64_t saved;              /* step of the newest checkpoint that is on the disk; 0: none */
} ls_saving;

/* The other members are set; `saved` is the step that the run goes on from.  All ranks. */
LS_MUST_CHECK ls_status ls_saving_open(ls_saving *s);
void                    ls_saving_close(ls_saving *s);

/*
 * At the end of a step, on all ranks: looks after the save under way, and begins one where
 * checkpoint.every asks for it.  A save that failed is a warning, or with checkpoint.on_error
 * "stop" the status.
 */
LS_MUST_CHECK ls_status ls_saving_step(ls_saving *s, const ls_run_counters *counters);

/*
 * At the end: waits for the save under way, and with `must` saves this step unless it was
 * saved.  What fails here is the status.
 */
LS_MUST_CHECK ls_status ls_saving_end(ls_saving *s, const ls_run_counters *counters, bool must);

#endif

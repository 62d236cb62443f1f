/*
 * train_impl.h - what the files of a run share.
 *
 *     train.c        the order of things: join, open, steps, the end
 *     train_files.c  logs, metrics, the trace: opened, watched
 *     train_hello.c  what the run says of itself at its start
 */
#ifndef LS_CLI_TRAIN_IMPL_H
#define LS_CLI_TRAIN_IMPL_H

#include "cli/metrics.h"
#include "cli/progress.h"
#include "cli/saving.h"
#include "cli/tracing.h"
#include "cli/train.h"
#include "cli/trainer.h"
#include "core/log.h"

typedef struct {
    const ls_config *cfg;
    int64_t          target; /* the step to end after */
    int              lock;   /* of the run's directory; -1: none */
    ls_resume        resume; /* what it goes on from */
    ls_saving        saving;
    bool             keeps; /* a checkpoint of this run may be made: the files are open */
    ls_ranks         ranks;
    ls_trainer      *trainer;
    ls_log          *log;
    ls_metrics      *metrics; /* of rank 0 */
    ls_tracing      *tracing; /* NULL with log.trace false */
    ls_progress      progress;
    ls_step_result   last;
    int64_t          tokens;    /* since step 1 */
    int64_t          validated; /* step of the last evaluation, 0: none */
    double           val_loss;
    double           logged_at; /* when the last line was logged */
    int64_t          logged;    /* its step */
    ls_status        lost; /* a log that could not be written: the run's status at its end */
    char             lost_text[512]; /* the first of them */
} ls__run;

/* ---- train_files.c ---- */

/* Rank 0: the run's directory, log.txt, config.json, metrics. */
LS_MUST_CHECK ls_status ls__run_open_files(ls__run *r);
/* The other ranks say nothing and write nothing. */
LS_MUST_CHECK ls_status ls__run_open_nothing(ls__run *r);

/* log.trace, on all ranks. */
LS_MUST_CHECK ls_status ls__run_open_trace(ls__run *r);
LS_MUST_CHECK ls_status ls__run_end_trace(ls__run *r);

/* A warning for each file that was lost since the last look; the run goes on. */
void ls__run_look_after_logs(ls__run *r);

/* ---- train_hello.c ---- */

void ls__run_say_hello(const ls__run *r);

#endif

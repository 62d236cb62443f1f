/*
 * trainer_impl.h - what the files of the trainer share.
 */
#ifndef LS_CLI_TRAINER_IMPL_H
#define LS_CLI_TRAINER_IMPL_H

#include "cli/parallel.h"
#include "cli/trainer.h"
#include "core/exact_sum.h"
#include "core/shared_parts.h"
#include "data/sampler.h"
#include "nn/working.h"
#include "optim/schedule.h"

struct ls_trainer {
    const ls_config *cfg;
    const ls_ranks  *ranks;
    ls_dataset       data;
    ls_shared       *shared; /* where its tokens lie; NULL: in memory of its own */
    ls_module       *model;
    ls_named_tensor *parameters;
    int              n;
    ls_named_tensor *state; /* these and the buffers */
    int              n_state;
    ls_working      *working; /* NULL with param_dtype f32 */
    ls_optimizer    *optimizer;
    ls_schedule      schedule;
    ls_parallelism   parallel;
    ls_strategy      strategy;
    ls_tape         *tape;
    ls_sampler       sampler;
    ls_trace        *trace;    /* NULL: none */
    double           accuracy; /* of the last validation, NAN: none */
    bool             failed;

    ls_stored_tensor *stored; /* the whole state; NULL: not asked for yet */
    size_t            n_stored;
    int64_t           resumed_step, resumed_sequence; /* where this process began; 0, 0 */
};

/* Forward of micro-batch m of the step after `done` ones: the sum of its tokens' losses. */
ls_tensor *ls__trainer_micro_loss(ls_trainer *t, int64_t done, int64_t m);

/*
 * The step after `done` ones gave a loss or norm that is not finite: which micro-batch and
 * parameter.  ENOTFINITE, of all ranks alike.
 */
LS_MUST_CHECK ls_status ls__trainer_blame(ls_trainer *t, int64_t done);

#endif

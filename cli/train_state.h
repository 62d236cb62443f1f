/*
 * train_state.h - what a checkpoint's "state" says beside the tensors: everything else that
 * going on needs.  A JSON object; a member that is missing is an error, never a default.
 *
 *     step, sequences, epoch     sequences of the data consumed; epoch follows from them
 *     tokens, loss, last_val     counters of the run; last_val {"step", "loss"} or null
 *     val_loss                   of this very step, or null (checkpoint.best)
 *     val_accuracy               of the last evaluation, of an mlp, or null
 *     seed                       the generator's key: all draws are functions of it
 *     schedule                   type, steps, warmup, lr, min_lr
 *     data                       train, val: path, bytes, crc32 of each file
 * (data/fingerprint.h) not_started                parameters that have had no gradient yet
 *     machine                    library and kernel of the products (rule 7)
 */
#ifndef LS_CLI_TRAIN_STATE_H
#define LS_CLI_TRAIN_STATE_H

#include "cli/trainer.h"
#include "core/json.h"
#include "data/fingerprint.h"

typedef struct {
    ls_fingerprint *train, *val; /* [cfg->data.train.count], [val.count] */
    int64_t         n_train, n_val;
} ls_data_prints;

/* Of the files that cfg names.  EIO, ENOMEM. */
LS_MUST_CHECK ls_status ls_data_prints_make(const ls_config *cfg, ls_data_prints *prints);
void                    ls_data_prints_free(ls_data_prints *prints);

typedef struct {
    int64_t step, sequences, tokens;
    double  loss;
    int64_t validated; /* step of the last evaluation, 0: none */
    double  val_loss;
} ls_run_counters;

/* The text, freed with free(); NULL: ENOMEM. */
char *ls_train_state_print(const ls_config *cfg, const ls_trainer *trainer,
                           const ls_trainer_place *place, const ls_run_counters *counters,
                           const ls_data_prints *prints);

/* A text that was read; borrowed from doc. */
typedef struct {
    ls_json_doc    *doc;
    ls_run_counters counters;
    int64_t         schedule_steps;
    double          min_lr, accuracy;
    const char     *machine;
} ls_train_state;

/* name stands in messages.  EFORMAT for a member that is missing or of another kind. */
LS_MUST_CHECK ls_status ls_train_state_parse(const char *text, const char *name,
                                             ls_train_state *state);
void                    ls_train_state_close(ls_train_state *state); /* {0} is allowed */

/* ECONFIG names the first data file that is another one than then. */
LS_MUST_CHECK ls_status ls_train_state_compare_data(const ls_train_state *state,
                                                    const ls_config      *cfg,
                                                    const ls_data_prints *prints);

/* Which parameters have started; EFORMAT for a name that is none of the trainer's. */
LS_MUST_CHECK ls_status ls_train_state_started(const ls_train_state *state,
                                               const ls_trainer     *trainer,
                                               ls_trainer_place     *place);

#endif

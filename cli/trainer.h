/*
 * trainer.h - the step: micro-batches, the canonical tree, one division, one update.
 *
 * Architecture.md, section 1.  A trainer owns the model, its data and its optimizer; it
 * computes and says nothing.  What to print, save and when to stop is the caller's.
 */
#ifndef LS_CLI_TRAINER_H
#define LS_CLI_TRAINER_H

#include <stdatomic.h>

#include "autograd/profile.h"
#include "checkpoint/rows.h"
#include "cli/config.h"
#include "cli/parallel.h"
#include "cli/ranks.h"
#include "core/sha256.h"
#include "core/trace.h"
#include "data/dataset.h"
#include "nn/module.h"

typedef struct ls_trainer ls_trainer;

typedef struct {
    int64_t step; /* from 1 */
    double  loss; /* mean over the step's tokens, before the update */
    double  lr;
    double  grad_norm; /* of the mean loss's gradient, before clipping */
    int64_t tokens;    /* that counted, in this step, on all ranks */
    int     signal;    /* that a rank has caught (ls_trainer_step); 0: none */
    int64_t comm_ns,
        exposed_ns; /* communication of this rank, and what of it the step waited for */
} ls_step_result;

/*
 * Loads data and makes the model; cfg and ranks are borrowed.  With several ranks all call it,
 * and all fail alike.  On failure *trainer is NULL.
 */
LS_MUST_CHECK ls_status ls_trainer_new(const ls_config *cfg, const ls_ranks *ranks,
                                       ls_trainer **trainer);

/* The same with a tokenizer as ls_tokenizer_to_json() has it; NULL: the config's. */
LS_MUST_CHECK ls_status ls_trainer_new_with(const ls_config *cfg, const ls_ranks *ranks,
                                            const char *tokenizer, ls_trainer **trainer);
void                    ls_trainer_free(ls_trainer *trainer); /* NULL is allowed */

/* This rank has failed, perhaps alone: freeing waits for no other.  NULL is allowed. */
void ls_trainer_set_failed(ls_trainer *trainer);

/*
 * Takes the next step.  `caught` is a signal that this rank has seen, 0 for none; the result
 * has the one that any rank has.  ENOTFINITE, before anything is updated, for a loss or
 * gradient that is not finite: names step, micro-batch and parameter.
 */
LS_MUST_CHECK ls_status ls_trainer_step(ls_trainer *trainer, int caught,
                                        ls_step_result *result);

/* After a step: every parallel.check_every steps, do all ranks hold the same?  (ls_ddp_check)
 */
LS_MUST_CHECK ls_status ls_trainer_check(ls_trainer *trainer);

bool ls_trainer_has_validation(const ls_trainer *trainer);

/*
 * Mean loss of the validation data: the first `batches` batches of batch.global sequences
 * (0: all sequences), in micro-batches of batch.micro, the last one ragged.  Ends early, with
 * EINTERRUPTED, when *stop becomes non-zero (NULL: never), on all ranks when it does on one.
 */
LS_MUST_CHECK ls_status ls_trainer_validate(ls_trainer *trainer, int64_t batches,
                                            const atomic_int *stop, double *loss);

/*
 * The training state as tensors: parameters, buffers, the optimizer's.  The list is the
 * trainer's.  ENOMEM.
 */
LS_MUST_CHECK ls_status ls_trainer_tensors(ls_trainer *trainer, const ls_stored_tensor **list,
                                           size_t *n);

/* Where a run is, beside its tensors. */
typedef struct {
    int64_t step;      /* taken so far */
    int64_t sequences; /* of the data, consumed so far */
    bool   *started;   /* [n_parameters]: has had a gradient; free() */
    int     n_parameters;
    double  accuracy; /* of the last validation; NAN: none */
} ls_trainer_place;

/* On all ranks; to be freed by started.  ENOMEM, errors of the group. */
LS_MUST_CHECK ls_status ls_trainer_get_place(const ls_trainer *trainer,
                                             ls_trainer_place *place);

/* Goes on from there, with tensors that were filled, and with cfg's schedule as it is now. */
void ls_trainer_resume(ls_trainer *trainer, const ls_trainer_place *place);

/* Parameter i's name, NULL beyond the last. */
const char *ls_trainer_parameter_name(const ls_trainer *trainer, int i);

/* Which part of the rows the last validation told right; NAN: tokens, or there was none. */
double ls_trainer_accuracy(const ls_trainer *trainer);

/* params_sha256 and state_sha256 of the present state. */
LS_MUST_CHECK ls_status ls_trainer_hashes(const ls_trainer *trainer, char params[LS_SHA256_HEX],
                                          char state[LS_SHA256_HEX]);

/* Adds the operators' times to profile from here on; NULL: no longer. */
void ls_trainer_set_profile(ls_trainer *trainer, ls_profile *profile);

/* Spans of steps and evaluations go there (borrowed) from here on; NULL: no longer. */
void ls_trainer_set_trace(ls_trainer *trainer, ls_trace *trace);

/* "single", "ddp" or "fsdp". */
const char *ls_trainer_strategy(const ls_trainer *trainer);

/* How ranks share the work. */
const ls_parallelism *ls_trainer_parallel(const ls_trainer *trainer);

/* Buckets of DDP, units of FSDP; 0 of one process. */
int ls_trainer_groups(const ls_trainer *trainer);

int64_t           ls_trainer_vocab_size(const ls_trainer *trainer);
int64_t           ls_trainer_parameter_count(const ls_trainer *trainer);
const ls_dataset *ls_trainer_data(const ls_trainer *trainer);

#endif

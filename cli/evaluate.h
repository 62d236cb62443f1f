/*
 * evaluate.h - batches out of tokens, and the mean loss over many of them.
 */
#ifndef LS_CLI_EVALUATE_H
#define LS_CLI_EVALUATE_H

#include <stdatomic.h>

#include "cli/ranks.h"
#include "data/sampler.h"
#include "nn/module.h"

/* Loss (a sum) of sequences q .. q + n - 1 as one micro-batch on a tape; NULL on failure. */
ls_tensor *ls_batch_loss(ls_module *model, ls_tape *tape, const ls_sampler *sampler, int64_t q,
                         int64_t n);

typedef struct {
    ls_module        *model;
    ls_tape          *tape;
    const ls_tokens  *tokens; /* one of these two */
    const ls_table   *rows;
    int64_t           context;
    int64_t           micro; /* sequences of a micro-batch; the last one is ragged */
    int64_t           limit; /* sequences at most; 0: all whole ones */
    const atomic_int *stop; /* non-zero, on any rank, ends it on all with EINTERRUPTED: alone at
                               once, in a job within about a second; NULL: never */
    bool              together; /* every rank takes part in every forward (FSDP) */
    const ls_ranks   *ranks;   /* share the micro-batches; NULL: this process has all of them */
    int64_t          *correct; /* of rows: gets how many were told right; NULL: not counted */
} ls_evaluation;

/*
 * Mean loss a token, without dropout and without recording.  Micro-batches' sums go through
 * exact_sum, so their sharing among ranks would change no bit.  tokens (may be NULL) gets the
 * number that counted.
 */
LS_MUST_CHECK ls_status ls_evaluate(const ls_evaluation *e, double *loss, int64_t *tokens);

#endif

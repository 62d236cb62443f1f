/*
 * classify.h - batches out of rows of a table, for the MLP, and how many of them it gets right.
 */
#ifndef LS_CLI_CLASSIFY_H
#define LS_CLI_CLASSIFY_H

#include "data/sampler.h"
#include "nn/module.h"

/*
 * Loss (a sum) of rows q .. q + n - 1 as one micro-batch on a tape; NULL on failure.  correct
 * (may be NULL) is increased by the number of rows whose largest logit, the first of equals, is
 * that of their class.
 */
ls_tensor *ls_rows_loss(ls_module *model, ls_tape *tape, const ls_sampler *sampler, int64_t q,
                        int64_t n, int64_t *correct);

#endif

/*
 * strategy.h - how ranks share a step: what the training loop asks, whoever answers.
 *
 * Three answer: one process, DDP (dist/ddp.h) and FSDP (dist/fsdp.h).  A new one is a file in
 * dist/strategies/, a line and a constructor here, and a row in cli/parallel.c.
 *
 *     status = ls_strategy_begin(s, tape);
 *     for each micro-batch of this rank, unless something has failed:
 *         ls_strategy_no_sync(s, it is not the last);
 *         ls_tape_reset, forward, ls_backward, ls_strategy_end_micro(s);
 *     status = ls_strategy_finish(s, tape, status);
 *     squares of ls_tensor_owned() gradients, summed over ranks where ls_strategy_shards(s)
 *     ls_optimizer_step
 */
#ifndef LS_DIST_STRATEGY_H
#define LS_DIST_STRATEGY_H

#include "dist/ddp.h"
#include "dist/fsdp.h"
#include "nn/grad_sum.h"

/* X(STRATEGY, name) for each; name as in parallel.strategy. */
#define LS_STRATEGY_LIST(X) \
    X(SINGLE, single)       \
    X(DDP, ddp)             \
    X(FSDP, fsdp)

typedef struct ls_strategy_class ls_strategy_class;

/* All zero: none yet. */
typedef struct {
    const ls_strategy_class *kind;
    void                    *self; /* owned */
} ls_strategy;

/* One process and all micro-batches; the list is borrowed.  ENOMEM. */
LS_MUST_CHECK ls_status ls_strategy_single(ls_strategy *s, const ls_named_tensor *parameters,
                                           int n);

/* Take the object over. */
void ls_strategy_ddp(ls_strategy *s, ls_ddp *ddp);
void ls_strategy_fsdp(ls_strategy *s, ls_fsdp *fsdp);

/* Do all ranks close theirs, or has this one failed alone? */
void ls_strategy_close(ls_strategy *s, bool together);

const char *ls_strategy_name(const ls_strategy *s); /* as in parallel.strategy */

/* Which micro-batch is the k-th of this rank, of M in the step. */
int64_t ls_strategy_micro(const ls_strategy *s, int64_t micros, int64_t k);

/* A step, see above; for errors see ls_ddp_begin() and what follows it. */
LS_MUST_CHECK ls_status ls_strategy_begin(ls_strategy *s, ls_tape *tape);
void                    ls_strategy_no_sync(ls_strategy *s, bool on);
LS_MUST_CHECK ls_status ls_strategy_end_micro(ls_strategy *s);
LS_MUST_CHECK ls_status ls_strategy_finish(ls_strategy *s, ls_tape *tape, ls_status own);

/* Between steps: do all ranks hold the same of what each of them holds? */
LS_MUST_CHECK ls_status ls_strategy_check(ls_strategy *s);

/* Between steps: the values of ls_tensor_owned() parameters were changed by no step. */
void ls_strategy_changed(ls_strategy *s);

/* Does a rank hold a part of each parameter only?  Then forwards are collective: every rank
 * takes part in each of them. */
bool ls_strategy_shards(const ls_strategy *s);

/* Spans of communication go there (borrowed) from here on; NULL: no longer. */
void ls_strategy_set_trace(ls_strategy *s, ls_trace *trace);

typedef struct {
    int     groups;  /* of parameters that travel together: buckets, units */
    int64_t comm_ns; /* of the last step: from the first operation's start to the last's end */
    int64_t exposed_ns; /* of the last step: waited for */
} ls_strategy_stats;

ls_strategy_stats ls_strategy_get_stats(const ls_strategy *s);

#endif

/*
 * sync.h - what the strategies over ranks (ddp.c, fsdp.c) keep of a step alike: which
 * parameters are trained, which micro-batches are synchronised, which parameters were used.
 *
 *   blocks       rank r computes the M/N micro-batches from r M/N on.  Their sum is formed in
 *                the rank (nn/grad_sum.h) and goes to the strategy's sink in the last of them,
 *                the one without no_sync.
 *   interleaved  rank r computes the micro-batches k N + r.  Each of them is a round: its
 *                leaves go to the sink, which forms the sum over ranks.
 */
#ifndef LS_DIST_SYNC_H
#define LS_DIST_SYNC_H

#include "autograd/tape.h"
#include "dist/comm/comm.h"
#include "nn/grad_sum.h"

typedef struct {
    const char            *who;  /* "ddp", in front of messages */
    ls_comm               *comm; /* borrowed */
    const ls_named_tensor *all;  /* [n_all] borrowed: buffers and frozen ones too */
    int                    n_all;
    bool                   interleaved;
    bool                   find_unused; /* what not every rank uses is no error */
    bool                   crowded;     /* operations take time from the computation */
    ls_grad_sink           sink;        /* where a rank's own sums go */

    ls_named_tensor *trained; /* [n] of all, what needed a gradient at construction */
    int              n;
    ls_grad_sum     *sum;
    ls_tape         *tape; /* of the step that goes on */
    bool             no_sync, synced;
    bool             toggled; /* no_sync was, between a forward and its backward */
    uint64_t         before;  /* calls the tape had recorded before the micro-batch */
    uint8_t         *used;    /* [2 n] by this rank since the round began; and its complement */
    uint8_t *any_used, *any_unused; /* [n] by any rank; not by all: the last round agreed on */
    uint8_t *ever, *lacked;         /* [n] the last two, over the step */
} ls_sync;

/* The members of the first part are filled in.  ESTATE where somebody else sums a tensor of
 * all; ENOMEM.  To be closed in failure too. */
LS_MUST_CHECK ls_status ls_sync_init(ls_sync *s);
void                    ls_sync_close(ls_sync *s);

/* Which micro-batch is the k-th of this rank, of M. */
int64_t ls_sync_micro(const ls_sync *s, int64_t micros, int64_t k);

/*
 * Starts a step, a round: nothing is used, gradients are dropped, the tape's leaves come here.
 * ESTATE for a parameter that was frozen or thawed since ls_sync_init().
 */
LS_MUST_CHECK ls_status ls_sync_begin(ls_sync *s, ls_tape *tape);
void                    ls_sync_begin_round(ls_sync *s);

/* Before a forward: will its gradients stay in the rank? */
void ls_sync_no_sync(ls_sync *s, bool on);

/* Does what the micro-batch at hand adds go to the sink? */
bool ls_sync_sinks(const ls_sync *s);

/* After a backward.  Errors of the sink. */
LS_MUST_CHECK ls_status ls_sync_end_micro(ls_sync *s);

/* After the last micro-batch: unhooks from the tape.  `own`, or ESTATE where none was
 * synchronised. */
LS_MUST_CHECK ls_status ls_sync_end(ls_sync *s, ls_status own);

/* All ranks: who used what, of the round. */
LS_MUST_CHECK ls_status ls_sync_agree_on_used(ls_sync *s);

/* EINVAL, with their names, for parameters that not every rank used in the step, unless
 * find_unused. */
LS_MUST_CHECK ls_status ls_sync_check_used(const ls_sync *s);

/* Where it is crowded: what an operation took from the computation before the rank began to
 * wait for it. */
int64_t ls_sync_taken(const ls_sync *s, const ls_work_times *t, int64_t wait);

/* This rank cannot go on: nor can the others. */
LS_MUST_CHECK ls_status ls_sync_give_up(const ls_sync *s, ls_status own);

/* The same, unless all ranks know of the failure, as they do of the group's. */
LS_MUST_CHECK ls_status ls_sync_give_up_alone(const ls_sync *s, ls_status status);

#endif

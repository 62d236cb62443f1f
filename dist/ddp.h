/*
 * ddp.h - data parallelism: every rank holds the model and computes some of the step's
 * micro-batches.
 *
 * Rule 2 of the law (docs/architecture.md).  M micro-batches a step, N ranks:
 *
 *   blocks       rank r computes the M/N micro-batches from r M/N on.  A binary counter forms
 *                the low levels of the tree inside the rank (nn/grad_sum.h), one all_reduce a
 *                bucket the top levels across ranks, once a step, while backward is still
 *                forming other gradients.  The other micro-batches communicate nothing.
 *                M/N a power of two gives the bits of one process, for any N.
 *   interleaved  rank r computes the micro-batches k N + r.  The low levels are formed across
 *                ranks, one all_reduce a bucket and micro-batch, the top levels inside the
 *                rank.  N a power of two gives the bits of one process, for any M/N.
 *
 *     status = ls_ddp_begin(ddp, tape);
 *     for each micro-batch of this rank, unless something has failed:
 *         ls_ddp_no_sync(ddp, it is not the last);
 *         ls_tape_reset, forward, ls_backward, ls_ddp_end_micro(ddp);
 *     status = ls_ddp_finish(ddp, tape, status);     gradients: sums of the whole step, on all
 *
 * Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"
 * (arXiv:2006.15704).
 */
#ifndef LS_DIST_DDP_H
#define LS_DIST_DDP_H

#include "autograd/tape.h"
#include "core/trace.h"
#include "dist/comm/comm.h"

typedef struct ls_ddp ls_ddp;

/* Zero is the default of every member. */
typedef struct {
    double bucket_mb;   /* 0: 25 MiB */
    bool   no_overlap;  /* buckets leave after backward */
    bool   find_unused; /* parameters that no rank, or not every rank, uses are no error */
    bool   interleaved; /* which micro-batches a rank computes, see above */
    bool   bf16;        /* gradients travel as bf16, sums are in f32 and rounded once: half the
                           bytes, and not the bits of one process */
    bool   crowded; /* ranks x (threads + 1) exceed the host's cores: exposed_ns includes the
                       processor time that communication took from the computation */
} ls_ddp_opts;

/*
 * The list holds parameters, and may hold buffers (ls_module_list).  Its tensors must agree on
 * all ranks in number, name, shape, dtype and requires_grad (EMISMATCH names the first that
 * does not); their values become rank 0's.  Those that need a gradient now are trained, and
 * must stay so.  ESTATE for one that another ls_ddp has.  The list is borrowed, comm is
 * borrowed and split.  All ranks call it.
 */
LS_MUST_CHECK ls_status ls_ddp_new(ls_comm *comm, const ls_named_tensor *parameters, int n,
                                   const ls_ddp_opts *opts, ls_ddp **ddp);
void                    ls_ddp_free(ls_ddp *ddp); /* NULL is allowed; frees gradients too */

/*
 * Starts a step: drops the parameters' gradients, hooks into the tape.  ESTATE, to be handed on
 * to ls_ddp_finish(), for a parameter that was frozen or thawed since construction.
 */
LS_MUST_CHECK ls_status ls_ddp_begin(ls_ddp *ddp, ls_tape *tape);

/*
 * Before each forward: the micro-batch to come is (not) this rank's last of the step.  Off
 * where a step begins.  A change between a forward and its backward makes that backward fail
 * (ESTATE), before any gradient is sent.
 */
void ls_ddp_no_sync(ls_ddp *ddp, bool on);

/* After each backward.  Errors as ls_ddp_finish(), to which they are handed on. */
LS_MUST_CHECK ls_status ls_ddp_end_micro(ls_ddp *ddp);

/*
 * Waits for the buckets and unhooks; gradients are views into them until the next begin.  A
 * parameter that a rank did not use in the step is EINVAL on all ranks, with its name, unless
 * find_unused: then it counts as +0 where another rank used it, and has no gradient where none
 * did.  After a failure of this rank, also its own status comes here, and the other ranks fail
 * as well.
 */
LS_MUST_CHECK ls_status ls_ddp_finish(ls_ddp *ddp, ls_tape *tape, ls_status own);

/*
 * Between steps: do all ranks hold the same bits?  EMISMATCH on all ranks alike where not, with
 * the first tensor and element, ranks and values.  Costs one pass over the parameters and eight
 * bytes a tensor on the wire.
 */
LS_MUST_CHECK ls_status ls_ddp_check(ls_ddp *ddp);

/* Which micro-batch is the k-th of this rank, of M. */
int64_t ls_ddp_micro(const ls_ddp *ddp, int64_t micros, int64_t k);

/* Spans of the buckets' operations, and of waiting for them, go there (borrowed) from here on;
 * NULL: no longer. */
void ls_ddp_set_trace(ls_ddp *ddp, ls_trace *trace);

typedef struct {
    int     buckets;
    int64_t all_reduces; /* since the start */
    int64_t comm_ns; /* of the last step: from the first bucket's start to the last one's end */
    int64_t exposed_ns; /* of the last step: waited after backward; more where `crowded` */
} ls_ddp_stats;

ls_ddp_stats ls_ddp_get_stats(const ls_ddp *ddp);

#endif

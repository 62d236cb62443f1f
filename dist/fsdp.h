/*
 * fsdp.h - fully sharded data parallelism: every rank holds some rows of each parameter, of its
 * gradient and of its optimizer state.
 *
 * Modules are made units: the parameters below one that travel together.  A unit's parameters
 * are whole on a rank only while it runs.  Before its forward the rows of all ranks are
 * gathered, and dropped after it; the same in backward; and the moment a unit's gradients are
 * complete a reduce_scatter leaves each rank with the sums of its own rows.  The next unit is
 * gathered while this one computes.
 *
 *     ls_module *gpt = ls_gpt_new(&opts);                    headers, no memory
 *     for each block: ls_fsdp_shard(block, world, NULL);     units
 *     ls_fsdp_new(gpt, world, NULL, &fsdp);                  the rest is the root unit
 *     ls_module_init(gpt, seed);                             makes the rank's rows, no others
 *     opt = ls_optimizer_new(parameters, n, ...);            of the rank's rows
 *
 *     status = ls_fsdp_begin(fsdp, tape);
 *     for each micro-batch of this rank, unless something has failed:
 *         ls_fsdp_no_sync(fsdp, it is not the last);
 *         ls_tape_reset, forward of the root, ls_backward, ls_fsdp_end_micro(fsdp);
 *     status = ls_fsdp_finish(fsdp, tape, status);           gradients: sums of the own rows
 *     ls_grad_squares, their sum over ranks, ls_optimizer_step
 *
 * A forward is collective, also in evaluation: all ranks run the same units in the same order,
 * or all fail.  The micro-batches of a step (rule 2 of docs/architecture.md):
 *
 *   interleaved  rank r computes the micro-batches k N + r; a reduce_scatter for each, and only
 *                shards are added up.  N a power of two gives the bits of one process.
 *   blocks       rank r computes M/N neighbouring ones and adds up whole gradients; one
 *                reduce_scatter a step.  M/N a power of two gives the bits of one process.
 *
 * (Both where a unit's input goes to that unit alone: its gradient is summed inside first.)
 *
 * Rajbhandari et al. 2020, "ZeRO" (arXiv:1910.02054); Zhao et al. 2023, "PyTorch FSDP"
 * (arXiv:2304.11277).
 */
#ifndef LS_DIST_FSDP_H
#define LS_DIST_FSDP_H

#include "core/trace.h"
#include "dist/comm/comm.h"
#include "nn/module.h"

typedef struct ls_fsdp ls_fsdp;

/* What a rank holds only its rows of. */
typedef enum {
    LS_SHARD_FULL,      /* parameters, gradients, optimizer: ZeRO-3 */
    LS_SHARD_GRADIENTS, /* gradients and optimizer: ZeRO-2 */
    LS_SHARD_OPTIMIZER, /* the optimizer: ZeRO-1 */
} ls_shard_kind;

typedef struct {
    ls_shard_kind kind;
    bool          reshard_after_forward; /* FULL: drop a unit between forward and backward */
    int           prefetch;              /* units gathered ahead of the one that computes */
    bool          blocks;                /* which micro-batches a rank computes, see above */
    bool find_unused; /* parameters that no rank, or not every rank, uses are no error */
    bool no_share;    /* whole forms are copies, also where ranks share memory */
    bool crowded;     /* as in ddp.h */
    bool bf16;        /* whole forms are BF16: gathered and computed with; rows stay ls_real */
    bool reduce_bf16; /* gradients travel as BF16, sums are in f32 and rounded once: half the
                         bytes, and not the bits of one process */
} ls_fsdp_opts;

/* What NULL stands for. */
extern const ls_fsdp_opts ls_fsdp_defaults;

/*
 * Makes a module a unit: of the parameters below it that no unit has.  Inner modules first, the
 * root last (ls_fsdp_new), all with the same comm and options (NULL: ls_fsdp_defaults), but for
 * reshard_after_forward, which is the unit's own.  ESTATE, with the names, for a module that is
 * a unit, or stands below one; EINVAL for options out of range.  Units belong to the ls_fsdp of
 * their root.
 */
LS_MUST_CHECK ls_status ls_fsdp_shard(ls_module *module, ls_comm *comm,
                                      const ls_fsdp_opts *opts);

/* The same of several modules that run one after the other, as one unit.  EINVAL also where one
 * stands twice or below another. */
LS_MUST_CHECK ls_status ls_fsdp_shard_group(ls_module *const *modules, int n, ls_comm *comm,
                                            const ls_fsdp_opts *opts);

/* Takes back what ls_fsdp_shard() did below root, where ls_fsdp_new() did not follow. */
void ls_fsdp_forget(ls_module *root);

/*
 * Makes root the unit of what is left and shards all: parameters that have values are cut, with
 * rank 0's values, others get the rank's rows from ls_module_init() or a file.  Buffers stay
 * whole and become rank 0's.  All must agree on all ranks in number, name, shape, dtype and
 * requires_grad (EMISMATCH names the first that does not).  The parameters' headers keep the
 * shape of the whole; ls_tensor_owned() is what the rank has of them.  On failure the units are
 * taken back.  comm is borrowed and split; all ranks call it.
 */
LS_MUST_CHECK ls_status ls_fsdp_new(ls_module *root, ls_comm *comm, const ls_fsdp_opts *opts,
                                    ls_fsdp **fsdp);

/*
 * Before the module is freed; the parameters have no values afterwards.  All ranks free it
 * together.  One that leaves alone, after a failure of its own, abandons it, as do all of a
 * group that has failed: what others may still read then lives as long as the world's
 * communicator, and where ranks are threads as long as the process.  NULL is allowed.
 */
void ls_fsdp_free(ls_fsdp *fsdp);
void ls_fsdp_abandon(ls_fsdp *fsdp);

/* A step, as in ddp.h; the rules of no_sync, of frozen and of unused parameters are the same.
 */
LS_MUST_CHECK ls_status ls_fsdp_begin(ls_fsdp *fsdp, ls_tape *tape);
void                    ls_fsdp_no_sync(ls_fsdp *fsdp, bool on);
LS_MUST_CHECK ls_status ls_fsdp_end_micro(ls_fsdp *fsdp);
LS_MUST_CHECK ls_status ls_fsdp_finish(ls_fsdp *fsdp, ls_tape *tape, ls_status own);

/* Drops what is whole: after a change of ls_tensor_owned() values that no step made.  Before
 * such a change all ranks have left their forwards (a barrier): what they share others still
 * read. */
void ls_fsdp_reshard(ls_fsdp *fsdp);

/* Which micro-batch is the k-th of this rank, of M. */
int64_t ls_fsdp_micro(const ls_fsdp *fsdp, int64_t micros, int64_t k);

/* Between steps: do all ranks hold the same bits of what is not sharded, the buffers?
 * EMISMATCH as in ls_ddp_check(). */
LS_MUST_CHECK ls_status ls_fsdp_check(ls_fsdp *fsdp);

/* Spans of gathers and reduce_scatters, and of waiting for them, go there (borrowed) from here
 * on; NULL: no longer. */
void ls_fsdp_set_trace(ls_fsdp *fsdp, ls_trace *trace);

typedef struct {
    int     units;     /* the root too */
    int     most_open; /* units without the root that were whole, or becoming so, at once */
    int64_t all_gathers, reduce_scatters; /* since the start */
    int64_t comm_ns;                      /* of the last step: while an operation ran */
    int64_t exposed_ns;                   /* of the last step: waited for operations */
} ls_fsdp_stats;

ls_fsdp_stats ls_fsdp_get_stats(const ls_fsdp *fsdp);

/* What its all_gathers and reduce_scatters have come to, as ls_comm_counted() has it. */
ls_comm_counters ls_fsdp_counted(const ls_fsdp *fsdp, ls_collective kind);

#endif

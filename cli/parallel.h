/*
 * parallel.h - from a config and a world to the strategy that shares its steps.
 */
#ifndef LS_CLI_PARALLEL_H
#define LS_CLI_PARALLEL_H

#include "cli/config.h"
#include "cli/ranks.h"
#include "dist/strategy.h"
#include "nn/module.h"

/* What a run on these ranks will do. */
typedef struct {
    ls_cfg_strategy strategy; /* never AUTO */
    bool            shards;   /* a rank holds some rows of each parameter */
    bool    interleaved;      /* each rank computes every size-th micro-batch, else a block */
    bool    shared;           /* all ranks reach one memory */
    bool    canonical;        /* the bits are those of one process */
    bool    overruled;        /* parallel.accumulate would not be canonical, and is not done */
    char    why[240];         /* of "auto": what decided; else "" */
    int64_t bytes;            /* that a rank will have charged, by the plan */
} ls_parallelism;

/* Of modules that follow one another and are alike: blocks of a GPT, layers of an MLP. */
bool ls_parallel_repeats(const ls_module *m);

/* Is each rank to compute every size-th micro-batch? */
bool ls_parallel_interleaves(const ls_config *cfg, bool fsdp, int size);

/*
 * Decides, on all ranks alike; the model needs no memory yet.  ECONFIG where the plan goes
 * beyond run.memory_mb, with what the parts need.
 */
LS_MUST_CHECK ls_status ls_parallel_choose(const ls_config *cfg, const ls_ranks *ranks,
                                           ls_module *model, int64_t vocab_size,
                                           ls_parallelism *p);

/* FSDP: shards the model, before it has values.  All ranks call it; others do nothing here. */
LS_MUST_CHECK ls_status ls_parallel_shard(const ls_parallelism *p, const ls_config *cfg,
                                          const ls_ranks *ranks, ls_module *model,
                                          ls_strategy *strategy);

/* Tensors of a model, borrowed. */
typedef struct {
    const ls_named_tensor *parameters; /* [n_parameters] */
    int                    n_parameters;
    const ls_named_tensor *state; /* [n_state] these and buffers */
    int                    n_state;
} ls_model_tensors;

/* Others: when the model has values. */
LS_MUST_CHECK ls_status ls_parallel_wrap(const ls_parallelism *p, const ls_config *cfg,
                                         const ls_ranks *ranks, const ls_model_tensors *tensors,
                                         ls_strategy *strategy);

#endif

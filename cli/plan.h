/*
 * plan.h - what a step needs, worked out from a config alone: memory by strategy and world.
 *
 * docs/plan.md has the formulas.  `lockstep plan` prints them for all strategies; a run checks
 * its own against run.memory_mb before it starts.
 */
#ifndef LS_CLI_PLAN_H
#define LS_CLI_PLAN_H

#include "cli/config.h"
#include "nn/module.h"

typedef enum {
    LS_PLAN_SINGLE,
    LS_PLAN_DDP,
    LS_PLAN_ZERO1, /* fsdp, shard "optimizer" */
    LS_PLAN_ZERO2, /* fsdp, shard "gradients" */
    LS_PLAN_FSDP,  /* fsdp, shard "full" */
    LS_PLAN_COUNT
} ls_plan_kind;

/* "single", "ddp", "zero1", "zero2", "fsdp" */
const char *ls_plan_kind_name(ls_plan_kind kind);

/* Of a model.  Bytes of arrays are those that ls_mem_alloc() would charge. */
typedef struct {
    int64_t parameters; /* elements */
    int64_t bytes;      /* of one copy of all parameters */
    int64_t unit,
        n_unit;   /* bytes of the largest unit, and units, of FSDP: unit_blocks blocks */
    int64_t root; /* bytes of what is in no unit */
    int64_t
        early; /* bytes of gradients that are formed in forward and wait, and the next one */
} ls_plan_model;

/* The model needs no values. */
ls_plan_model ls_plan_model_of(const ls_config *cfg, int64_t vocab_size,
                               const ls_module *model);

typedef struct {
    int  size;
    bool shares; /* all ranks are on one host and reach each other's memory */
} ls_plan_world;

/* What a rank holds at its peak, in bytes. */
typedef struct {
    int64_t params, grads, optim, activations, comm, total;
} ls_memory_plan;

ls_memory_plan ls_memory_plan_of(const ls_config *cfg, int64_t vocab_size,
                                 const ls_plan_model *model, ls_plan_kind kind,
                                 const ls_plan_world *world);

/* Elements that operations between ranks move in a step, by kind: what each rank would send and
 * receive is (N-1)/N of a gathered or scattered element, twice that of a reduced one. */
typedef struct {
    double reduced;             /* all_reduce */
    double scattered, gathered; /* reduce_scatter, all_gather */
    double operations;          /* calls, for the latency */
} ls_traffic;

ls_traffic ls_traffic_of(const ls_config *cfg, const ls_plan_model *model, ls_plan_kind kind,
                         const ls_plan_world *world);

#endif

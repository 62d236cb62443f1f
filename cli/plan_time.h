/*
 * plan_time.h - how long a step takes, from what one layer and a few products take here.
 *
 * Compute is measured, not guessed: the micro-batch of the config on a model of one and of two
 * blocks, which gives a block's time and that of the rest (embedding, head, loss), and an
 * update.  Models whose micro-batch would take long are counted in flops at the measured rate
 * instead.  docs/plan.md has the formulas.
 */
#ifndef LS_CLI_PLAN_TIME_H
#define LS_CLI_PLAN_TIME_H

#include "cli/plan.h"

/* Of this host, with the pool in use. */
typedef struct {
    double  flops;      /* a second, of a large product */
    double  copy_bytes; /* a second and core, read and written */
    int     cores;      /* that the process may use */
    double  micro_s;    /* forward and backward of a micro-batch, all layers */
    double  update_s;   /* norm and optimizer, all parameters */
    double  add_s;      /* adding one copy of all gradients to another */
    bool    by_flops;   /* micro_s is flops / rate */
    int64_t threads;    /* that computed while it was measured */
} ls_plan_rates;

/* Between ranks.  bandwidth 0: ranks share this host and its cores, and move bytes by copying.
 */
typedef struct {
    double bandwidth; /* bytes a second, each way, of each rank's link */
    double latency;   /* seconds of a message */
} ls_plan_link;

/* ENOMEM. */
LS_MUST_CHECK ls_status ls_plan_measure(const ls_config *cfg, int64_t vocab_size,
                                        const ls_plan_model *model, ls_plan_rates *rates);

/* Seconds of a step. */
typedef struct {
    double compute, update, comm, exposed, total;
} ls_time_plan;

ls_time_plan ls_time_plan_of(const ls_config *cfg, const ls_plan_model *model,
                             const ls_plan_rates *rates, const ls_plan_link *link,
                             ls_plan_kind kind, int size);

#endif

/*
 * parallel.c - which strategy, which micro-batches, how much memory.
 */
#include "cli/parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan.h"
#include "core/alloc.h"

static bool is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static int64_t each_of(const ls_config *cfg, int size)
{
    return cfg->batch.global / cfg->batch.micro / size;
}

/* Rule 2 of the law: which of the two ways gives the bits of one process? */
bool ls_parallel_interleaves(const ls_config *cfg, bool fsdp, int size)
{
    bool blocks = is_power_of_two(each_of(cfg, size)), interleaved = is_power_of_two(size);
    bool wanted = fsdp && cfg->parallel.accumulate == LS_CFG_ACCUMULATE_SHARDED;

    return wanted ? interleaved || !blocks : interleaved && !blocks;
}

static void choose_order(ls_parallelism *p, const ls_config *cfg, int size)
{
    bool wanted = p->shards && cfg->parallel.accumulate == LS_CFG_ACCUMULATE_SHARDED;

    p->canonical   = is_power_of_two(each_of(cfg, size)) || is_power_of_two(size);
    p->interleaved = ls_parallel_interleaves(cfg, p->shards, size);
    p->overruled   = p->shards && p->interleaved != wanted;
}

/* ---- units ---- */

bool ls_parallel_repeats(const ls_module *m)
{
    return !strcmp(m->kind->type, "block") || !strcmp(m->kind->type, "linear");
}

static ls_fsdp_opts fsdp_opts(const ls_parallelism *p, const ls_config *cfg,
                              const ls_ranks *ranks)
{
    static const ls_shard_kind kind[] = {[LS_CFG_SHARD_FULL]      = LS_SHARD_FULL,
                                         [LS_CFG_SHARD_GRADIENTS] = LS_SHARD_GRADIENTS,
                                         [LS_CFG_SHARD_OPTIMIZER] = LS_SHARD_OPTIMIZER};

    return (ls_fsdp_opts){.kind                  = kind[cfg->parallel.shard],
                          .reshard_after_forward = cfg->parallel.reshard_after_forward,
                          .prefetch              = (int)cfg->parallel.prefetch,
                          .blocks                = !p->interleaved,
                          .find_unused           = cfg->parallel.find_unused,
                          .bf16        = cfg->parallel.param_dtype == LS_CFG_DTYPE_BF16,
                          .reduce_bf16 = cfg->parallel.reduce_dtype == LS_CFG_DTYPE_BF16,
                          .crowded     = ls_ranks_are_crowded(cfg, ranks)};
}

static ls_status shard_units(const ls_config *cfg, ls_module *model, ls_comm *comm,
                             const ls_fsdp_opts *opts)
{
    int64_t     most   = cfg->parallel.unit_blocks;
    ls_module **group  = ls_calloc((size_t)most, sizeof *group);
    ls_status   status = group ? LS_OK : LS_ENOMEM;
    int         n      = 0;

    for (ls_module *m = model->children; m && !status; m = m->next) {
        if (!ls_parallel_repeats(m))
            continue;
        group[n++] = m;
        if (n < most && m->next && ls_parallel_repeats(m->next))
            continue;
        status = ls_fsdp_shard_group(group, n, comm, opts);
        n      = 0;
    }
    free(group);
    return status;
}

static ls_status shard_fsdp(const ls_parallelism *p, const ls_config *cfg,
                            const ls_ranks *ranks, ls_module *model, ls_strategy *strategy)
{
    ls_fsdp_opts opts = fsdp_opts(p, cfg, ranks);
    ls_fsdp     *fsdp;

    ls_status status = ls_ranks_agree(ranks, shard_units(cfg, model, ranks->world, &opts));
    if (status) {
        ls_fsdp_forget(model);
        return status;
    }
    status = ls_fsdp_new(model, ranks->world, &opts, &fsdp);
    if (!status)
        ls_strategy_fsdp(strategy, fsdp);
    return status;
}

static ls_plan_kind plan_fsdp(const ls_config *cfg)
{
    static const ls_plan_kind kind[] = {[LS_CFG_SHARD_FULL]      = LS_PLAN_FSDP,
                                        [LS_CFG_SHARD_GRADIENTS] = LS_PLAN_ZERO2,
                                        [LS_CFG_SHARD_OPTIMIZER] = LS_PLAN_ZERO1};

    return kind[cfg->parallel.shard];
}

/* ---- replicas ---- */

static ls_status wrap_single(const ls_parallelism *p, const ls_config *cfg,
                             const ls_ranks *ranks, const ls_model_tensors *tensors,
                             ls_strategy *strategy)
{
    (void)p;
    (void)cfg;
    (void)ranks;
    return ls_strategy_single(strategy, tensors->parameters, tensors->n_parameters);
}

static ls_plan_kind plan_single(const ls_config *cfg)
{
    (void)cfg;
    return LS_PLAN_SINGLE;
}

static ls_status wrap_ddp(const ls_parallelism *p, const ls_config *cfg, const ls_ranks *ranks,
                          const ls_model_tensors *tensors, ls_strategy *strategy)
{
    ls_ddp_opts opts = {.bucket_mb   = cfg->parallel.bucket_mb,
                        .no_overlap  = !cfg->parallel.overlap,
                        .find_unused = cfg->parallel.find_unused,
                        .bf16        = cfg->parallel.compress == LS_CFG_COMPRESS_BF16,
                        .interleaved = p->interleaved,
                        .crowded     = ls_ranks_are_crowded(cfg, ranks)};
    ls_ddp     *ddp;

    ls_status status = ls_ddp_new(ranks->world, tensors->state, tensors->n_state, &opts, &ddp);
    if (!status)
        ls_strategy_ddp(strategy, ddp);
    return status;
}

static ls_plan_kind plan_ddp(const ls_config *cfg)
{
    (void)cfg;
    return LS_PLAN_DDP;
}

/* ---- a row a strategy ---- */

typedef struct {
    ls_plan_kind (*plan)(const ls_config *cfg); /* whose memory it needs */
    /* One of the two: it shards a model without values, or wraps one that has them. */
    ls_status (*shard)(const ls_parallelism *p, const ls_config *cfg, const ls_ranks *ranks,
                       ls_module *model, ls_strategy *strategy);
    ls_status (*wrap)(const ls_parallelism *p, const ls_config *cfg, const ls_ranks *ranks,
                      const ls_model_tensors *tensors, ls_strategy *strategy);
} row;

static const row rows[] = {
    [LS_CFG_STRATEGY_SINGLE] = {plan_single, .wrap = wrap_single},
    [LS_CFG_STRATEGY_DDP]    = {plan_ddp, .wrap = wrap_ddp},
    [LS_CFG_STRATEGY_FSDP]   = {plan_fsdp, .shard = shard_fsdp},
};
#define NAME_OF(STRATEGY, name) [LS_CFG_STRATEGY_##STRATEGY] = #name,
static const char *const names[] = {LS_STRATEGY_LIST(NAME_OF)};
#undef NAME_OF
_Static_assert(sizeof rows / sizeof *rows == sizeof names / sizeof *names, "a row a strategy");

static void take(ls_parallelism *p, ls_cfg_strategy strategy)
{
    p->strategy = strategy;
    p->shards   = rows[strategy].shard != NULL;
}

ls_status ls_parallel_shard(const ls_parallelism *p, const ls_config *cfg,
                            const ls_ranks *ranks, ls_module *model, ls_strategy *strategy)
{
    const row *r = &rows[p->strategy];

    return r->shard ? r->shard(p, cfg, ranks, model, strategy) : LS_OK;
}

ls_status ls_parallel_wrap(const ls_parallelism *p, const ls_config *cfg, const ls_ranks *ranks,
                           const ls_model_tensors *tensors, ls_strategy *strategy)
{
    const row *r = &rows[p->strategy];

    return r->wrap ? r->wrap(p, cfg, ranks, tensors, strategy) : LS_OK;
}

/* ---- memory ---- */

static ls_memory_plan plan_of(const ls_parallelism *p, const ls_config *cfg,
                              const ls_ranks *ranks, const ls_module *model, int64_t vocab_size)
{
    ls_plan_model m = ls_plan_model_of(cfg, vocab_size, model);
    ls_plan_world w = {.size = ranks->size, .shares = p->shared};

    return ls_memory_plan_of(cfg, vocab_size, &m, rows[p->strategy].plan(cfg), &w);
}

/* ---- the choice ---- */

static bool is_in_memory(const char *transport)
{
    return !strcmp(transport, "shm") || !strcmp(transport, "threads");
}

/* Memory that is free on this host, in bytes; INT64_MAX where it does not say. */
static int64_t available_bytes(void)
{
    char      line[128];
    long long kib = -1;
    FILE     *f   = fopen("/proc/meminfo", "re");

    while (f && kib < 0 && fgets(line, sizeof line, f))
        (void)!sscanf(line, "MemAvailable: %lld kB", &kib);
    if (f)
        fclose(f);
    return kib < 0 ? INT64_MAX : kib * 1024;
}

/* DDP where the replicas of every host fit into what is free there; else FSDP. */
static ls_status choose_auto(const ls_config *cfg, const ls_ranks *ranks,
                             const ls_module *model, int64_t vocab_size, ls_parallelism *p)
{
    int64_t limit = cfg->run.memory_mb << 20;
    int64_t there = limit ? limit : available_bytes() / ranks->local;

    take(p, LS_CFG_STRATEGY_DDP);
    int64_t   replica   = plan_of(p, cfg, ranks, model, vocab_size).total;
    int64_t   values[2] = {replica > there, -there};
    ls_status status    = ls_ranks_max(ranks, values, 2);
    if (values[0])
        take(p, LS_CFG_STRATEGY_FSDP);
    snprintf(p->why, sizeof p->why,
             "\"auto\": a replica needs about %lld MiB, a rank has %lld MiB (%s), so %s",
             (long long)(replica >> 20) + 1, (long long)(-values[1] >> 20),
             limit ? "run.memory_mb" : "what is free on its host, among its ranks",
             values[0] ? "fsdp" : "ddp");
    return status;
}

static ls_status check_limit(const ls_parallelism *p, const ls_config *cfg,
                             const ls_memory_plan *plan)
{
    int64_t limit = cfg->run.memory_mb << 20;

    if (!limit || plan->total <= limit)
        return LS_OK;
    return ls_fail(
        LS_ECONFIG,
        "run.memory_mb: %lld MiB, but under \"%s\" a rank of this config needs about "
        "%lld MiB (parameters %lld, gradients %lld, optimizer %lld, activations %lld, "
        "communication %lld); see lockstep plan",
        (long long)cfg->run.memory_mb, names[p->strategy], (long long)(plan->total >> 20) + 1,
        (long long)(plan->params >> 20), (long long)(plan->grads >> 20),
        (long long)(plan->optim >> 20), (long long)(plan->activations >> 20),
        (long long)(plan->comm >> 20));
}

ls_status ls_parallel_choose(const ls_config *cfg, const ls_ranks *ranks, ls_module *model,
                             int64_t vocab_size, ls_parallelism *p)
{
    ls_status status = LS_OK;

    *p = (ls_parallelism){.shared =
                              ranks->world && is_in_memory(ls_comm_transport(ranks->world))};
    if (!ranks->world)
        take(p, LS_CFG_STRATEGY_SINGLE);
    else if (cfg->parallel.strategy == LS_CFG_STRATEGY_AUTO)
        status = choose_auto(cfg, ranks, model, vocab_size, p);
    else
        take(p, cfg->parallel.strategy);
    choose_order(p, cfg, ranks->size);
    ls_memory_plan plan = plan_of(p, cfg, ranks, model, vocab_size);
    p->bytes            = plan.total;
    return status ? status : check_limit(p, cfg, &plan);
}

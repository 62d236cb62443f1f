/*
 * plan.c - the formulas of docs/plan.md.
 *
 * P bytes of parameters, N ranks, M micro-batches of a step, m = M / N.  Sums of a tree of m
 * leaves hold floor(log2 m) partial sums while a leaf arrives.  An allocation is charged with
 * its size class, so every array is rounded up by itself.
 */
#include "cli/plan.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/ops.h"
#include "cli/model.h"
#include "core/alloc.h"
#include "nn/module.h"
#include "optim/optimizer.h"

enum {
    OTHER_BYTES   = 192 << 10, /* the tape's arena, headers */
    CONTROL_BYTES = 72 << 10,  /* control blocks of the world and of the strategy's group */
    STAGED_BYTES  = 256 << 10, /* slots for small messages, a rank ... */
    WORK_BYTES    = 512 << 10  /* ... and what a rank works on them with */
};

/* ---- names ---- */

static const char *const names[LS_PLAN_COUNT] = {[LS_PLAN_SINGLE] = "single",
                                                 [LS_PLAN_DDP]    = "ddp",
                                                 [LS_PLAN_ZERO1]  = "zero1",
                                                 [LS_PLAN_ZERO2]  = "zero2",
                                                 [LS_PLAN_FSDP]   = "fsdp"};

const char *ls_plan_kind_name(ls_plan_kind kind)
{
    return names[kind];
}

ls_plan_kind ls_plan_kind_of(const ls_config *cfg, int world)
{
    static const ls_plan_kind shard[] = {[LS_CFG_SHARD_FULL]      = LS_PLAN_FSDP,
                                         [LS_CFG_SHARD_GRADIENTS] = LS_PLAN_ZERO2,
                                         [LS_CFG_SHARD_OPTIMIZER] = LS_PLAN_ZERO1};

    switch (cfg->parallel.strategy) {
    case LS_CFG_STRATEGY_SINGLE:
        return LS_PLAN_SINGLE;
    case LS_CFG_STRATEGY_FSDP:
        return shard[cfg->parallel.shard];
    case LS_CFG_STRATEGY_AUTO:
    case LS_CFG_STRATEGY_DDP:
        break;
    }
    return world > 1 || cfg->parallel.strategy == LS_CFG_STRATEGY_DDP ? LS_PLAN_DDP
                                                                      : LS_PLAN_SINGLE;
}

/* ---- the model ---- */

/* What an array of so many elements is charged with. */
static double array(double elements)
{
    double bytes = elements * sizeof(ls_real);
    return bytes < 0x1p46 ? (double)ls_mem_charged((size_t)bytes) : bytes;
}

static int64_t tensor_bytes(const ls_tensor *t)
{
    return (int64_t)array((double)ls_tensor_numel(t));
}

/* h.<i>. in front of a name: i, else -1. */
static int64_t block_of(const char *name)
{
    char *end;

    if (strncmp(name, "h.", 2))
        return -1;
    int64_t i = strtoll(name + 2, &end, 10);
    return *end == '.' ? i : -1;
}

/* The first unit is as large as any: only the last may lack blocks. */
static void add_tensor(ls_plan_model *m, const ls_named_tensor *p, int64_t unit_blocks)
{
    int64_t bytes = tensor_bytes(p->tensor), block = block_of(p->name);

    m->parameters += ls_tensor_numel(p->tensor);
    m->bytes += bytes;
    if (block < 0)
        m->root += bytes;
    else if (block < unit_blocks)
        m->unit += bytes;
}

/*
 * The head forms its weight's gradient in forward, while all partial sums are there; a tied one
 * waits for the embedding's, so it stands beside the next, that of the last mlp.proj.
 */
static int64_t early_bytes(const ls_config *cfg, int64_t vocab_size)
{
    double head = array((double)vocab_size * (double)cfg->model.d_model);
    double proj = array((double)cfg->model.d_ff * (double)cfg->model.d_model);

    if (cfg->model.type == LS_CFG_MODEL_MLP)
        return 0;
    return (int64_t)(cfg->model.tie_embeddings ? head + proj : head);
}

ls_status ls_plan_model_of(const ls_config *cfg, int64_t vocab_size, ls_plan_model *m)
{
    int              n     = 0;
    int64_t          each  = cfg->parallel.unit_blocks;
    ls_module       *model = ls_model_new(cfg, vocab_size);
    ls_named_tensor *list  = model ? ls_module_list(model, false, &n) : NULL;

    *m = (ls_plan_model){0};
    if (cfg->model.type == LS_CFG_MODEL_GPT)
        m->n_unit = (cfg->model.n_layer + each - 1) / each;
    for (int i = 0; i < n; i++)
        add_tensor(m, &list[i], each);
    m->early = early_bytes(cfg, vocab_size);
    free(list);
    ls_module_free(model);
    return list ? LS_OK : LS_ENOMEM;
}

/* ---- activations ---- */

typedef struct {
    double kept;    /* by one block for its backward */
    double passing; /* gradients and rebuilt values on their way through its mlp */
    double stream;  /* one (tokens, C) array */
    double head;    /* logits of a chunk, the head's input and its gradient */
} activations;

/*
 * A block keeps the inputs of its two norms, q, k, v, attention's result, the input of the
 * activation, and statistics; results of norms and activations are formed again.
 */
static activations activations_of(const ls_config *cfg, int64_t vocab_size)
{
    double tokens = (double)(cfg->batch.micro * cfg->model.context);
    double c = (double)cfg->model.d_model, heads = (double)cfg->model.n_head;
    double qkv    = c / heads * (heads + 2 * (double)cfg->model.n_kv_head);
    double hidden = array(tokens * (double)cfg->model.d_ff);
    bool   swiglu = cfg->model.mlp == LS_CFG_MLP_SWIGLU;
    double stats  = cfg->model.norm == LS_CFG_NORM_LAYERNORM ? 4 : 2; /* floats a token */
    double tables = cfg->model.position == LS_CFG_POSITION_ROPE
                        ? 2 * array((double)cfg->model.context * c / heads)
                        : 0;
    double rows = (double)ls_head_chunk_rows(cfg->batch.micro * cfg->model.context, vocab_size);
    double logits = rows * ((double)vocab_size + 4); /* with two doubles a row */

    return (activations){.kept = 3 * array(tokens * c) + array(tokens * qkv) +
                                 (swiglu ? 2 : 1) * hidden + array(tokens * heads) +
                                 2 * array(tokens * stats) + tables,
                         .passing = (swiglu ? 4 : 3) * hidden,
                         .stream  = array(tokens * c),
                         .head    = array(logits) + 2 * array(tokens * c)};
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* What is left of them when backward has come to the first block. */
static double last_activations(const ls_config *cfg, int64_t vocab_size)
{
    activations a = activations_of(cfg, vocab_size);
    return a.kept + a.stream + a.passing;
}

static double gpt_activations(const ls_config *cfg, int64_t vocab_size)
{
    activations a      = activations_of(cfg, vocab_size);
    double      layers = (double)cfg->model.n_layer;

    if (cfg->model.recompute) /* blocks keep their inputs, one at a time the rest */
        return (layers + 1) * a.stream + larger(a.head, a.kept + a.passing);
    return layers * a.kept + a.stream + larger(a.head, a.passing);
}

/* Every layer's input and output, and the gradient behind it. */
static double mlp_activations(const ls_config *cfg)
{
    double sum = 0;

    for (int64_t i = 0; i < cfg->model.sizes.count; i++)
        sum += array((double)cfg->batch.micro * (double)cfg->model.sizes.item[i]);
    return 3 * sum;
}

/* ---- gradients ---- */

/* Partial sums that wait, at most, while a leaf arrives: one for each bit of its number. */
static double partial_sums(int64_t leaves)
{
    return leaves > 0 ? 63 - __builtin_clzll((unsigned long long)leaves) : 0;
}

static int64_t leaves_of(const ls_config *cfg, int world)
{
    int64_t leaves = cfg->batch.global / cfg->batch.micro / world;
    return leaves > 0 ? leaves : 1;
}

/* The partial sums of a rank that sums whole gradients by itself. */
static double local_gradients(const ls_plan_model *m, int64_t leaves)
{
    if (leaves == 1)
        return 0;
    return (double)m->bytes * partial_sums(leaves) + (double)m->early;
}

/* ---- a rank ---- */

static double sharded_gradients(const ls_config *cfg, const ls_plan_model *m, int world)
{
    int64_t leaves = leaves_of(cfg, world);
    double  levels = larger(1, partial_sums(leaves));

    if (cfg->parallel.accumulate == LS_CFG_ACCUMULATE_LOCAL)
        return local_gradients(m, leaves) + (double)m->bytes / world;
    return levels * (double)m->bytes / world;
}

/* Whole units that a rank holds for a while, and their gradients. */
static double unsharded(const ls_config *cfg, const ls_plan_model *m, bool parameters)
{
    double units = (double)m->n_unit, gradients = (units < 2 ? units : 2) * (double)m->unit;
    double held = (double)cfg->parallel.prefetch + 1;

    if (!cfg->parallel.reshard_after_forward || held > units)
        held = units;
    gradients += (double)m->root;
    return gradients + (parameters ? held * (double)m->unit + (double)m->root : 0);
}

static double comm_bytes(const ls_config *cfg, const ls_plan_model *m, ls_plan_kind kind,
                         int world)
{
    double small = CONTROL_BYTES + (world > 1 ? WORK_BYTES + (double)world * STAGED_BYTES : 0);
    double wire  = cfg->parallel.compress == LS_CFG_COMPRESS_BF16 ? 1.5 : 1;

    switch (kind) {
    case LS_PLAN_DDP:
        return wire * (double)m->bytes + small;
    case LS_PLAN_ZERO1:
        return (double)m->bytes + small;
    case LS_PLAN_ZERO2:
        return unsharded(cfg, m, false) + small;
    case LS_PLAN_FSDP:
        return unsharded(cfg, m, true) + small;
    case LS_PLAN_SINGLE:
    case LS_PLAN_COUNT:
        break;
    }
    return 0;
}

static double gradient_bytes(const ls_config *cfg, const ls_plan_model *m, ls_plan_kind kind,
                             int world)
{
    int64_t leaves = leaves_of(cfg, world);

    switch (kind) {
    case LS_PLAN_DDP:
    case LS_PLAN_ZERO1:
        return local_gradients(m, leaves);
    case LS_PLAN_ZERO2:
    case LS_PLAN_FSDP:
        return sharded_gradients(cfg, m, world);
    case LS_PLAN_SINGLE:
    case LS_PLAN_COUNT:
        break;
    }
    return leaves == 1 ? (double)m->bytes : local_gradients(m, leaves);
}

/* Bytes of a plan: no limit of a config keeps it from being larger than any memory. */
static int64_t whole(double bytes)
{
    return bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX;
}

/*
 * Gradients and activations at their common peak.  Alone with one micro-batch the gradients
 * come as the activations go, so that they are largest at the start of backward or at its end.
 */
static double together(const ls_config *cfg, int64_t vocab_size, const ls_plan_model *m,
                       ls_plan_kind kind, double grads, double values)
{
    if (kind != LS_PLAN_SINGLE || leaves_of(cfg, 1) > 1 || cfg->model.type != LS_CFG_MODEL_GPT)
        return grads + values;
    return larger((double)m->early + values, grads + last_activations(cfg, vocab_size));
}

ls_memory_plan ls_memory_plan_of(const ls_config *cfg, int64_t vocab_size,
                                 const ls_plan_model *m, ls_plan_kind kind, int world)
{
    ls_optimizer_opts o      = ls_optimizer_opts_of(cfg);
    double            states = (double)ls_optimizer_state_bytes(&o, 1) / sizeof(ls_real);
    double            parts  = kind >= LS_PLAN_ZERO1 ? world : 1; /* of the optimizer's state */
    double            params = (double)m->bytes / (kind == LS_PLAN_FSDP ? world : 1);
    double            optim  = states * (double)m->bytes / parts;
    double            grads  = gradient_bytes(cfg, m, kind, world);
    double            comm   = comm_bytes(cfg, m, kind, world);
    double values = cfg->model.type == LS_CFG_MODEL_GPT ? gpt_activations(cfg, vocab_size)
                                                        : mlp_activations(cfg);

    return (ls_memory_plan){.params      = whole(params),
                            .grads       = whole(grads),
                            .optim       = whole(optim),
                            .activations = whole(values),
                            .comm        = whole(comm),
                            .total       = whole(params + optim + comm + OTHER_BYTES +
                                                 together(cfg, vocab_size, m, kind, grads, values))};
}

ls_status ls_memory_plan_check(const ls_config *cfg, int64_t vocab_size, int world)
{
    ls_plan_model model;
    int64_t       limit  = cfg->run.memory_mb << 20;
    ls_status     status = limit ? ls_plan_model_of(cfg, vocab_size, &model) : LS_OK;

    if (status || !limit)
        return status;
    ls_plan_kind   kind = ls_plan_kind_of(cfg, world);
    ls_memory_plan plan = ls_memory_plan_of(cfg, vocab_size, &model, kind, world);
    if (plan.total <= limit)
        return LS_OK;
    return ls_fail(
        LS_ECONFIG,
        "run.memory_mb: %lld MiB, but this config needs about %lld MiB a rank under %s "
        "(parameters %lld, gradients %lld, optimizer %lld, activations %lld, communication "
        "%lld); see lockstep plan",
        (long long)cfg->run.memory_mb, (long long)(plan.total >> 20) + 1,
        ls_plan_kind_name(kind), (long long)(plan.params >> 20), (long long)(plan.grads >> 20),
        (long long)(plan.optim >> 20), (long long)(plan.activations >> 20),
        (long long)(plan.comm >> 20));
}

/* ---- traffic ---- */

ls_traffic ls_traffic_of(const ls_config *cfg, const ls_plan_model *m, ls_plan_kind kind,
                         int world)
{
    double p = (double)m->parameters, units = (double)m->n_unit + 1;
    double rounds =
        cfg->parallel.accumulate == LS_CFG_ACCUMULATE_LOCAL ? 1 : (double)leaves_of(cfg, world);
    double micros  = (double)leaves_of(cfg, world);
    double gathers = cfg->parallel.reshard_after_forward ? 2 : 1; /* forward and backward */
    double buckets = p * sizeof(ls_real) / (cfg->parallel.bucket_mb * 0x1p20) + 1;

    switch (kind) {
    case LS_PLAN_DDP:
        return (ls_traffic){.reduced = p, .operations = buckets};
    case LS_PLAN_ZERO1:
        return (ls_traffic){.scattered = p, .gathered = p, .operations = 2 * buckets};
    case LS_PLAN_ZERO2:
        return (ls_traffic){
            .scattered = rounds * p, .gathered = p, .operations = (rounds + 1) * units};
    case LS_PLAN_FSDP:
        return (ls_traffic){.scattered  = rounds * p,
                            .gathered   = micros * gathers * p,
                            .operations = (rounds + micros * gathers) * units};
    case LS_PLAN_SINGLE:
    case LS_PLAN_COUNT:
        break;
    }
    return (ls_traffic){0};
}

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
#include "cli/parallel.h"
#include "core/alloc.h"
#include "nn/module.h"
#include "optim/optimizer.h"

enum {
    OTHER_BYTES   = 192 << 10, /* the tape's arena, headers */
    CONTROL_BYTES = 68 << 10,  /* of a strategy's group, and its share of the world's */
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

/* ---- the model ---- */

/* What an array of so many elements is charged with. */
static double array_of(double elements, double element_bytes)
{
    double bytes = elements * element_bytes;
    return bytes < 0x1p46 ? (double)ls_mem_charged((size_t)bytes) : bytes;
}

static double array(double elements)
{
    return array_of(elements, sizeof(ls_real));
}

/* With BF16 parameters what lies between products is BF16, too. */
static bool is_half(const ls_config *cfg)
{
    return cfg->parallel.param_dtype == LS_CFG_DTYPE_BF16;
}

static int64_t copy_bytes(const ls_module *m)
{
    int64_t bytes = 0;

    for (const ls_parameter *p = m->parameters; p; p = p->next)
        bytes += (int64_t)array((double)ls_tensor_numel(&p->tensor));
    for (const ls_module *child = m->children; child; child = child->next)
        bytes += copy_bytes(child);
    return bytes;
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

ls_plan_model ls_plan_model_of(const ls_config *cfg, int64_t vocab_size, const ls_module *model)
{
    int64_t       each = cfg->parallel.unit_blocks, repeated = 0, largest = 0;
    ls_plan_model m = {.parameters = ls_module_parameter_count(model),
                       .bytes      = copy_bytes(model),
                       .early      = early_bytes(cfg, vocab_size)};

    m.root = m.parameters * (int64_t)sizeof(ls_real);
    for (const ls_module *child = model->children; child; child = child->next) {
        int64_t bytes = ls_module_parameter_count(child) * (int64_t)sizeof(ls_real);
        if (!ls_parallel_repeats(child))
            continue;
        repeated++;
        m.root -= bytes;
        largest = bytes > largest ? bytes : largest;
    }
    m.n_unit = (repeated + each - 1) / each;
    m.unit   = largest * (each < repeated ? each : repeated);
    return m;
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
    double size   = is_half(cfg) ? sizeof(uint16_t) : sizeof(ls_real);
    double inner  = array_of(tokens * (double)cfg->model.d_ff, size);
    double narrow = array_of(tokens * c, size);

    return (activations){.kept = 2 * array(tokens * c) + narrow + array_of(tokens * qkv, size) +
                                 (swiglu ? 2 : 1) * inner + array(tokens * heads) +
                                 2 * array(tokens * stats) + tables,
                         .passing = (swiglu ? 4 : 3) * hidden,
                         .stream  = array(tokens * c),
                         .head    = array(logits) + array(tokens * c) + narrow};
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

/* The partial sums of a rank that sums whole gradients by itself; `placed` of them have a place
 * elsewhere. */
static double local_gradients(const ls_plan_model *m, int64_t leaves, double placed)
{
    if (leaves == 1)
        return 0;
    return (double)m->bytes * larger(0, partial_sums(leaves) - placed) + (double)m->early;
}

/* ---- a rank ---- */

/* Of the shards of n units and the root. */
static double shard_bytes(const ls_plan_model *m, double units, int size)
{
    const double each = sizeof(ls_real) * (double)size;
    return units * array((double)m->unit / each) + array((double)m->root / each);
}

static double two_units(const ls_plan_model *m)
{
    return m->n_unit < 2 ? (double)m->n_unit : 2;
}

/*
 * Interleaved ranks add up shards, others whole gradients before they send them.  The sums of a
 * later micro-batch arrive beside the earlier ones'; what is only on its way is in *arriving.
 */
static double sharded_gradients(const ls_config *cfg, const ls_plan_model *m, int size,
                                double *arriving)
{
    int64_t leaves = leaves_of(cfg, size);
    double  all    = shard_bytes(m, (double)m->n_unit, size);
    double  late   = shard_bytes(m, two_units(m), size);

    *arriving = leaves > 1 ? late : 0;
    if (ls_parallel_interleaves(cfg, true, size))
        return larger(1, partial_sums(leaves)) * all;
    *arriving = 0;
    return local_gradients(m, leaves, 0) + all;
}

/* Whole units that a rank holds for a while; where ranks share memory they read each other's.
 */
static double whole_units(const ls_config *cfg, const ls_plan_model *m, const ls_plan_world *w)
{
    double units = (double)m->n_unit, held = (double)cfg->parallel.prefetch + 1;

    if (w->shares)
        return 0;
    if (!cfg->parallel.reshard_after_forward || held > units)
        held = units;
    return (held * (double)m->unit + (double)m->root) * (is_half(cfg) ? 0.5 : 1);
}

/* Buffers in which gradients form and travel. */
static double unit_gradients(const ls_plan_model *m)
{
    return two_units(m) * (double)m->unit + (double)m->root;
}

/*
 * Control blocks; and where ranks share nothing, what goes through messages: DDP's agreements
 * in slots, a unit packed, summed and received (ls_scratch of dist/comm/collective.h).
 */
static double small_bytes(const ls_plan_model *m, ls_plan_kind kind, const ls_plan_world *w)
{
    if (kind == LS_PLAN_DDP)
        return CONTROL_BYTES + (w->size > 1 ? WORK_BYTES + (double)w->size * STAGED_BYTES : 0);
    if (w->size == 1 || w->shares)
        return 2 * CONTROL_BYTES;
    return 2 * CONTROL_BYTES + WORK_BYTES + 3 * (double)m->unit;
}

static double comm_bytes(const ls_config *cfg, const ls_plan_model *m, ls_plan_kind kind,
                         const ls_plan_world *w)
{
    double wire = cfg->parallel.compress == LS_CFG_COMPRESS_BF16 ? 1.5 : 1;

    switch (kind) {
    case LS_PLAN_DDP:
        return wire * (double)m->bytes + small_bytes(m, kind, w);
    case LS_PLAN_ZERO1:
    case LS_PLAN_ZERO2:
        return unit_gradients(m) + small_bytes(m, kind, w);
    case LS_PLAN_FSDP:
        return unit_gradients(m) + whole_units(cfg, m, w) + small_bytes(m, kind, w);
    case LS_PLAN_SINGLE:
    case LS_PLAN_COUNT:
        break;
    }
    return 0;
}

static double gradient_bytes(const ls_config *cfg, const ls_plan_model *m, ls_plan_kind kind,
                             int size, double *arriving)
{
    int64_t leaves = leaves_of(cfg, size);

    int in_buckets = !ls_parallel_interleaves(cfg, false, size); /* the first sums */

    *arriving = 0;
    if (kind == LS_PLAN_SINGLE)
        return leaves == 1 ? (double)m->bytes : local_gradients(m, leaves, 0);
    return kind == LS_PLAN_DDP ? local_gradients(m, leaves, in_buckets)
                               : sharded_gradients(cfg, m, size, arriving);
}

/* Bytes of a plan: no limit of a config keeps it from being larger than any memory. */
static int64_t whole(double bytes)
{
    return bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX;
}

/*
 * Gradients and activations at their common peak.  Of one micro-batch the gradients come as the
 * activations go, so that they are largest at the start of backward or at its end; on ranks
 * they have places that stand there all the time.
 */
static double together(const ls_config *cfg, int64_t vocab_size, const ls_plan_model *m,
                       ls_plan_kind kind, int size, double grads, double values)
{
    if (kind != LS_PLAN_SINGLE || leaves_of(cfg, size) > 1 ||
        cfg->model.type != LS_CFG_MODEL_GPT)
        return grads + values;
    return larger((double)m->early + values, grads + last_activations(cfg, vocab_size));
}

/*
 * Where ranks share memory, the parameters of all are one array of which each has its rows.
 * What is computed with in BF16 stands beside masters, of which a rank has its rows.
 */
static double parameter_bytes(const ls_config *cfg, const ls_plan_model *m, ls_plan_kind kind,
                              const ls_plan_world *w)
{
    bool   rows   = kind == LS_PLAN_FSDP || (kind >= LS_PLAN_ZERO1 && w->shares);
    double whole  = (double)m->bytes / (rows ? w->size : 1);
    double master = (double)m->bytes / (kind >= LS_PLAN_ZERO1 ? w->size : 1);

    return is_half(cfg) ? whole / 2 + master : whole;
}

ls_memory_plan ls_memory_plan_of(const ls_config *cfg, int64_t vocab_size,
                                 const ls_plan_model *m, ls_plan_kind kind,
                                 const ls_plan_world *w)
{
    ls_optimizer_opts o      = ls_optimizer_opts_of(cfg);
    double            states = (double)ls_optimizer_state_bytes(&o, 1) / sizeof(ls_real);
    double parts = kind >= LS_PLAN_ZERO1 ? w->size : 1; /* of the optimizer's state */
    double arriving, params = parameter_bytes(cfg, m, kind, w);
    double optim  = states * (double)m->bytes / parts;
    double grads  = gradient_bytes(cfg, m, kind, w->size, &arriving);
    double comm   = comm_bytes(cfg, m, kind, w);
    double values = cfg->model.type == LS_CFG_MODEL_GPT ? gpt_activations(cfg, vocab_size)
                                                        : mlp_activations(cfg);
    double both   = together(cfg, vocab_size, m, kind, w->size, grads, values);

    return (ls_memory_plan){.params      = whole(params),
                            .grads       = whole(grads + arriving),
                            .optim       = whole(optim),
                            .activations = whole(values),
                            .comm        = whole(comm),
                            .total       = whole(params + optim + comm + OTHER_BYTES + both)};
}

/* ---- traffic ---- */

ls_traffic ls_traffic_of(const ls_config *cfg, const ls_plan_model *m, ls_plan_kind kind,
                         const ls_plan_world *w)
{
    double p = (double)m->parameters, units = (double)m->n_unit + 1;
    double micros  = (double)leaves_of(cfg, w->size);
    double rounds  = ls_parallel_interleaves(cfg, true, w->size) ? micros : 1;
    double gathers = cfg->parallel.reshard_after_forward ? 2 : 1; /* forward and backward */
    double buckets = p * sizeof(ls_real) / (cfg->parallel.bucket_mb * 0x1p20) + 1;

    switch (kind) {
    case LS_PLAN_DDP:
        return (ls_traffic){.reduced = p, .operations = buckets};
    case LS_PLAN_ZERO1:
    case LS_PLAN_ZERO2:
        return (ls_traffic){.scattered  = rounds * p,
                            .gathered   = w->shares ? 0 : p,
                            .operations = (rounds + 1) * units};
    case LS_PLAN_FSDP:
        return (ls_traffic){.scattered  = rounds * p,
                            .gathered   = w->shares ? 0 : micros * gathers * p,
                            .operations = (rounds + micros * gathers) * units};
    case LS_PLAN_SINGLE:
    case LS_PLAN_COUNT:
        break;
    }
    return (ls_traffic){0};
}

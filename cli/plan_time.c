/*
 * plan_time.c - a step's time: measured compute, and communication that compute does not hide.
 */
#include "cli/plan_time.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/tape.h"
#include "cli/model.h"
#include "cli/progress.h"
#include "core/alloc.h"
#include "core/thread.h"
#include "optim/grad_norm.h"

enum {
    SIDE   = 1024,     /* of the product that gives the rate */
    ROUNDS = 5,        /* of each measurement; the best counts */
    COPIED = 32 << 20, /* bytes of the copy that gives the memory's rate */
    ADAM   = 7,        /* arrays that an update of Adam reads and writes ... */
    ADDED  = 3         /* ... and that an addition does */
};

/* Longer than this a measured micro-batch may not take, by its flops. */
static const double most_s = 1.5;

/* ---- the host ---- */

/* What else runs on the host only ever adds time. */
static double shortest(const double *x)
{
    double least = x[0];

    for (int i = 1; i < ROUNDS; i++)
        least = x[i] < least ? x[i] : least;
    return least;
}

static ls_status measure_copy(double *rate)
{
    char  *block = ls_mem_alloc(2 * (size_t)COPIED, LS_MEM_OTHER);
    double t[ROUNDS];

    if (!block)
        return LS_ENOMEM;
    memset(block, 1, 2 * (size_t)COPIED);
    for (int i = 0; i < ROUNDS; i++) {
        double start = ls_now();
        memcpy(block + COPIED, block, COPIED);
        t[i] = ls_now() - start;
    }
    *rate = 2 * (double)COPIED / shortest(t);
    ls_mem_free(block, 2 * (size_t)COPIED, LS_MEM_OTHER);
    return LS_OK;
}

/* ---- a small model of the same blocks ---- */

typedef struct {
    ls_config        cfg; /* borrowed parts of the real one, with other n_layer */
    ls_module       *model;
    ls_named_tensor *list;
    int              n;
    ls_tape         *tape;
    ls_optimizer    *optimizer;
    int64_t          vocab;
} probe;

static void probe_close(probe *p)
{
    ls_optimizer_free(p->optimizer);
    ls_tape_free(p->tape);
    free(p->list);
    ls_module_free(p->model);
}

static ls_status probe_open(probe *p, const ls_config *cfg, int64_t vocab, int64_t layers)
{
    ls_optimizer_opts opts = ls_optimizer_opts_of(cfg);

    *p                   = (probe){.cfg = *cfg, .vocab = vocab};
    p->cfg.model.n_layer = layers;
    p->model             = ls_model_new(&p->cfg, vocab);
    p->list              = p->model ? ls_module_list(p->model, false, &p->n) : NULL;
    p->tape              = ls_tape_new();
    if (!p->list || !p->tape)
        return LS_ENOMEM;
    ls_status status = ls_module_init(p->model, 1);
    p->optimizer     = status ? NULL : ls_optimizer_new(p->list, p->n, &opts);
    return p->optimizer ? LS_OK : LS_ENOMEM;
}

/* Any tokens will do: what they are changes no time. */
static ls_tensor *gpt_loss(const probe *p)
{
    int64_t    n      = p->cfg.batch.micro * p->cfg.model.context;
    ls_shape   shape  = LS_SHAPE2(p->cfg.batch.micro, p->cfg.model.context);
    ls_tensor *inputs = ls_tape_tensor(p->tape, LS_I32, shape);

    if (!inputs)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        ls_ints(inputs)[i] = (int32_t)(i * 7919 % p->vocab);
    return ls_module_call_with(p->model, p->tape, inputs, inputs);
}

static ls_tensor *mlp_loss(const probe *p)
{
    const ls_cfg_ints *sizes = &p->cfg.model.sizes;
    int64_t            rows = p->cfg.batch.micro, in = sizes->item[0];
    ls_tensor         *x       = ls_tape_tensor(p->tape, LS_REAL, LS_SHAPE2(rows, in));
    ls_tensor         *targets = ls_tape_tensor(p->tape, LS_I32, LS_SHAPE1(rows));

    if (!x || !targets)
        return NULL;
    for (int64_t i = 0; i < rows * in; i++)
        ls_reals(x)[i] = (ls_real)(i % 13) / 13;
    for (int64_t i = 0; i < rows; i++)
        ls_ints(targets)[i] = (int32_t)(i % sizes->item[sizes->count - 1]);
    return ls_module_call_with(p->model, p->tape, x, targets);
}

static ls_status run_micro(probe *p, double *seconds)
{
    double start = ls_now();

    ls_tape_reset(p->tape);
    ls_optimizer_zero_grad(p->optimizer);
    ls_status status =
        ls_backward(p->tape, p->cfg.model.type == LS_CFG_MODEL_GPT ? gpt_loss(p) : mlp_loss(p));
    *seconds = ls_now() - start;
    return status;
}

/* The first round warms caches and the allocator up. */
static ls_status time_micro(probe *p, double *seconds)
{
    double    t[ROUNDS];
    ls_status status = run_micro(p, t);

    for (int i = 0; i < ROUNDS && !status; i++)
        status = run_micro(p, &t[i]);
    *seconds = status ? 0 : shortest(t);
    return status;
}

/* Norm and update behind a backward; seconds an element. */
static ls_status time_update(probe *p, double *seconds)
{
    double       t[ROUNDS];
    ls_exact_sum squares;
    ls_status    status = LS_OK;

    for (int i = 0; i < ROUNDS && !status; i++) {
        double start = ls_now();
        ls_exact_sum_init(&squares);
        status = ls_grad_squares(p->list, p->n, &squares);
        ls_optimizer_step(p->optimizer, 1e-9);
        t[i] = ls_now() - start;
    }
    *seconds = status ? 0 : shortest(t) / (double)ls_module_parameter_count(p->model);
    return status;
}

static ls_status time_layers(const ls_config *cfg, int64_t vocab, int64_t layers, double *micro,
                             double *update)
{
    probe     p;
    ls_status status = probe_open(&p, cfg, vocab, layers);

    if (!status)
        status = time_micro(&p, micro);
    if (!status)
        status = time_update(&p, update);
    probe_close(&p);
    return status;
}

/* ---- the model ---- */

static double micro_flops(const ls_config *cfg, int64_t vocab)
{
    return ls_model_step_flops(cfg, vocab) * (double)cfg->batch.micro /
           (double)cfg->batch.global;
}

static ls_status measure_micro(const ls_config *cfg, int64_t vocab, ls_plan_rates *r,
                               double *update)
{
    double    one = 0, two = 0;
    ls_status status = time_layers(cfg, vocab, 1, &one, update);

    r->micro_s = one;
    if (status || cfg->model.type == LS_CFG_MODEL_MLP)
        return status;
    status      = time_layers(cfg, vocab, 2, &two, update);
    double each = two > one ? two - one : 0;
    r->micro_s  = one + (double)(cfg->model.n_layer - 1) * each;
    return status;
}

ls_status ls_plan_measure(const ls_config *cfg, int64_t vocab, const ls_plan_model *model,
                          ls_plan_rates *r)
{
    ls_config small  = *cfg;
    double    update = 0;

    *r                  = (ls_plan_rates){.cores = ls_cpu_count(), .threads = cfg->run.threads};
    small.model.n_layer = 2;
    r->flops            = ls_measure_sgemm(SIDE, ROUNDS);
    ls_status status    = r->flops > 0 ? measure_copy(&r->copy_bytes) : LS_ENOMEM;
    if (status)
        return status;
    r->by_flops = micro_flops(&small, vocab) > most_s * r->flops;
    if (r->by_flops) {
        r->micro_s = micro_flops(cfg, vocab) / r->flops;
        update     = ADAM * sizeof(ls_real) / r->copy_bytes;
    } else {
        status = measure_micro(cfg, vocab, r, &update);
    }
    r->update_s = update * (double)model->parameters;
    r->add_s    = r->update_s * ADDED / ADAM;
    return status;
}

/* ---- a step ---- */

/* How much longer compute takes where the ranks of a host have more threads than it has cores.
 */
static double slower(const ls_plan_rates *r, const ls_plan_link *link, int world)
{
    double wanted = (double)r->threads * world, cores = r->cores;

    return link->bandwidth > 0 || wanted <= cores ? 1 : wanted / cores;
}

/*
 * On one host each byte of an operation is read and written once a rank, by the cores that
 * compute (collectives.md); between hosts a reduced element crosses a rank's link twice.
 */
static double comm_seconds(const ls_traffic *t, const ls_plan_rates *r,
                           const ls_plan_link *link, int world)
{
    double passed = 2 * t->reduced + t->scattered + t->gathered,
           bytes  = passed * sizeof(ls_real);
    double n = world, streams = r->cores < world ? r->cores : world;

    if (link->bandwidth > 0)
        return bytes * (n - 1) / n / link->bandwidth +
               2 * (n - 1) * link->latency * t->operations;
    return bytes * n / (r->copy_bytes * streams) + link->latency * t->operations;
}

/* Backward is two thirds of a micro-batch. */
static double hidden_seconds(const ls_config *cfg, const ls_plan_link *link, ls_plan_kind kind,
                             double micro, double micros)
{
    if (link->bandwidth <= 0)
        return 0; /* the cores that would go on computing copy */
    if (kind == LS_PLAN_FSDP)
        return micros * micro;
    return cfg->parallel.overlap ? micro * 2 / 3 : 0;
}

ls_time_plan ls_time_plan_of(const ls_config *cfg, const ls_plan_model *model,
                             const ls_plan_rates *r, const ls_plan_link *link,
                             ls_plan_kind kind, int size)
{
    ls_plan_world w      = {.size = size, .shares = link->bandwidth <= 0};
    double        micros = (double)cfg->batch.global / (double)cfg->batch.micro / size;
    double        slow = slower(r, link, size), micro = r->micro_s * slow;
    double        shards = kind >= LS_PLAN_ZERO1 ? size : 1;
    ls_traffic    t      = ls_traffic_of(cfg, model, kind, &w);

    ls_time_plan p      = {.compute = micros * micro + (micros - 1) * r->add_s * slow,
                           .update  = r->update_s * slow / shards,
                           .comm    = size > 1 ? comm_seconds(&t, r, link, size) : 0};
    double       hidden = hidden_seconds(cfg, link, kind, micro, micros);
    double       last   = t.operations > 1 ? p.comm / t.operations : p.comm; /* cannot hide */
    p.exposed           = p.comm - hidden > last ? p.comm - hidden : last;
    p.total             = p.compute + p.update + p.exposed;
    return p;
}

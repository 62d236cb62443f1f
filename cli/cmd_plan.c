/*
 * cmd_plan.c - lockstep plan: memory and step time of a config under every strategy and world.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/model.h"
#include "cli/plan_time.h"
#include "cli/train.h"
#include "core/alloc.h"
#include "core/compute.h"
#include "core/thread.h"
#include "data/dataset.h"

static const char help[] =
    "usage: lockstep plan CONFIG [--world N,N,...] [--bandwidth GBPS] [--latency US]\n"
    "                     [--memory GIB] [--set KEY.PATH=VALUE]... [--json]\n"
    "\n"
    "Memory of a rank and time of a step under one process, DDP, ZeRO-1, ZeRO-2 and FSDP, for\n"
    "each world, without training; says which to use and why.  docs/plan.md has the formulas.\n"
    "Compute is measured on this host, with the threads that a rank has in each world: a\n"
    "micro-batch of one and of two blocks, an update.\n"
    "\n"
    "  --world N,N,...    numbers of ranks; default 1,2,4,8\n"
    "  --bandwidth GBPS   ranks are hosts like this one, each with a link of so many gigabits "
    "a\n"
    "                     second; default: they share this host's cores and memory\n"
    "  --latency US       of a message, in microseconds; default 20 between hosts, 5 on one\n"
    "  --memory GIB       what a rank may take; default: run.memory_mb, else this host's "
    "memory,\n"
    "                     shared by its ranks\n"
    "  --set KEY=VALUE    replaces a value of the config\n"
    "  --json             one JSON object\n"
    "  -h, --help         this text\n";

enum { MOST_WORLDS = 64, MOST_WORLD = 4096 };

typedef struct {
    const char *config, *world, *bandwidth, *latency, *memory;
    ls_arg_list sets;
    bool        json, help;
} arguments;

typedef struct {
    int            world;
    ls_plan_kind   kind;
    ls_memory_plan memory;
    ls_time_plan   time;
    double         limit; /* bytes */
    bool           fits;
} row;

typedef struct {
    const ls_config *cfg;
    int64_t          vocab;
    int              worlds[MOST_WORLDS], n_worlds;
    ls_plan_link     link;
    double           memory; /* bytes; 0: the host's */
    ls_plan_model    model;
    ls_plan_rates    rates[MOST_WORLDS]; /* by number of threads, each once */
    int              n_rates;
    row              rows[MOST_WORLDS * LS_PLAN_COUNT];
    int              n_rows;
} plan;

/* ---- arguments ---- */

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--world", 0, LS_ARG_VALUE, &a->world},
                           {"--bandwidth", 0, LS_ARG_VALUE, &a->bandwidth},
                           {"--latency", 0, LS_ARG_VALUE, &a->latency},
                           {"--memory", 0, LS_ARG_VALUE, &a->memory},
                           {"--set", 0, LS_ARG_LIST, &a->sets},
                           {"--json", 0, LS_ARG_FLAG, &a->json}};

    return ls_args_parse(&(ls_arg_table){.command    = "plan",
                                         .arg        = args,
                                         .n_args     = sizeof args / sizeof *args,
                                         .operand    = "CONFIG",
                                         .operand_to = &a->config,
                                         .help       = &a->help},
                         argc, argv);
}

static ls_status read_worlds(const char *text, plan *p)
{
    const char *all = text ? text : "1,2,4,8";

    for (const char *at = all; *at;) {
        char *end;
        errno  = 0;
        long n = strtol(at, &end, 10);
        if (errno || end == at || (*end && *end != ',') || (*end && !end[1]) || n < 1 ||
            n > MOST_WORLD || p->n_worlds == MOST_WORLDS)
            return ls_fail(LS_ECONFIG,
                           "plan: --world %s, want at most %d numbers, 1 to %d, as 1,2,4", all,
                           MOST_WORLDS, MOST_WORLD);
        p->worlds[p->n_worlds++] = (int)n;
        at                       = *end ? end + 1 : end;
    }
    return p->n_worlds ? LS_OK : ls_fail(LS_ECONFIG, "plan: --world is empty, want 1,2,4");
}

/* A positive number, `standard` where it was not given. */
static ls_status read_number(const char *name, const char *text, double standard, double *value)
{
    char *end = NULL;

    *value = text ? strtod(text, &end) : standard;
    if (text && (end == text || *end || !(*value > 0) || *value > 1e12))
        return ls_fail(LS_ECONFIG, "plan: %s %s, want a number above 0", name, text);
    return LS_OK;
}

static ls_status read_numbers(const arguments *a, plan *p)
{
    double    gbps, us, gib;
    ls_status status = read_worlds(a->world, p);

    if (!status)
        status = read_number("--bandwidth", a->bandwidth, 0, &gbps);
    if (!status)
        status = read_number("--latency", a->latency, a->bandwidth ? 20 : 5, &us);
    if (!status)
        status = read_number("--memory", a->memory, 0, &gib);
    if (!status) {
        p->link   = (ls_plan_link){.bandwidth = gbps * 1e9 / 8, .latency = us * 1e-6};
        p->memory = gib > 0 ? gib * 0x1p30 : (double)p->cfg->run.memory_mb * 0x1p20;
    }
    return status;
}

/* The data is read only where nothing else tells the vocabulary. */
static ls_status find_vocabulary(const ls_config *cfg, int64_t *vocab)
{
    ls_dataset_opts opts = ls_dataset_opts_of(cfg);
    ls_dataset      data;

    *vocab = cfg->model.type == LS_CFG_MODEL_MLP ? 1 : ls_model_vocab_size(cfg);
    if (*vocab)
        return LS_OK;
    ls_status status = ls_blame_config(ls_dataset_load(&opts, &data));
    if (status)
        return status;
    *vocab = data.vocab_size;
    ls_dataset_close(&data);
    return LS_OK;
}

/* ---- rows ---- */

static double host_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static double limit_of(const plan *p, int world)
{
    if (p->memory > 0)
        return p->memory;
    return p->link.bandwidth > 0 ? host_bytes() : host_bytes() / world;
}

static bool divides(const plan *p, int world)
{
    return p->cfg->batch.global / p->cfg->batch.micro % world == 0;
}

/* Of a rank: ranks of one host share its cores, as those of a run without run.threads do. */
static int64_t threads_of(const plan *p, int world)
{
    int64_t most = p->cfg->run.threads, share = ls_cpu_count() / world;

    if (p->link.bandwidth > 0 || share >= most)
        return most;
    return share > 1 ? share : 1;
}

/* NULL where they have not been measured. */
static const ls_plan_rates *rates_of(const plan *p, int world)
{
    for (int i = 0; i < p->n_rates; i++)
        if (p->rates[i].threads == threads_of(p, world))
            return &p->rates[i];
    return NULL;
}

/* What a rank computes, with the threads that it has in each of the worlds. */
static ls_status measure(plan *p)
{
    ls_config cfg    = *p->cfg; /* its parts stay the config's */
    ls_status status = LS_OK;

    for (int w = 0; w < p->n_worlds && !status; w++) {
        if (!divides(p, p->worlds[w]) || rates_of(p, p->worlds[w]))
            continue;
        cfg.run.threads = threads_of(p, p->worlds[w]);
        status          = ls_compute_start((int)cfg.run.threads);
        if (!status)
            status = ls_plan_measure(&cfg, p->vocab, &p->model, &p->rates[p->n_rates]);
        p->n_rates++;
    }
    return status;
}

static void add_row(plan *p, int world, ls_plan_kind kind)
{
    row          *r = &p->rows[p->n_rows++];
    ls_plan_world w = {.size = world, .shares = p->link.bandwidth <= 0};

    *r = (row){
        .world  = world,
        .kind   = kind,
        .memory = ls_memory_plan_of(p->cfg, p->vocab, &p->model, kind, &w),
        .time   = ls_time_plan_of(p->cfg, &p->model, rates_of(p, world), &p->link, kind, world),
        .limit  = limit_of(p, world)};
    r->fits = (double)r->memory.total <= r->limit;
}

static void add_rows(plan *p)
{
    for (int w = 0; w < p->n_worlds; w++)
        for (int k = 0; k < LS_PLAN_COUNT && divides(p, p->worlds[w]); k++)
            if ((k == LS_PLAN_SINGLE) == (p->worlds[w] == 1))
                add_row(p, p->worlds[w], (ls_plan_kind)k);
}

/* ---- what to use ---- */

/* Simpler ways come first, and a later one must be faster by more than the model can err. */
static const row *choose(const plan *p)
{
    const double margin = 0.97;
    const row   *best   = NULL;

    for (int i = 0; i < p->n_rows; i++)
        if (p->rows[i].fits && (!best || p->rows[i].time.total < margin * best->time.total))
            best = &p->rows[i];
    return best;
}

static const row *smallest(const plan *p)
{
    const row *least = NULL;

    for (int i = 0; i < p->n_rows; i++)
        if (!least || p->rows[i].memory.total < least->memory.total)
            least = &p->rows[i];
    return least;
}

static double tokens_per_s(const plan *p, const row *r)
{
    int64_t each = p->cfg->model.type == LS_CFG_MODEL_GPT ? p->cfg->model.context : 1;
    return (double)(p->cfg->batch.global * each) / r->time.total;
}

static double mib(double bytes)
{
    return bytes / 0x1p20;
}

/* Fewest words that tell why this row and no other. */
static void explain(const plan *p, const row *best, ls_strbuf *t)
{
    int too_large = 0, slower = 0;

    for (int i = 0; i < p->n_rows; i++) {
        too_large += !p->rows[i].fits;
        slower += p->rows[i].fits && &p->rows[i] != best;
    }
    if (!best) {
        const row *least = smallest(p);
        ls_strbuf_format(
            t,
            "nothing fits: the smallest, %s on %d, needs %.0f MiB of %.0f; a smaller "
            "batch.micro, model.recompute or more ranks help",
            ls_plan_kind_name(least->kind), least->world, mib((double)least->memory.total),
            mib(least->limit));
        return;
    }
    ls_strbuf_format(t, "%s on %d rank%s: ", ls_plan_kind_name(best->kind), best->world,
                     best->world == 1 ? "" : "s");
    if (best->kind == LS_PLAN_SINGLE && !p->link.bandwidth && p->n_worlds > 1)
        ls_strbuf_format(t,
                         "ranks of one host share its cores, so more of them gain nothing; ");
    ls_strbuf_format(t, "it fits (%.0f of %.0f MiB)", mib((double)best->memory.total),
                     mib(best->limit));
    if (slower)
        ls_strbuf_format(t, ", and none of the %d others that fit is more than 3 %% faster",
                         slower);
    if (too_large)
        ls_strbuf_format(t, "; %d of %d are too large", too_large, p->n_rows);
    if (best->time.exposed > 0.2 * best->time.total)
        ls_strbuf_format(t, "; %.0f %% of its step is communication",
                         100 * best->time.exposed / best->time.total);
}

/* ---- text ---- */

static void text_row(ls_strbuf *t, const plan *p, const row *r, const row *best)
{
    const ls_memory_plan *m = &r->memory;

    ls_strbuf_format(
        t, "%5d  %-7s %8.1f %8.1f %8.1f %8.1f %8.1f %9.1f %9.2f %8.2f %10.0f  %s\n", r->world,
        ls_plan_kind_name(r->kind), mib((double)m->params), mib((double)m->grads),
        mib((double)m->optim), mib((double)m->activations), mib((double)m->comm),
        mib((double)m->total), 1e3 * r->time.total, 1e3 * r->time.exposed, tokens_per_s(p, r),
        r == best ? "<"
        : r->fits ? ""
                  : "too large");
}

static void text_rates(ls_strbuf *t, const ls_plan_rates *r)
{
    ls_strbuf_format(t,
                     "%lld thread%s of this host: %.1f GF/s, micro-batch %.2f ms (%s), update "
                     "%.2f ms\n",
                     (long long)r->threads, r->threads == 1 ? "" : "s", 1e-9 * r->flops,
                     1e3 * r->micro_s, r->by_flops ? "from its flops" : "from measured blocks",
                     1e3 * r->update_s);
}

static void add_text(ls_strbuf *t, const plan *p)
{
    const row *best = choose(p);

    ls_strbuf_format(t, "%lld parameters; a step of %lld micro-batches; this host: %d core%s\n",
                     (long long)p->model.parameters,
                     (long long)(p->cfg->batch.global / p->cfg->batch.micro), p->rates[0].cores,
                     p->rates[0].cores == 1 ? "" : "s");
    for (int i = 0; i < p->n_rates; i++)
        text_rates(t, &p->rates[i]);
    ls_strbuf_format(t, "ranks: %s\n\n",
                     p->link.bandwidth > 0 ? "a host each, over a network"
                                           : "all on this host");
    ls_strbuf_format(t, "%5s  %-7s %8s %8s %8s %8s %8s %9s %9s %8s %10s\n", "world", "strategy",
                     "params", "grads", "optim", "activ.", "comm", "MiB/rank", "step ms",
                     "exposed", "tokens/s");
    for (int i = 0; i < p->n_rows; i++)
        text_row(t, p, &p->rows[i], best);
    for (int w = 0; w < p->n_worlds; w++)
        if (!divides(p, p->worlds[w]))
            ls_strbuf_format(t, "%5d  does not divide the %lld micro-batches of a step\n",
                             p->worlds[w],
                             (long long)(p->cfg->batch.global / p->cfg->batch.micro));
    ls_strbuf_format(t, "\nUse ");
    explain(p, best, t);
    ls_strbuf_format(t, ".\n");
}

/* ---- JSON ---- */

static void json_row(ls_strbuf *t, const plan *p, const row *r)
{
    const ls_memory_plan *m = &r->memory;

    ls_strbuf_format(t,
                     "{\"world\":%d,\"strategy\":\"%s\",\"memory_bytes\":{\"params\":%lld,"
                     "\"grads\":%lld,\"optim\":%lld,\"activations\":%lld,\"comm\":%lld,"
                     "\"total\":%lld},",
                     r->world, ls_plan_kind_name(r->kind), (long long)m->params,
                     (long long)m->grads, (long long)m->optim, (long long)m->activations,
                     (long long)m->comm, (long long)m->total);
    ls_strbuf_format(t,
                     "\"step_ms\":%.6g,\"compute_ms\":%.6g,\"update_ms\":%.6g,\"comm_ms\":%.6g,"
                     "\"comm_exposed_ms\":%.6g,\"tokens_per_s\":%.6g,\"fits\":%s}",
                     1e3 * r->time.total, 1e3 * r->time.compute, 1e3 * r->time.update,
                     1e3 * r->time.comm, 1e3 * r->time.exposed, tokens_per_s(p, r),
                     r->fits ? "true" : "false");
}

static void json_rates(ls_strbuf *t, const ls_plan_rates *r)
{
    ls_strbuf_format(t,
                     "{\"threads\":%lld,\"gflops\":%.6g,\"micro_ms\":%.6g,\"update_ms\":%.6g,"
                     "\"measured\":%s}",
                     (long long)r->threads, 1e-9 * r->flops, 1e3 * r->micro_s,
                     1e3 * r->update_s, r->by_flops ? "false" : "true");
}

static void json_choice(ls_strbuf *t, const plan *p)
{
    const row *best   = choose(p);
    ls_strbuf  reason = {0};

    if (best)
        ls_strbuf_format(t, "{\"world\":%d,\"strategy\":\"%s\",", best->world,
                         ls_plan_kind_name(best->kind));
    else
        ls_strbuf_format(t, "{\"world\":null,\"strategy\":null,");
    explain(p, best, &reason);
    ls_strbuf_format(t, "\"reason\":\"%s\"}", reason.data ? reason.data : "");
    ls_strbuf_free(&reason);
}

static void add_json(ls_strbuf *t, const plan *p)
{
    ls_strbuf_format(t, "{\"parameters\":%lld,\"micro_batches\":%lld,\"cores\":%d,\"rates\":[",
                     (long long)p->model.parameters,
                     (long long)(p->cfg->batch.global / p->cfg->batch.micro),
                     p->rates[0].cores);
    for (int i = 0; i < p->n_rates; i++) {
        ls_strbuf_format(t, i ? "," : "");
        json_rates(t, &p->rates[i]);
    }
    ls_strbuf_format(t, "],\"plans\":[");
    for (int i = 0; i < p->n_rows; i++) {
        ls_strbuf_format(t, i ? "," : "");
        json_row(t, p, &p->rows[i]);
    }
    ls_strbuf_format(t, "],\"use\":");
    json_choice(t, p);
    ls_strbuf_format(t, "}\n");
}

/* ---- the command ---- */

static ls_status refuse_no_rows(const plan *p)
{
    if (p->n_rows)
        return LS_OK;
    return ls_fail(LS_EWORLD,
                   "plan: no world of --world divides the %lld micro-batches of a step",
                   (long long)(p->cfg->batch.global / p->cfg->batch.micro));
}

static ls_status work_out(plan *p, const arguments *a)
{
    ls_strbuf  text   = {0};
    ls_module *model  = ls_model_new(p->cfg, p->vocab);
    ls_status  status = model ? LS_OK : LS_ENOMEM;

    if (model)
        p->model = ls_plan_model_of(p->cfg, p->vocab, model);
    ls_module_free(model);
    if (!status)
        status = measure(p);
    if (status)
        return status;
    add_rows(p);
    status = refuse_no_rows(p);
    if (!status) {
        (a->json ? add_json : add_text)(&text, p);
        status = ls_strbuf_put(&text);
    }
    ls_strbuf_free(&text);
    return status;
}

static int run(const arguments *a)
{
    ls_config cfg;
    plan     *p      = ls_calloc(1, sizeof *p);
    ls_status status = p ? ls_config_load(&cfg, a->config, a->sets.item, a->sets.n) : LS_ENOMEM;

    if (status) {
        free(p);
        return ls_report(status);
    }
    p->cfg = &cfg;
    status = read_numbers(a, p);
    if (!status)
        status = find_vocabulary(&cfg, &p->vocab);
    if (!status)
        status = work_out(p, a);
    ls_compute_stop();
    ls_config_free(&cfg);
    free(p);
    return ls_report(status);
}

int ls_cmd_plan(int argc, char **argv)
{
    arguments a      = {0};
    ls_status status = parse(&a, argc, argv);
    int       code   = status || a.help ? ls_report_help(status, help) : run(&a);

    free(a.sets.item);
    return code;
}

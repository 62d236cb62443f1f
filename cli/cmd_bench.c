/*
 * cmd_bench.c - lockstep bench: steps against their floor, products against the best one; what
 * ranks tell each other is in cmd_bench_collectives.c.
 *
 * The floor of a step is the time that its matrix products alone would take at the rate of a
 * 1024^3 sgemm with the same threads, measured between the steps of the same run:
 *
 *     [6 tokens (weights in products, the head once) + 6 L B T^2 C] flops / rate
 *
 * On several ranks all measure the rate at the same time, and the floor's is their sum; a step
 * starts with all ranks together and ends with the last of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/nproc.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/train.h"
#include "cli/trainer.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/kernels/gemm.h"
#include "core/thread.h"

static const char help[] =
    "usage: lockstep bench train CONFIG [--nproc N] [--steps S] [--set KEY.PATH=VALUE]... "
    "[--json]\n"
    "       lockstep bench gemm [--set KEY.PATH=VALUE] [--json]\n"
    "       lockstep bench collectives -n N [--op OP] [--bytes B] [--json]; it has a --help\n"
    "\n"
    "train: the median time of S steps (20) after three, beside the floor that the matrix\n"
    "products set; writes no files.  With --nproc on N ranks: step and memory are those of "
    "the\n"
    "slowest and largest rank.  gemm: products of a Transformer's shapes beside 1024^3.\n"
    "collectives: what ranks tell each other, by size.\n"
    "\n"
    "  --nproc N         ranks\n"
    "  --steps S         timed steps\n"
    "  --set KEY=VALUE   replaces a value of the config; of gemm's, run.threads alone matters\n"
    "  --json            one JSON object a line\n"
    "  -h, --help        this text\n";

typedef struct {
    const char *config, *steps, *nproc;
    ls_arg_list sets;
    bool        json, help;
} arguments;

enum { WARM_UP = 3, MOST_STEPS = 10000, SIDE = 1024 };

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median(int64_t *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    int half = n / 2;
    return n % 2 ? (double)x[half] : (double)(x[half - 1] + x[half]) / 2;
}

/* VmHWM: the most that was ever resident, in MiB. */
static double peak_rss_mb(void)
{
    char  line[256];
    long  kb = 0;
    FILE *f  = fopen("/proc/self/status", "re");

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return (double)kb / 1024;
}

static const char *cpu_name(char *buffer, size_t bytes)
{
    char  line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");

    snprintf(buffer, bytes, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strstr(line, ": ");
        if (strncmp(line, "model name", 10) || !colon)
            continue;
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(buffer, bytes, "%s", colon + 2);
        break;
    }
    if (f)
        fclose(f);
    return buffer;
}

typedef struct {
    double     median_ms, floor_ms, tokens_per_s;
    double     rate; /* of sgemm, all ranks together */
    double     rss_mb, exposed_ms;
    ls_profile profile; /* of this rank */
    int        steps;
} train_result;

/* Of each timed step: nanoseconds, and flops a second. */
typedef struct {
    int64_t *ns, *exposed_ns, *rate;
} samples;

static ls_status wait_for_all(const ls_ranks *ranks)
{
    return ranks->world ? ls_comm_barrier(ranks->world) : LS_OK;
}

/* One step behind a measurement of sgemm, so that both see the same machine. */
static ls_status time_step(ls_trainer *t, const ls_ranks *ranks, const samples *s, int i)
{
    ls_step_result step   = {0};
    double         rate   = ls_measure_sgemm(SIDE, 1);
    ls_status      status = wait_for_all(ranks);
    int64_t        start  = ls_now_ns();

    if (!status)
        status = ls_trainer_step(t, 0, &step);
    if (!status && i >= 0) {
        s->ns[i]         = ls_now_ns() - start;
        s->exposed_ns[i] = step.exposed_ns;
        s->rate[i]       = (int64_t)rate;
    }
    return status;
}

static ls_status join_samples(const ls_ranks *ranks, const samples *s, train_result *r)
{
    int64_t   rss    = (int64_t)(peak_rss_mb() * 1024);
    ls_status status = ls_ranks_max(ranks, s->ns, r->steps);

    if (!status)
        status = ls_ranks_max(ranks, s->exposed_ns, r->steps);
    if (!status)
        status = ls_ranks_max(ranks, &rss, 1);
    if (!status && ranks->world)
        status = ls_comm_all_reduce(ranks->world, s->rate, s->rate, r->steps, LS_I64, LS_SUM);
    r->rss_mb     = (double)rss / 1024;
    r->median_ms  = 1e-6 * median(s->ns, r->steps);
    r->exposed_ms = 1e-6 * median(s->exposed_ns, r->steps);
    r->rate       = median(s->rate, r->steps);
    return status;
}

static ls_status time_steps(ls_trainer *t, const ls_ranks *ranks, const samples *s,
                            train_result *r)
{
    ls_status status = LS_OK;

    for (int i = -WARM_UP; i < r->steps && !status; i++) {
        if (i == 0)
            ls_trainer_set_profile(t, &r->profile);
        status = time_step(t, ranks, s, i);
    }
    return status ? status : join_samples(ranks, s, r);
}

static ls_status measure(const ls_config *cfg, const ls_ranks *ranks, train_result *r)
{
    ls_trainer *t;
    int64_t    *x = ls_calloc((size_t)r->steps * 3, sizeof *x);
    samples     s = {x, x + r->steps, x + 2 * (ptrdiff_t)r->steps};
    ls_status   status =
        ls_ranks_agree(ranks, x ? LS_OK : ls_fail(LS_ENOMEM, "bench: %d steps", r->steps));

    if (!status)
        status = ls_trainer_new(cfg, ranks, &t);
    if (!status) {
        status = time_steps(t, ranks, &s, r);
        if (!status) {
            r->floor_ms = 1e3 * ls_model_step_flops(cfg, ls_trainer_vocab_size(t)) / r->rate;
            r->tokens_per_s =
                1e3 * (double)(cfg->batch.global * cfg->model.context) / r->median_ms;
        }
        ls_trainer_free(t);
    }
    free(x);
    return status;
}

static int by_time(const void *a, const void *b)
{
    const ls_op_time *x = a, *y = b;
    double            tx = x->forward_s + x->backward_s, ty = y->forward_s + y->backward_s;
    return (tx < ty) - (tx > ty);
}

static void print_json(const ls_config *cfg, const ls_ranks *ranks, const train_result *r)
{
    char cpu[128], kernels[LS_KERNELS_TEXT];

    printf(
        "{\"median_ms\":%.3f,\"tokens_per_s\":%.1f,\"peak_rss_mb\":%.1f,\"floor_ms\":%.3f,"
        "\"ratio_to_floor\":%.3f,\"comm_exposed_ms\":%.3f,\"sgemm_gflops\":%.1f,\"ranks\":%d,"
        "\"threads\":%lld,\"steps\":%d,\"blas\":\"%s\",\"cpu\":",
        r->median_ms, r->tokens_per_s, r->rss_mb, r->floor_ms, r->median_ms / r->floor_ms,
        r->exposed_ms, r->rate * 1e-9, ranks->size, (long long)cfg->run.threads, r->steps,
        ls_describe_kernels(cfg, kernels));
    ls_json_print_string(stdout, cpu_name(cpu, sizeof cpu));
    printf(",\"kernels_ms\":{");
    for (int i = 0; i < r->profile.n; i++)
        printf("%s\"%s\":[%.3f,%.3f]", i ? "," : "", r->profile.op[i].name,
               1e3 * r->profile.op[i].forward_s / r->steps,
               1e3 * r->profile.op[i].backward_s / r->steps);
    printf("}}\n");
}

static void print_table(const ls_config *cfg, const ls_ranks *ranks, const train_result *r)
{
    char   cpu[128], kernels[LS_KERNELS_TEXT];
    double rest = r->median_ms;

    printf("%s, %d rank%s, %lld thread%s%s\n%s\n", cpu_name(cpu, sizeof cpu), ranks->size,
           ranks->size == 1 ? "" : "s", (long long)cfg->run.threads,
           cfg->run.threads == 1 ? "" : "s", ranks->size == 1 ? "" : " each",
           ls_describe_kernels(cfg, kernels));
    printf("step     %9.2f ms (median of %d)   %.0f tokens/s\n", r->median_ms, r->steps,
           r->tokens_per_s);
    printf("floor    %9.2f ms (sgemm 1024^3: %.1f GF/s)   step / floor %.3f\n", r->floor_ms,
           r->rate * 1e-9, r->median_ms / r->floor_ms);
    if (ranks->world)
        printf("exposed  %9.2f ms of communication (%.1f %% of the step)\n", r->exposed_ms,
               100 * r->exposed_ms / r->median_ms);
    printf("memory   %9.1f MiB resident at most\n\n%-22s %10s %10s %7s\n", r->rss_mb,
           "operator", "forward ms", "backward", "share");
    for (int i = 0; i < r->profile.n; i++) {
        const ls_op_time *o = &r->profile.op[i];
        double            f = 1e3 * o->forward_s / r->steps, b = 1e3 * o->backward_s / r->steps;
        printf("%-22s %10.2f %10.2f %6.1f%%\n", o->name, f, b, 100 * (f + b) / r->median_ms);
        rest -= f + b;
    }
    printf("%-22s %21.2f %6.1f%%\n", "the rest (optimizer ...)", rest,
           100 * rest / r->median_ms);
}

static ls_status read_steps(const char *text, int *steps)
{
    char *end = NULL;
    long  n   = text ? strtol(text, &end, 10) : *steps;

    if (text && (end == text || *end || n < 1 || n > MOST_STEPS))
        return ls_fail(LS_ECONFIG, "bench: --steps %s, want 1 to %d", text, MOST_STEPS);
    *steps = (int)n;
    return LS_OK;
}

static ls_status bench_train(const arguments *a, const ls_config *cfg, ls_ranks *ranks)
{
    train_result r      = {.steps = 20};
    ls_status    status = read_steps(a->steps, &r.steps);

    if (!status)
        status = ls_ranks_join(cfg, ranks);
    if (!status)
        status = ls_ranks_agree(ranks, ls_start_compute(cfg));
    if (!status)
        status = measure(cfg, ranks, &r);
    ls_stop_compute();
    if (status || ranks->rank)
        return ls_blame_config(status);
    qsort(r.profile.op, (size_t)r.profile.n, sizeof r.profile.op[0], by_time);
    if (a->json)
        print_json(cfg, ranks, &r);
    else
        print_table(cfg, ranks, &r);
    return LS_OK;
}

typedef struct {
    int64_t m, n, k;
    bool    ta, tb;
} product;

/* Forward (NT), input gradient (NN) and weight gradient (TN) of two model widths. */
static const product products[] = {
    {1024, 1024, 1024, false, false}, {2048, 1536, 384, false, true},
    {2048, 384, 1536, false, true},   {2048, 1152, 384, false, true},
    {2048, 384, 384, false, true},    {2048, 384, 1536, false, false},
    {1536, 384, 2048, true, false},   {384, 384, 2048, true, false},
    {1024, 3072, 768, false, true},   {3072, 768, 1024, true, false},
    {512, 768, 768, false, true},     {256, 1536, 384, false, true},
    {512, 384, 384, false, true},     {768, 512, 128, false, true},
    {512, 128, 768, true, false},     {768, 128, 128, false, true},
    {128, 128, 768, true, false}};
enum { N_PRODUCTS = sizeof products / sizeof *products, ROUNDS = 15 };

static double time_product(const product *p, ls_real *x)
{
    ls_gemm_args g = {.transpose_a = p->ta,
                      .transpose_b = p->tb,
                      .m           = p->m,
                      .n           = p->n,
                      .k           = p->k,
                      .alpha       = 1,
                      .a           = x,
                      .lda         = p->ta ? p->m : p->k,
                      .b           = x + p->m * p->k,
                      .ldb         = p->tb ? p->k : p->n,
                      .c           = x + p->m * p->k + p->k * p->n,
                      .ldc         = p->n};
    int64_t      ns[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = ls_now_ns();
        ls_gemm(&g);
        ns[i] = ls_now_ns() - start;
    }
    return 1e-9 * median(ns, ROUNDS);
}

static ls_status bench_products(const arguments *a)
{
    size_t   bytes = (size_t)32 << 20;
    ls_real *x     = ls_mem_alloc(bytes, LS_MEM_OTHER);
    double   best  = ls_measure_sgemm(SIDE, 5);

    if (!x)
        return LS_ENOMEM;
    for (size_t i = 0; i < bytes / sizeof *x; i++)
        x[i] = (ls_real)0.5;
    for (int i = 0; i < N_PRODUCTS; i++) {
        const product *p = &products[i];
        double rate = 2.0 * (double)p->m * (double)p->n * (double)p->k / time_product(p, x);
        printf(
            a->json
                ? "{\"m\":%lld,\"n\":%lld,\"k\":%lld,\"transposes\":\"%c%c\",\"gflops\":%.1f,"
                  "\"share_of_1024\":%.3f}\n"
                : "%6lld x %5lld x %5lld %c%c  %8.1f GF/s  %.2f of 1024^3\n",
            (long long)p->m, (long long)p->n, (long long)p->k, p->ta ? 'T' : 'N',
            p->tb ? 'T' : 'N', rate * 1e-9, rate / best);
    }
    ls_mem_free(x, bytes, LS_MEM_OTHER);
    return LS_OK;
}

/* The pool needs a config's two numbers only. */
static ls_status bench_gemm(const arguments *a)
{
    ls_config cfg = {.run = {.threads = ls_cpu_count()}};

    for (int i = 0; i < a->sets.n; i++)
        if (sscanf(a->sets.item[i], "run.threads=%ld", (long *)&cfg.run.threads) != 1 ||
            cfg.run.threads < 1 || cfg.run.threads > 1024)
            return ls_fail(LS_ECONFIG, "bench gemm: --set %s, want run.threads=N",
                           a->sets.item[i]);
    ls_status status = ls_start_compute(&cfg);
    if (!status && !a->json)
        printf("%s, %lld threads\n", ls_blas_describe(), (long long)cfg.run.threads);
    if (!status)
        status = bench_products(a);
    ls_stop_compute();
    return status;
}

static int run_train(const arguments *a, int argc, char **argv)
{
    ls_config cfg;
    ls_ranks  ranks = ls_ranks_alone;

    if (!a->config)
        return ls_report(
            ls_fail(LS_ECONFIG, "bench train: CONFIG is missing; see lockstep bench --help"));
    ls_status status = ls_config_load(&cfg, a->config, a->sets.item, a->sets.n);
    if (status)
        return ls_report(status);
    if (a->nproc) {
        int code = ls_nproc_launch(&cfg, a->nproc, argc, argv);
        ls_config_free(&cfg);
        return code;
    }
    status = bench_train(a, &cfg, &ranks);
    ls_ranks_leave(&ranks, !status);
    ls_config_free(&cfg);
    return ls_report(status);
}

static ls_status run_other(const arguments *a, const char *what)
{
    if (!what)
        return ls_fail(
            LS_ECONFIG,
            "bench: train, gemm or collectives is missing; see lockstep bench --help");
    if (strcmp(what, "gemm"))
        return ls_fail(LS_ECONFIG, "bench: unknown '%s'; it has train, gemm and collectives",
                       what);
    if (a->config || a->steps || a->nproc)
        return ls_fail(LS_ECONFIG, "bench gemm: unexpected %s",
                       a->config  ? a->config
                       : a->steps ? "--steps"
                                  : "--nproc");
    return bench_gemm(a);
}

int ls_cmd_bench(int argc, char **argv)
{
    arguments    a       = {0};
    const ls_arg table[] = {{"--set", 0, LS_ARG_LIST, &a.sets},
                            {"--steps", 0, LS_ARG_VALUE, &a.steps},
                            {"--nproc", 0, LS_ARG_VALUE, &a.nproc},
                            {"--json", 0, LS_ARG_FLAG, &a.json}};
    bool         named   = argc > 1 && argv[1][0] != '-';

    const char *what = named ? argv[1] : NULL;

    if (what && !strcmp(what, "collectives"))
        return ls_bench_collectives(argc - 1, argv + 1);
    ls_status status = ls_args_parse(&(ls_arg_table){.command    = "bench",
                                                     .arg        = table,
                                                     .n_args     = sizeof table / sizeof *table,
                                                     .operand    = "CONFIG",
                                                     .operand_to = &a.config,
                                                     .optional   = true,
                                                     .help       = &a.help},
                                     argc - named, argv + named);
    int       code;
    if (status || a.help)
        code = ls_report_help(status, help);
    else if (what && !strcmp(what, "train"))
        code = run_train(&a, argc, argv);
    else
        code = ls_report(run_other(&a, what));
    free(a.sets.item);
    return code;
}

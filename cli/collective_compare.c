#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
/*
 * collective_compare.c - two algorithms over the same messages, measured and predicted.
 *
 *     A  B  A  B  A  B    a world each; every pass measures all sizes
 *
 * In turn, so that both see the same machine; the median of the passes counts.  Where the
 * faster one changes between two sizes, the crossing point is where a line through the
 * logarithms of size and of the ratio of times meets 1.
 */
#include "cli/collective_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PASSES = 3, MOST_SIZES = 8, EXPLAINED = 2048 };

static const int64_t SMALLEST = 1 << 10;

typedef struct {
    int64_t bytes;
    double  us[2][PASSES]; /* by algorithm */
    double  model[2];
} point;

/* What rank 0, which may be another process, leaves for whoever prints. */
typedef struct {
    int     n;
    int64_t wrong;
    point   at[MOST_SIZES];
} table;

typedef struct {
    const ls_compare_opts *opts;
    int                    side, pass;
    table                 *table; /* shared */
} run;

/* ---- measuring ---- */

/* The predicted us of an algorithm in the text of ls_comm_explain(); NAN where it has none. */
static double predicted(const char *text, ls_algorithm algorithm)
{
    char   name[16];
    double us;

    for (const char *line = text; (line = strchr(line, '\n')); line++)
        if (sscanf(line + 1, " %15s %lf us", name, &us) == 2 &&
            !strcmp(name, ls_algorithm_name(algorithm)))
            return us;
    return NAN;
}

static ls_status predict(ls_comm *world, const run *r, point *p, int64_t count)
{
    char                 text[EXPLAINED];
    const ls_bench_task *t    = &r->opts->task;
    ls_call              call = {.kind  = t->op->kind,
                                 .in    = text, /* only looked at for being there */
                                 .out   = text,
                                 .count = count,
                                 .dtype = t->dtype,
                                 .op    = t->reduce,
                                 .root  = t->root};

    ls_status status = ls_comm_explain(world, &call, text, sizeof text);
    for (int a = 0; a < 2 && !status && ls_comm_rank(world) == 0; a++)
        p->model[a] = predicted(text, r->opts->algorithm[a]);
    return status;
}

static ls_status body(ls_comm *world, void *context)
{
    const run      *r      = context;
    table          *all    = r->table;
    bool            writes = ls_comm_rank(world) == 0;
    ls_bench_place  place  = ls_bench_main_place(r->opts->task.op);
    ls_bench_result result;
    ls_status       status = LS_OK;

    for (int i = 0; i < all->n && !status; i++) {
        ls_bench_task task = r->opts->task;
        task.bytes         = all->at[i].bytes;
        status             = ls_bench_run(world, &task, &result);
        if (!status)
            status = predict(world, r, &all->at[i], result.count);
        if (!status && writes) {
            all->at[i].us[r->side][r->pass] = result.us[place];
            all->wrong += result.wrong[0] + result.wrong[1];
        }
    }
    return status;
}

/* ---- what it comes to ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measured(const point *p, int side)
{
    double us[PASSES];

    memcpy(us, p->us[side], sizeof us);
    qsort(us, PASSES, sizeof *us, by_value);
    return us[PASSES / 2];
}

static double time_of(const point *p, int side, bool model)
{
    return model ? p->model[side] : measured(p, side);
}

static double ratio(const point *p, bool model)
{
    return log(time_of(p, 0, model) / time_of(p, 1, model));
}

/* The size between points i and i + 1 where the faster one changes; 0: it does not. */
static double crossing(const table *t, int i, bool model)
{
    double low = ratio(&t->at[i], model), high = ratio(&t->at[i + 1], model);
    double from = log((double)t->at[i].bytes), to = log((double)t->at[i + 1].bytes);

    if ((low > 0) == (high > 0))
        return 0;
    return exp(from + (to - from) * low / (low - high));
}

/* 0 or 1: the algorithm that is faster at point i. */
static int faster(const table *t, int i, bool model)
{
    return ratio(&t->at[i], model) > 0;
}

static const char *size_text(char text[32], double bytes)
{
    const char *unit[] = {"B", "KiB", "MiB", "GiB"};
    int         i      = 0;

    for (; i < 3 && bytes >= 1024; i++)
        bytes /= 1024;
    snprintf(text, 32, "%.*f %s", bytes < 10 && bytes != floor(bytes), bytes, unit[i]);
    return text;
}

static void print_crossings(const ls_compare_opts *o, const table *t, bool model)
{
    char text[32];

    printf("%-8s  %s is faster", model ? "model" : "measured",
           ls_algorithm_name(o->algorithm[faster(t, 0, model)]));
    for (int i = 0; i + 1 < t->n; i++) {
        double at = crossing(t, i, model);
        if (at > 0)
            printf(", from %s on %s", size_text(text, at),
                   ls_algorithm_name(o->algorithm[faster(t, i + 1, model)]));
    }
    printf("\n");
}

static void print_json_crossings(const ls_compare_opts *o, const table *t, bool model)
{
    const char *name = model ? "model" : "measured", *comma = "";

    printf(",\"%s_first\":\"%s\",\"%s_crossings\":[", name,
           ls_algorithm_name(o->algorithm[faster(t, 0, model)]), name);
    for (int i = 0; i + 1 < t->n; i++) {
        double at = crossing(t, i, model);
        if (at <= 0)
            continue;
        printf("%s%.0f", comma, at);
        comma = ",";
    }
    printf("]");
}

static void print_table(const ls_compare_opts *o, const table *t, const char *transport)
{
    const char *a = ls_algorithm_name(o->algorithm[0]), *b = ls_algorithm_name(o->algorithm[1]);
    char        text[32];

    printf("%s on %d ranks over %s, ordinary memory; us, median of %d\n", o->task.op->name,
           o->ranks.n, transport, PASSES);
    printf("%10s %12s %12s %7s   %6s%6s %12s\n", "size", a, b, "ratio", "model ", a, b);
    for (int i = 0; i < t->n; i++) {
        const point *p = &t->at[i];
        printf("%10s %12.1f %12.1f %7.2f   %12.1f %12.1f\n", size_text(text, (double)p->bytes),
               measured(p, 0), measured(p, 1), measured(p, 0) / measured(p, 1), p->model[0],
               p->model[1]);
    }
    print_crossings(o, t, false);
    print_crossings(o, t, true);
    printf("\n");
}

static void print_json(const ls_compare_opts *o, const table *t, const char *transport)
{
    const char *a = ls_algorithm_name(o->algorithm[0]), *b = ls_algorithm_name(o->algorithm[1]);

    for (int i = 0; i < t->n; i++) {
        const point *p = &t->at[i];
        printf("{\"op\":\"%s\",\"bytes\":%lld,\"n\":%d,\"transport\":\"%s\","
               "\"measured_us\":{\"%s\":%.3f,\"%s\":%.3f},\"model_us\":{\"%s\":%.3f,\"%s\":%."
               "3f}}\n",
               o->task.op->name, (long long)p->bytes, o->ranks.n, transport, a, measured(p, 0),
               b, measured(p, 1), a, p->model[0], b, p->model[1]);
    }
    printf("{\"op\":\"%s\",\"n\":%d,\"transport\":\"%s\",\"crossing\":\"%s,%s\"",
           o->task.op->name, o->ranks.n, transport, a, b);
    print_json_crossings(o, t, false);
    print_json_crossings(o, t, true);
    printf("}\n");
}

static ls_status compare_over(const ls_compare_opts *o, const char *transport, table *t)
{
    run       r      = {.opts = o, .table = t};
    ls_status status = LS_OK;

    *t = (table){0};
    for (int64_t bytes = SMALLEST; t->n < MOST_SIZES; bytes *= 4)
        t->at[t->n++].bytes = bytes;
    if (o->task.bytes) {
        t->at[0].bytes = o->task.bytes;
        t->n           = 1;
    }
    for (r.pass = 0; r.pass < PASSES; r.pass++)
        for (r.side = 0; r.side < 2 && !status; r.side++)
            status = ls_bench_world(&o->ranks, transport, o->algorithm[r.side], body, &r);
    if (status)
        return status;
    if (o->ranks.rank) /* what there is to tell, rank 0 tells */
        return LS_OK;
    if (o->json)
        print_json(o, t, transport);
    else
        print_table(o, t, transport);
    return t->wrong ? ls_fail(LS_EMISMATCH, "bench collectives: %lld elements are wrong",
                              (long long)t->wrong)
                    : LS_OK;
}

ls_status ls_bench_compare(const ls_compare_opts *o)
{
    static const char *const both[] = {"shm", "tcp"};
    table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ls_status status = LS_OK;

    if (t == MAP_FAILED)
        return ls_fail(LS_ENOMEM, "bench collectives: no shared memory of %zu bytes",
                       sizeof *t);
    for (int i = 0; i < 2 && !status; i++)
        if (!o->transport || i == 0)
            status = compare_over(o, o->transport ? o->transport : both[i], t);
    munmap(t, sizeof *t);
    return status;
}

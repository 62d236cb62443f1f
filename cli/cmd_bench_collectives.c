/*
 * cmd_bench_collectives.c - lockstep bench collectives: the operations of dist/comm over sizes.
 *
 * The columns are those of nccl-tests, so that who knows one knows the other; what they mean
 * stands in collective_bench.h.  Rank 0 prints.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/collective_bench.h"
#include "cli/collective_compare.h"
#include "cli/commands.h"

static const char help[] =
    "usage: lockstep bench collectives -n N [OPTION]...\n"
    "\n"
    "Measures the operations that ranks train with, on N processes of this host or, where a\n"
    "launcher has started it (lockstep run, torchrun, mpirun, srun), as one of its ranks (no "
    "-n),\n"
    "and checks every result.  Columns as nccl-tests: algbw = size / time; busbw = algbw times "
    "2 (N-1)/N\n"
    "for all_reduce, (N-1)/N for those that move slices, 1 for the rest; #wrong elements.\n"
    "Memory: what loads and stores of all ranks move at least, per second.\n"
    "\n"
    "  -n N               ranks\n"
    "  --op OP            all_reduce (default), all_gather, reduce_scatter, broadcast, "
    "reduce,\n"
    "                     gather, scatter, all_to_all, send_recv, barrier, or all\n"
    "  --bytes B          one size, with K, M or G; default 1K to 64M in steps of 4\n"
    "  --transport T      shm (default), tcp, or threads; of a launcher's ranks auto "
    "(default),\n"
    "                     shm, tcp, or mpi\n"
    "  --algorithm A      auto (default), direct, tree, halving, ring\n"
    "  --memory M         heap (default: what other ranks reach in place), or ordinary\n"
    "  --dtype D          F32 (default), BF16, I32, I64, U8\n"
    "  --redop R          sum (default), avg, min, max, prod\n"
    "  --root R           of broadcast, reduce, gather, scatter; default 0\n"
    "  --compare A,B      two algorithms over messages, beside the model's prediction, and\n"
    "                     where they cross; over shm and tcp unless --transport is given\n"
    "  --json             one JSON object a line\n"
    "  -h, --help         this text\n";

enum { MOST_RANKS = 256 };

static const int64_t FROM = 1 << 10, TO = 64 << 20, MOST_BYTES = INT64_C(1) << 40;

typedef struct {
    const char *n, *op, *bytes, *transport, *algorithm, *memory, *dtype, *redop, *root,
        *compare;
    bool json, help;
} words;

typedef struct {
    ls_bench_ranks ranks;
    const char    *transport; /* NULL: not given */
    ls_algorithm   algorithm, compared[2];
    bool           compares, json;
    ls_bench_task  task; /* op NULL: all; bytes 0: the sweep */
} options;

/* ---- the words ---- */

static ls_status parse_int(const char *name, const char *word, int low, int high, int *to)
{
    char *end;

    errno  = 0;
    long n = strtol(word, &end, 10);
    if (errno || end == word || *end || n < low || n > high)
        return ls_fail(LS_ECONFIG, "bench collectives: %s %s, want %d to %d", name, word, low,
                       high);
    *to = (int)n;
    return LS_OK;
}

static ls_status parse_bytes(const char *word, int64_t *to)
{
    static const char units[] = "KMG";
    char             *end;
    int               shift = 0;

    errno            = 0;
    long long   n    = strtoll(word, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        shift = 10 * (int)(unit - units + 1);
        end++;
    }
    if (errno || end == word || *end || n < 1 || n > MOST_BYTES >> shift)
        return ls_fail(LS_ECONFIG,
                       "bench collectives: --bytes %s, want 1 to %lldG, with K, M or G", word,
                       (long long)(MOST_BYTES >> 30));
    *to = (int64_t)n << shift;
    return LS_OK;
}

static ls_status unknown(const char *name, const char *word, const char *known)
{
    return ls_fail(LS_ECONFIG, "bench collectives: %s %s; it has %s", name, word, known);
}

static ls_status parse_compared(const char *word, options *o)
{
    char  first[16] = "";
    char *comma     = strchr(word, ',');
    bool  ok        = comma && comma - word < (int)sizeof first;

    if (ok)
        memcpy(first, word, (size_t)(comma - word));
    ok = ok && ls_algorithm_parse(first, &o->compared[0]) &&
         ls_algorithm_parse(comma + 1, &o->compared[1]) && o->compared[0] != LS_AUTO &&
         o->compared[1] != LS_AUTO && o->compared[0] != o->compared[1];
    o->compares = true;
    return ok ? LS_OK
              : unknown("--compare", word, "two of direct, tree, halving, ring, as ring,tree");
}

static ls_status parse_transport(const char *word, options *o)
{
    static const char *const own[] = {"shm", "tcp", "threads"}, *const job[] = {"shm", "tcp",
                                                                                "auto", "mpi"};
    int n = o->ranks.launched ? 4 : 3;

    o->transport = word;
    for (int i = 0; i < n; i++)
        if (!strcmp(word, o->ranks.launched ? job[i] : own[i]))
            return LS_OK;
    return unknown("--transport", word,
                   o->ranks.launched ? "shm, tcp, mpi and auto" : "shm, tcp and threads");
}

static ls_status parse_task(const words *w, ls_bench_task *t)
{
    bool known = w->dtype && ls_dtype_parse(w->dtype, &t->dtype) && t->dtype != LS_F64;

    if (w->op && strcmp(w->op, "all") && !(t->op = ls_bench_op_find(w->op)))
        return unknown("--op", w->op,
                       "all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, "
                       "scatter, all_to_all, send_recv, barrier and all");
    if (w->dtype && !known)
        return unknown("--dtype", w->dtype, "F32, BF16, I32, I64 and U8");
    if (w->redop && !ls_reduce_op_parse(w->redop, &t->reduce))
        return unknown("--redop", w->redop, "sum, avg, min, max and prod");
    if (t->reduce == LS_AVG && t->dtype != LS_F32 && t->dtype != LS_BF16)
        return ls_fail(LS_ECONFIG, "bench collectives: --redop avg of %s: integers have none",
                       ls_dtype_name(t->dtype));
    t->heap = !w->memory || !strcmp(w->memory, "heap");
    if (w->memory && !t->heap && strcmp(w->memory, "ordinary"))
        return unknown("--memory", w->memory, "heap and ordinary");
    return w->bytes ? parse_bytes(w->bytes, &t->bytes) : LS_OK;
}

/* What does not fit together. */
static ls_status check(const words *w, const options *o)
{
    ls_algorithm used[] = {o->algorithm, o->compared[0], o->compared[1]};

    for (int i = 0; i < 3; i++)
        if (!ls_algorithm_fits(used[i], o->ranks.n))
            return ls_fail(LS_ECONFIG,
                           "bench collectives: algorithm %s needs a power of two, not %d ranks",
                           ls_algorithm_name(used[i]), o->ranks.n);
    if (o->compares && (w->algorithm || w->memory))
        return ls_fail(LS_ECONFIG, "bench collectives: --compare goes without %s",
                       w->algorithm ? "--algorithm" : "--memory");
    if (o->compares && (!o->task.op || o->task.op->kind == LS_BARRIER))
        return ls_fail(LS_ECONFIG, "bench collectives: --compare needs one --op, not %s",
                       w->op);
    if (o->compares && o->ranks.n < 2)
        return ls_fail(LS_ECONFIG, "bench collectives: --compare on one rank: nothing to send");
    return LS_OK;
}

/* From the launcher, or -n. */
static ls_status parse_ranks(const words *w, options *o)
{
    ls_launch_env env;
    ls_status     status = ls_launch_env_read(&env);

    if (status)
        return status;
    o->ranks.launched = strcmp(env.launcher, "none") != 0;
    o->ranks.rank     = env.rank;
    o->ranks.n        = env.world;
    if (!o->ranks.launched && !w->n)
        return ls_fail(LS_ECONFIG,
                       "bench collectives: -n N is missing; see lockstep bench collectives "
                       "--help");
    if (w->n)
        status = parse_int("-n", w->n, 1, MOST_RANKS, &o->ranks.n);
    if (!status && o->ranks.launched && o->ranks.n != env.world)
        status = ls_fail(LS_ECONFIG, "bench collectives: -n %d, but %s has started %d ranks",
                         o->ranks.n, env.launcher, env.world);
    return status;
}

static ls_status parse(const words *w, options *o)
{
    ls_status status = LS_OK;

    *o = (options){.json = w->json, .task = {.op = ls_bench_op_at(0), .dtype = LS_F32}};
    if (w->op && !strcmp(w->op, "all"))
        o->task.op = NULL;
    status = parse_ranks(w, o);
    if (!status && w->root)
        status = parse_int("--root", w->root, 0, o->ranks.n - 1, &o->task.root);
    if (!status && w->transport)
        status = parse_transport(w->transport, o);
    if (!status && w->algorithm && !ls_algorithm_parse(w->algorithm, &o->algorithm))
        status = unknown("--algorithm", w->algorithm, "auto, direct, tree, halving and ring");
    if (!status && w->compare)
        status = parse_compared(w->compare, o);
    if (!status)
        status = parse_task(w, &o->task);
    return status ? status : check(w, o);
}

/* ---- rows ---- */

static const char *memory_name(const ls_bench_task *t)
{
    return t->heap ? "heap" : "ordinary";
}

static double gbs(double bytes, double us)
{
    return us > 0 ? bytes / us / 1e3 : 0;
}

/* By the form that training uses. */
typedef struct {
    double us, algbw, busbw, memory;
} figures;

static figures figures_of(const ls_bench_task *t, const ls_bench_result *r, int n,
                          ls_bench_place place)
{
    double us = r->us[place], algbw = gbs((double)r->bytes, us);

    return (figures){us, algbw, algbw * ls_bench_factor(t->op, n),
                     gbs(ls_bench_traffic(t->op, place, n, (double)r->bytes), us)};
}

static void print_us(const char *name, double us)
{
    if (us < 0)
        printf(",\"%s\":null", name);
    else
        printf(",\"%s\":%.3f", name, us);
}

static void print_json(ls_comm *world, const ls_bench_task *t, const ls_bench_result *r)
{
    int     n = ls_comm_size(world);
    figures f = figures_of(t, r, n, ls_bench_main_place(t->op));

    printf("{\"op\":\"%s\",\"bytes\":%lld,\"count\":%lld,\"n\":%d,\"dtype\":\"%s\",",
           t->op->name, (long long)r->bytes, (long long)r->count, n, ls_dtype_name(t->dtype));
    if (t->op->reduces)
        printf("\"redop\":\"%s\",", ls_reduce_op_name(t->reduce));
    if (t->op->rooted)
        printf("\"root\":%d,", t->root);
    printf("\"transport\":\"%s\",\"algorithm\":\"%s\",\"memory\":\"%s\",\"median_us\":%.3f,"
           "\"algbw_gbs\":%.6g,\"busbw_gbs\":%.6g,\"memory_gbs\":%.6g",
           ls_comm_transport(world), ls_algorithm_name(r->algorithm), memory_name(t), f.us,
           f.algbw, f.busbw, f.memory);
    print_us("out_of_place_us", r->us[LS_OUT_OF_PLACE]);
    print_us("in_place_us", r->us[LS_IN_PLACE]);
    printf(",\"wrong\":%lld}\n", (long long)(r->wrong[0] + r->wrong[1]));
}

static void print_head(const ls_bench_task *t)
{
    printf("\n# %-74s %-34s\n", t->op->name, "out of place");
    printf("# %10s %12s %5s %5s %4s | %10s %7s %7s %6s | %10s %7s %7s %6s | %7s  %s\n", "size",
           "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time",
           "algbw", "busbw", "#wrong", "memory", "algorithm");
    printf("# %10s %12s %5s %5s %4s | %10s %7s %7s %6s | %10s %7s %7s %6s | %7s\n", "(B)",
           "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
           "", "(GB/s)");
}

static void print_form(const ls_bench_task *t, const ls_bench_result *r, int n,
                       ls_bench_place place)
{
    figures f = figures_of(t, r, n, place);

    if (!t->op->places[place])
        printf(" | %10s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
    else
        printf(" | %10.2f %7.3f %7.3f %6lld", f.us, f.algbw, f.busbw,
               (long long)r->wrong[place]);
}

static void print_row(const ls_bench_task *t, const ls_bench_result *r, int n)
{
    char root[16] = "-";

    if (t->op->rooted)
        snprintf(root, sizeof root, "%d", t->root);
    printf("  %10lld %12lld %5s %5s %4s", (long long)r->bytes, (long long)r->count,
           ls_dtype_name(t->dtype), t->op->reduces ? ls_reduce_op_name(t->reduce) : "-", root);
    print_form(t, r, n, LS_OUT_OF_PLACE);
    print_form(t, r, n, LS_IN_PLACE);
    printf(" | %7.2f  %s\n", figures_of(t, r, n, ls_bench_main_place(t->op)).memory,
           ls_algorithm_name(r->algorithm));
}

/* ---- the sweep ---- */

static ls_status run_op(ls_comm *world, const options *o, const ls_bench_op *op, int64_t *wrong)
{
    ls_bench_task task   = o->task;
    bool          prints = ls_comm_rank(world) == 0, one = task.bytes || op->kind == LS_BARRIER;
    ls_bench_result r;
    ls_status       status = LS_OK;

    task.op = op;
    if (prints && !o->json)
        print_head(&task);
    for (int64_t bytes = FROM; bytes <= TO && !status; bytes *= one ? TO : 4) {
        task.bytes = o->task.bytes ? o->task.bytes : bytes;
        status     = ls_bench_run(world, &task, &r);
        if (status)
            break;
        *wrong += r.wrong[0] + r.wrong[1];
        if (prints && o->json)
            print_json(world, &task, &r);
        else if (prints)
            print_row(&task, &r, ls_comm_size(world));
        if (fflush(stdout) || ferror(stdout)) /* of a process that main() does not see end */
            status = ls_fail(LS_EIO, "writing to stdout: %s", strerror(errno));
    }
    return status;
}

static ls_status body(ls_comm *world, void *context)
{
    const options     *o = context;
    const ls_bench_op *op;
    int64_t            wrong  = 0;
    ls_status          status = LS_OK;

    if (ls_comm_rank(world) == 0 && !o->json)
        printf("# %d ranks over %s, %s memory, algorithm %s\n", ls_comm_size(world),
               ls_comm_transport(world), memory_name(&o->task),
               ls_algorithm_name(o->algorithm));
    for (int i = 0; !status && (op = o->task.op ? o->task.op : ls_bench_op_at(i)); i++) {
        status = run_op(world, o, op, &wrong);
        if (o->task.op)
            break;
    }
    if (!status && wrong)
        status = ls_fail(LS_EMISMATCH, "bench collectives: %lld elements are wrong",
                         (long long)wrong);
    return status;
}

ls_status ls_bench_world(const ls_bench_ranks *ranks, const char *transport,
                         ls_algorithm algorithm, ls_local_body what, void *context)
{
    ls_join_opts join = {.backend = transport, .algorithm = algorithm};
    ls_comm     *world;

    if (!ranks->launched)
        return ls_local_world(&(ls_local_opts){ranks->n, join}, what, context);
    ls_status status = ls_world_join(&join, NULL, &world);
    if (status)
        return status;
    status = what(world, context);
    ls_comm_free(world);
    return status;
}

static ls_status run(const options *o)
{
    if (o->compares)
        return ls_bench_compare(
            &(ls_compare_opts){.ranks     = o->ranks,
                               .transport = o->transport,
                               .algorithm = {o->compared[0], o->compared[1]},
                               .task      = o->task,
                               .json      = o->json});
    const char *usual = o->ranks.launched ? "auto" : "shm";
    return ls_bench_world(&o->ranks, o->transport ? o->transport : usual, o->algorithm, body,
                          (void *)(uintptr_t)o);
}

int ls_bench_collectives(int argc, char **argv)
{
    words        w       = {0};
    options      o       = {0};
    const ls_arg table[] = {
        {"-n", 'n', LS_ARG_VALUE, &w.n},
        {"--op", 0, LS_ARG_VALUE, &w.op},
        {"--bytes", 0, LS_ARG_VALUE, &w.bytes},
        {"--transport", 0, LS_ARG_VALUE, &w.transport},
        {"--algorithm", 0, LS_ARG_VALUE, &w.algorithm},
        {"--memory", 0, LS_ARG_VALUE, &w.memory},
        {"--dtype", 0, LS_ARG_VALUE, &w.dtype},
        {"--redop", 0, LS_ARG_VALUE, &w.redop},
        {"--root", 0, LS_ARG_VALUE, &w.root},
        {"--compare", 0, LS_ARG_VALUE, &w.compare},
        {"--json", 0, LS_ARG_FLAG, &w.json},
    };

    ls_status status = ls_args_parse(&(ls_arg_table){.command = "bench collectives",
                                                     .arg     = table,
                                                     .n_args  = sizeof table / sizeof *table,
                                                     .help    = &w.help},
                                     argc, argv);
    if (!status && !w.help)
        status = parse(&w, &o);
    if (!status && !w.help)
        status = run(&o);
    return ls_report_help(status, w.help ? help : NULL);
}

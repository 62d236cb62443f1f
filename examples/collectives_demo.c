/*
 * collectives_demo.c - every operation between ranks, beside the loop that defines it.
 *
 *     lockstep run -n 4 -- collectives_demo          as the ranks of a job
 *     collectives_demo [-n N] [-t shm|tcp|threads] [-a auto|direct|tree|halving|ring]
 *
 * Each of the N ranks (the launcher's, else -n, else 4 processes of its own) holds a vector of
 * floats.  Rank 0 prints a line for each operation: whether all ranks got, to the last bit,
 * what a loop over everybody's vectors gives here (the ring adds in another order, so up to
 * rounding), and the most bytes that a rank sent beside what the algorithms' arithmetic says.
 * N ranks that each hold T bytes cannot agree on their sum with less than 2 T (N-1)/N bytes
 * from each.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"

enum {
    PART = 65536, /* floats of one rank's part of a vector */
    ROOT = 0,
    MOST = 800 /* of an element */
};

typedef struct {
    const char   *name;
    ls_collective kind;
    double        ways; /* each rank sends ways * T (N-1)/N bytes; 0: it depends */
    const char   *formula;
} row;

static const row rows[] = {
    {"all_reduce", LS_ALL_REDUCE, 2, "2T(N-1)/N"},
    {"reduce_scatter", LS_REDUCE_SCATTER, 1, "T(N-1)/N"},
    {"all_gather", LS_ALL_GATHER, 1, "T(N-1)/N"},
    {"all_to_all", LS_ALL_TO_ALL, 1, "T(N-1)/N"},
    {"reduce", LS_REDUCE, 0, ""},
    {"broadcast", LS_BROADCAST, 0, ""},
    {"gather", LS_GATHER, 0, ""},
    {"scatter", LS_SCATTER, 0, ""},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- the naive reference ---- */

/* Element i of rank r's vector: no two alike, and sums of them round. */
static float input(int r, int64_t i)
{
    return (float)((i * 2654435761 + r * 40503) % 1000003) / 777.0f - 500.0f;
}

/*
 * Element i summed over ranks first .. first + n - 1 in the canonical order, the left-balanced
 * tree: n = 6 is ((0+1) + (2+3)) + (4+5).
 */
static float sum(int first, int n, int64_t i)
{
    int half = 1;

    if (n == 1)
        return input(first, i);
    while (2 * half < n)
        half *= 2;
    return sum(first, half, i) + sum(first + half, n - half, i);
}

/* What element i of rank r's result must be. */
static float expected(ls_collective kind, int n, int r, int64_t i)
{
    switch ((int)kind) {
    case LS_REDUCE_SCATTER:
        return sum(0, n, (int64_t)r * PART + i);
    case LS_ALL_GATHER:
    case LS_GATHER:
        return input((int)(i / PART), i % PART);
    case LS_ALL_TO_ALL:
        return input((int)(i / PART), (int64_t)r * PART + i % PART);
    case LS_BROADCAST:
        return input(ROOT, i);
    case LS_SCATTER:
        return input(ROOT, (int64_t)r * PART + i);
    default:
        return sum(0, n, i);
    }
}

/* ---- one operation ---- */

static bool is_one_part(ls_collective kind, bool of_result)
{
    if (of_result)
        return kind == LS_REDUCE_SCATTER || kind == LS_SCATTER;
    return kind == LS_ALL_GATHER || kind == LS_GATHER;
}

/* Counts are of one part where the vector consists of the ranks' parts. */
static ls_call call_of(ls_collective kind, int n, const float *in, float *out)
{
    bool whole = kind == LS_ALL_REDUCE || kind == LS_REDUCE || kind == LS_BROADCAST;

    return (ls_call){.kind  = kind,
                     .in    = in,
                     .out   = out,
                     .count = whole ? (int64_t)n * PART : PART,
                     .dtype = LS_F32,
                     .op    = LS_SUM,
                     .root  = ROOT};
}

static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

/* Elements that differ in any bit, and by more than an order of additions explains. */
typedef struct {
    int64_t bits, wrong;
} differing;

static differing compare(ls_collective kind, int n, int r, const float *out)
{
    int64_t   count = is_one_part(kind, true) ? PART : (int64_t)n * PART;
    double    bound = (double)n * n * MOST * FLT_EPSILON; /* N sums, each below N * MOST */
    differing d     = {0, 0};

    if ((kind == LS_REDUCE || kind == LS_GATHER) && r != ROOT)
        return d;
    for (int64_t i = 0; i < count; i++) {
        float want = expected(kind, n, r, i);
        d.bits += !same_bits(&out[i], &want, sizeof want);
        d.wrong += !(fabs((double)out[i] - (double)want) <= bound);
    }
    return d;
}

/* Runs it; how all ranks' results differ, and the *most bytes that one of them sent. */
static ls_status run_row(ls_comm *world, const row *w, float *in, float *out, differing *all,
                         int64_t *most)
{
    int     r = ls_comm_rank(world), n = ls_comm_size(world);
    int64_t count = is_one_part(w->kind, false) ? PART : (int64_t)n * PART;
    ls_call call  = call_of(w->kind, n, in, out);

    for (int64_t i = 0; i < count; i++)
        in[i] = input(r, i);
    if (w->kind == LS_BROADCAST) /* has one buffer */
        memcpy(out, in, (size_t)count * sizeof *in);
    int64_t   before = ls_comm_counted(world, w->kind).sent;
    ls_status status = ls_comm_run(world, &call);
    if (status)
        return status;
    int64_t sent = ls_comm_counted(world, w->kind).sent - before;
    status       = ls_comm_all_reduce(world, most, &sent, 1, LS_I64, LS_MAX);
    if (status)
        return status;
    differing mine = compare(w->kind, n, r, out);
    return ls_comm_all_reduce(world, all, &mine, 2, LS_I64, LS_SUM);
}

static void print_row(const row *w, int n, differing d, int64_t most)
{
    double      formula = w->ways * n * PART * (double)sizeof(float) * (n - 1) / n;
    const char *verdict = d.wrong  ? "WRONG"
                          : d.bits ? "equal up to rounding"
                                   : "equal to the last bit";

    printf("%-15s %-22s %10lld", w->name, verdict, (long long)most);
    if (w->ways > 0)
        printf(" %10.0f  %s%s", formula, w->formula,
               (double)most == formula ? ", exactly" : "");
    printf("\n");
}

/*
 * Ranks that exchange messages measure how fast they are, once, to choose among algorithms:
 * here, before anything is counted.
 */
static ls_status warm_up(ls_comm *world)
{
    float one = 1, sum_of_ones;

    return ls_comm_all_reduce(world, &sum_of_ones, &one, 1, LS_F32, LS_SUM);
}

static ls_status rank(ls_comm *world, void *context)
{
    int       n     = ls_comm_size(world);
    size_t    bytes = (size_t)n * PART * sizeof(float);
    float    *in = ls_comm_alloc(world, bytes), *out = ls_comm_alloc(world, bytes);
    ls_status status = in && out ? warm_up(world) : LS_ENOMEM;
    int64_t   most = 0, wrong = 0;
    differing d = {0, 0};

    (void)context;
    if (!status && ls_comm_rank(world) == 0)
        printf("%d rank%s over %s, T = %zu bytes\n\n%-15s %-22s %10s %10s\n", n,
               n > 1 ? "s" : "", ls_comm_transport(world), bytes, "operation", "naive loop",
               "bytes sent", "formula");
    for (int i = 0; i < ROWS && !status; i++) {
        status = run_row(world, &rows[i], in, out, &d, &most);
        wrong += d.wrong;
        if (!status && ls_comm_rank(world) == 0)
            print_row(&rows[i], n, d, most);
    }
    if (!status) /* nobody reads what another gives back */
        status = ls_comm_barrier(world);
    ls_comm_release(world, in);
    ls_comm_release(world, out);
    if (!status && wrong)
        status = ls_fail(LS_EINVAL, "%lld elements are wrong", (long long)wrong);
    return status;
}

/* As one rank where a launcher has started this process, else as all of them. */
static ls_status run(const ls_local_opts *opts)
{
    ls_launch_env env;
    ls_comm      *world;
    ls_status     status = ls_launch_env_read(&env);

    if (!status && !strcmp(env.launcher, "none"))
        return ls_local_world(opts, rank, NULL);
    if (!status)
        status = ls_world_join(&opts->join, NULL, &world);
    if (status)
        return status;
    status = rank(world, NULL);
    ls_comm_free(world);
    return status;
}

int main(int argc, char **argv)
{
    ls_local_opts opts = {.n = 4};
    bool          ok   = argc % 2 == 1;

    for (int i = 1; i + 1 < argc && ok; i += 2) {
        if (!strcmp(argv[i], "-n"))
            opts.n = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-t"))
            opts.join.backend = argv[i + 1];
        else
            ok =
                !strcmp(argv[i], "-a") && ls_algorithm_parse(argv[i + 1], &opts.join.algorithm);
    }
    if (!ok)
        return fprintf(stderr, "usage: collectives_demo [-n N] [-t shm|tcp|threads] "
                               "[-a auto|direct|tree|halving|ring]\n"),
               2;
    if (run(&opts))
        return fprintf(stderr, "collectives_demo: %s\n", ls_error_message()), 1;
    return 0;
}

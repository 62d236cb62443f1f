/*
 * test_cut.c - the n-th exchange goes wrong, for every n.
 *
 *     test_cut BACKEND [long]
 *
 * One rank's n-th exchange or meeting fails, is cut off, is a byte short, or is late, for n =
 * 1, 2, ... until the list of operations runs clean.  Whatever n: either all ranks return an
 * error (late ones: all succeed), in time, or the list was over before.  The list is every
 * collective alone, twice, and a split; a barrier behind it catches those that had their result
 * before the fault.  Then all of it with every algorithm.  "long" is the full product.
 */
#include "outcome.h"

#include <unistd.h>

#include "dist/comm/transport_faulty.h"

enum { MOST_RANKS = 8, COUNT = 1000, MOST_FAULTS = 400 };

typedef struct {
    atomic_bool noted;
    bool        over; /* the list ran clean */
    ls_status   status;
    int64_t     took;
    bool        leaked;
    char        text[480];
} finding;

typedef struct {
    ls_collective kind;
    int           n, files;
    finding      *f;
} job;

/* ---- what the ranks do ---- */

static int   files_before; /* of a rank that is a process */
static bool *leak_seen;

static void note_files(ls_join_opts *opts, void *context)
{
    (void)context;
    files_before = outcome_open_files() - (opts->world - 1);
}

/* The harness has freed the world and closed the sockets. */
static void look_for_files(void)
{
    if (leak_seen && outcome_open_files() > files_before)
        *leak_seen = true;
}

static ls_status split_and_sum(ls_comm *world)
{
    ls_comm  *group;
    float     x      = 1;
    ls_status status = ls_comm_split(world, ls_comm_rank(world) % 2, 0, &group);

    if (status)
        return status;
    status = ls_comm_all_reduce(group, &x, &x, 1, LS_F32, LS_SUM);
    if (status)
        ls_comm_abort(world, ls_error_message());
    ls_comm_free(group);
    return status;
}

static ls_status one_operation(ls_comm *world, ls_collective kind, int i, char *in, char *out)
{
    ls_call c = {.kind  = kind,
                 .in    = in,
                 .out   = out,
                 .count = i ? COUNT * 40 : COUNT,
                 .dtype = LS_F32,
                 .root  = i % ls_comm_size(world)};

    if (kind == LS_SPLIT)
        return split_and_sum(world);
    return ls_comm_run(world, &c);
}

/*
 * A rank that has not heard of the failure yet may be copying from a buffer of one that has
 * returned; between threads that must not be freed memory.
 */
static void await_others(const job *j)
{
    int64_t until = ls_now_ns() + 2000 * MS * OUTCOME_SLOW;

    for (int r = 0; r < j->n; r++)
        while (!j->f[r].noted && ls_now_ns() < until)
            ls_sleep_ns(MS / 10);
}

static void body(ls_comm *world, void *context)
{
    job      *j     = context;
    finding  *f     = &j->f[ls_comm_rank(world)];
    size_t    bytes = (size_t)COUNT * 40 * sizeof(float) * (size_t)j->n;
    char     *in = calloc(1, bytes), *out = calloc(1, bytes);
    ls_status status = LS_OK;
    int64_t   start  = ls_now_ns();

    if (files_before > 0) {
        leak_seen = &f->leaked;
        atexit(look_for_files);
    }
    for (int i = 0; i < 2 && !status; i++)
        status = one_operation(world, j->kind, i, in, out);
    f->over = !status;
    if (!status)
        status = ls_comm_barrier(world);
    if (!status)
        status = ls_comm_barrier(world);
    f->status = status;
    f->took   = ls_now_ns() - start;
    snprintf(f->text, sizeof f->text, "%s", status ? ls_error_message() : "");
    f->noted = true;
    await_others(j);
    free(in);
    free(out);
}

/* ---- the judge ---- */

static const char *const fault_name[] = {"fail", "delay", "truncate", "cut"};

static void print(const job *j)
{
    for (int r = 0; r < j->n; r++)
        printf("     rank %d: %s, %s, %.3f s: \"%s\"\n", r,
               j->f[r].noted ? ls_status_text(j->f[r].status) : "nothing noted",
               j->f[r].over ? "list over" : "in the list", (double)j->f[r].took * 1e-9,
               j->f[r].text);
}

/* True when the list was over before the fault's turn came. */
static bool judge(const job *j, ls_fault fault, double timeout_s)
{
    int     failed = 0, over = 0;
    int64_t most = (int64_t)(timeout_s * 1e9) + 700 * MS * OUTCOME_SLOW;
    bool    ok   = true;

    for (int r = 0; r < j->n; r++) {
        ok = CHECK(j->f[r].noted) && ok;
        ok = CHECK(fault == LS_FAULT_DELAY || j->f[r].took < most) && ok;
        ok = CHECK(!j->f[r].leaked) && ok;
        failed += j->f[r].status != LS_OK;
        over += j->f[r].over;
    }
    if (fault == LS_FAULT_DELAY)
        ok = CHECK(failed == 0) && ok;
    else if (over < j->n) /* a fault in the list, so everybody has to know of it */
        ok = CHECK(failed == j->n) && ok;
    if (!ok)
        print(j);
    return over == j->n || !ok;
}

typedef struct {
    const char   *backend;
    ls_algorithm  algorithm;
    ls_collective kind;
    ls_fault      fault;
    int           n, rank;
    bool          thin; /* those that end by a time-out: not every n, where there are many */
} cut_row;

/* A late exchange says nothing of itself: the list has as many as a failing one found. */
static int64_t one_row(const cut_row *row, int64_t last, finding *f)
{
    bool       threads = !strcmp(row->backend, "threads"), late = row->fault == LS_FAULT_DELAY;
    job        j    = {.kind = row->kind, .n = row->n, .f = f};
    ranks_opts opts = {.backend   = row->backend,
                       .n         = row->n,
                       .algorithm = row->algorithm,
                       .fast      = row->algorithm == LS_RING,
                       .timeout_s = (late                          ? 10
                                     : row->fault == LS_FAULT_FAIL ? 2
                                                                   : 0.25) *
                                    OUTCOME_SLOW,
                       .limit_s    = 30,
                       .fault_kind = row->fault,
                       .fault_rank = row->rank,
                       .join       = threads ? NULL : note_files};
    char       name[160];
    int        files = outcome_open_files();
    bool       thin  = row->thin && row->fault != LS_FAULT_FAIL;

    for (int64_t n = 1; n <= MOST_FAULTS; n += thin ? 1 + n / 4 : 1) {
        snprintf(name, sizeof name, "%s, %s, %s, %s, %d ranks, exchange %lld of rank %d",
                 row->backend, ls_algorithm_name(row->algorithm), ls_collective_name(row->kind),
                 fault_name[row->fault], row->n, (long long)n, row->rank);
        TEST_ROW(name);
        memset(f, 0, MOST_RANKS * sizeof *f);
        opts.fault = n;
        CHECK(ranks_run(&opts, body, &j) == 0);
        CHECK(outcome_open_files() == files);
        if (judge(&j, row->fault, opts.timeout_s) && (!late || n >= last))
            return n;
    }
    CHECK(!"it never runs clean");
    return 0;
}

static bool has_algorithms(ls_collective kind)
{
    return kind != LS_BARRIER && kind != LS_GATHER && kind != LS_SCATTER &&
           kind != LS_ALL_TO_ALL && kind != LS_SPLIT;
}

static void all_faults(cut_row row, bool everything, finding *f)
{
    bool first = row.algorithm == LS_AUTO;

    row.fault    = LS_FAULT_FAIL;
    int64_t last = one_row(&row, 0, f);
    row.thin     = !everything;
    if (first && has_algorithms(row.kind)) { /* a choice measures, in hundreds of exchanges */
        if (everything)
            return; /* the algorithms themselves follow */
        row.algorithm = LS_DIRECT;
    }
    row.fault = LS_FAULT_CUT;
    if (everything || (first && row.n == 3))
        one_row(&row, 0, f);
    row.fault = LS_FAULT_TRUNCATE;
    if (everything || (first && row.n == 2))
        one_row(&row, 0, f);
    row.fault = LS_FAULT_DELAY; /* half a second each */
    if (everything)
        one_row(&row, last, f);
}

static void each_row(const char *backend, bool everything, finding *f)
{
    for (int k = LS_BARRIER; k <= LS_SPLIT; k++)
        for (int n = 2; n <= (everything ? 5 : 3); n++)
            for (int a = LS_AUTO; a < LS_ALGORITHM_COUNT; a++) {
                cut_row row = {.backend   = backend,
                               .algorithm = (ls_algorithm)a,
                               .kind      = (ls_collective)k,
                               .n         = n};
                if (!ls_algorithm_fits(row.algorithm, n) ||
                    (a != LS_AUTO && !has_algorithms(row.kind)) ||
                    (!everything && a != LS_AUTO && (a + k + n) % 3))
                    continue;
                row.rank = (k + n + a) % n;
                all_faults(row, everything, f);
            }
}

/* Some late exchanges, where the full product is not run. */
static void some_late(const char *backend, finding *f)
{
    for (int a = LS_AUTO; a <= LS_TREE; a++)
        one_row(&(cut_row){.backend   = backend,
                           .algorithm = (ls_algorithm)a,
                           .kind      = LS_ALL_REDUCE,
                           .fault     = LS_FAULT_DELAY,
                           .n         = 3,
                           .rank      = a},
                2, f);
}

int main(int argc, char **argv)
{
    const char *backends[] = {"threads", "shm", "tcp", "mixed"};
    bool        everything = argc > 2 && !strcmp(argv[2], "long");
    finding    *f          = ranks_shared(MOST_RANKS * sizeof *f);

    for (int b = 0; b < 4; b++)
        if (argc < 2 || !strcmp(argv[1], backends[b])) {
            each_row(backends[b], everything, f);
            if (!everything)
                some_late(backends[b], f);
        }
    ranks_unshare(f, MOST_RANKS * sizeof *f);
    return test_summary("cut");
}

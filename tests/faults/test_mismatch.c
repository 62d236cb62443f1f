/*
 * test_mismatch.c - ranks that ask for different things all fail, at once and alike.
 *
 * One rank (the odd one) calls something else than the rest: for every pair of calls, on every
 * transport, among 2, 3 and 4 ranks, small and large.  All must return EMISMATCH long before
 * the time-out, with one text that names the odd rank and what it called, another rank and what
 * that called; the next operation says the same; nobody's input is changed, and where memory is
 * shared, nobody's output.
 *
 * What this leaves out: a receive from a rank that sends to another is no mismatch but a wait
 * for what may still come; the time-out ends it.
 */
#include "outcome.h"

enum { TIMEOUT_S = 2 };

typedef struct {
    const char *name;
    ls_call     most, odd;
    const char *part;  /* of the text, besides the operations */
    bool        lists; /* segment lists, of which the odd one's differ */
    bool        pairs; /* for two ranks: send and recv */
} row;

#define SUM(n)                              \
    {                                       \
        .kind = LS_ALL_REDUCE, .count = (n) \
    }

static const row rows[] = {
    {.name = "operation", .most = SUM(1000), .odd = {.kind = LS_ALL_GATHER, .count = 1000}},
    {.name = "reduce_scatter, all_to_all",
     .most = {.kind = LS_REDUCE_SCATTER, .count = 1000},
     .odd  = {.kind = LS_ALL_TO_ALL, .count = 1000}},
    {.name = "gather, scatter",
     .most = {.kind = LS_GATHER, .count = 1000},
     .odd  = {.kind = LS_SCATTER, .count = 1000}},
    {.name = "broadcast, reduce",
     .most = {.kind = LS_BROADCAST, .count = 1000},
     .odd  = {.kind = LS_REDUCE, .count = 1000}},
    {.name = "all_reduce, broadcast",
     .most = SUM(1000),
     .odd  = {.kind = LS_BROADCAST, .count = 1000}},
    {.name = "barrier, all_reduce", .most = {.kind = LS_BARRIER}, .odd = SUM(1000)},
    {.name = "all_reduce, barrier", .most = SUM(1000), .odd = {.kind = LS_BARRIER}},
    {.name = "barrier, broadcast",
     .most = {.kind = LS_BARRIER},
     .odd  = {.kind = LS_BROADCAST, .count = 1000}},
    {.name = "1000, 1001", .most = SUM(1000), .odd = SUM(1001), .part = "count"},
    {.name = "1000, 999", .most = SUM(1000), .odd = SUM(999), .part = "count"},
    {.name = "1000, 0", .most = SUM(1000), .odd = SUM(0), .part = "count 0"},
    {.name = "0, 1000", .most = SUM(0), .odd = SUM(1000), .part = "count 0"},
    {.name = "all_gather 1000, 1001",
     .most = {.kind = LS_ALL_GATHER, .count = 1000},
     .odd  = {.kind = LS_ALL_GATHER, .count = 1001},
     .part = "count"},
    {.name = "all_to_all 1000, 0",
     .most = {.kind = LS_ALL_TO_ALL, .count = 1000},
     .odd  = {.kind = LS_ALL_TO_ALL, .count = 0},
     .part = "count 0"},
    {.name = "broadcast 1000, 1001",
     .most = {.kind = LS_BROADCAST, .count = 1000},
     .odd  = {.kind = LS_BROADCAST, .count = 1001},
     .part = "count"},
    {.name = "f32, i32",
     .most = SUM(1000),
     .odd  = {.kind = LS_ALL_REDUCE, .count = 1000, .dtype = LS_I32},
     .part = "I32"},
    {.name = "f32, bf16",
     .most = SUM(1000),
     .odd  = {.kind = LS_ALL_REDUCE, .count = 1000, .dtype = LS_BF16},
     .part = "BF16"},
    {.name = "same bytes",
     .most = {.kind = LS_ALL_GATHER, .count = 1000},
     .odd  = {.kind = LS_ALL_GATHER, .count = 2000, .dtype = LS_BF16},
     .part = "BF16"},
    {.name = "sum, max",
     .most = SUM(1000),
     .odd  = {.kind = LS_ALL_REDUCE, .count = 1000, .op = LS_MAX},
     .part = "max"},
    {.name = "reduce_scatter sum, min",
     .most = {.kind = LS_REDUCE_SCATTER, .count = 1000},
     .odd  = {.kind = LS_REDUCE_SCATTER, .count = 1000, .op = LS_MIN},
     .part = "min"},
    {.name = "root of broadcast",
     .most = {.kind = LS_BROADCAST, .count = 1000},
     .odd  = {.kind = LS_BROADCAST, .count = 1000, .root = 1},
     .part = "root 1"},
    {.name = "root of reduce",
     .most = {.kind = LS_REDUCE, .count = 1000, .root = 1},
     .odd  = {.kind = LS_REDUCE, .count = 1000},
     .part = "root 1"},
    {.name = "root of gather",
     .most = {.kind = LS_GATHER, .count = 1000},
     .odd  = {.kind = LS_GATHER, .count = 1000, .root = 1},
     .part = "root 1"},
    {.name = "root of scatter",
     .most = {.kind = LS_SCATTER, .count = 1000, .root = 1},
     .odd  = {.kind = LS_SCATTER, .count = 1000},
     .part = "root 1"},
    {.name  = "segment lists",
     .most  = {.kind = LS_ALL_GATHER, .count = 1000},
     .odd   = {.kind = LS_ALL_GATHER, .count = 1000},
     .lists = true},
    {.name  = "segment lists of reduce_scatter",
     .most  = {.kind = LS_REDUCE_SCATTER, .count = 1000},
     .odd   = {.kind = LS_REDUCE_SCATTER, .count = 1000},
     .part  = "segment lists",
     .lists = true},
    {.name = "one operation behind", .most = {.kind = LS_BARRIER}, .odd = SUM(1000)},
    {.name  = "send 1000, recv 1001",
     .most  = {.kind = LS_SEND, .count = 1000},
     .odd   = {.kind = LS_RECV, .count = 1001},
     .part  = "count",
     .pairs = true},
    {.name  = "send f32, recv i32",
     .most  = {.kind = LS_SEND, .count = 1000},
     .odd   = {.kind = LS_RECV, .count = 1000, .dtype = LS_I32},
     .part  = "I32",
     .pairs = true},
    {.name  = "send, all_reduce",
     .most  = {.kind = LS_SEND, .count = 1000},
     .odd   = SUM(1000),
     .pairs = true},
    {.name  = "recv, barrier",
     .most  = {.kind = LS_RECV, .count = 1000},
     .odd   = {.kind = LS_BARRIER},
     .pairs = true},
};

typedef struct {
    const row *row;
    int        n, odd, scale;
    outcome   *all;
} job;

static ls_call call_of(const job *j, int rank)
{
    ls_call c = rank == j->odd ? j->row->odd : j->row->most;

    c.count *= j->scale;
    if (j->row->pairs)
        c.root = 1 - rank;
    return c;
}

/* Rank r has a quarter of what is left; the odd one's lists have another border. */
static void make_lists(ls_segment_list *slices, ls_slice_segment *segments, int n,
                       int64_t count, bool odd)
{
    int64_t at = 0;

    for (int r = 0; r < n; r++) {
        int64_t c   = r == n - 1 ? count - at : (count - at) / 4 + (odd && r == 0);
        segments[r] = (ls_slice_segment){at, c};
        slices[r]   = (ls_segment_list){&segments[r], 1};
        at += c;
    }
}

static bool all_are(const unsigned char *p, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return false;
    return true;
}

static void body(ls_comm *world, void *context)
{
    job             *j     = context;
    int              r     = ls_comm_rank(world);
    outcome         *o     = &j->all[r];
    size_t           bytes = (size_t)4 * (size_t)j->n * (size_t)(1002 * j->scale) * 2;
    unsigned char   *in = ls_comm_alloc(world, bytes), *out = ls_comm_alloc(world, bytes);
    ls_segment_list  slices[8];
    ls_slice_segment segments[8];
    ls_call          c = call_of(j, r);

    memset(in, 1, bytes);
    memset(out, 2, bytes);
    c.in  = in;
    c.out = out;
    if (j->row->lists) {
        make_lists(slices, segments, j->n, c.count, r == j->odd);
        c.slices = slices;
    }
    int64_t start = ls_now_ns();
    outcome_note(o, ls_comm_run(world, &c), start);
    outcome_note_again(o, ls_comm_barrier(world));
    o->number = all_are(in, bytes, 1) | all_are(out, bytes, 2) << 1;
    ls_comm_release(world, in);
    ls_comm_release(world, out);
}

static bool has_meetings(const char *backend)
{
    return !strcmp(backend, "threads") || !strcmp(backend, "shm");
}

static bool is_paired(ls_collective kind)
{
    return kind == LS_SEND || kind == LS_RECV;
}

/* A short message may be on its way before its receiver disagrees: the sender then hears of it
 * in its next operation. */
static void catch_up(outcome *o)
{
    if (o->status || !o->again)
        return;
    o->status = o->again;
    memcpy(o->text, o->again_text, sizeof o->text);
}

static void judge(const char *backend, job *j)
{
    char           odd[64], other[64];
    const row     *r       = j->row;
    bool           meeting = has_meetings(backend);
    outcome_wanted want    = {.status  = LS_EMISMATCH,
                              .parts   = {"ranks disagree: rank ", odd, other, r->part},
                              .most_ns = 1000 * MS};
    outcome_wanted late    = {.status  = LS_ETIMEOUT,
                              .parts   = {" #1", "after ", "(pid "},
                              .most_ns = (TIMEOUT_S * 1000 + 600) * MS};

    snprintf(odd, sizeof odd, "rank %d calls %s #1", j->odd, ls_collective_name(r->odd.kind));
    /* A sender may be one operation further when this is found. */
    bool gone = r->most.kind == LS_SEND && !is_paired(r->odd.kind);
    snprintf(other, sizeof other, " calls %s", gone ? "" : ls_collective_name(r->most.kind));
    for (int i = 0; i < j->n && is_paired(r->most.kind); i++)
        catch_up(&j->all[i]);
    /* In shared memory messages and meetings go different ways and do not see each other. */
    bool unseen = meeting && is_paired(r->most.kind) != is_paired(r->odd.kind);
    outcome_judge(j->all, j->n, unseen ? &late : &want);
    for (int i = 0; i < j->n; i++)
        CHECK(j->all[i].number & 1 && (j->all[i].number & 2 || !meeting));
}

static void one_case(const char *backend, job *j)
{
    char       name[120];
    ranks_opts opts = {.backend = backend, .n = j->n, .timeout_s = TIMEOUT_S};

    snprintf(name, sizeof name, "%s, %s, %d ranks, odd one %d, %d-fold", j->row->name, backend,
             j->n, j->odd, j->scale);
    TEST_ROW(name);
    memset(j->all, 0, (size_t)j->n * sizeof *j->all);
    CHECK(ranks_run(&opts, body, j) == 0);
    judge(backend, j);
}

static void each_case(const char *backend)
{
    outcome *all = ranks_shared(8 * sizeof *all);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int n = 2; n <= (rows[i].pairs ? 2 : 4); n++)
            for (int odd = 0; odd < n; odd += n - 1)
                for (int scale = 1; scale <= 150; scale += 149) {
                    if (scale == 1 || (i + (size_t)n) % 2)
                        one_case(backend, &(job){&rows[i], n, odd, scale, all});
                }
    ranks_unshare(all, 8 * sizeof *all);
}

/* ---- what is compared at the join ---- */

static void differently(ls_join_opts *opts, void *context)
{
    (void)context;
    opts->algorithm = opts->rank == 1 ? LS_TREE : LS_DIRECT;
}

static void unjoined(ls_comm *world, void *context)
{
    job *j = context;

    outcome_note(&j->all[ranks_me()], world ? LS_OK : LS_ECONFIG, ls_now_ns());
    outcome_note_again(&j->all[ranks_me()], world ? LS_OK : LS_ECONFIG);
}

static void algorithms(const char *backend)
{
    outcome       *all  = ranks_shared(8 * sizeof *all);
    job            j    = {.all = all};
    ranks_opts     opts = {.backend = backend, .n = 3, .join = differently, .unjoined = true};
    outcome_wanted want = {.status = LS_ECONFIG,
                           .parts  = {"ranks disagree on settings: rank 0 has ",
                                      "algorithm direct", "rank 1 ", "algorithm tree"}};

    TEST_ROW("forced algorithms");
    CHECK(ranks_run(&opts, unjoined, &j) == 0);
    outcome_judge(all, 3, &want);
    ranks_unshare(all, 8 * sizeof *all);
}

int main(int argc, char **argv)
{
    const char *backends[] = {"threads", "shm", "tcp", "mixed"};

    for (int b = 0; b < 4; b++)
        if (argc < 2 || !strcmp(argv[1], backends[b])) {
            each_case(backends[b]);
            algorithms(backends[b]);
        }
    return test_summary("mismatch");
}

/*
 * collective_bench.c - buffers, expected values and times of one operation.
 *
 * Element e of rank r is a small whole number, a function of (r, e) alone, so every sum is
 * exact in every dtype that can hold it, whatever the order, and what a rank must get can be
 * written down element by element.
 */
#include "cli/collective_bench.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"

enum { WARM_UPS = 2, ROUNDS = 7, MOST_CALLS = 2000, MOST_PROD_RANKS = 32 };

static const double ROUND_NS = 1e7; /* long against a clock's tick and a lost time slice */

static const ls_bench_op ops[] = {
    {"all_reduce", LS_ALL_REDUCE, false, 2, {true, true}, true, false},
    {"all_gather", LS_ALL_GATHER, true, 1, {true, true}, false, false},
    {"reduce_scatter", LS_REDUCE_SCATTER, true, 1, {true, true}, true, false},
    {"broadcast", LS_BROADCAST, false, 0, {false, true}, false, true},
    {"reduce", LS_REDUCE, false, 0, {true, true}, true, true},
    {"gather", LS_GATHER, true, 1, {true, false}, false, true},
    {"scatter", LS_SCATTER, true, 1, {true, false}, false, true},
    {"all_to_all", LS_ALL_TO_ALL, true, 1, {true, false}, false, false},
    {"send_recv", LS_SEND, false, 0, {true, false}, false, false},
    {"barrier", LS_BARRIER, false, 0, {true, false}, false, false},
};
enum { N_OPS = sizeof ops / sizeof *ops };

const ls_bench_op *ls_bench_op_at(int i)
{
    return i >= 0 && i < N_OPS ? &ops[i] : NULL;
}

const ls_bench_op *ls_bench_op_find(const char *name)
{
    for (int i = 0; i < N_OPS; i++)
        if (!strcmp(ops[i].name, name))
            return &ops[i];
    return NULL;
}

double ls_bench_factor(const ls_bench_op *op, int n)
{
    return op->per_n > 0 ? op->per_n * (n - 1) / n : 1;
}

double ls_bench_traffic(const ls_bench_op *op, ls_bench_place place, int n, double bytes)
{
    double in_place = place == LS_IN_PLACE ? 1 : 0; /* its own part stays where it is */

    switch (op->kind) {
    case LS_ALL_REDUCE: /* every input is read, every output written */
        return 2 * n * bytes;
    case LS_REDUCE:
    case LS_REDUCE_SCATTER: /* N inputs, one output */
        return (n + 1) * bytes;
    case LS_ALL_GATHER:
        return 2 * (n - in_place) * bytes;
    case LS_BROADCAST:
        return 2 * (n - 1) * bytes;
    case LS_ALL_TO_ALL:
        return 2 * n * bytes;
    case LS_GATHER:
    case LS_SCATTER:
    case LS_SEND:
        return 2 * bytes;
    case LS_RECV:
    case LS_BARRIER:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    return 0;
}

ls_bench_place ls_bench_main_place(const ls_bench_op *op)
{
    return op->places[LS_IN_PLACE] ? LS_IN_PLACE : LS_OUT_OF_PLACE;
}

/* ---- one rank's part in it ---- */

typedef struct {
    ls_comm             *comm;
    const ls_bench_task *task;
    int                  n, rank;
    int64_t              count;    /* of the calls */
    int64_t              whole;    /* elements of the largest buffer */
    size_t               size;     /* of an element */
    char                *in, *out; /* [whole] */
    ls_algorithm         algorithm;
} bench;

static void *part(const bench *b, char *v, int64_t element)
{
    return v + (size_t)element * b->size;
}

/* Of a buffer; a barrier has none. */
static size_t buffer_bytes(const bench *b)
{
    return b->whole ? (size_t)b->whole * b->size : 1;
}

static void *get(const bench *b)
{
    size_t bytes = buffer_bytes(b);

    return b->task->heap ? ls_comm_alloc(b->comm, bytes) : ls_mem_alloc(bytes, LS_MEM_COMM);
}

static void put(const bench *b, void *block)
{
    if (b->task->heap)
        ls_comm_release(b->comm, block);
    else
        ls_mem_free(block, buffer_bytes(b), LS_MEM_COMM);
}

/* Even ranks with the next odd one; the last of an odd number has nobody. */
static int partner(const bench *b)
{
    int p = b->rank ^ 1;
    return p < b->n ? p : -1;
}

/* Here the buffers of one call; in place both are the same memory, or one is a part of the
 * other. */
static ls_call call_of(const bench *b, ls_bench_place place)
{
    const ls_bench_task *t = b->task;
    ls_call              c = {.kind  = t->op->kind,
                              .in    = b->in,
                              .out   = b->out,
                              .count = b->count,
                              .dtype = t->dtype,
                              .op    = t->reduce,
                              .root  = t->root};

    if (place == LS_OUT_OF_PLACE)
        return c;
    c.in = b->out;
    if (c.kind == LS_ALL_GATHER)
        c.in = part(b, b->out, b->rank * b->count);
    if (c.kind == LS_REDUCE_SCATTER)
        c.out = part(b, b->out, b->rank * b->count);
    return c;
}

/* There and back. */
static ls_status ping_pong(const bench *b, ls_call c)
{
    ls_call send = c, recv = c;

    send.root = recv.root = partner(b);
    recv.kind             = LS_RECV;
    if (send.root < 0)
        return LS_OK;
    ls_status status = ls_comm_run(b->comm, b->rank % 2 ? &recv : &send);
    return status ? status : ls_comm_run(b->comm, b->rank % 2 ? &send : &recv);
}

static ls_status once(const bench *b, ls_bench_place place)
{
    ls_call c = call_of(b, place);

    return c.kind == LS_SEND ? ping_pong(b, c) : ls_comm_run(b->comm, &c);
}

/* ---- values ---- */

static uint64_t value(const ls_bench_task *t, int rank, int64_t element)
{
    uint64_t h = (uint64_t)element * UINT64_C(0x9e3779b97f4a7c15) +
                 ((uint64_t)rank + 1) * UINT64_C(0xbf58476d1ce4e5b9);

    h >>= 40;
    if (!t->op->reduces || t->reduce == LS_MIN || t->reduce == LS_MAX)
        return h & 127;
    if (t->reduce == LS_PROD)
        return rank < MOST_PROD_RANKS ? 1 + (h & 1) : 1;
    return h & 15;
}

static uint64_t join(ls_reduce_op op, uint64_t a, uint64_t b)
{
    switch (op) {
    case LS_MIN:
        return a < b ? a : b;
    case LS_MAX:
        return a > b ? a : b;
    case LS_PROD:
        return a * b;
    case LS_SUM:
    case LS_AVG:
    case LS_REDUCE_OP_COUNT:
        break;
    }
    return a + b;
}

/* x / divisor as an element; integers wrap around. */
static void store(void *to, ls_dtype dtype, uint64_t x, int divisor)
{
    float    f  = (float)x / (float)divisor;
    uint16_t bf = ls_bf16_from_f32(f);

    switch (dtype) {
    case LS_F32:
        memcpy(to, &f, sizeof f);
        break;
    case LS_BF16:
        memcpy(to, &bf, sizeof bf);
        break;
    case LS_I32:
        memcpy(to, &(uint32_t){(uint32_t)x}, sizeof(uint32_t));
        break;
    case LS_I64:
        memcpy(to, &x, sizeof x);
        break;
    case LS_U8:
    case LS_F64:
    case LS_DTYPE_COUNT:
        memcpy(to, &(uint8_t){(uint8_t)x}, 1);
        break;
    }
}

static void fill(const bench *b, void *v, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        store(part(b, v, i), b->task->dtype, value(b->task, b->rank, first + i), 1);
}

/* Inputs as the form wants them, all else overwritten. */
static void prepare(const bench *b, ls_bench_place place)
{
    const ls_bench_op *op     = b->task->op;
    size_t             bytes  = (size_t)b->whole * b->size;
    bool               sender = op->kind != LS_BROADCAST || b->rank == b->task->root;

    memset(b->out, 0xa5, bytes);
    memset(b->in, 0xa5, bytes);
    if (place == LS_OUT_OF_PLACE)
        fill(b, b->in, 0, b->whole);
    else if (op->kind == LS_ALL_GATHER)
        fill(b, part(b, b->out, b->rank * b->count), 0, b->count);
    else if (sender)
        fill(b, b->out, 0, b->whole);
}

/* Where element i of this rank's output comes from: an element of one rank, or of all. */
typedef struct {
    int     rank;
    int64_t element;
} origin;

static origin origin_of(const bench *b, int64_t i)
{
    int64_t count = b->count;

    switch (b->task->op->kind) {
    case LS_REDUCE_SCATTER:
        return (origin){-1, b->rank * count + i};
    case LS_ALL_GATHER:
    case LS_GATHER:
        return (origin){(int)(i / count), i % count};
    case LS_SCATTER:
        return (origin){b->task->root, b->rank * count + i};
    case LS_ALL_TO_ALL:
        return (origin){(int)(i / count), b->rank * count + i % count};
    case LS_BROADCAST:
        return (origin){b->task->root, i};
    case LS_SEND:
        return (origin){partner(b), i};
    case LS_RECV:
    case LS_BARRIER:
    case LS_REDUCE:
    case LS_ALL_REDUCE:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    return (origin){-1, i};
}

static void expect(const bench *b, int64_t i, void *element)
{
    const ls_bench_task *t = b->task;
    origin               o = origin_of(b, i);
    uint64_t             x = value(t, o.rank < 0 ? 0 : o.rank, o.element);

    if (t->op->reduces)
        for (int r = 1; r < b->n; r++)
            x = join(t->reduce, x, value(t, r, o.element));
    store(element, t->dtype, x, t->op->reduces && t->reduce == LS_AVG ? b->n : 1);
}

/* Elements that this rank's output has. */
static int64_t out_count(const bench *b)
{
    const ls_bench_task *t = b->task;

    switch (t->op->kind) {
    case LS_BARRIER:
        return 0;
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL:
        return b->count * b->n;
    case LS_GATHER:
        return b->rank == t->root ? b->count * b->n : 0;
    case LS_REDUCE:
        return b->rank == t->root ? b->count : 0;
    case LS_SEND:
        return partner(b) < 0 ? 0 : b->count;
    case LS_RECV:
    case LS_BROADCAST:
    case LS_ALL_REDUCE:
    case LS_REDUCE_SCATTER:
    case LS_SCATTER:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    return b->count;
}

static ls_status verify(bench *b, ls_bench_place place, int64_t *wrong)
{
    char    want[8];
    int64_t mine = 0;

    prepare(b, place);
    ls_status status = once(b, place);
    if (status)
        return status;
    char *got = call_of(b, place).out;
    for (int64_t i = 0; i < out_count(b); i++) {
        expect(b, i, want);
        mine += memcmp(part(b, got, i), want, b->size) != 0;
    }
    b->algorithm = ls_comm_counted(b->comm, b->task->op->kind).algorithm;
    return ls_comm_all_reduce(b->comm, wrong, &mine, 1, LS_I64, LS_SUM);
}

/* ---- times ---- */

/* Of an odd number of ranks the last has nobody to send to. */
static int busy_ranks(const bench *b)
{
    return b->task->op->kind == LS_SEND && b->n > 1 ? b->n / 2 * 2 : b->n;
}

/* Mean over calls and the ranks that make them, in ns. */
static ls_status time_round(const bench *b, ls_bench_place place, int64_t calls, double *ns)
{
    int64_t   all    = 0;
    ls_status status = ls_comm_barrier(b->comm);
    int64_t   start  = ls_now_ns();

    for (int64_t i = 0; i < calls && !status; i++)
        status = once(b, place);
    int64_t mine = b->rank < busy_ranks(b) ? ls_now_ns() - start : 0;
    if (!status)
        status = ls_comm_all_reduce(b->comm, &all, &mine, 1, LS_I64, LS_SUM);
    *ns = (double)all / (double)(calls * busy_ranks(b));
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ls_status time_calls(const bench *b, ls_bench_place place, double *us)
{
    double    ns[ROUNDS], first = 0;
    ls_status status = time_round(b, place, WARM_UPS, &first);

    if (!status) /* the caches are warm only now */
        status = time_round(b, place, WARM_UPS, &first);
    double  most  = ROUND_NS / (first > 1 ? first : 1);
    int64_t calls = most > MOST_CALLS ? MOST_CALLS : most < 1 ? 1 : (int64_t)most;
    for (int i = 0; i < ROUNDS && !status; i++)
        status = time_round(b, place, calls, &ns[i]);
    if (status)
        return status;
    qsort(ns, ROUNDS, sizeof *ns, by_value);
    *us = ns[ROUNDS / 2] * 1e-3 / (b->task->op->kind == LS_SEND ? 2 : 1);
    return LS_OK;
}

/* ---- all of it ---- */

static bench bench_of(ls_comm *comm, const ls_bench_task *t)
{
    bench   b     = {.comm = comm,
                     .task = t,
                     .n    = ls_comm_size(comm),
                     .rank = ls_comm_rank(comm),
                     .size = ls_dtype_bytes(t->dtype)};
    int64_t parts = t->op->of_all ? b.n : 1;

    b.count = t->bytes / (int64_t)b.size / parts;
    if (b.count < 1 && t->op->kind != LS_BARRIER)
        b.count = 1;
    if (t->op->kind == LS_BARRIER)
        b.count = 0;
    b.whole = b.count * parts;
    return b;
}

static ls_status measure(bench *b, ls_bench_result *r)
{
    ls_status status = LS_OK;

    for (int p = 0; p < LS_PLACES && !status; p++) {
        ls_bench_place place = (ls_bench_place)p;
        r->us[p]             = -1;
        r->wrong[p]          = 0;
        if (!b->task->op->places[p])
            continue;
        status = verify(b, place, &r->wrong[p]);
        if (!status)
            status = time_calls(b, place, &r->us[p]);
    }
    r->algorithm = b->algorithm;
    return status;
}

ls_status ls_bench_run(ls_comm *comm, const ls_bench_task *task, ls_bench_result *result)
{
    bench     b      = bench_of(comm, task);
    ls_status status = LS_ENOMEM;

    *result = (ls_bench_result){.count = b.count, .bytes = b.whole * (int64_t)b.size};
    b.in    = get(&b);
    b.out   = get(&b);
    if (b.in && b.out)
        status = measure(&b, result);
    if (!status) /* nobody reads what another gives back */
        status = ls_comm_barrier(comm);
    put(&b, b.in);
    put(&b, b.out);
    return status;
}

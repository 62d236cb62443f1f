/*
 * test_collective.c - every operation against its definition, bit for bit.
 *
 * Each rank can make every rank's input, so each works out by itself what it must get: sums by
 * the canonical tree, written here once more as plain recursion.  The table runs over
 * transports, algorithms, group sizes, dtypes, reduce ops, counts, kinds of memory, in place
 * and not, aligned and not.
 */
#include "ranks.h"

#include <stdint.h>
#include <stdlib.h>

#include "core/clock.h"
#include "dist/comm/rendezvous.h"
#include "dist/comm/transport_mpi.h"

static const int64_t counts[] = {0, 1, 3, 7, 1000, 4099, 70001};

/* ---- values ---- */

static uint32_t hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static void put(void *p, int64_t i, ls_dtype dtype, uint32_t h)
{
    float    f   = ((float)(int32_t)h) * 0x1p-31f * (float)(1 << (h % 7));
    uint16_t b   = ls_bf16_from_f32(f);
    int32_t  i32 = (int32_t)h;
    int64_t  i64 = (int64_t)((uint64_t)h << 32 | hash(h));
    uint8_t  u8  = (uint8_t)h;
    char    *to  = (char *)p + (size_t)i * ls_dtype_bytes(dtype);

    memcpy(to,
           dtype == LS_F32    ? (void *)&f
           : dtype == LS_BF16 ? (void *)&b
           : dtype == LS_I32  ? (void *)&i32
           : dtype == LS_I64  ? (void *)&i64
                              : (void *)&u8,
           ls_dtype_bytes(dtype));
}

/* Element i of what `rank` contributes. */
static void fill(void *p, int64_t n, ls_dtype dtype, int rank, int seed)
{
    for (int64_t i = 0; i < n; i++)
        put(p, i, dtype, hash((uint32_t)i * 31u + (uint32_t)rank * 1000003u + (uint32_t)seed));
}

/* ---- the tree ---- */

static float join_f32(float a, float b, ls_reduce_op op)
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

static uint64_t join_int(uint64_t a, uint64_t b, bool less, ls_reduce_op op)
{
    if (op == LS_MIN)
        return less ? a : b;
    if (op == LS_MAX)
        return less ? b : a;
    return op == LS_PROD ? a * b : a + b;
}

static int split_at(int n)
{
    int half = 1;

    while (2 * half < n)
        half *= 2;
    return half;
}

static float tree_f32(void *const *in, int first, int n, int64_t i, ls_dtype dtype,
                      ls_reduce_op op)
{
    if (n == 1)
        return dtype == LS_F32 ? ((const float *)in[first])[i]
                               : ls_bf16_to_f32(((const uint16_t *)in[first])[i]);
    int half = split_at(n);
    return join_f32(tree_f32(in, first, half, i, dtype, op),
                    tree_f32(in, first + half, n - half, i, dtype, op), op);
}

static int64_t signed_of(const void *p, int64_t i, ls_dtype dtype)
{
    return dtype == LS_I32   ? ((const int32_t *)p)[i]
           : dtype == LS_I64 ? ((const int64_t *)p)[i]
                             : ((const uint8_t *)p)[i];
}

static uint64_t all_int(void *const *in, int n, int64_t i, ls_dtype dtype, ls_reduce_op op)
{
    uint64_t acc = (uint64_t)signed_of(in[0], i, dtype);

    for (int r = 1; r < n; r++) {
        int64_t x = signed_of(in[r], i, dtype);
        acc       = join_int(acc, (uint64_t)x, (int64_t)acc < x, op);
        if (dtype == LS_I32)
            acc = (uint64_t)(int64_t)(int32_t)acc;
        else if (dtype == LS_U8)
            acc = (uint8_t)acc;
    }
    return acc;
}

static void reduce_all(void *out, void *const *in, int n, int64_t count, ls_dtype dtype,
                       ls_reduce_op op)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == LS_F32 || dtype == LS_BF16) {
            float f = tree_f32(in, 0, n, i, dtype, op);
            if (op == LS_AVG)
                f /= (float)n;
            if (dtype == LS_F32)
                ((float *)out)[i] = f;
            else
                ((uint16_t *)out)[i] = ls_bf16_from_f32(f);
            continue;
        }
        uint64_t x = all_int(in, n, i, dtype, op);
        if (dtype == LS_I32)
            ((int32_t *)out)[i] = (int32_t)(uint32_t)x;
        else if (dtype == LS_I64)
            ((int64_t *)out)[i] = (int64_t)x;
        else
            ((uint8_t *)out)[i] = (uint8_t)x;
    }
}

/* ---- one case ---- */

typedef struct {
    ls_comm         *world;
    int              n, r, root;
    ls_call          call;
    int64_t          in_n, out_n; /* elements of this rank's buffers */
    bool             heap, in_place;
    size_t           shift;  /* bytes by which buffers are out of line */
    ls_segment_list *slices; /* of all ranks, or NULL */
} one;

static int64_t slice_total(const ls_segment_list *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n += s->segments[i].count;
    return n;
}

static int64_t own_count(const one *o, int rank)
{
    return o->slices ? slice_total(&o->slices[rank]) : o->call.count;
}

/* Elements that `rank` gives and gets. */
static void sizes(one *o)
{
    int64_t c = o->call.count, n = o->n;
    bool    root = o->r == o->root;

    o->in_n = o->out_n = 0;
    switch (o->call.kind) {
    case LS_BROADCAST:
        o->out_n = c;
        break;
    case LS_REDUCE:
        o->in_n  = c;
        o->out_n = c; /* elsewhere it stays as it was */
        break;
    case LS_ALL_REDUCE:
        o->in_n = o->out_n = c;
        break;
    case LS_ALL_GATHER:
        o->in_n  = own_count(o, o->r);
        o->out_n = o->slices ? c : n * c;
        break;
    case LS_REDUCE_SCATTER:
        o->in_n  = o->slices ? c : n * c;
        o->out_n = own_count(o, o->r);
        break;
    case LS_GATHER:
        o->in_n  = c;
        o->out_n = root ? n * c : 0;
        break;
    case LS_SCATTER:
        o->in_n  = root ? n * c : 0;
        o->out_n = c;
        break;
    case LS_ALL_TO_ALL:
        o->in_n = o->out_n = n * c;
        break;
    case LS_BARRIER:
    case LS_SEND:
    case LS_RECV:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
}

static char *memory(const one *o, int64_t n)
{
    size_t bytes = (size_t)n * ls_dtype_bytes(o->call.dtype) + 64;

    return o->heap ? ls_comm_alloc(o->world, bytes) : calloc(bytes, 1);
}

static void give_back(const one *o, char *p)
{
    if (o->heap)
        ls_comm_release(o->world, p);
    else
        free(p);
}

/* The most that any rank gives, for the reference. */
static int64_t most_in(const one *o)
{
    int64_t c = o->call.count * o->n;

    return c > 0 ? c : 1;
}

static void each_segment(const one *o, int rank, char *packed, char *flat, bool pack)
{
    size_t  size = ls_dtype_bytes(o->call.dtype);
    int64_t at   = 0;

    for (int64_t i = 0; i < o->slices[rank].n; i++) {
        ls_slice_segment s = o->slices[rank].segments[i];
        char            *p = packed + (size_t)at * size, *f = flat + (size_t)s.offset * size;
        memcpy(pack ? p : f, pack ? f : p, (size_t)s.count * size);
        at += s.count;
    }
}

/* What this rank must get into want, given all ranks' contributions. */
static void expect(const one *o, char *want, void *const *all)
{
    const ls_call *c    = &o->call;
    size_t         size = ls_dtype_bytes(c->dtype), bytes = (size_t)c->count * size;
    char          *whole = calloc((size_t)most_in(o) * size + 1, 1);

    switch (c->kind) {
    case LS_BROADCAST:
        memcpy(want, all[o->root], bytes);
        break;
    case LS_REDUCE:
    case LS_ALL_REDUCE:
        if (c->kind == LS_ALL_REDUCE || o->r == o->root)
            reduce_all(want, all, o->n, c->count, c->dtype, c->op);
        break;
    case LS_ALL_GATHER:
        for (int p = 0; p < o->n; p++)
            if (o->slices)
                each_segment(o, p, all[p], want, false);
            else
                memcpy(want + (size_t)p * bytes, all[p], bytes);
        break;
    case LS_REDUCE_SCATTER:
        reduce_all(whole, all, o->n, o->slices ? c->count : o->n * c->count, c->dtype, c->op);
        if (o->slices)
            each_segment(o, o->r, want, whole, true);
        else
            memcpy(want, whole + (size_t)o->r * bytes, bytes);
        break;
    case LS_GATHER:
        for (int p = 0; p < o->n && o->r == o->root; p++)
            memcpy(want + (size_t)p * bytes, all[p], bytes);
        break;
    case LS_SCATTER:
        memcpy(want, (char *)all[o->root] + (size_t)o->r * bytes, bytes);
        break;
    case LS_ALL_TO_ALL:
        for (int p = 0; p < o->n; p++)
            memcpy(want + (size_t)p * bytes, (char *)all[p] + (size_t)o->r * bytes, bytes);
        break;
    case LS_BARRIER:
    case LS_SEND:
    case LS_RECV:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    free(whole);
}

/* Where in and out are when they are the same memory. */
static void alias(one *o, char *in, char *out, char **pin, char **pout)
{
    size_t bytes = (size_t)o->call.count * ls_dtype_bytes(o->call.dtype);

    *pin  = in;
    *pout = out;
    if (!o->in_place)
        return;
    if (o->call.kind == LS_ALL_REDUCE || (o->call.kind == LS_REDUCE && o->r == o->root))
        *pin = out;
    else if (o->call.kind == LS_ALL_GATHER)
        *pin = o->slices ? out : out + (size_t)o->r * bytes;
    else if (o->call.kind == LS_REDUCE_SCATTER)
        *pout = o->slices ? in : in + (size_t)o->r * bytes;
}

static int failures_shown;

static void compare(const one *o, const char *got, const char *want, int64_t n,
                    const char *what)
{
    size_t size = ls_dtype_bytes(o->call.dtype), bytes = (size_t)n * size;

    if (CHECK(!memcmp(got, want, bytes)) || failures_shown++ > 5)
        return;
    int64_t i = 0;
    while (!memcmp(got + (size_t)i * size, want + (size_t)i * size, size))
        i++;
    printf("     %s: rank %d of %d, %s %s %s count %lld root %d heap %d in place %d shift %zu "
           "slices %d: "
           "element %lld differs\n",
           what, o->r, o->n, ls_collective_name(o->call.kind), ls_dtype_name(o->call.dtype),
           ls_reduce_op_name(o->call.op), (long long)o->call.count, o->root, o->heap,
           o->in_place, o->shift, o->slices != NULL, (long long)i);
}

static void run_one(one *o, int seed)
{
    void  **all  = calloc((size_t)o->n, sizeof *all);
    size_t  size = ls_dtype_bytes(o->call.dtype);
    int64_t most = most_in(o);

    sizes(o);
    for (int p = 0; p < o->n; p++) {
        all[p] = calloc((size_t)most + 8, size);
        fill(all[p], most, o->call.dtype, p, seed);
    }
    char *in_block = memory(o, o->in_n), *out_block = memory(o, o->out_n);
    char *want = calloc((size_t)o->out_n + 8, size);
    char *in = in_block + o->shift, *out = out_block + o->shift, *pin, *pout;
    alias(o, in, out, &pin, &pout);
    memset(out, 0x5a, (size_t)o->out_n * size);
    memset(want, 0x5a, (size_t)o->out_n * size);
    bool flat_in_place = o->in_place && o->slices && o->call.kind == LS_ALL_GATHER;
    if (flat_in_place)
        each_segment(o, o->r, all[o->r], pin, false);
    else if (o->in_n)
        memcpy(pin, all[o->r], (size_t)o->in_n * size);
    if (o->call.kind == LS_BROADCAST && o->r == o->root)
        memcpy(pout, all[o->r], (size_t)o->out_n * size);
    expect(o, want, all);
    o->call.in     = pin;
    o->call.out    = pout;
    o->call.root   = o->root;
    o->call.slices = o->slices;
    CHECK_OK(ls_comm_run(o->world, &o->call));
    if (o->in_place && o->slices && o->call.kind == LS_REDUCE_SCATTER) {
        char *packed = calloc((size_t)o->out_n + 8, size);
        each_segment(o, o->r, packed, pout, true);
        compare(o, packed, want, o->out_n, "result");
        free(packed);
    } else {
        compare(o, pout, want, o->out_n, "result");
    }
    if (pin == in && pout == out && o->in_n) /* out of place the input stays */
        compare(o, pin, all[o->r], o->in_n, "input");
    give_back(o, in_block);
    give_back(o, out_block);
    free(want);
    for (int p = 0; p < o->n; p++)
        free(all[p]);
    free(all);
}

/* ---- tables ---- */

static const ls_collective kinds[] = {LS_BROADCAST,  LS_REDUCE,         LS_ALL_REDUCE,
                                      LS_ALL_GATHER, LS_REDUCE_SCATTER, LS_GATHER,
                                      LS_SCATTER,    LS_ALL_TO_ALL};

static bool reduces(ls_collective kind)
{
    return kind == LS_REDUCE || kind == LS_ALL_REDUCE || kind == LS_REDUCE_SCATTER;
}

typedef struct {
    bool thin; /* fewer combinations: f32 sums alone */
} table;

static void each_op(one *o, ls_dtype dtype, const table *t, int seed)
{
    o->call.dtype = dtype;
    for (int op = 0; op < LS_REDUCE_OP_COUNT; op++) {
        bool float_like = dtype == LS_F32 || dtype == LS_BF16;
        if ((op > 0 && !reduces(o->call.kind)) || (op == LS_AVG && !float_like) ||
            (o->call.count > 10000 && !o->slices && (op > 0 || dtype != LS_F32)) ||
            (op > 0 && t->thin))
            continue;
        o->call.op = (ls_reduce_op)op;
        run_one(o, seed + op);
    }
}

/* ThreadSanitizer makes the reference tens of times slower, and does not look at its bits. */
#ifdef __SANITIZE_THREAD__
enum { SLOW = true };
#else
enum { SLOW = false };
#endif

/* Messages of several pieces among few ranks; more ranks cost the reference too much. */
static int64_t fitting(int n, int64_t count)
{
    return (n > 3 || SLOW) && count > 10000 ? count / 16 : count;
}

static void each_kind(ls_comm *world, void *context)
{
    const table *t    = context;
    one          o    = {.world = world, .n = ls_comm_size(world), .r = ls_comm_rank(world)};
    int          seed = 0;

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            seed++;
            o.call     = (ls_call){.kind = kinds[k], .count = fitting(o.n, counts[c])};
            o.root     = seed % o.n;
            o.heap     = seed % 2 || (t->thin && seed % 3);
            o.in_place = seed % 3 == 0;
            o.shift    = seed % 5 == 0 ? 1 : 0;
            for (int d = 0; d < LS_F64; d++)
                if (!t->thin || d == 0 || (d == LS_BF16 && c == 4))
                    each_op(&o, (ls_dtype)d, t, 100 * seed);
        }
}

/* Rows of several parameters: scattered, some ranks without any. */
static void make_slices(ls_segment_list *slices, ls_slice_segment *segments, int n,
                        int64_t count, int shape)
{
    int64_t at = 0, piece = count / (3 * n + 1), k = 0;

    for (int r = 0; r < n; r++)
        slices[r] = (ls_segment_list){segments + 3 * r, 0};
    for (int j = 0; j < 3; j++)
        for (int r = 0; r < n; r++, k++) {
            int64_t c = shape == 0   ? piece
                        : shape == 1 ? (r == 0 ? 0 : piece + (r == n - 1))
                                     : k % 2 * piece;
            if (shape == 1 && j > 0)
                c = 0;
            if (!c || at + c > count)
                continue;
            segments[3 * r + slices[r].n++] = (ls_slice_segment){at, c};
            at += c + (shape == 2);
        }
}

static void sliced(ls_comm *world, void *context)
{
    static const int64_t totals[] = {50, 4000, 100003};
    const table         *t        = context;
    int                  n        = ls_comm_size(world);
    ls_segment_list     *slices   = calloc((size_t)n, sizeof *slices);
    ls_slice_segment    *segments = calloc((size_t)(3 * n), sizeof *segments);

    for (int i = 0; i < 3 * 3 * 2 * 2 * 2; i++) {
        one o      = {.world = world, .n = n, .r = ls_comm_rank(world), .slices = slices};
        o.call     = (ls_call){.kind  = i & 1 ? LS_ALL_GATHER : LS_REDUCE_SCATTER,
                               .count = fitting(n, totals[i / 8 % 3])};
        o.in_place = i & 2;
        o.heap     = i & 4;
        make_slices(slices, segments, n, o.call.count, i / 24);
        each_op(&o, LS_F32, t, i);
        if (!t->thin)
            each_op(&o, LS_BF16, t, i);
    }
    free(slices);
    free(segments);
}

static void everything(ls_comm *world, void *context)
{
    CHECK_OK(ls_comm_barrier(world));
    each_kind(world, context);
    sliced(world, context);
    CHECK_OK(ls_comm_barrier(world));
}

/* ---- send, recv, queues ---- */

static void pairs(ls_comm *world, void *context)
{
    (void)context;
    int    n = ls_comm_size(world), r = ls_comm_rank(world);
    float  x[300], y[300];
    double sum = 0;

    for (int i = 0; i < 300; i++)
        x[i] = (float)(r * 1000 + i);
    for (int round = 0; round < 20;
         round++) { /* a token round the ring, other traffic between */
        if (r == 0)
            CHECK_OK(ls_comm_send(world, x, 300, LS_F32, 1 % n));
        CHECK_OK(ls_comm_recv(world, y, 300, LS_F32, (r + n - 1) % n));
        CHECK(y[299] == (float)((r + n - 1) % n * 1000 + 299));
        if (r != 0)
            CHECK_OK(ls_comm_send(world, x, 300, LS_F32, (r + 1) % n));
        float one_float = 1;
        CHECK_OK(ls_comm_all_reduce(world, &one_float, &one_float, 1, LS_F32, LS_SUM));
        sum += one_float;
    }
    CHECK(sum == 20.0 * n);
}

static void queued(ls_comm *world, void *context)
{
    enum { WORKS = 300, FLOATS = 1000 };
    (void)context;
    int       n = ls_comm_size(world), r = ls_comm_rank(world);
    ls_work **work = calloc(WORKS, sizeof(void *));
    float    *x    = ls_comm_alloc(world, sizeof(float) * WORKS * FLOATS);

    for (int i = 0; i < WORKS * FLOATS; i++)
        x[i] = (float)(r + i);
    for (int i = 0; i < WORKS; i++)
        CHECK_OK(ls_comm_start(world,
                               &(ls_call){.kind  = LS_ALL_REDUCE,
                                          .in    = x + i * FLOATS,
                                          .out   = x + i * FLOATS,
                                          .count = FLOATS,
                                          .dtype = LS_F32},
                               &work[i]));
    CHECK_OK(ls_comm_barrier(world)); /* after all of them */
    CHECK(ls_work_test(work[0]) && ls_work_test(work[WORKS - 1]));
    for (int i = WORKS - 1; i >= 0; i--)
        CHECK_OK(ls_work_wait(work[i]));
    bool right = true;
    for (int i = 0; i < WORKS * FLOATS; i++)
        right = right && x[i] == (float)(n * i + n * (n - 1) / 2);
    CHECK(right);
    ls_comm_release(world, x);
    free(work);
}

/* ---- groups ---- */

static void check_sum(ls_comm *group, int value, int want)
{
    int32_t x = value, y = 0;

    CHECK_OK(ls_comm_all_reduce(group, &y, &x, 1, LS_I32, LS_SUM));
    CHECK(y == want);
}

static void groups(ls_comm *world, void *context)
{
    (void)context;
    int      n = ls_comm_size(world), r = ls_comm_rank(world);
    ls_comm *half, *reversed, *none, *nested;

    CHECK_OK(ls_comm_split(world, r % 2, 0, &half));
    CHECK(half && ls_comm_size(half) == (n + 1 - r % 2) / 2 && ls_comm_rank(half) == r / 2);
    int even = 0, odd = 0;
    for (int i = 0; i < n; i++)
        *(i % 2 ? &odd : &even) += i;
    check_sum(half, r, r % 2 ? odd : even);
    CHECK_OK(ls_comm_split(world, 0, -r, &reversed));
    CHECK(ls_comm_rank(reversed) == n - 1 - r);
    check_sum(reversed, r, n * (n - 1) / 2);
    CHECK_OK(ls_comm_split(world, r == 0 ? -1 : 7, 0, &none));
    CHECK((none == NULL) == (r == 0));
    if (none)
        check_sum(none, r, n * (n - 1) / 2);
    CHECK_OK(ls_comm_split(half, ls_comm_rank(half) / 2, 0, &nested));
    check_sum(nested, 1, ls_comm_size(nested));
    check_sum(world, r, n * (n - 1) / 2);
    ls_comm_free(nested);
    ls_comm_free(none);
    ls_comm_free(reversed);
    ls_comm_free(half);
    check_sum(world, r, n * (n - 1) / 2);
}

/* Operations on several groups in another order on every rank: started, so that none waits for
 * another. */
static void crossed(ls_comm *world, void *context)
{
    enum { GROUPS = 3 };
    (void)context;
    int      n = ls_comm_size(world), r = ls_comm_rank(world);
    ls_comm *group[GROUPS];
    ls_work *work[GROUPS];
    float    x[GROUPS][500];

    for (int g = 0; g < GROUPS; g++)
        CHECK_OK(ls_comm_split(world, 0, g == 1 ? -r : r, &group[g]));
    for (int round = 0; round < 100; round++) {
        for (int k = 0; k < GROUPS; k++) {
            int g = (k + r + round) % GROUPS;
            for (int i = 0; i < 500; i++)
                x[g][i] = (float)(g + i);
            CHECK_OK(ls_comm_start(group[g],
                                   &(ls_call){.kind  = LS_ALL_REDUCE,
                                              .in    = x[g],
                                              .out   = x[g],
                                              .count = 500,
                                              .dtype = LS_F32},
                                   &work[g]));
        }
        for (int g = 0; g < GROUPS; g++)
            CHECK_OK(ls_work_wait(work[g]));
        for (int g = 0; g < GROUPS; g++)
            CHECK(x[g][499] == (float)(n * (g + 499)));
    }
    for (int g = 0; g < GROUPS; g++)
        ls_comm_free(group[g]);
}

static void explained(ls_comm *world, void *context)
{
    (void)context;
    char    text[1000];
    ls_call call = {
        .kind = LS_ALL_REDUCE, .in = text, .out = text, .count = 200, .dtype = LS_F32};

    CHECK_OK(ls_comm_explain(world, &call, text, sizeof text));
    CHECK(strstr(text, "direct") && strstr(text, "tree") && strstr(text, "ring"));
    CHECK(strstr(text, "<- chosen") || strstr(text, "<- forced") || ls_comm_size(world) == 1);
    if (ls_comm_rank(world) == 0 && getenv("LS_SHOW"))
        printf("%s", text);
}

/* ---- */

static void run(const char *backend, int n, ls_algorithm algorithm, ranks_body body,
                const char *what, bool thin)
{
    char       name[120];
    ranks_opts opts  = {.backend   = backend,
                        .n         = n,
                        .algorithm = algorithm,
                        .fast      = algorithm == LS_RING,
                        .limit_s   = 100};
    table      t     = {thin || SLOW};
    int64_t    start = ls_now_ns();

    snprintf(name, sizeof name, "%s, %s, %d ranks, %s", what, backend, n,
             ls_algorithm_name(algorithm));
    TEST_ROW(name);
    CHECK(ranks_run(&opts, body, &t) == 0);
    if (getenv("LS_SHOW"))
        printf("%6.2f s  %s\n", (double)(ls_now_ns() - start) * 1e-9, name);
}

/*
 * Under a launcher: this process is one rank of each world in turn.  backend NULL: whichever
 * the environment makes best.
 */
static int run_under_launcher(const char *backend, bool thin)
{
    for (int a = 0; a < LS_RING; a++) {
        ls_comm     *world = NULL;
        ls_join_opts opts = {.backend = backend, .algorithm = (ls_algorithm)a, .timeout_s = 30};
        ls_status    status = ls_world_join(&opts, NULL, &world);
        if (status == LS_ECONFIG && a == LS_HALVING)
            continue; /* not a power of two */
        if (!CHECK_OK(status))
            break;
        TEST_ROW(ls_algorithm_name((ls_algorithm)a));
        if (a == 0 && ls_comm_rank(world) == 0)
            printf("%d ranks over %s\n", ls_comm_size(world), ls_comm_transport(world));
        table t = {thin || ls_comm_size(world) > 3};
        everything(world, &t);
        if (ls_comm_size(world) > 1)
            pairs(world, NULL);
        queued(world, NULL);
        groups(world, NULL);
        crossed(world, NULL);
        explained(world, NULL);
        ls_comm_free(world);
    }
    ls_mpi_end();
    return test_summary(backend ? "collective over MPI" : "collective by the environment");
}

int main(int argc, char **argv)
{
    static const char *const backends[] = {"threads", "shm", "tcp", "mixed"};
    const char              *only       = argc > 1 ? argv[1] : NULL;

    if (only && !strcmp(only, "mpi"))
        return run_under_launcher("mpi", false);
    if (only && !strcmp(only, "env"))
        return run_under_launcher(NULL, argc > 2 && !strcmp(argv[2], "thin"));
    for (int b = 0; b < 4; b++) {
        const char *backend = backends[b];
        if (only && strcmp(only, backend))
            continue;
        for (int n = b == 3 ? 2 : 1; n <= 5; n++) {
            for (int a = 0; a < LS_RING; a++)
                if (ls_algorithm_fits((ls_algorithm)a, n)) {
                    run(backend, n, (ls_algorithm)a, groups, "groups", false);
                    run(backend, n, (ls_algorithm)a, everything, "operations",
                        n >= 4 || a == LS_AUTO);
                }
            if (n > 1)
                run(backend, n, LS_AUTO, pairs, "send and recv", false);
            run(backend, n, LS_AUTO, queued, "queue", false);
            run(backend, n, LS_AUTO, explained, "explain", false);
        }
        for (int a = 0; a <= LS_HALVING && !SLOW; a += LS_HALVING)
            run(backend, 8, (ls_algorithm)a, everything, "operations", true);
        run(backend, 4, LS_AUTO, crossed, "crossed groups", false);
    }
    return test_summary("collective");
}

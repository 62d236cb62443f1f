/*
 * test_comm_values.c - the values that sums and comparisons stumble over, through every way.
 *
 * One vector holds all cases side by side: element (s, b, r) is special value s on rank r and
 * base value b on the others.  What must come out is worked out here, by plain recursion over
 * the canonical tree; where it is a NaN, any NaN of the dtype is right for sum, avg and prod,
 * and the one quiet NaN of combine.h for min and max.
 */
#include "ranks.h"

#include <float.h>
#include <stdlib.h>

#define QUIET UINT32_C(0x7fc00000)
#define SIGNALING UINT32_C(0x7fa00000)
#define NEGATIVE UINT32_C(0xffc12000)

static const uint32_t special[] = {
    QUIET,      SIGNALING,  NEGATIVE,   0x7f800000, 0xff800000, /* NaNs, infinities */
    0x00000000, 0x80000000,                                     /* zeros */
    0x00010000, 0x80010000, 0x007f0000, 0x807f0000,             /* denormals, of bf16 too */
    0x00800000, 0x7f7f0000, 0xff7f0000, 0x3f800000, 0xbf810000, /* the ends, and ones */
};

static const uint32_t base[] = {0x3fc00000, 0xc0400000, 0x00000000, 0x80000000, 0x00020000,
                                0x7f800000, 0xff800000, 0x7f000000, 0x00800000};

enum {
    SPECIALS = sizeof special / sizeof *special,
    BASES    = sizeof base / sizeof *base,
    MOST_N   = 8,
    MOST     = SPECIALS * BASES * MOST_N
};

static float from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t given(int rank, int i, int n)
{
    return i % n == rank ? special[i / n % SPECIALS] : base[i / n / SPECIALS];
}

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000;
}

static bool has_nan(int n, int i)
{
    bool any = false;

    for (int r = 0; r < n; r++)
        any = any || is_nan(given(r, i, n));
    return any;
}

/* ---- what must come out ---- */

/* -0 is below +0: by sign and magnitude. */
static bool below(uint32_t a, uint32_t b)
{
    int64_t x = a >> 31 ? -(int64_t)(a & 0x7fffffff) - 1 : (int64_t)a;
    int64_t y = b >> 31 ? -(int64_t)(b & 0x7fffffff) - 1 : (int64_t)b;

    return x < y;
}

static uint32_t extreme(int n, int i, bool least)
{
    uint32_t best = given(0, i, n);

    for (int r = 1; r < n; r++) {
        uint32_t x = given(r, i, n);
        if (least ? below(x, best) : below(best, x))
            best = x;
    }
    return has_nan(n, i) ? QUIET : best;
}

static float tree(int first, int size, int n, int i, ls_reduce_op op)
{
    int half = 1;

    if (size == 1)
        return from_bits(given(first, i, n));
    while (2 * half < size)
        half *= 2;
    float a = tree(first, half, n, i, op), b = tree(first + half, size - half, n, i, op);
    return op == LS_PROD ? a * b : a + b;
}

static uint32_t expected(int n, int i, ls_reduce_op op)
{
    if (op == LS_MIN || op == LS_MAX)
        return extreme(n, i, op == LS_MIN);
    float x = tree(0, n, n, i, op);
    return bits_of(op == LS_AVG ? x / (float)n : x);
}

/* ---- one vector ---- */

typedef struct {
    ls_algorithm algorithm;
} scene;

typedef struct {
    ls_dtype     dtype;
    ls_reduce_op op;
    int          n, count;
    bool         ring;
} one;

static void put(const one *o, char *to, int i, uint32_t bits)
{
    uint16_t b = (uint16_t)(bits >> 16);

    if (o->dtype == LS_BF16)
        memcpy(to + 2 * i, &b, sizeof b);
    else
        memcpy(to + 4 * i, &bits, sizeof bits);
}

/* As float bits, also of bf16. */
static uint32_t get(const one *o, const char *from, int i)
{
    uint32_t bits = 0;
    uint16_t b    = 0;

    if (o->dtype == LS_F32) {
        memcpy(&bits, from + 4 * i, sizeof bits);
        return bits;
    }
    memcpy(&b, from + 2 * i, sizeof b);
    return (uint32_t)b << 16;
}

static bool is_right(const one *o, int i, uint32_t got)
{
    uint32_t want    = expected(o->n, i, o->op);
    bool     ordered = o->op == LS_MIN || o->op == LS_MAX;

    if (o->dtype == LS_BF16 && !is_nan(want))
        want = (uint32_t)ls_bf16_from_f32(from_bits(want)) << 16;
    if (ordered || !is_nan(want))
        /* the ring's order is another: only that no NaN is lost or made up */
        return got == want || (!ordered && o->ring && o->n > 2 && !has_nan(o->n, i));
    return is_nan(got) || (o->ring && !has_nan(o->n, i));
}

static void compare(const one *o, const char *got, int first, int n, const char *what)
{
    int shown = 0;

    for (int i = 0; i < n; i++) {
        uint32_t x = get(o, got, i);
        if (is_right(o, first + i, x))
            continue;
        if (shown++ == 0)
            printf("     %s, %s, %s of %d ranks, element %d: got %08x, want %08x\n", what,
                   ls_dtype_name(o->dtype), ls_reduce_op_name(o->op), o->n, first + i, x,
                   expected(o->n, first + i, o->op));
    }
    CHECK(!shown);
}

static void run_one(ls_comm *world, const one *o)
{
    static _Thread_local char in[4 * MOST], out[4 * MOST];
    int                       r = ls_comm_rank(world), each = o->count / o->n;

    for (int i = 0; i < o->count; i++)
        put(o, in, i, given(r, i, o->n));
    CHECK_OK(ls_comm_all_reduce(world, out, in, o->count, o->dtype, o->op));
    compare(o, out, 0, o->count, "all_reduce");
    CHECK_OK(ls_comm_reduce_scatter(world, out, in, each, o->dtype, o->op));
    compare(o, out, r * each, each, "reduce_scatter");
    CHECK_OK(ls_comm_reduce(world, out, in, o->count, o->dtype, o->op, o->n - 1));
    if (r == o->n - 1)
        compare(o, out, 0, o->count, "reduce");
}

static void special_values(ls_comm *world, void *context)
{
    const scene *s = context;
    int          n = ls_comm_size(world);

    for (int d = 0; d < 2; d++)
        for (int op = 0; op < LS_REDUCE_OP_COUNT; op++)
            run_one(world, &(one){.dtype = (ls_dtype)d,
                                  .op    = (ls_reduce_op)op,
                                  .n     = n,
                                  .count = SPECIALS * BASES * n,
                                  .ring  = s->algorithm == LS_RING});
}

/* ---- bf16: one rounding of a float sum ---- */

/* 1 and what is less than half a unit of bf16: adding in bf16 would lose all of it. */
static float tiny(int rank, int i)
{
    return rank == i % 8 ? 1.0f : ldexpf((float)(1 + (rank * 5 + i) % 3), -10 - i % 3);
}

static void rounded_once(ls_comm *world, void *context)
{
    enum { COUNT = 999 };
    int      n = ls_comm_size(world), r = ls_comm_rank(world);
    uint16_t x[COUNT], y[COUNT];

    (void)context;
    for (int i = 0; i < COUNT; i++)
        x[i] = ls_bf16_from_f32(tiny(r, i));
    CHECK_OK(ls_comm_all_reduce(world, y, x, COUNT, LS_BF16, LS_SUM));
    int more = 0;
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int p = 0; p < n; p++)
            sum += (double)ls_bf16_to_f32(ls_bf16_from_f32(tiny(p, i)));
        if (fabs(ls_bf16_to_f32(y[i]) - sum) > 0x1p-8) { /* half a unit between 1 and 2 */
            CHECK_CLOSE(ls_bf16_to_f32(y[i]), sum, 0x1p-8);
            break;
        }
        more += ls_bf16_to_f32(y[i]) > 1.0f;
    }
    CHECK(more > COUNT / 2);
}

/* ---- */

static void run(const char *backend, int n, ls_algorithm algorithm, ranks_body body,
                const char *what)
{
    char       name[120];
    scene      s    = {algorithm};
    ranks_opts opts = {
        .backend = backend, .n = n, .algorithm = algorithm, .fast = algorithm == LS_RING};

    snprintf(name, sizeof name, "%s, %s, %d ranks, %s", what, backend, n,
             ls_algorithm_name(algorithm));
    TEST_ROW(name);
    CHECK(ranks_run(&opts, body, &s) == 0);
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "shm";

    for (int n = 2; n <= 5; n++)
        for (int a = 0; a < LS_ALGORITHM_COUNT; a++)
            if (ls_algorithm_fits((ls_algorithm)a, n))
                run(backend, n, (ls_algorithm)a, special_values, "special values");
    for (int a = 0; a < LS_ALGORITHM_COUNT; a++)
        run(backend, 8, (ls_algorithm)a, rounded_once, "bf16 is rounded once");
    return test_summary("comm_values");
}

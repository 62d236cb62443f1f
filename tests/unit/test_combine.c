/*
 * test_combine.c - the kernel of the collectives against a tree written element by element.
 *
 * Every op, dtype, number of inputs and outputs, length, in place and not, at addresses that no
 * type would like.  Prints a hash of all result bits, which every instruction set must share.
 */
#include "core/kernels/combine.h"

#include <stdlib.h>

#include "test.h"

enum { MOST_IN = 100, MOST_OUT = 9, MOST_COUNT = 5000, GUARD = 64, WIDEST = 8 };
enum { ARRAY_BYTES = MOST_COUNT * WIDEST + 2 * GUARD + 8 };

typedef union {
    float   f;
    int64_t i;
} value;

typedef struct {
    char *memory; /* [ARRAY_BYTES]; the array starts GUARD + shift bytes behind */
    int   shift;
} array;

typedef struct {
    array   in[MOST_IN], out[MOST_OUT];
    uint8_t want[MOST_COUNT * WIDEST];
} arrays;

static uint64_t all_bits = 14695981039346656037u;

static uint64_t random_bits(void)
{
    static uint64_t state = 1;
    uint64_t        x     = state += 0x9e3779b97f4a7c15u;
    x                     = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x                     = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void hash(const void *data, size_t bytes)
{
    const uint8_t *d = data;
    for (size_t i = 0; i < bytes; i++)
        all_bits = (all_bits ^ d[i]) * 1099511628211u;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Ordinary numbers of very different sizes, and what rounding and comparing find hard. */
static float random_float(void)
{
    static const uint32_t hard[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                    0x807fffff, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000};
    uint64_t              r      = random_bits();
    if (r % 256 == 0)
        return r & 256 ? INFINITY : -INFINITY;
    if (r % 8 == 1)
        return float_of(hard[(r >> 32) % (sizeof hard / sizeof *hard)]);
    return ldexpf((float)((int)(r >> 32 & 0xffffff) - 0x800000), (int)(r >> 58) - 40);
}

static char *base(const array *a)
{
    return a->memory + GUARD + a->shift;
}

static value get(const void *p, ls_dtype dtype, int64_t i)
{
    const char *at = (const char *)p + i * (int64_t)ls_dtype_bytes(dtype);
    value       v  = {.i = 0};
    uint16_t    bf16;
    int32_t     i32;

    if (dtype == LS_F32)
        memcpy(&v.f, at, 4);
    else if (dtype == LS_BF16)
        memcpy(&bf16, at, 2), v.f = ls_bf16_to_f32(bf16);
    else if (dtype == LS_I32)
        memcpy(&i32, at, 4), v.i = i32;
    else if (dtype == LS_I64)
        memcpy(&v.i, at, 8);
    else
        v.i = *(const uint8_t *)at;
    return v;
}

static void put(void *p, ls_dtype dtype, int64_t i, value v)
{
    char    *at = (char *)p + i * (int64_t)ls_dtype_bytes(dtype);
    uint16_t bf16;
    uint8_t  u8  = (uint8_t)v.i;
    int32_t  i32 = (int32_t)(uint32_t)(uint64_t)v.i;

    if (dtype == LS_F32)
        memcpy(at, &v.f, 4);
    else if (dtype == LS_BF16)
        bf16 = ls_bf16_from_f32(v.f), memcpy(at, &bf16, 2);
    else if (dtype == LS_I32)
        memcpy(at, &i32, 4);
    else if (dtype == LS_I64)
        memcpy(at, &v.i, 8);
    else
        memcpy(at, &u8, 1);
}

static bool is_float(ls_dtype dtype)
{
    return dtype == LS_F32 || dtype == LS_BF16;
}

static float extreme(bool min, float a, float b)
{
    if (isnan(a) || isnan(b))
        return float_of(0x7fc00000);
    if (a == b && a == 0)
        return (signbit(a) || signbit(b)) == min ? (signbit(a) ? a : b) : (signbit(a) ? b : a);
    return (a < b) == min ? a : b;
}

static value join(ls_reduce_op op, ls_dtype dtype, value a, value b)
{
    value    v;
    uint64_t x = (uint64_t)a.i, y = (uint64_t)b.i;

    if (is_float(dtype)) {
        v.i = 0;
        v.f = op == LS_MIN || op == LS_MAX ? extreme(op == LS_MIN, a.f, b.f)
              : op == LS_PROD              ? a.f * b.f
                                           : a.f + b.f;
        return v;
    }
    v.i = op == LS_MIN    ? (a.i < b.i ? a.i : b.i)
          : op == LS_MAX  ? (a.i > b.i ? a.i : b.i)
          : op == LS_PROD ? (int64_t)(x * y)
                          : (int64_t)(x + y);
    if (dtype == LS_I32)
        v.i = (int32_t)(uint32_t)(uint64_t)v.i;
    if (dtype == LS_U8)
        v.i = (uint8_t)v.i;
    return v;
}

static value tree(const ls_combine *c, int first, int n, int64_t i)
{
    int left = 1;

    if (n == 1)
        return get(c->in[first], c->from, i);
    while (2 * left < n)
        left *= 2;
    value a = tree(c, first, left, i);
    return join(c->op, c->from, a, tree(c, first + left, n - left, i));
}

static void expect(const ls_combine *c, void *want)
{
    for (int64_t i = 0; i < c->count; i++) {
        value v = tree(c, 0, c->n_in, i);
        if (c->op == LS_AVG)
            v.f /= (float)(c->divisor ? c->divisor : c->n_in);
        if (is_float(c->from) && (c->op == LS_MIN || c->op == LS_MAX) && isnan(v.f))
            v.f = float_of(0x7fc00000);
        put(want, c->to, i, v);
    }
}

/* Which of two NaNs a sum passes on is the processor's choice; all else is bits. */
static bool same(const ls_combine *c, const void *got, const void *want, int64_t i)
{
    size_t size = ls_dtype_bytes(c->to);

    if (!memcmp((const char *)got + (size_t)i * size, (const char *)want + (size_t)i * size,
                size))
        return true;
    return is_float(c->to) && c->op != LS_MIN && c->op != LS_MAX &&
           isnan(get(got, c->to, i).f) && isnan(get(want, c->to, i).f);
}

static bool guards_hold(const array *a, size_t bytes)
{
    const char *end = base(a) + bytes;

    for (int i = 0; i < GUARD; i++)
        if (base(a)[i - GUARD] != 0x5a || end[i] != 0x5a)
            return false;
    return true;
}

static void fill(const ls_combine *c)
{
    for (int k = 0; k < c->n_in; k++)
        for (int64_t i = 0; i < c->count; i++) {
            uint64_t r = random_bits();
            value    v = {.i = (int64_t)r >> (random_bits() & 63)};
            if (is_float(c->from))
                v.f = random_float();
            put((void *)c->in[k], c->from, i, v);
        }
}

static void check_result(const ls_combine *c, const arrays *a)
{
    size_t bytes = (size_t)c->count * ls_dtype_bytes(c->to);
    bool   ok    = true;

    for (int k = 0; k < c->n_out; k++)
        for (int64_t i = 0; i < c->count; i++)
            ok = ok && same(c, c->out[k], a->want, i);
    if (!CHECK(ok))
        printf("     %s %s -> %s, n_in %d, n_out %d, count %lld\n", ls_reduce_op_name(c->op),
               ls_dtype_name(c->from), ls_dtype_name(c->to), c->n_in, c->n_out,
               (long long)c->count);
    for (int k = 0; k < c->n_out && c->count; k++)
        hash(c->out[k], bytes);
}

/* One row: shift moves every array to another address; in place the first outputs are inputs.
 */
static void check_one(arrays *a, ls_combine c, int shift, bool in_place)
{
    const void *in[MOST_IN];
    void       *out[MOST_OUT];
    size_t      bytes    = (size_t)c.count * ls_dtype_bytes(c.to);
    bool        unharmed = true;

    for (int k = 0; k < c.n_in; k++) {
        a->in[k].shift = shift ? (shift + 3 * k) % 8 : 0;
        memset(a->in[k].memory, 0x5a, ARRAY_BYTES);
        in[k] = base(&a->in[k]);
    }
    for (int k = 0; k < c.n_out; k++) {
        a->out[k].shift = shift ? (shift + 5 * k) % 8 : 0;
        memset(a->out[k].memory, 0x5a, ARRAY_BYTES);
        out[k] = in_place && k < c.n_in ? base(&a->in[k]) : base(&a->out[k]);
    }
    c.in  = in;
    c.out = out;
    fill(&c);
    expect(&c, a->want);
    ls_k_combine(&c);
    check_result(&c, a);
    for (int k = 0; k < c.n_out; k++)
        if (out[k] == base(&a->out[k]))
            unharmed = unharmed && guards_hold(&a->out[k], bytes);
    for (int k = 0; k < c.n_in; k++)
        unharmed = unharmed && guards_hold(&a->in[k], (size_t)c.count * ls_dtype_bytes(c.from));
    CHECK(unharmed);
}

static const struct {
    const char *name;
    ls_dtype    from, to;
} dtypes[] = {
    {"F32", LS_F32, LS_F32},
    {"BF16", LS_BF16, LS_BF16},
    {"I32", LS_I32, LS_I32},
    {"I64", LS_I64, LS_I64},
    {"U8", LS_U8, LS_U8},
    {"F32 -> BF16", LS_F32, LS_BF16},
    {"BF16 -> F32", LS_BF16, LS_F32},
};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static void check_both(arrays *a, const ls_combine *c)
{
    int shift = (int)(random_bits() % 8);

    check_one(a, *c, shift, false);
    if (c->from != LS_BF16 || c->to != LS_F32)
        check_one(a, *c, 8 - shift, true);
}

static void every_length(arrays *a, ls_combine c)
{
    static const int counts[] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 1000};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        c.count   = counts[i];
        c.divisor = c.op == LS_AVG && i % 2 ? 3 : 0;
        check_both(a, &c);
    }
}

static void every_row(arrays *a)
{
    for (int t = 0; t < DTYPES; t++)
        for (int op = 0; op < LS_REDUCE_OP_COUNT; op++) {
            if (op == LS_AVG && !is_float(dtypes[t].from))
                continue;
            TEST_ROW(dtypes[t].name);
            for (int n_in = 1; n_in <= 9; n_in++)
                for (int n_out = 1; n_out <= 4; n_out++)
                    every_length(a, (ls_combine){.op    = (ls_reduce_op)op,
                                                 .from  = dtypes[t].from,
                                                 .to    = dtypes[t].to,
                                                 .n_in  = n_in,
                                                 .n_out = n_out});
        }
}

/* Many blocks, many inputs, many outputs: a few of each. */
static void large_rows(arrays *a)
{
    static const int rows[][3] = {{3, 2, MOST_COUNT}, {8, 8, 1000}, {8, 9, 1000},
                                  {16, 1, 700},       {17, 2, 700}, {31, 1, 300},
                                  {64, 4, 300},       {100, 1, 300}};

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int t = 0; t < DTYPES; t++) {
            TEST_ROW("large");
            ls_combine c = {.op    = r % 2 && is_float(dtypes[t].from) ? LS_AVG : LS_SUM,
                            .from  = dtypes[t].from,
                            .to    = dtypes[t].to,
                            .n_in  = rows[r][0],
                            .n_out = rows[r][1],
                            .count = rows[r][2]};
            check_both(a, &c);
            c.op = LS_MIN;
            check_both(a, &c);
        }
}

/* Joins n floats (or their bf16) that are `rest` but for input k, in all elements of 40. */
static void join_floats(ls_reduce_op op, ls_dtype dtype, int n, int k, float rest, float odd,
                        void *got)
{
    enum { COUNT = 40 };
    uint8_t     data[9][COUNT * 4], result[COUNT * 4];
    const void *in[9];
    void       *out[] = {result};
    size_t      size  = ls_dtype_bytes(dtype);

    for (int j = 0; j < n; j++) {
        in[j] = data[j];
        for (int64_t i = 0; i < COUNT; i++)
            put(data[j], dtype, i, (value){.f = j == k ? odd : rest});
    }
    ls_k_combine(&(ls_combine){.op    = op,
                               .from  = dtype,
                               .to    = dtype,
                               .n_in  = n,
                               .n_out = 1,
                               .in    = in,
                               .out   = out,
                               .count = COUNT});
    bool equal = true;
    for (size_t i = 1; i < COUNT; i++)
        equal = equal && !memcmp(result, result + i * size, size);
    CHECK(equal); /* vector bodies and tails agree */
    memcpy(got, result, size);
}

static void nan_anywhere(void)
{
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xffbfffff, 0x7fffffff};
    uint32_t              f32;
    uint16_t              bf16;

    for (size_t x = 0; x < sizeof nans / sizeof *nans; x++)
        for (int n = 1; n <= 9; n++)
            for (int k = 0; k < n; k++)
                for (int op = 0; op < LS_REDUCE_OP_COUNT; op++) {
                    bool exact = op == LS_MIN || op == LS_MAX;
                    TEST_ROW(ls_reduce_op_name((ls_reduce_op)op));
                    join_floats((ls_reduce_op)op, LS_F32, n, k, -INFINITY, float_of(nans[x]),
                                &f32);
                    CHECK(exact ? f32 == 0x7fc00000 : isnan(float_of(f32)));
                    join_floats((ls_reduce_op)op, LS_BF16, n, k, 1, float_of(nans[x]), &bf16);
                    CHECK(exact ? bf16 == 0x7fc0 : isnan(ls_bf16_to_f32(bf16)));
                }
}

static float joined(ls_reduce_op op, int n, int k, float rest, float odd)
{
    float got;
    join_floats(op, LS_F32, n, k, rest, odd, &got);
    return got;
}

static void zeros_and_infinities(void)
{
    TEST_ROW("zeros and infinities");
    for (int n = 2; n <= 9; n++)
        for (int k = 0; k < n; k++) {
            CHECK(bits_of(joined(LS_MIN, n, k, 0.f, -0.f)) == 0x80000000);
            CHECK(bits_of(joined(LS_MIN, n, k, 1.f, -0.f)) == 0x80000000);
            CHECK(bits_of(joined(LS_MAX, n, k, -0.f, 0.f)) == 0);
            CHECK(bits_of(joined(LS_SUM, n, k, -0.f, 0.f)) == 0);
            CHECK(joined(LS_MIN, n, k, 1.f, -INFINITY) == -INFINITY);
            CHECK(joined(LS_MAX, n, k, 1.f, INFINITY) == INFINITY);
            CHECK(joined(LS_MIN, n, k, INFINITY, 5.f) == 5.f);
            CHECK(joined(LS_MAX, n, k, -INFINITY, -5.f) == -5.f);
            CHECK(isnan(joined(LS_SUM, n, k, INFINITY, -INFINITY)));
        }
    for (int n = 1; n <= 9; n++)
        CHECK(bits_of(joined(LS_SUM, n, 0, -0.f, -0.f)) == 0x80000000);
    CHECK(bits_of(joined(LS_SUM, 2, 0, float_of(1), float_of(2))) == 3); /* not flushed to 0 */
}

static void bf16_rounding(void)
{
    uint16_t got;

    TEST_ROW("bf16: one rounding");
    join_floats(LS_SUM, LS_BF16, 2, 0, ls_bf16_to_f32(0x7f7f), ls_bf16_to_f32(0x7f7f), &got);
    CHECK(got == 0x7f80); /* overflow to Inf */
    join_floats(LS_SUM, LS_BF16, 8, 0, 0x1p-8f, 1, &got);
    CHECK(ls_bf16_to_f32(got) == 1 + 0x1p-5f); /* 1 + 7/256; step by step it would stay 1 */
    join_floats(LS_SUM, LS_BF16, 2, 0, 0x1p-8f, 1, &got);
    CHECK(ls_bf16_to_f32(got) == 1); /* a tie goes to the even one */
    join_floats(LS_AVG, LS_BF16, 3, 0, 1, 1, &got);
    CHECK(ls_bf16_to_f32(got) == 1);
}

/* Eight bf16 near 1 have an exact f32 sum, so the result is that of one rounding in double. */
static void bf16_sums(void)
{
    enum { COUNT = 1000, N = 8 };
    static uint16_t data[N][COUNT], result[COUNT];
    const void     *in[N];
    void           *out[]  = {result};
    int             differ = 0;

    TEST_ROW("bf16: exact sums");
    for (int k = 0; k < N; k++) {
        in[k] = data[k];
        for (int i = 0; i < COUNT; i++)
            data[k][i] = (uint16_t)(0x3f80 + random_bits() % 128);
    }
    ls_k_combine(&(ls_combine){.op    = LS_SUM,
                               .from  = LS_BF16,
                               .to    = LS_BF16,
                               .n_in  = N,
                               .n_out = 1,
                               .in    = in,
                               .out   = out,
                               .count = COUNT});
    for (int i = 0; i < COUNT; i++) {
        double   exact = 0;
        uint16_t steps = data[0][i];
        for (int k = 0; k < N; k++)
            exact += (double)ls_bf16_to_f32(data[k][i]);
        for (int k = 1; k < N; k++)
            steps = ls_bf16_from_f32(ls_bf16_to_f32(steps) + ls_bf16_to_f32(data[k][i]));
        CHECK(result[i] == ls_bf16_from_f32((float)exact));
        differ += result[i] != steps;
    }
    CHECK(differ > COUNT / 10); /* or the row would show nothing */
}

static void convert(ls_dtype from, ls_dtype to, const void *x, void *y, int64_t count)
{
    ls_k_combine(&(ls_combine){.op    = LS_SUM,
                               .from  = from,
                               .to    = to,
                               .n_in  = 1,
                               .n_out = 1,
                               .in    = &x,
                               .out   = &y,
                               .count = count});
}

/* Floats of all sizes, NaNs among them, and every bf16. */
static void conversions(void)
{
    enum { COUNT = 1 << 16, STEP = 65521 };
    static uint32_t f32[COUNT];
    static uint16_t bf16[COUNT];
    bool            ok = true;

    TEST_ROW("conversions");
    for (uint32_t i = 0; i < COUNT; i++)
        f32[i] = i * STEP;
    convert(LS_F32, LS_BF16, f32, bf16, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        ok = ok && bf16[i] == ls_bf16_from_f32(float_of(f32[i]));
    CHECK(ok);
    for (uint32_t i = 0; i < COUNT; i++) /* ties and their neighbours */
        f32[i] = i << 16 | (i % 3 == 0 ? 0x8000u : i % 3 == 1 ? 0x8001u : 0x7fffu);
    convert(LS_F32, LS_BF16, f32, bf16, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        ok = ok && bf16[i] == ls_bf16_from_f32(float_of(f32[i]));
    CHECK(ok);
    for (uint32_t i = 0; i < COUNT; i++)
        bf16[i] = (uint16_t)i;
    convert(LS_BF16, LS_F32, bf16, f32, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        ok = ok && f32[i] == i << 16;
    CHECK(ok);
}

static int64_t joined_integers(ls_reduce_op op, ls_dtype dtype, int64_t a, int64_t b)
{
    uint8_t     data[2][8], result[8];
    const void *in[]  = {data[0], data[1]};
    void       *out[] = {result};

    put(data[0], dtype, 0, (value){.i = a});
    put(data[1], dtype, 0, (value){.i = b});
    ls_k_combine(&(ls_combine){.op    = op,
                               .from  = dtype,
                               .to    = dtype,
                               .n_in  = 2,
                               .n_out = 1,
                               .in    = in,
                               .out   = out,
                               .count = 1});
    return get(result, dtype, 0).i;
}

static void integers(void)
{
    TEST_ROW("integers wrap around");
    CHECK(joined_integers(LS_SUM, LS_I32, INT32_MAX, 1) == INT32_MIN);
    CHECK(joined_integers(LS_PROD, LS_I32, 65536, 65537) == 65536);
    CHECK(joined_integers(LS_SUM, LS_I64, INT64_MIN, -1) == INT64_MAX);
    CHECK(joined_integers(LS_PROD, LS_I64, INT64_MAX, 2) == -2);
    CHECK(joined_integers(LS_SUM, LS_U8, 200, 100) == 44);
    CHECK(joined_integers(LS_PROD, LS_U8, 16, 17) == 16);
    CHECK(joined_integers(LS_MAX, LS_U8, 200, 100) == 200);
    CHECK(joined_integers(LS_MIN, LS_I32, -1, 1) == -1);
    CHECK(joined_integers(LS_MAX, LS_I64, INT64_MIN, INT64_MAX) == INT64_MAX);
}

static bool allocate(arrays *a)
{
    bool ok = true;

    for (int k = 0; k < MOST_IN; k++)
        ok = (a->in[k].memory = malloc(ARRAY_BYTES)) && ok;
    for (int k = 0; k < MOST_OUT; k++)
        ok = (a->out[k].memory = malloc(ARRAY_BYTES)) && ok;
    return ok;
}

int main(void)
{
    static arrays a;

    if (CHECK(allocate(&a))) {
        every_row(&a);
        large_rows(&a);
    }
    for (int k = 0; k < MOST_IN; k++)
        free(a.in[k].memory);
    for (int k = 0; k < MOST_OUT; k++)
        free(a.out[k].memory);
    nan_anywhere();
    zeros_and_infinities();
    bf16_rounding();
    bf16_sums();
    conversions();
    integers();
    printf("bits %016llx\n", (unsigned long long)all_bits);
    return test_summary("combine");
}

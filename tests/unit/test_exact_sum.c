/*
 * test_exact_sum.c - hard cases in every order, random sums against a plain big integer.
 */
#include <float.h>
#include <string.h>

#include "core/exact_sum.h"
#include "test.h"

enum { MOST = 6 };

static const struct {
    const char *name;
    int         n;
    double      x[MOST];
    double      want;
} rows[] = {
    {"nothing", 0, {0}, 0},
    {"one", 1, {1}, 1},
    {"one lost in 1e100", 3, {1e100, 1, -1e100}, 1},
    {"1e16 + 1 + 1", 3, {1e16, 1, 1}, 1e16 + 2},
    {"tie to even, down", 2, {1, 0x1p-53}, 1},
    {"tie to even, up", 2, {1 + 0x1p-52, 0x1p-53}, 1 + 0x1p-51},
    {"a trifle breaks the tie", 3, {1, 0x1p-53, DBL_TRUE_MIN}, 1 + 0x1p-52},
    {"a trifle breaks it downwards", 3, {1 + 0x1p-52, 0x1p-53, -DBL_TRUE_MIN}, 1 + 0x1p-52},
    {"tie below a power of two", 2, {1, -0x1p-54}, 1},
    {"negative tie", 2, {-1, -0x1p-53}, -1},
    {"tenths", 3, {0.1, 0.2, -0.3}, 0x1p-55},
    {"overflow in between", 3, {DBL_MAX, DBL_MAX, -DBL_MAX}, DBL_MAX},
    {"overflow", 2, {DBL_MAX, DBL_MAX}, INFINITY},
    {"overflow below", 2, {-DBL_MAX, -DBL_MAX}, -INFINITY},
    {"half an ulp too much", 2, {DBL_MAX, 0x1p970}, INFINITY},
    {"a little less", 3, {DBL_MAX, 0x1p970, -1}, DBL_MAX},
    {"denormals", 3, {DBL_TRUE_MIN, DBL_TRUE_MIN, DBL_TRUE_MIN}, 3 * DBL_TRUE_MIN},
    {"denormals become normal", 2, {DBL_MIN / 2, DBL_MIN / 2}, DBL_MIN},
    {"normal becomes denormal", 2, {DBL_MIN, -DBL_TRUE_MIN}, DBL_MIN - DBL_TRUE_MIN},
    {"nothing left", 4, {1e300, -1e300, 1e-300, -1e-300}, 0},
    {"the smallest is left", 5, {1e300, 1, DBL_TRUE_MIN, -1, -1e300}, DBL_TRUE_MIN},
    {"and below zero", 5, {1e300, 1, -DBL_TRUE_MIN, -1, -1e300}, -DBL_TRUE_MIN},
    {"-0 alone is +0", 2, {-0.0, -0.0}, 0},
    {"inf", 3, {1, INFINITY, 2}, INFINITY},
    {"-inf beats overflow", 3, {DBL_MAX, DBL_MAX, -INFINITY}, -INFINITY},
    {"inf - inf", 3, {INFINITY, 1, -INFINITY}, NAN},
    {"NaN", 3, {NAN, INFINITY, 1}, NAN},
};

static bool same_bits(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* Every order, by one accumulator and by two that are merged after `cut` values. */
static void check_order(const double *x, int n, double want)
{
    for (int cut = 0; cut <= n; cut++) {
        ls_exact_sum a, b;
        ls_exact_sum_init(&a);
        ls_exact_sum_init(&b);
        for (int i = 0; i < n; i++)
            ls_exact_sum_add(i < cut ? &a : &b, x[i]);
        ls_exact_sum_merge(&a, &b);
        double got = ls_exact_sum_round(&a);
        if (!CHECK(same_bits(got, want)))
            printf("     got %a, want %a\n", got, want);
    }
}

static void permute(double *x, int fixed, int n, double want)
{
    if (fixed >= n)
        check_order(x, n, want);
    for (int i = fixed; i < n; i++) {
        double t = x[fixed];
        x[fixed] = x[i];
        x[i]     = t;
        permute(x, fixed + 1, n, want);
        x[i]     = x[fixed];
        x[fixed] = t;
    }
}

static void test_rows(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double x[MOST];
        TEST_ROW(rows[i].name);
        memcpy(x, rows[i].x, sizeof x);
        permute(x, 0, rows[i].n, rows[i].want);
    }
}

/*
 * The reference: one bit an element, schoolbook addition, no cleverness shared with the code
 * under test.  Two magnitudes, of what is above and of what is below zero.
 */
enum { BITS = 2200 };
typedef struct {
    unsigned char bit[BITS];
} big;

static void big_add(big *b, double x)
{
    int      e;
    uint64_t f  = (uint64_t)ldexp(frexp(fabs(x), &e), 53);
    int      at = e - 53 + 1074, carry = 0;

    for (; at < 0; at++)
        f >>= 1; /* zeros only: denormals have fewer bits */
    for (int i = at; i < BITS && (f || carry); i++, f >>= 1) {
        int sum   = b->bit[i] + (int)(f & 1) + carry;
        b->bit[i] = sum & 1;
        carry     = sum >> 1;
    }
}

static int big_compare(const big *a, const big *b)
{
    for (int i = BITS - 1; i >= 0; i--)
        if (a->bit[i] != b->bit[i])
            return a->bit[i] - b->bit[i];
    return 0;
}

static void big_subtract(big *a, const big *b)
{
    int borrow = 0;
    for (int i = 0; i < BITS; i++) {
        int d     = a->bit[i] - b->bit[i] - borrow;
        a->bit[i] = d & 1;
        borrow    = d < 0;
    }
}

static double big_round(const big *b)
{
    int    high = BITS - 1, rest = 0;
    double f = 0;

    while (high >= 0 && !b->bit[high])
        high--;
    int low = high > 52 ? high - 52 : 0;
    for (int i = high; i >= low; i--)
        f = 2 * f + b->bit[i];
    for (int i = 0; i < low - 1; i++)
        rest |= b->bit[i];
    if (low && b->bit[low - 1] && (rest || b->bit[low]))
        f += 1;
    return ldexp(f, low - 1074);
}

static double reference(const double *x, int n)
{
    static big plus, minus;

    memset(&plus, 0, sizeof plus);
    memset(&minus, 0, sizeof minus);
    for (int i = 0; i < n; i++)
        big_add(x[i] < 0 ? &minus : &plus, x[i]);
    if (big_compare(&plus, &minus) >= 0) {
        big_subtract(&plus, &minus);
        return big_round(&plus);
    }
    big_subtract(&minus, &plus);
    return -big_round(&minus);
}

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Exponents within `spread` of each other, half of the values nearly cancel another. */
static double random_value(uint64_t *seed, int spread, int base)
{
    double f = (double)(int64_t)(next(seed) >> 11) * 0x1p-53 + 0.5;
    return ldexp(next(seed) & 1 ? -f : f, base + (int)(next(seed) % (uint64_t)spread));
}

static void test_random(void)
{
    enum { N = 200 };
    static const struct {
        const char *name;
        int         spread, base;
    } kinds[]     = {{"narrow", 4, 0},
                     {"wide", 200, -100},
                     {"whole range", 2040, -1060},
                     {"denormal", 30, -1074},
                     {"near overflow", 20, 1000}};
    uint64_t seed = 88172645463325252u;

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        TEST_ROW(kinds[k].name);
        for (int trial = 0; trial < 60; trial++) {
            double       x[N];
            ls_exact_sum s;
            ls_exact_sum_init(&s);
            for (int i = 0; i < N; i++) {
                x[i] = random_value(&seed, kinds[k].spread, kinds[k].base);
                if (i > 0 && next(&seed) & 1)
                    x[i] = -x[i - 1];
                ls_exact_sum_add(&s, x[i]);
            }
            CHECK(same_bits(ls_exact_sum_round(&s), reference(x, N)));
        }
    }
}

/* What an all_reduce of the words would do. */
static void test_words(void)
{
    enum { RANKS = 5, EACH = 400 };
    ls_exact_sum whole, total = {{0}, 0, 0, 0, 0};
    uint64_t     seed = 1234567;

    TEST_ROW("words summed over ranks");
    ls_exact_sum_init(&whole);
    for (int r = 0; r < RANKS; r++) {
        ls_exact_sum part;
        int64_t      from[LS_EXACT_WORDS], to[LS_EXACT_WORDS];
        ls_exact_sum_init(&part);
        for (int i = 0; i < EACH; i++) {
            double x = random_value(&seed, 80, -40);
            ls_exact_sum_add(&part, x);
            ls_exact_sum_add(&whole, x);
        }
        ls_exact_sum_carry(&part);
        memcpy(from, &part, sizeof part);
        memcpy(to, &total, sizeof total);
        for (int i = 0; i < LS_EXACT_WORDS; i++)
            to[i] += from[i];
        memcpy(&total, to, sizeof total);
    }
    CHECK(same_bits(ls_exact_sum_round(&total), ls_exact_sum_round(&whole)));
}

/* Doubling by merging reaches counts that no loop of additions could. */
static void test_many(void)
{
    ls_exact_sum s;

    TEST_ROW("2^40 times DBL_MAX and back");
    ls_exact_sum_init(&s);
    ls_exact_sum_add(&s, DBL_MAX);
    for (int i = 0; i < 40; i++)
        ls_exact_sum_merge(&s, &s);
    CHECK(ls_exact_sum_round(&s) == INFINITY);
    ls_exact_sum minus;
    ls_exact_sum_init(&minus);
    ls_exact_sum_add(&minus, -DBL_MAX);
    for (int i = 0; i < 40; i++)
        ls_exact_sum_merge(&minus, &minus);
    ls_exact_sum_add(&s, 1.5);
    ls_exact_sum_merge(&s, &minus);
    CHECK(ls_exact_sum_round(&s) == 1.5);
}

int main(void)
{
    test_rows();
    test_random();
    test_words();
    test_many();
    return test_summary("exact_sum");
}

/*
 * test_gemm_bf16.c - products of bf16: values, both kernels, bits against threads and places.
 *
 * The bound is that of gemm_bf16.h, element by element against long double sums of the same
 * rounded inputs; so the two kernels lie within twice the bound of each other.
 */
#include <stdlib.h>

#include "core/alloc.h"
#include "core/kernels/bf16.h"
#include "core/kernels/gemm_bf16.h"
#include "core/thread.h"
#include "test.h"

#ifdef LS_REAL_F64
#define EPS 0x1p-53L
#else
#define EPS 0x1p-24L
#endif

enum { SIDE = 600, ROOM = SIDE * SIDE };

static uint16_t *a, *b, *bias;
static ls_real  *c, *c_before, *c_again;

static uint32_t next(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

static void fill(uint16_t *x, uint32_t seed)
{
    for (int64_t i = 0; i < ROOM; i++)
        x[i] = ls_bf16_round((float)((int)(next(&seed) >> 8) - (1 << 23)) * 0x1p-23f);
}

static void fill_reals(ls_real *x, uint32_t seed)
{
    for (int64_t i = 0; i < ROOM; i++)
        x[i] = (ls_real)((int)(next(&seed) >> 8) - (1 << 23)) * (ls_real)0x1p-23;
}

static long double at(const uint16_t *x, bool transpose, int64_t ld, int64_t i, int64_t j)
{
    return (long double)ls_bf16_widen(transpose ? x[j * ld + i] : x[i * ld + j]);
}

static bool element_is_close(const ls_gemm_bf16_args *g, int64_t i, int64_t j)
{
    long double sum = 0, size = 0;
    long double old  = g->add ? (long double)c_before[i * g->ldc + j] : 0;
    long double rest = g->bias ? (long double)ls_bf16_widen(g->bias[j]) : old;

    for (int64_t p = 0; p < g->k; p++) {
        long double x =
            at(g->a, g->transpose_a, g->lda, i, p) * at(g->b, g->transpose_b, g->ldb, p, j);
        sum += x;
        size += fabsl(x);
    }
    sum += rest;
    size += fabsl(rest);
    long double got = g->round ? (long double)ls_bf16_widen(((uint16_t *)g->c)[i * g->ldc + j])
                               : (long double)((ls_real *)g->c)[i * g->ldc + j];
    long double bound = (long double)(g->k + 2) * (EPS * size + 0x1p-125L);
    if (g->round)
        bound = bound * (1 + 0x1p-8L) + fabsl(sum) * 0x1p-8L;
    return fabsl(got - sum) <= bound;
}

/* A sample of about 400 elements, corners and edges among them. */
static void check_product(const ls_gemm_bf16_args *g)
{
    int64_t step_i = g->m > 20 ? g->m / 19 : 1, step_j = g->n > 20 ? g->n / 19 : 1;
    bool    fine = true;

    for (int64_t i = 0; i < g->m; i += step_i)
        for (int64_t j = 0; j < g->n; j += step_j)
            fine &=
                element_is_close(g, i, j) && element_is_close(g, g->m - 1 - i, g->n - 1 - j);
    CHECK(fine);
}

/* What lies beyond a row's end stays as it was. */
static void check_gaps(const ls_gemm_bf16_args *g)
{
    size_t size = g->round ? sizeof(uint16_t) : sizeof(ls_real);
    bool   fine = true;

    for (int64_t i = 0; i < g->m; i++) {
        size_t from = (size_t)(i * g->ldc + g->n) * size;
        fine &= !memcmp((char *)g->c + from, (char *)c_before + from,
                        (size_t)(g->ldc - g->n) * size);
    }
    CHECK(fine);
}

static void run(void (*product)(const ls_gemm_bf16_args *), const ls_gemm_bf16_args *g)
{
    memcpy(c, c_before, ROOM * sizeof *c);
    product(g);
    CHECK_OK(ls_gemm_bf16_check());
    check_product(g);
    check_gaps(g);
}

static const int shapes[][3] = {{1, 1, 1},      {1, 33, 17},    {129, 1, 65},  {3, 5, 0},
                                {65, 129, 33},  {257, 513, 7},  {64, 128, 40}, {256, 512, 31},
                                {500, 70, 129}, {37, 590, 257}, {0, 4, 4},     {300, 300, 300},
                                {2, 2, 590},    {16, 16, 16},   {1, 64, 64},   {64, 1, 64},
                                {64, 64, 1},    {31, 47, 513}};

/* What happens to c: written, joined, with a bias; rounded, with a bias. */
enum { WRITE, ADD, BIAS, ROUND, BOTH, WAYS };

static ls_gemm_bf16_args product_of(const int *d, int transposes, int way, int pad)
{
    bool ta = transposes & 1, tb = transposes & 2;

    return (ls_gemm_bf16_args){.transpose_a = ta,
                               .transpose_b = tb,
                               .m           = d[0],
                               .n           = d[1],
                               .k           = d[2],
                               .a           = a,
                               .lda         = (ta ? d[0] : d[2]) + pad,
                               .b           = b,
                               .ldb         = (tb ? d[2] : d[1]) + pad,
                               .bias        = way == BIAS || way == BOTH ? bias : NULL,
                               .add         = way == ADD,
                               .round       = way == ROUND || way == BOTH,
                               .c           = c,
                               .ldc         = d[1] + pad};
}

static void test_shapes(void)
{
    static char name[64];

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int v = 0; v < 4 * WAYS; v++) {
            const int        *d = shapes[s];
            ls_gemm_bf16_args g = product_of(d, v % 4, v / 4, v % 3);
            snprintf(name, sizeof name, "%d x %d x %d, transposes %d, way %d", d[0], d[1], d[2],
                     v % 4, v / 4);
            TEST_ROW(name);
            run(ls_gemm_bf16, &g);
            run(ls_gemm_bf16_tile, &g);
            run(ls_gemm_bf16_tile_widened, &g);
        }
}

/* What was not written is a NaN: without `add` it does not count. */
static void test_nan_is_overwritten(void)
{
    static const int d[] = {9, 11, 5};

    TEST_ROW("without add c is only written");
    for (int way = 0; way < WAYS; way++) {
        ls_gemm_bf16_args g = product_of(d, 2, way, 0);
        if (way == ADD)
            continue;
        for (int i = 0; i < 99; i++)
            c[i] = (ls_real)NAN;
        ls_gemm_bf16(&g);
        check_product(&g);
    }
}

static void test_nan_goes_through(void)
{
    static const int  d[]  = {40, 40, 40};
    ls_gemm_bf16_args g    = product_of(d, 0, WRITE, 0);
    uint16_t          keep = a[40 * 7 + 3];
    int               nans = 0;

    TEST_ROW("a NaN makes its row NaN, and no other");
    a[40 * 7 + 3] = 0x7fc0;
    ls_gemm_bf16(&g);
    a[40 * 7 + 3] = keep;
    for (int i = 0; i < 1600; i++)
        nans += isnan((double)c[i]) ? i / 40 == 7 ? 1 : 1000 : 0;
    CHECK(nans == 40);
}

/* Bits of 1, 2 and 3 threads, and of operands at other addresses. */
static void test_bits_stay(void)
{
    TEST_ROW("bits of 1, 2 and 3 threads, at other addresses");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int v = 0; v < 4 * WAYS; v++) {
            ls_gemm_bf16_args g = product_of(shapes[s], v % 4, v / 4, 1);
            g.c                 = c_again;
            memcpy(c_again, c_before, ROOM * sizeof *c);
            ls_gemm_bf16(&g);
            g.c = c;
            for (int threads = 2; threads <= 3; threads++) {
                ls_pool *pool = ls_pool_new(threads);
                ls_pool_use(pool);
                memcpy(c, c_before, ROOM * sizeof *c);
                memmove(b + 1, b, (ROOM - 1) * sizeof *b);
                g.b = b + 1;
                ls_gemm_bf16(&g);
                memmove(b, b + 1, (ROOM - 1) * sizeof *b);
                g.b = b;
                ls_pool_free(pool);
                CHECK_BITS(c, c_again, ROOM * sizeof *c);
            }
        }
}

/* More shapes than a thread keeps prepared. */
static void test_many_shapes(void)
{
    TEST_ROW("1,200 shapes");
    for (int i = 1; i <= 1200; i++) {
        int               d[] = {1 + i % 40, 1 + i / 40, 3};
        ls_gemm_bf16_args g   = product_of(d, i % 4, WRITE, 0);
        run(ls_gemm_bf16_tile, &g);
    }
}

static void test_no_memory(void)
{
    static const int  d[] = {33, 20, 50};
    ls_gemm_bf16_args g   = product_of(d, 0, ADD, 0);

    TEST_ROW("no memory for what a thread keeps");
    for (int n = 0; n < 3; n++)
        for (int w = 0; w < 2; w++) {
            ls_gemm_bf16_forget();
            memcpy(c, c_before, ROOM * sizeof *c);
            ls_alloc_fail_after(n);
            (w ? ls_gemm_bf16_tile_widened : ls_gemm_bf16_tile)(&g);
            ls_alloc_fail_after(-1);
            if (n == 0)
                CHECK_FAILS(ls_gemm_bf16_check(), LS_ENOMEM, "bf16 product");
            else if (ls_gemm_bf16_check())
                CHECK_BITS(c, c_before, ROOM * sizeof *c);
            else
                check_product(&g);
            CHECK_OK(ls_gemm_bf16_check());
            run(w ? ls_gemm_bf16_tile_widened : ls_gemm_bf16_tile, &g);
        }
}

static void test_describe(void)
{
    TEST_ROW("describe");
    CHECK(!strstr(ls_gemm_bf16_describe(), "wrong"));
    printf("%s\n", ls_gemm_bf16_describe());
}

int main(void)
{
    uint16_t **halves[] = {&a, &b, &bias};
    ls_real  **reals[]  = {&c, &c_before, &c_again};
    for (uint32_t i = 0; i < 3; i++) {
        *halves[i] = malloc(ROOM * sizeof **halves[i]);
        *reals[i]  = malloc(ROOM * sizeof **reals[i]);
        if (!*halves[i] || !*reals[i])
            return 1;
        fill(*halves[i], i + 1);
        fill_reals(*reals[i], i + 4);
    }
    test_describe();
    test_shapes();
    test_nan_is_overwritten();
    test_nan_goes_through();
    test_bits_stay();
    test_many_shapes();
    test_no_memory();
    ls_gemm_bf16_forget();
    for (int i = 0; i < 3; i++) {
        free(*halves[i]);
        free(*reals[i]);
    }
    return test_summary("gemm_bf16");
}

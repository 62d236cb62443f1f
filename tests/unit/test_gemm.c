/*
 * test_gemm.c - products of odd shapes against plain loops, and their bits against threads.
 *
 * The bound: each of k products and sums rounds once, in any order (Higham 2002, section 3.1),
 * so |c - exact| <= (k + 2) eps (|alpha| |a| |b| + |beta c|), element by element.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/kernels/gemm.h"
#include "core/thread.h"
#include "test.h"

enum { SIDE = 600 };

#ifdef LS_REAL_F64
static const double eps = 0x1p-53;
#else
static const double eps = 0x1p-24;
#endif

static ls_real *a, *b, *c, *c_before, *c_again;
enum { ROOM = SIDE * SIDE };

static void fill(ls_real *x, uint32_t seed)
{
    for (int64_t i = 0; i < ROOM; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (ls_real)((int)(seed >> 8) - (1 << 23)) * (ls_real)0x1p-23;
    }
}

static double at(const ls_real *x, bool transpose, int64_t ld, int64_t i, int64_t j)
{
    return (double)(transpose ? x[j * ld + i] : x[i * ld + j]);
}

/* Long double sums are exact enough to be the truth for either type. */
static bool element_is_close(const ls_gemm_args *g, int64_t i, int64_t j)
{
    long double sum = 0, size = 0;

    for (int64_t p = 0; p < g->k; p++) {
        long double x = at(g->a, g->transpose_a, g->lda, i, p);
        x *= at(g->b, g->transpose_b, g->ldb, p, j);
        sum += x;
        size += fabsl(x);
    }
    long double old = g->beta == 0 ? 0 : (long double)g->beta * c_before[i * g->ldc + j];
    long double got = g->c[i * g->ldc + j];
    return fabsl(got - (g->alpha * sum + old)) <=
           (long double)((double)(g->k + 2) * eps) * (fabsl(g->alpha) * size + fabsl(old));
}

/* Checks a sample of about 400 elements, corners and edges among them. */
static void check_product(const ls_gemm_args *g)
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
static void check_gaps(const ls_gemm_args *g)
{
    bool fine = true;

    for (int64_t i = 0; i < g->m; i++)
        fine &= !memcmp(g->c + i * g->ldc + g->n, c_before + i * g->ldc + g->n,
                        (size_t)(g->ldc - g->n) * sizeof *g->c);
    CHECK(fine);
}

static void run(void (*product)(const ls_gemm_args *), const ls_gemm_args *g)
{
    memcpy(c, c_before, ROOM * sizeof *c);
    product(g);
    check_product(g);
    check_gaps(g);
}

static const int shapes[][3] = {{1, 1, 1},      {1, 33, 17},    {129, 1, 65},  {3, 5, 0},
                                {65, 129, 33},  {257, 513, 7},  {64, 128, 40}, {256, 512, 31},
                                {500, 70, 129}, {37, 590, 257}, {0, 4, 4},     {300, 300, 300}};

static void test_shapes(void)
{
    static const ls_real factors[][2] = {{1, 0}, {1, 1}, {(ls_real)-0.5, 2}};

    TEST_ROW("shapes, transposes, factors");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int v = 0; v < 12; v++) {
            const int   *d  = shapes[s];
            bool         ta = v & 1, tb = v & 2;
            int          pad = v % 3; /* rows longer than the matrix is wide */
            ls_gemm_args g   = {ta,
                                tb,
                                d[0],
                                d[1],
                                d[2],
                                factors[v / 4][0],
                                a,
                                (ta ? d[0] : d[2]) + pad,
                                b,
                                (tb ? d[2] : d[1]) + pad,
                                factors[v / 4][1],
                                c,
                                d[1] + pad};
            g.lda += !g.lda;
            g.ldb += !g.ldb;
            run(ls_gemm, &g);
            if (d[0])
                run(ls_gemm_tile, &g);
        }
}

static void test_nan_is_overwritten(void)
{
    TEST_ROW("beta 0 only writes");
    ls_gemm_args g = {.m     = 9,
                      .n     = 11,
                      .k     = 5,
                      .alpha = 1,
                      .a     = a,
                      .lda   = 5,
                      .b     = b,
                      .ldb   = 11,
                      .c     = c,
                      .ldc   = 11};
    for (int i = 0; i < 99; i++)
        c[i] = (ls_real)NAN;
    ls_gemm(&g);
    check_product(&g);
}

static void test_threads(void)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int v = 0; v < 4; v++) {
            const int   *d  = shapes[s];
            bool         ta = v & 1, tb = v & 2;
            ls_gemm_args g = {ta,   tb,
                              d[0], d[1],
                              d[2], 1,
                              a,    (ta ? d[0] : d[2]) + 1,
                              b,    (tb ? d[2] : d[1]) + 1,
                              1,    c_again,
                              d[1]};
            TEST_ROW("bits of 1, 2 and 3 threads");
            memcpy(c_again, c_before, ROOM * sizeof *c);
            ls_gemm(&g);
            g.c = c;
            for (int threads = 2; threads <= 3; threads++) {
                ls_pool *pool = ls_pool_new(threads);
                ls_pool_use(pool);
                memcpy(c, c_before, ROOM * sizeof *c);
                ls_gemm(&g);
                ls_pool_free(pool);
                CHECK_BITS(c, c_again, ROOM * sizeof *c);
            }
        }
}

static void test_batch(void)
{
    static const int counts[] = {1, 2, 7};

    TEST_ROW("batch");
    for (int v = 0; v < 12; v++) {
        int          count = counts[v / 4];
        bool         ta = v & 1, tb = v & 2;
        ls_gemm_args g = {ta, tb, 33, 17, 9, 1, a, ta ? 33 : 9, b, tb ? 9 : 17, 1, c, 17};
        memcpy(c, c_before, ROOM * sizeof *c);
        memcpy(c_again, c_before, ROOM * sizeof *c);
        ls_pool *pool = ls_pool_new(v % 3 + 1);
        ls_pool_use(pool);
        ls_gemm_batch(&g, count, 301, 0, 700);
        ls_pool_free(pool);
        for (int i = 0; i < count; i++) {
            ls_gemm_args one = g;
            one.a += i * 301;
            one.c = c_again + i * 700;
            ls_gemm(&one);
        }
        CHECK_BITS(c, c_again, ROOM * sizeof *c);
    }
}

static void test_self(void)
{
    TEST_ROW("self-test");
    ls_blas_init();
    CHECK_OK(ls_blas_self_test());
    CHECK(strstr(ls_blas_describe(), "OpenBLAS") &&
          strstr(ls_blas_describe(), "1 thread a call"));
}

int main(void)
{
    ls_real **arrays[] = {&a, &b, &c, &c_before, &c_again};
    for (int i = 0; i < 5; i++) {
        *arrays[i] = malloc(ROOM * sizeof **arrays[i]);
        if (!*arrays[i])
            return 1;
        fill(*arrays[i], (uint32_t)i + 1);
    }
    test_self();
    test_shapes();
    test_nan_is_overwritten();
    test_threads();
    test_batch();
    for (int i = 0; i < 5; i++)
        free(*arrays[i]);
    return test_summary("gemm");
}

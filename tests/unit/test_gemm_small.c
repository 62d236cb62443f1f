/*
 * test_gemm_small.c - small products against the chains that they promise, to the bit.
 *
 * Every element is fmaf over k in order from 0, chunk by chunk (Note [chunks] in gemm_small.c),
 * each chunk added to c by one fmaf with alpha.  Blocks of rows, columns and panels show in no
 * bit, and what lies beside c stays as it was.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernels/gemm_small.h"
#include "test.h"

enum { ROOM = 100 * 1000, CHUNK = 320 };

static float a[ROOM], b[ROOM], c[ROOM], want[ROOM], before[ROOM];

static void fill(float *x, uint32_t seed)
{
    for (int64_t i = 0; i < ROOM; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((int)(seed >> 8) - (1 << 23)) * 0x1p-23f;
    }
}

static float at(const float *x, bool transpose, int64_t ld, int64_t i, int64_t j)
{
    return transpose ? x[j * ld + i] : x[i * ld + j];
}

static float element(const ls_gemm_args *g, int64_t i, int64_t j)
{
    float   y = g->beta == 0 ? 0 : g->beta * before[i * g->ldc + j];
    int64_t k = 0;

    do {
        int64_t left = g->k - k, end = g->k;
        float   sum = 0;
        if (left >= 2 * CHUNK)
            end = k + CHUNK;
        else if (left > CHUNK)
            end = k + (left / 2 + 15) / 16 * 16;
        for (; k < end; k++)
            sum = fmaf(at(g->a, g->transpose_a, g->lda, i, k),
                       at(g->b, g->transpose_b, g->ldb, k, j), sum);
        y = fmaf(g->alpha, sum, y);
    } while (k < g->k);
    return y;
}

static void check_product(const ls_gemm_args *g)
{
    memcpy(c, before, sizeof c);
    memcpy(want, before, sizeof c);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            want[i * g->ldc + j] = element(g, i, j);
    ls__gemm_small(g);
    CHECK_BITS(c, want, sizeof c);
}

static void test_chains(void)
{
    static const int   shapes[][3]  = {{1, 16, 1},   {12, 32, 16}, {23, 48, 17},   {64, 64, 32},
                                       {40, 80, 0},  {7, 32, 320}, {13, 16, 321},  {27, 48, 650},
                                       {3, 64, 639}, {2, 96, 961}, {100, 112, 100}};
    static const float factors[][2] = {{1, 0}, {1, 1}, {-0.25f, 2}, {0.1767767f, 0}};

    TEST_ROW("chains of fused multiply-adds");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int v = 0; v < 16; v++) {
            const int *d  = shapes[s];
            bool       ta = v & 1, tb = v & 2;
            int        pad = v % 3; /* rows longer than the matrix is wide */
            check_product(&(ls_gemm_args){.transpose_a = ta,
                                          .transpose_b = tb,
                                          .m           = d[0],
                                          .n           = d[1],
                                          .k           = d[2],
                                          .alpha       = factors[v / 4][0],
                                          .a           = a,
                                          .lda         = (ta ? d[0] : d[2]) + pad,
                                          .b           = b,
                                          .ldb         = (tb ? d[2] : d[1]) + pad,
                                          .beta        = factors[v / 4][1],
                                          .c           = c,
                                          .ldc         = d[1] + pad});
        }
}

static void test_where_it_pays(void)
{
    ls_gemm_args g = {.transpose_b = true, .m = 192, .n = 128, .k = 128};

    TEST_ROW("sizes that gain");
    CHECK(ls__gemm_small_pays(&g));
    g.n = 120;
    CHECK(!ls__gemm_small_pays(&g)); /* no vectors */
    g.n = 4096;
    CHECK(!ls__gemm_small_pays(&g)); /* packing is lost in the work */
    g.m = g.n = 32;
    CHECK(!ls__gemm_small_pays(&g)); /* BLAS adds in another order */
    g = (ls_gemm_args){.m = 64, .n = 32, .k = 64};
    CHECK(!ls__gemm_small_pays(&g)); /* BLAS does not pack it either */
}

static bool processor_has_it(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}

int main(void)
{
    if (!processor_has_it()) {
        printf("skipped: this processor has no AVX-512\n");
        return 77;
    }
    fill(a, 1);
    fill(b, 2);
    fill(before, 3);
    test_chains();
    test_where_it_pays();
    return test_summary("gemm_small");
}

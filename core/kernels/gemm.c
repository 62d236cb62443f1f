/*
 * gemm.c - the grid, and cblas.
 */
#define _DEFAULT_SOURCE /* mmap of no file */
#include "core/kernels/gemm.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "core/kernels/gemm_grid.h"
#include "core/kernels/gemm_small.h"
#include "core/thread.h"

#ifdef LS_REAL_F64
#define CBLAS_GEMM cblas_dgemm
#define CBLAS_GEMV cblas_dgemv
#else
#define CBLAS_GEMM cblas_sgemm
#define CBLAS_GEMV cblas_sgemv
#endif

/*
 * Note [the grid]
 * A tile packs its own parts of a and b, so large tiles waste less; but there must be enough of
 * them for the threads, of one size.  Tiles are bands of rows as far as that goes: two threads
 * that write neighbouring columns of the same rows hinder each other (768 x 512 x 128 on two
 * threads: 272 GF/s in columns, 440 in rows), so tiles also follow each other down the rows.
 * M and N alone decide, so that any number of threads gives the same bits.
 */
enum {
    LARGEST_M = 512, /* of a tile, about */
    LARGEST_N = 2048,
    SMALLEST  = 48, /* no side is halved below */
    ENOUGH    = 4,  /* tiles from which on two threads are busy */
    MULTIPLE  = 16  /* of a side: a vector of the widest kernel */
};

typedef struct {
    const ls_gemm_args *g;
    ls_gemm_grid        grid;
} job;

/* BLAS wants at least 1, also of a matrix without elements. */
static blasint leading(int64_t n)
{
    return n > 0 ? (blasint)n : 1;
}

/*
 * One row times a transposed matrix reads each weight once: a gemm would copy them first (2048
 * x 512: 14 GB/s instead of 5).  Zeros are laid under the sum, since a factor of 0 would keep a
 * NaN.
 */
static void row_product(const ls_gemm_args *g)
{
    if (g->beta == 0)
        memset(g->c, 0, (size_t)g->n * sizeof *g->c);
    CBLAS_GEMV(CblasRowMajor, CblasNoTrans, (blasint)g->n, (blasint)g->k, g->alpha, g->b,
               leading(g->ldb), g->a, 1, g->beta == 0 ? 1 : g->beta, g->c, 1);
}

/* Instruction sets of x86-64 that kernels differ by: 1 below AVX2, 2 AVX2, 3 AVX-512. */
static int kernel_level(const char *name)
{
    static const char *const wide[] = {"SkylakeX", "Cooperlake", "Sapphirerapids", "Zen4",
                                       "Zen5"};
    static const char *const avx2[] = {"Haswell", "Zen", "Excavator"};

    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (!strcasecmp(name, wide[i]))
            return 3;
    for (size_t i = 0; i < sizeof avx2 / sizeof *avx2; i++)
        if (!strcasecmp(name, avx2[i]))
            return 2;
    return 1;
}

static int processor_level(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
        return 3;
    if (__builtin_cpu_supports("avx2"))
        return 2;
#endif
    return 1;
}

/*
 * Our own kernel takes the place of a BLAS kernel for AVX-512 and of no other, so that
 * OPENBLAS_CORETYPE gives one processor the bits of another.
 */
static bool is_wide(void)
{
    static _Thread_local int known; /* 0: not asked yet */

    if (!known)
        known = kernel_level(openblas_get_corename()) == 3 && processor_level() == 3 ? 1 : -1;
    return known > 0;
}

void ls_gemm_tile(const ls_gemm_args *g)
{
    if (g->m == 1 && g->k > 0 && !g->transpose_a && g->transpose_b) {
        row_product(g);
        return;
    }
    if (ls__gemm_small_pays(g) && is_wide()) {
        ls__gemm_small(g);
        return;
    }
    CBLAS_GEMM(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans,
               g->transpose_b ? CblasTrans : CblasNoTrans, (blasint)g->m, (blasint)g->n,
               (blasint)g->k, g->alpha, g->a, leading(g->lda), g->b, leading(g->ldb), g->beta,
               g->c, leading(g->ldc));
}

static int64_t tiles(int64_t m, int64_t n, int64_t tile_m, int64_t tile_n)
{
    return ls_block_count(m, tile_m) * ls_block_count(n, tile_n);
}

/* The side of `parts` equal tiles along n, a multiple of MULTIPLE. */
static int64_t side(int64_t n, int64_t parts)
{
    int64_t even = ls_block_count(n, parts);
    return ls_block_count(even, MULTIPLE) * MULTIPLE;
}

/* Halves the bands of rows, then the columns, until there are enough tiles. */
ls_gemm_grid ls_gemm_grid_of(int64_t m, int64_t n)
{
    int64_t pm = ls_block_count(m, LARGEST_M), pn = ls_block_count(n, LARGEST_N);
    int64_t tm = side(m, pm), tn = side(n, pn);

    while (tiles(m, n, tm, tn) < ENOUGH && (tm >= 2 * SMALLEST || tn >= 2 * SMALLEST)) {
        if (tm >= 2 * SMALLEST)
            tm = side(m, pm *= 2);
        else
            tn = side(n, pn *= 2);
    }
    return (ls_gemm_grid){m, n, tm, tn, tiles(m, n, tm, tn)};
}

void ls_gemm_grid_tile(const ls_gemm_grid *g, int64_t index, ls_block *rows, ls_block *cols)
{
    int64_t down = ls_block_count(g->m, g->tile_m);

    *rows = ls_block_at(g->m, g->tile_m, index % down);
    *cols = ls_block_at(g->n, g->tile_n, index / down);
}

static void run_tile(void *context, int64_t index)
{
    const job   *j = context;
    ls_gemm_args g = *j->g;
    ls_block     rows, cols;

    ls_gemm_grid_tile(&j->grid, index, &rows, &cols);
    g.m = rows.end - rows.first;
    g.n = cols.end - cols.first;
    g.a += rows.first * (g.transpose_a ? 1 : g.lda);
    g.b += cols.first * (g.transpose_b ? g.ldb : 1);
    g.c += rows.first * g.ldc + cols.first;
    ls_gemm_tile(&g);
}

void ls_gemm(const ls_gemm_args *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    job j = {g, ls_gemm_grid_of(g->m, g->n)};
    ls_parallel(j.grid.tiles, run_tile, &j);
}

typedef struct {
    const ls_gemm_args *g;
    int64_t             step_a, step_b, step_c;
} batch;

static void run_one(void *context, int64_t index)
{
    const batch *b = context;
    ls_gemm_args g = *b->g;

    g.a += index * b->step_a;
    g.b += index * b->step_b;
    g.c += index * b->step_c;
    ls_gemm(&g);
}

void ls_gemm_batch(const ls_gemm_args *g, int64_t count, int64_t step_a, int64_t step_b,
                   int64_t step_c)
{
    batch b = {g, step_a, step_b, step_c};

    if (count == 1)
        run_one(&b, 0);
    else
        ls_parallel(count, run_one, &b);
}

void ls_blas_init(void)
{
    openblas_set_num_threads(1);
}

const char *ls_blas_describe(void)
{
    static _Thread_local char text[128];
    char                      version[64] = "OpenBLAS";

    sscanf(openblas_get_config(), "%63[^ ] %*s", version);
    const char *number = openblas_get_config();
    if (!strncmp(number, "OpenBLAS ", 9))
        sscanf(number + 9, "%63s", version);
    snprintf(text, sizeof text, "OpenBLAS %s, kernel %s, %d thread%s a call", version,
             openblas_get_corename(), openblas_get_num_threads(),
             openblas_get_num_threads() == 1 ? "" : "s");
    return text;
}

const char *ls_blas_held_back(void)
{
    static const char *const  names[] = {"", "SSE or AVX", "AVX2", "AVX-512"};
    static _Thread_local char text[256];
    const char *held = getenv("OPENBLAS_CORETYPE"), *kernel = openblas_get_corename();

    if (!held || kernel_level(kernel) >= processor_level())
        return NULL;
    snprintf(
        text, sizeof text,
        "OPENBLAS_CORETYPE=%s holds OpenBLAS to its %s kernel (%s); this processor has %s, so "
        "products could be faster without it",
        held, kernel, names[kernel_level(kernel)], names[processor_level()]);
    return text;
}

enum { TEST_SIDE = 160, TEST_SHAPES = 9 };

/* Small integers: every product is exact, so the comparison needs no tolerance. */
static void fill_integers(ls_real *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (ls_real)((int)(seed >> 24) % 9 - 4);
    }
}

static bool product_is_right(const ls_gemm_args *g, const ls_real *want_c)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            ls_real sum = g->beta * want_c[i * g->ldc + j];
            for (int64_t p = 0; p < g->k; p++)
                sum += g->a[g->transpose_a ? p * g->lda + i : i * g->lda + p] *
                       g->b[g->transpose_b ? j * g->ldb + p : p * g->ldb + j];
            if (!(sum == g->c[i * g->ldc + j]))
                return false;
        }
    return true;
}

static ls_status test_shapes(ls_real *a, ls_real *b, ls_real *c, ls_real *before)
{
    static const int shape[TEST_SHAPES][3] = {{1, 1, 1},    {1, 37, 19},   {33, 7, 65},
                                              {24, 64, 3},  {65, 33, 129}, {48, 96, 31},
                                              {127, 17, 9}, {5, 128, 66},  {96, 49, 80}};

    for (int s = 0; s < TEST_SHAPES * 4; s++) {
        const int   *d  = shape[s / 4];
        bool         ta = s & 1, tb = s & 2;
        ls_gemm_args g = {.transpose_a = ta,
                          .transpose_b = tb,
                          .m           = d[0],
                          .n           = d[1],
                          .k           = d[2],
                          .alpha       = 1,
                          .a           = a,
                          .lda         = ta ? d[0] : d[2],
                          .b           = b,
                          .ldb         = tb ? d[2] : d[1],
                          .beta        = s % 3 == 1,
                          .c           = c,
                          .ldc         = d[1]};
        fill_integers(before, g.m * g.n, (uint32_t)s);
        memcpy(c, before, (size_t)(g.m * g.n) * sizeof *c);
        ls_gemm_tile(&g);
        if (!product_is_right(&g, before))
            return ls_fail(
                LS_EINVAL,
                "%s computes wrong: product of (%d,%d) and (%d,%d)%s%s; set "
                "OPENBLAS_CORETYPE=Haswell (or Nehalem) in the environment, or install "
                "a newer OpenBLAS",
                ls_blas_describe(), d[0], d[2], d[2], d[1], ta ? ", a transposed" : "",
                tb ? ", b transposed" : "");
    }
    return LS_OK;
}

ls_status ls_blas_self_test(void)
{
    enum { N = TEST_SIDE * TEST_SIDE };
    ls_real *x = malloc(4 * N * sizeof *x);
    if (!x)
        return ls_fail(LS_ENOMEM, "BLAS self-test: %zu bytes asked for", 4 * N * sizeof *x);
    fill_integers(x, N, 1);
    fill_integers(x + N, N, 2);
    ls_status status = test_shapes(x, x + N, x + 2 * N, x + 3 * N);
    free(x);
    return status;
}

/*
 * Addresses for a thread that computes: OpenBLAS's buffer, 128 MiB in its largest build, and as
 * much again for the thread's stack and its arena of malloc.
 */
#define BLAS_ROOM_BYTES ((size_t)256 << 20)

ls_status ls_blas_room(int threads)
{
    size_t bytes = (size_t)threads * BLAS_ROOM_BYTES;
    void  *room =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (room == MAP_FAILED)
        return ls_fail(LS_ENOMEM,
                       "OpenBLAS wants %zu MiB of addresses for %d threads, which a limit "
                       "(ulimit -v) does not allow; fewer run.threads want less",
                       bytes >> 20, threads);
    munmap(room, bytes);
    return LS_OK;
}

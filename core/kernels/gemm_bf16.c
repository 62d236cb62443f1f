/*
 * gemm_bf16.c - the choice of a kernel, the grid, the widened kernel, what a thread keeps.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/kernels/bf16.h"
#include "core/kernels/gemm.h"
#include "core/kernels/gemm_bf16_impl.h"
#include "core/kernels/gemm_grid.h"

enum { ALIGNMENT = 64 };

/* One per process, like the processor that it describes. */
static struct {
    pthread_once_t once;
    bool           native; /* else widened */
    char           text[96];
    pthread_key_t  key; /* of each thread's ls__bf16_thread */
    bool           has_key;
    atomic_bool    lost; /* a tile was not computed */
} state = {.once = PTHREAD_ONCE_INIT};

static void release_thread(void *thread)
{
    ls__bf16_thread *t = thread;

    ls__bf16_native_forget(t);
    free(t->block);
    free(t);
}

/* ---- a library that computes wrong is not used ---- */

enum { TEST_SIDE = 72, TEST_GAP = 2, TEST_SHAPES = 4 };

typedef struct {
    uint16_t a[TEST_SIDE * TEST_SIDE], b[TEST_SIDE * TEST_SIDE], bias[TEST_SIDE];
    float    c[TEST_SIDE * TEST_SIDE];
} trial;

/* Small integers: every sum is exact, and most are so in bf16 as well. */
static void fill_integers(uint16_t *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ls_bf16_round((float)((int)(seed >> 24) % 5 - 2));
    }
}

static float element(const ls_gemm_bf16_args *g, int64_t i, int64_t j)
{
    float sum = g->add ? 1 : g->bias ? ls_bf16_widen(g->bias[j]) : 0;

    for (int64_t p = 0; p < g->k; p++)
        sum += ls_bf16_widen(g->a[g->transpose_a ? p * g->lda + i : i * g->lda + p]) *
               ls_bf16_widen(g->b[g->transpose_b ? j * g->ldb + p : p * g->ldb + j]);
    return sum;
}

static bool is_right(ls__bf16_thread *t, trial *x, const ls_gemm_bf16_args *g)
{
    for (int64_t i = 0; i < TEST_SIDE * TEST_SIDE; i++)
        x->c[i] = 1;
    bool fine = ls__bf16_native_tile(t, g);
    for (int64_t i = 0; i < g->m && fine; i++)
        for (int64_t j = 0; j < g->n; j++)
            fine &= g->round
                        ? ((uint16_t *)g->c)[i * g->ldc + j] == ls_bf16_round(element(g, i, j))
                        : x->c[i * g->ldc + j] == element(g, i, j);
    return fine;
}

/* Each shape with each transposition, rows with gaps, by turns joined, with a bias, rounded. */
static bool all_are_right(ls__bf16_thread *t, trial *x)
{
    static const int shape[TEST_SHAPES][3] = {
        {2, 3, 5}, {33, 7, 65}, {64, 64, 64}, {5, 70, 31}};
    bool fine = true;

    for (int s = 0; s < TEST_SHAPES * 4 && fine; s++) {
        const int *d  = shape[s / 4];
        bool       ta = s & 1, tb = s & 2;
        fine = is_right(t, x,
                        &(ls_gemm_bf16_args){.transpose_a = ta,
                                             .transpose_b = tb,
                                             .m           = d[0],
                                             .n           = d[1],
                                             .k           = d[2],
                                             .a           = x->a,
                                             .lda         = (ta ? d[0] : d[2]) + TEST_GAP,
                                             .b           = x->b,
                                             .ldb         = (tb ? d[2] : d[1]) + TEST_GAP,
                                             .bias        = s % 3 == 1 ? x->bias : NULL,
                                             .add         = s % 3 == 2,
                                             .round       = s % 3 != 2 && s / 4 % 2,
                                             .c           = x->c,
                                             .ldc         = d[1] + TEST_GAP});
    }
    return fine;
}

/* Without memory for a trial the kernel is taken at its word. */
static bool native_is_right(void)
{
    ls__bf16_thread *t    = ls__bf16_thread_get();
    trial           *x    = t ? ls_calloc(1, sizeof *x) : NULL;
    bool             fine = true;

    if (!x)
        return true;
    fill_integers(x->a, TEST_SIDE * TEST_SIDE, 1);
    fill_integers(x->b, TEST_SIDE * TEST_SIDE, 2);
    fill_integers(x->bias, TEST_SIDE, 3);
    fine = all_are_right(t, x);
    free(x);
    return fine;
}

static void choose(void)
{
    state.native = LS_REAL == LS_F32 && ls__bf16_native(state.text, sizeof state.text);
    if (LS_REAL != LS_F32)
        snprintf(state.text, sizeof state.text, "widened to f64");
    state.has_key = !pthread_key_create(&state.key, release_thread);
    ls_blas_init();
    if (state.native && !native_is_right()) {
        state.native = false;
        snprintf(state.text, sizeof state.text, "widened to f32 (oneDNN computes wrong here)");
    }
}

ls__bf16_thread *ls__bf16_thread_get(void)
{
    ls__bf16_thread *t = state.has_key ? pthread_getspecific(state.key) : NULL;

    if (t || !state.has_key)
        return t;
    t = ls_calloc(1, sizeof *t);
    if (t && pthread_setspecific(state.key, t)) {
        free(t);
        t = NULL;
    }
    return t;
}

void *ls__bf16_scratch(ls__bf16_thread *t, size_t bytes)
{
    if (bytes <= t->scratch_bytes)
        return t->scratch;
    void *block = ls_calloc(1, bytes + ALIGNMENT);
    if (!block)
        return NULL;
    free(t->block);
    t->block         = block;
    t->scratch       = (char *)block + (ALIGNMENT - (uintptr_t)block % ALIGNMENT);
    t->scratch_bytes = bytes;
    return t->scratch;
}

void ls_gemm_bf16_forget(void)
{
    ls__bf16_thread *t = state.has_key ? pthread_getspecific(state.key) : NULL;

    if (t && !pthread_setspecific(state.key, NULL))
        release_thread(t);
}

const char *ls_gemm_bf16_describe(void)
{
    pthread_once(&state.once, choose);
    return state.text;
}

ls_status ls_gemm_bf16_check(void)
{
    if (!atomic_load_explicit(&state.lost, memory_order_relaxed) ||
        !atomic_exchange(&state.lost, false))
        return LS_OK;
    return ls_fail(LS_ENOMEM, "the scratch of a bf16 product could not be had");
}

/* ---- widened: blocks small enough for the second-level cache ---- */

enum { BLOCK_M = 256, BLOCK_N = 512, BLOCK_K = 256 };

typedef struct {
    ls_real a[BLOCK_M * BLOCK_K], b[BLOCK_K * BLOCK_N], c[BLOCK_M * BLOCK_N];
} widened;

/* rows of n, `from_row` apart, to rows of n without gaps */
static void widen_rows(ls_real *to, const uint16_t *from, int64_t rows, int64_t n,
                       int64_t from_row)
{
    for (int64_t r = 0; r < rows; r++)
        ls_k_bf16_widen_here(to + r * n, from + r * from_row, n);
}

/* Elements first.. of a's dimension `d` (0: rows of op, 1: columns) lie this far in. */
static int64_t inside(bool transposed, int64_t ld, int64_t row, int64_t column)
{
    return transposed ? column * ld + row : row * ld + column;
}

/* Which part of a product. */
typedef struct {
    ls_block rows, cols, k;
} part;

/* c (rows ldc apart) += the product over columns k of op(a) and rows k of op(b) */
static void widened_part(const ls_gemm_bf16_args *g, const part *p, widened *w, ls_real *c,
                         int64_t ldc)
{
    ls_block     rows = p->rows, cols = p->cols, k = p->k;
    int64_t      m = rows.end - rows.first, n = cols.end - cols.first, depth = k.end - k.first;
    int64_t      across_a = g->transpose_a ? m : depth, across_b = g->transpose_b ? depth : n;
    ls_gemm_args real = {.transpose_a = g->transpose_a,
                         .transpose_b = g->transpose_b,
                         .m           = m,
                         .n           = n,
                         .k           = depth,
                         .alpha       = 1,
                         .a           = w->a,
                         .lda         = across_a,
                         .b           = w->b,
                         .ldb         = across_b,
                         .beta        = 1,
                         .c           = c,
                         .ldc         = ldc};

    widen_rows(w->a, g->a + inside(g->transpose_a, g->lda, rows.first, k.first),
               g->transpose_a ? depth : m, across_a, g->lda);
    widen_rows(w->b, g->b + inside(g->transpose_b, g->ldb, k.first, cols.first),
               g->transpose_b ? n : depth, across_b, g->ldb);
    ls_gemm_tile(&real);
}

static void fill_rows(const uint16_t *bias, int64_t m, int64_t n, ls_real *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * ldc + j] = bias ? ls_bf16_widen(bias[j]) : 0;
}

/* One block of c, summed in c itself or, where c is rounded, in w. */
static void widened_block(const ls_gemm_bf16_args *g, ls_block rows, ls_block cols, widened *w)
{
    int64_t   m = rows.end - rows.first, n = cols.end - cols.first;
    int64_t   at  = rows.first * g->ldc + cols.first;
    ls_real  *sum = g->round ? w->c : (ls_real *)g->c + at;
    int64_t   ld  = g->round ? n : g->ldc;
    uint16_t *out = g->round ? (uint16_t *)g->c + at : NULL;

    if (!g->add)
        fill_rows(g->bias ? g->bias + cols.first : NULL, m, n, sum, ld);
    for (int64_t i = 0; i < ls_block_count(g->k, BLOCK_K); i++)
        widened_part(g, &(part){rows, cols, ls_block_at(g->k, BLOCK_K, i)}, w, sum, ld);
    for (int64_t r = 0; out && r < m; r++)
        ls_k_bf16_round_here(out + r * g->ldc, sum + r * n, n);
}

static bool widened_tile(ls__bf16_thread *t, const ls_gemm_bf16_args *g)
{
    widened *w = ls__bf16_scratch(t, sizeof *w);

    for (int64_t i = 0; w && i < ls_block_count(g->m, BLOCK_M); i++)
        for (int64_t j = 0; j < ls_block_count(g->n, BLOCK_N); j++)
            widened_block(g, ls_block_at(g->m, BLOCK_M, i), ls_block_at(g->n, BLOCK_N, j), w);
    return w != NULL;
}

/* ---- tiles ---- */

static void run(const ls_gemm_bf16_args *g, bool native)
{
    ls__bf16_thread *t    = ls__bf16_thread_get();
    bool             fine = t && (native ? ls__bf16_native_tile(t, g) : widened_tile(t, g));

    if (!fine)
        atomic_store(&state.lost, true);
}

void ls_gemm_bf16_tile_widened(const ls_gemm_bf16_args *g)
{
    pthread_once(&state.once, choose);
    run(g, false);
}

/*
 * Vectors are widened: oneDNN 3.7 takes a matrix of one row or column to be without gaps, and a
 * product without terms in its sums is nothing to multiply.
 */
static bool is_for_native(const ls_gemm_bf16_args *g)
{
    return state.native && g->m > 1 && g->n > 1 && g->k > 1;
}

void ls_gemm_bf16_tile(const ls_gemm_bf16_args *g)
{
    pthread_once(&state.once, choose);
    run(g, is_for_native(g));
}

typedef struct {
    const ls_gemm_bf16_args *g;
    ls_gemm_grid             grid;
} job;

static void run_tile(void *context, int64_t index)
{
    const job        *j = context;
    ls_gemm_bf16_args g = *j->g;
    ls_block          rows, cols;

    ls_gemm_grid_tile(&j->grid, index, &rows, &cols);
    int64_t at = rows.first * g.ldc + cols.first;
    g.m        = rows.end - rows.first;
    g.n        = cols.end - cols.first;
    g.a += rows.first * (g.transpose_a ? 1 : g.lda);
    g.b += cols.first * (g.transpose_b ? g.ldb : 1);
    g.bias = g.bias ? g.bias + cols.first : NULL;
    g.c    = g.round ? (void *)((uint16_t *)g.c + at) : (void *)((ls_real *)g.c + at);
    ls_gemm_bf16_tile(&g);
}

void ls_gemm_bf16(const ls_gemm_bf16_args *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    job j = {g, ls_gemm_grid_of(g->m, g->n)};
    ls_parallel(j.grid.tiles, run_tile, &j);
}

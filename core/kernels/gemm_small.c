/*
 * gemm_small.c - twelve rows by two vectors of AVX-512 at a time.
 *
 * BLAS packs both operands of a product into panels before it multiplies.  That pays when each
 * packed element meets thousands of others; here it meets some hundreds, and packing took a
 * sixth of a small model's step.  So a is read where it lies, an element broadcast to a vector,
 * and b too, unless it is transposed: then 32 of its rows are turned into a panel on the stack.
 *
 *              32 columns of b, or the panel
 *                 k  | x0 x1 |
 *      a   k   +-------------+
 *     12 [   ] | 24 sums,    |   each k: 2 loads, 12 broadcasts, 24 fused multiply-adds
 *    rows      | in registers|
 *              +-------------+
 *
 * Note [chunks]
 * k is cut into chunks of at most CHUNK, of which each adds alpha times its sum to c: 32
 * columns of b over a chunk fit into the first cache.  Between one and two chunks are halved.
 * Cut so, the sums are those of OpenBLAS's AVX-512 kernels to the bit.
 */
#include "core/kernels/gemm_small.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(LS_REAL_F64)

#include <immintrin.h>

#include "core/kernels/clones.h"

enum { LANES = 16, ROWS = 12, VECTORS = 2, COLUMNS = VECTORS * LANES, CHUNK = 320 };

#define AVX512 __attribute__((target("avx512f")))
#define PART LS_INLINE AVX512

/* Rows of a `row` elements apart, its columns `k` apart; both operands begin with the chunk. */
typedef struct {
    int64_t      k;
    const float *a;
    int64_t      a_row, a_k;
    const float *b;
    int64_t      ldb;
    float        alpha, beta;
    float       *c;
    int64_t      ldc;
} part;

PART void finish(const part *p, int rows, int vectors, __m512 sum[ROWS][VECTORS])
{
    __m512 alpha = _mm512_set1_ps(p->alpha), beta = _mm512_set1_ps(p->beta);

#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            float *c   = p->c + i * p->ldc + j * LANES;
            __m512 old = _mm512_setzero_ps();
            if (p->beta != 0)
                old = _mm512_mul_ps(beta, _mm512_loadu_ps(c));
            _mm512_storeu_ps(c, _mm512_fmadd_ps(alpha, sum[i][j], old));
        }
}

PART void multiply(const part *p, int rows, int vectors)
{
    __m512 sum[ROWS][VECTORS];

#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < p->k; k++) {
        const float *a = p->a + k * p->a_k, *b = p->b + k * p->ldb;
        __m512       x0 = _mm512_loadu_ps(b);
        __m512       x1 = vectors > 1 ? _mm512_loadu_ps(b + LANES) : x0;
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            __m512 y  = _mm512_set1_ps(a[i * p->a_row]);
            sum[i][0] = _mm512_fmadd_ps(y, x0, sum[i][0]);
            if (vectors > 1)
                sum[i][1] = _mm512_fmadd_ps(y, x1, sum[i][1]);
        }
    }
    finish(p, rows, vectors, sum);
}

#define MULTIPLY(rows)                                    \
    AVX512 static void multiply_##rows(const part *p)     \
    {                                                     \
        multiply(p, rows, 2);                             \
    }                                                     \
    AVX512 static void multiply_##rows##_1(const part *p) \
    {                                                     \
        multiply(p, rows, 1);                             \
    }
MULTIPLY(12)
MULTIPLY(8)
MULTIPLY(4)
MULTIPLY(2)
MULTIPLY(1)

typedef struct {
    int rows;
    void (*multiply[VECTORS])(const part *p); /* one vector, two */
} block;

static const block blocks[] = {{12, {multiply_12_1, multiply_12}},
                               {8, {multiply_8_1, multiply_8}},
                               {4, {multiply_4_1, multiply_4}},
                               {2, {multiply_2_1, multiply_2}},
                               {1, {multiply_1_1, multiply_1}}};

/* All m rows of some columns: the largest blocks that still fit. */
static void multiply_rows(part p, int64_t m, int vectors)
{
    for (const block *with = blocks; m > 0; with++)
        for (; m >= with->rows; m -= with->rows) {
            with->multiply[vectors - 1](&p);
            p.a += with->rows * p.a_row;
            p.c += with->rows * p.ldc;
        }
}

/* Pairs of vectors `apart` rows from each other exchange the halves of their 2 apart lanes. */
PART void exchange(__m512 x[LANES], int apart, __m512i low, __m512i high)
{
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        if (!(i & apart)) {
            __m512 first = x[i];
            x[i]         = _mm512_permutex2var_ps(first, low, x[i + apart]);
            x[i + apart] = _mm512_permutex2var_ps(first, high, x[i + apart]);
        }
}

/* to(k,j) = from(j,k), 16 x 16; rows of `from` are `ld` apart, those of `to` COLUMNS */
AVX512 static void turn_square(float *to, const float *from, int64_t ld)
{
    __m512  x[LANES];
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        x[i] = _mm512_loadu_ps(from + i * ld);
#pragma GCC unroll 4
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        /* lanes whose bit `apart` is set come from the other vector, whose lanes count from 16
         */
        __mmask16 odd = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(apart));
        __m512i low = _mm512_mask_add_epi32(lane, odd, lane, _mm512_set1_epi32(LANES - apart));
        exchange(x, apart, low, _mm512_add_epi32(low, _mm512_set1_epi32(apart)));
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        _mm512_storeu_ps(to + i * COLUMNS, x[i]);
}

/* panel(k,j) = b(j,k): columns of the product beside each other */
static void turn(float *panel, const float *b, int64_t ldb, int64_t columns, int64_t k)
{
    for (int64_t j = 0; j < columns; j += LANES) {
        int64_t p = 0;
        for (; p + LANES <= k; p += LANES)
            turn_square(panel + p * COLUMNS + j, b + j * ldb + p, ldb);
        for (; p < k; p++)
            for (int64_t i = j; i < j + LANES; i++)
                panel[p * COLUMNS + i] = b[i * ldb + p];
    }
}

/* Note [chunks] */
static int64_t chunk_of(int64_t left)
{
    if (left >= 2 * CHUNK)
        return CHUNK;
    return left > CHUNK ? (left / 2 + LANES - 1) / LANES * LANES : left;
}

/* k0 ... k0 + k - 1 of all sums */
static void run_chunk(const ls_gemm_args *g, int64_t k0, int64_t k)
{
    _Alignas(64) float panel[CHUNK * COLUMNS];
    part               p = {.k = k, .alpha = g->alpha, .beta = k0 ? 1 : g->beta, .ldc = g->ldc};

    p.a     = g->a + k0 * (g->transpose_a ? g->lda : 1);
    p.a_row = g->transpose_a ? 1 : g->lda;
    p.a_k   = g->transpose_a ? g->lda : 1;
    p.b     = panel;
    p.ldb   = g->transpose_b ? COLUMNS : g->ldb;
    for (int64_t j = 0; j < g->n; j += COLUMNS) {
        int64_t columns = g->n - j < COLUMNS ? g->n - j : COLUMNS;
        if (g->transpose_b)
            turn(panel, g->b + j * g->ldb + k0, g->ldb, columns, k);
        else
            p.b = g->b + k0 * g->ldb + j;
        p.c = g->c + j;
        multiply_rows(p, g->m, (int)(columns / LANES));
    }
}

/*
 * Note [where it pays]
 * Measured on Zen 5 against OpenBLAS 0.3.21, over m, n, k from 16 to 1,536: packing is lost in
 * the work from some hundred columns on, and few k leave a loop too short for its sums.  Up to
 * 100^3 multiplications OpenBLAS packs nothing either, unless b is transposed and c is larger
 * than 1,200 elements; below that it adds in another order, so those stay its own.
 */
bool ls__gemm_small_pays(const ls_gemm_args *g)
{
    enum { FEW_ROWS = 32, MANY_COLUMNS = 512, UNPACKED = 100 * 100 * 100, UNPACKED_C = 1200 };

    if (g->n % LANES || g->n > MANY_COLUMNS || g->m < FEW_ROWS)
        return false;
    if (g->transpose_b)
        return (g->k >= 64 || g->n <= 64) && g->m * g->n > UNPACKED_C;
    return g->k >= 96 && g->m * g->n * g->k > UNPACKED;
}

void ls__gemm_small(const ls_gemm_args *g)
{
    int64_t done = 0;

    do {
        int64_t k = chunk_of(g->k - done);
        run_chunk(g, done, k);
        done += k;
    } while (done < g->k);
}

#else

bool ls__gemm_small_pays(const ls_gemm_args *g)
{
    (void)g;
    return false;
}

void ls__gemm_small(const ls_gemm_args *g)
{
    (void)g;
}

#endif

/*
 * gemm_bf16.h - matrix products of bf16, summed in float.
 *
 * The grid and the rules of gemm.h.  A tile is one single-threaded call of oneDNN where the
 * library was built with it and the processor multiplies bf16 (AVX512-BF16, AMX); elsewhere
 * the operands are widened block by block and BLAS multiplies them.  Which of the two is
 * chosen once, when the first product asks.  Bits belong to the kernel that
 * ls_gemm_bf16_describe() names: oneDNN's takes subnormals for zero and sums in its own order.
 *
 *     |c - exact| <= (k + 2) 2^-24 (|a| |b| + |bias| + |c before|) + k 2^-125,   and half a
 * unit in the last place of bf16 where c is rounded
 *
 * Scratch and prepared products belong to the thread, which keeps them until it ends.
 */
#ifndef LS_CORE_KERNELS_GEMM_BF16_H
#define LS_CORE_KERNELS_GEMM_BF16_H

#include "core/dtype.h"
#include "core/error.h"

typedef struct {
    bool            transpose_a; /* a is (k,m) instead of (m,k) */
    bool            transpose_b; /* b is (n,k) instead of (k,n) */
    int64_t         m, n, k;
    const uint16_t *a;
    int64_t         lda; /* distance of a's rows as stored, in elements */
    const uint16_t *b;
    int64_t         ldb;
    const uint16_t *bias;  /* (n), added to every row; NULL: none */
    bool            add;   /* joins what is in c; not with a bias, and not where c is rounded */
    bool            round; /* c is BF16, rounded once; else ls_real */
    void           *c;
    int64_t         ldc;
} ls_gemm_bf16_args;

/* c = op(a) op(b) + bias, or c += op(a) op(b); its tiles spread over the pool in use. */
void ls_gemm_bf16(const ls_gemm_bf16_args *g);

/* The same in one call on this thread, without a grid; for products that are tiles already. */
void ls_gemm_bf16_tile(const ls_gemm_bf16_args *g);

/* As ls_gemm_bf16_tile() is where nothing multiplies bf16: widened, and by BLAS. */
void ls_gemm_bf16_tile_widened(const ls_gemm_bf16_args *g);

/* "oneDNN 2.6.3, AVX512-BF16", or "widened to f32 (...)" with the reason. */
const char *ls_gemm_bf16_describe(void);

/*
 * A product whose scratch could not be had leaves its tile as it was and is remembered: ENOMEM,
 * once, from the next call on any thread.  The tape asks after each operator.
 */
LS_MUST_CHECK ls_status ls_gemm_bf16_check(void);

/* Releases what the calling thread keeps; a later product makes it anew. */
void ls_gemm_bf16_forget(void);

#endif

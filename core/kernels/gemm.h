/*
 * gemm.h - matrix products, the only door to BLAS.
 *
 * The output is cut into a grid that depends on M and N alone; each tile is one
 * single-threaded call over all of K.  So neither the number of threads nor their timing
 * changes a bit (architecture.md, rule 6 of the law).  Matrices are row-major.
 */
#ifndef LS_CORE_KERNELS_GEMM_H
#define LS_CORE_KERNELS_GEMM_H

#include "core/dtype.h"
#include "core/error.h"

typedef struct {
    bool           transpose_a; /* a is (k,m) instead of (m,k) */
    bool           transpose_b; /* b is (n,k) instead of (k,n) */
    int64_t        m, n, k;
    ls_real        alpha;
    const ls_real *a;
    int64_t        lda; /* distance of a's rows as stored, in elements */
    const ls_real *b;
    int64_t        ldb;
    ls_real        beta; /* 0: c is only written */
    ls_real       *c;
    int64_t        ldc;
} ls_gemm_args;

/* c = alpha op(a) op(b) + beta c, its tiles spread over the pool in use. */
void ls_gemm(const ls_gemm_args *g);

/* The same in one call on this thread, without a grid; for products that are tiles already. */
void ls_gemm_tile(const ls_gemm_args *g);

/* `count` products whose operands lie at fixed distances (in elements) from each other. */
void ls_gemm_batch(const ls_gemm_args *g, int64_t count, int64_t step_a, int64_t step_b,
                   int64_t step_c);

/* Holds BLAS to one thread a call.  Before the first product; cheap to repeat. */
void ls_blas_init(void);

/* "OpenBLAS 0.3.21, kernel Zen, 1 thread a call". */
const char *ls_blas_describe(void);

/*
 * Where OPENBLAS_CORETYPE in the environment holds BLAS to a kernel of an older instruction set
 * than the processor has: a text that says so; else NULL.
 */
const char *ls_blas_held_back(void);

/*
 * Products of odd shapes against plain loops, under 20 ms.  A BLAS that computes wrong
 * (known: old builds on newer processors) is refused: EINVAL, naming what to set.
 */
LS_MUST_CHECK ls_status ls_blas_self_test(void);

/*
 * Addresses are left for the buffers of so many threads.  Without them OpenBLAS would ask the
 * system again and again, for ever: ENOMEM.
 */
LS_MUST_CHECK ls_status ls_blas_room(int threads);

#endif

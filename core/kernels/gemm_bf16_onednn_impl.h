/*
 * gemm_bf16_onednn_impl.h - a product as oneDNN prepares it; the two interfaces behind one
 * call.
 *
 * gemm_bf16_onednn.c keeps prepared products and runs them; gemm_bf16_onednn2.c and
 * gemm_bf16_onednn3.c prepare one, with the descriptors of oneDNN 2 and 3.
 */
#ifndef LS_CORE_KERNELS_GEMM_BF16_ONEDNN_IMPL_H
#define LS_CORE_KERNELS_GEMM_BF16_ONEDNN_IMPL_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All that decides a kernel; compared as bytes, so it has no gaps. */
typedef struct {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t transpose_a, transpose_b;
    int32_t add, round, bias;
    int32_t used; /* 1 in a key, 0 in a slot that is free */
} ls__dnnl_key;

enum { LS__DNNL_A, LS__DNNL_B, LS__DNNL_C, LS__DNNL_SCRATCH, LS__DNNL_BIAS, LS__DNNL_MEMORIES };

typedef struct {
    ls__dnnl_key     key;
    dnnl_primitive_t primitive;
    dnnl_memory_t    memory[LS__DNNL_MEMORIES]; /* without data; NULL: not wanted */
    size_t           scratch_bytes;
} ls__dnnl_product;

/* Dimensions and strides of the operands. */
typedef struct {
    dnnl_dims_t a, b, c, bias, step_a, step_b, step_c, step_bias;
} ls__dnnl_sides;

/*
 * Prepares p for its key: the primitive, a memory object for each operand, the size of its
 * scratch.  On failure what was made is in p all the same, for the caller to release.
 */
bool ls__dnnl_prepare(dnnl_engine_t engine, const ls__dnnl_sides *sides, ls__dnnl_product *p);

#endif

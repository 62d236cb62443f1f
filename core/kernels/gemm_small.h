/*
 * gemm_small.h - products of few columns without BLAS, which would copy both operands first.
 *
 * c = alpha op(a) op(b) + beta c on this thread.  Every element is one chain of fused
 * multiply-adds over k, cut as Note [chunks] in gemm_small.c says; which rows and columns are
 * computed together changes no bit.
 */
#ifndef LS_CORE_KERNELS_GEMM_SMALL_H
#define LS_CORE_KERNELS_GEMM_SMALL_H

#include "core/kernels/gemm.h"

/*
 * Whether a product of these sizes gains by it: they alone decide.  False where the build has
 * none (x86-64 and ls_real float have); whether the processor has AVX-512 is for the caller to
 * know.
 */
bool ls__gemm_small_pays(const ls_gemm_args *g);

/* Any sizes and transpositions with n a multiple of 16. */
void ls__gemm_small(const ls_gemm_args *g);

#endif

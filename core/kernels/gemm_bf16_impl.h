/*
 * gemm_bf16_impl.h - what gemm_bf16.c and the kernels behind it share.
 */
#ifndef LS_CORE_KERNELS_GEMM_BF16_IMPL_H
#define LS_CORE_KERNELS_GEMM_BF16_IMPL_H

#include "core/kernels/gemm_bf16.h"

/* What a thread keeps between products. */
typedef struct {
    void  *block; /* of ls_calloc */
    void  *scratch;
    size_t scratch_bytes;
    void  *products; /* oneDNN's, prepared; NULL: none yet */
} ls__bf16_thread;

/* The calling thread's; NULL: out of memory. */
ls__bf16_thread *ls__bf16_thread_get(void);

/* At least so many bytes at an address divisible by 64, contents undefined; NULL: out of
 * memory. */
void *ls__bf16_scratch(ls__bf16_thread *thread, size_t bytes);

/* A kernel of its own: gemm_bf16_onednn.c, or gemm_bf16_none.c where there is none. */

/* It can be used here.  text (of 96 bytes) gets its name, or why not. */
bool ls__bf16_native(char *text, size_t size);

/* False: out of memory; c is as it was. */
bool ls__bf16_native_tile(ls__bf16_thread *thread, const ls_gemm_bf16_args *g);
void ls__bf16_native_forget(ls__bf16_thread *thread);

#endif

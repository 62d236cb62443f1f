/*
 * gemm_bf16_none.c - built without oneDNN: nothing but the widened kernel.
 */
#include <stdio.h>

#include "core/kernels/gemm_bf16_impl.h"

bool ls__bf16_native(char *text, size_t size)
{
    snprintf(text, size, "widened to f32 (built without oneDNN)");
    return false;
}

bool ls__bf16_native_tile(ls__bf16_thread *thread, const ls_gemm_bf16_args *g)
{
    (void)thread;
    (void)g;
    return false;
}

void ls__bf16_native_forget(ls__bf16_thread *thread)
{
    (void)thread;
}

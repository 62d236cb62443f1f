/*
 * bf16.h - between bf16 and ls_real: one rounding, to nearest even; NaN stays a (quiet) NaN.
 *
 * The inline forms have no branch, so that loops over them become vector code.  They are
 * written in integers: the processor's own conversion takes subnormals for zero.
 */
#ifndef LS_CORE_KERNELS_BF16_H
#define LS_CORE_KERNELS_BF16_H

#include <string.h>

#include "core/dtype.h"
#include "core/kernels/clones.h"

LS_INLINE float ls_bf16_widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float    wide;

    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

LS_INLINE uint16_t ls_bf16_round(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    bool     is_nan  = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(is_nan ? bits >> 16 | 0x40u : rounded);
}

/* y = x over n elements, in blocks over the pool. */
void ls_k_bf16_round(uint16_t *y, const ls_real *x, int64_t n);
void ls_k_bf16_widen(ls_real *y, const uint16_t *x, int64_t n);

/* The same on this thread, for parts that the caller has cut out. */
void ls_k_bf16_round_here(uint16_t *y, const ls_real *x, int64_t n);
void ls_k_bf16_widen_here(ls_real *y, const uint16_t *x, int64_t n);

#endif

/*
 * real_math.h - exp, tanh and erf in the precision of ls_real, for loops that vectorise.
 *
 * The double library takes libm's.  The float ones are polynomials in plain arithmetic without
 * branches, so that a compiler turns a loop over them into vector code; bodies and tails go
 * through the same operations.  Coefficients: tests/reference/fit_real_math.py.  Bounds, held
 * by tests/unit/test_real_math.c over all magnitudes: exp 1 ulp, tanh and erf 1.5 ulp.
 * Infinities and NaN come out as libm's do.
 */
#ifndef LS_CORE_KERNELS_REAL_MATH_H
#define LS_CORE_KERNELS_REAL_MATH_H

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/kernels/clones.h"

#ifdef LS_REAL_F64

LS_INLINE ls_real ls_exp(ls_real x)
{
    return exp(x);
}

LS_INLINE ls_real ls_erf(ls_real x)
{
    return erf(x);
}

LS_INLINE ls_real ls_tanh_of(ls_real x)
{
    return tanh(x);
}

#else

LS_INLINE uint32_t ls__bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

LS_INLINE float ls__float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* |x| with the sign of s */
LS_INLINE float ls__with_sign(float x, float s)
{
    return ls__float((ls__bits(x) & 0x7fffffffu) | (ls__bits(s) & 0x80000000u));
}

/*
 * x = n ln 2 + r, |r| <= ln 2 / 2; e^x = 2^n (1 + r + r^2 P(r)).  n comes from the low bits of
 * x / ln 2 + 1.5 * 2^23; ln 2 is split in two so that n times its first part is exact.  2^n
 * is applied in two factors, which gives subnormals and infinity their turn.
 */
LS_INLINE float ls_exp(float x)
{
    const float magic = 0x1.8p23f;

    x            = x < -104.0f ? -104.0f : x; /* below: 0; a NaN passes both comparisons */
    x            = x > 89.0f ? 89.0f : x;     /* above: infinity */
    float   t    = x * 1.44269504f + magic;
    int32_t n    = (int32_t)(ls__bits(t) - ls__bits(magic));
    float   m    = t - magic;
    float   r    = x - m * 0.693359375f - m * -2.12194440e-4f;
    float   p    = 1.38146110e-3f;
    int32_t half = n >> 1;

    p = p * r + 8.36871003e-3f;
    p = p * r + 4.16683874e-2f;
    p = p * r + 1.66665207e-1f;
    p = p * r + 4.99999935e-1f;
    p = 1.0f + (r + r * r * p);
    return p * ls__float((uint32_t)(half + 127) << 23) *
           ls__float((uint32_t)(n - half + 127) << 23);
}

/* |x| < 5/8: x + x^3 P(x^2); else 1 - 2 / (e^(2|x|) + 1) with x's sign. */
LS_INLINE float ls_tanh_of(float x)
{
    float a = ls__with_sign(x, 1.0f), s = x * x;
    float p = -5.59100740e-3f;

    p           = p * s + 2.05388110e-2f;
    p           = p * s - 5.37096543e-2f;
    p           = p * s + 1.33310922e-1f;
    p           = p * s - 3.33332695e-1f;
    float small = x + x * s * p;
    float large = 1.0f - 2.0f / (ls_exp(2.0f * a) + 1.0f);
    return a < 0.625f ? small : ls__with_sign(large, x);
}

/* |x| < 0.93: x + x P(x^2); else 1 - e^(-|x| Q(|x|)) with x's sign; erf(4) rounds to 1. */
LS_INLINE float ls_erf(float x)
{
    float a = ls__with_sign(x, 1.0f);

    a       = a > 4.0f ? 4.0f : a;
    float s = a * a;
    float p = 8.31677254e-5f, q = 1.12314652e-5f;

    p           = p * s - 8.13001199e-4f;
    p           = p * s + 5.19990660e-3f;
    p           = p * s - 2.68589415e-2f;
    p           = p * s + 1.12836872e-1f;
    p           = p * s - 3.76126332e-1f;
    p           = p * s + 1.28379167e-1f;
    q           = q * a - 3.22805390e-4f;
    q           = q * a + 3.64246501e-3f;
    q           = q * a - 2.37620750e-2f;
    q           = q * a + 1.06236891e-1f;
    q           = q * a + 6.35151309e-1f;
    q           = q * a + 1.12864849f;
    float small = a + a * p;
    float large = 1.0f - ls_exp(-a * q);
    return ls__with_sign(a < 0.93f ? small : large, x);
}

#endif

#endif

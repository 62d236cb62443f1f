/*
 * real_math.h - libm's functions in the precision of ls_real.
 */
#ifndef LS_CORE_KERNELS_REAL_MATH_H
#define LS_CORE_KERNELS_REAL_MATH_H

#include <math.h>

#include "core/dtype.h"

#ifdef LS_REAL_F64
#define LS_LIBM(name) name
#else
#define LS_LIBM(name) name##f
#endif

static inline ls_real ls_exp(ls_real x)
{
    return LS_LIBM(exp)(x);
}

static inline ls_real ls_erf(ls_real x)
{
    return LS_LIBM(erf)(x);
}

static inline ls_real ls_tanh_of(ls_real x)
{
    return LS_LIBM(tanh)(x);
}

#endif

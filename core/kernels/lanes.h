/*
 * lanes.h - sums along a row in double, with eight lanes fixed by the column's index.
 *
 * The lane of a column is its index modulo 8, the lanes are joined pairwise, so the result is
 * the same for every vector length, and for bodies and tails.
 */
#ifndef LS_CORE_KERNELS_LANES_H
#define LS_CORE_KERNELS_LANES_H

#include "core/dtype.h"
#include "core/kernels/clones.h"

enum { LS_LANES = 8 };

typedef struct {
    double v[LS_LANES];
} ls_lanes;

LS_INLINE double ls_lanes_join(const ls_lanes *s)
{
    return ((s->v[0] + s->v[1]) + (s->v[2] + s->v[3])) +
           ((s->v[4] + s->v[5]) + (s->v[6] + s->v[7]));
}

/* Sum over i < n of `term`, an expression in i, as double `result`. */
#define LS_LANES_SUM(result, i, n, term)                    \
    do {                                                    \
        ls_lanes lanes_ = {{0}};                            \
        int64_t  body_  = (n) / LS_LANES * LS_LANES;        \
        for (int64_t i0_ = 0; i0_ < body_; i0_ += LS_LANES) \
            for (int l_ = 0; l_ < LS_LANES; l_++) {         \
                int64_t i = i0_ + l_;                       \
                lanes_.v[l_] += (term);                     \
            }                                               \
        for (int64_t i = body_; i < (n); i++)               \
            lanes_.v[i - body_] += (term);                  \
        (result) = ls_lanes_join(&lanes_);                  \
    } while (0)

/* The largest of x[0 .. n - 1], n > 0; a NaN may be passed over. */
LS_INLINE ls_real ls_lanes_max(const ls_real *x, int64_t n)
{
    ls_real lane[2 * LS_LANES];
    int64_t body = n / (2 * LS_LANES) * (2 * LS_LANES);

    for (int l = 0; l < 2 * LS_LANES; l++)
        lane[l] = x[0];
    for (int64_t i0 = 0; i0 < body; i0 += 2 * LS_LANES)
        for (int l = 0; l < 2 * LS_LANES; l++)
            lane[l] = x[i0 + l] > lane[l] ? x[i0 + l] : lane[l];
    for (int64_t i = body; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int l = 1; l < 2 * LS_LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

#endif

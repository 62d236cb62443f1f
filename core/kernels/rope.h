/*
 * rope.h - rotary positions: heads turn by an angle that grows with the position.
 *
 * The pair (d, d + D/2) of a head at position t turns by t * base^(-2d/D).  Su et al. 2021,
 * arXiv:2104.09864, with the pairs laid out by halves.
 */
#ifndef LS_CORE_KERNELS_ROPE_H
#define LS_CORE_KERNELS_ROPE_H

#include "core/dtype.h"

/* (batch, time, heads, size): of each token's heads the first `turned` rotate */
typedef struct {
    int64_t        batch, time, heads, turned, size;
    const ls_real *table; /* as ls_k_rope_table() made it */
} ls_rope_args;

/* table (time,2,size/2): for each position the cosines, then the sines; worked out in double.
 */
void ls_k_rope_table(ls_real *table, int64_t time, int64_t size, double base);

void ls_k_rope(ls_real *y, const ls_real *x, const ls_rope_args *a);

/* The same where x and y are BF16, y rounded once. */
void ls_k_rope_bf16(uint16_t *y, const uint16_t *x, const ls_rope_args *a);

/* The turn back; add: joined to what is in dx. */
void ls_k_rope_backward(ls_real *dx, const ls_real *dy, const ls_rope_args *a, bool add);

#endif

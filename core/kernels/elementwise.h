/*
 * elementwise.h - one pass over arrays, each element by itself.
 *
 * Cut into blocks over the pool in use; an element's value depends on its inputs alone, with
 * the same operations in vector bodies and tails.  `add` joins a result to what is in dx.
 */
#ifndef LS_CORE_KERNELS_ELEMENTWISE_H
#define LS_CORE_KERNELS_ELEMENTWISE_H

#include "core/dtype.h"

void ls_k_add_to(ls_real *y, const ls_real *x, int64_t n);                /* y += x */
void ls_k_add(ls_real *y, const ls_real *a, const ls_real *b, int64_t n); /* y = a + b */
void ls_k_mul(ls_real *y, const ls_real *a, const ls_real *b, int64_t n, bool add);
void ls_k_scale(ls_real *y, const ls_real *x, ls_real factor, int64_t n, bool add);
void ls_k_fill(ls_real *y, ls_real value, int64_t n, bool add);

/* y[r] = a[r] + b (or a[r] * b) for `rows` rows of n */
void ls_k_add_rows(ls_real *y, const ls_real *a, const ls_real *b, int64_t rows, int64_t n);
void ls_k_mul_rows(ls_real *y, const ls_real *a, const ls_real *b, int64_t rows, int64_t n,
                   bool add);

typedef enum {
    LS_ACT_RELU,
    LS_ACT_GELU,
    LS_ACT_GELU_TANH,
    LS_ACT_SILU,
    LS_ACT_TANH
} ls_activation;

/* y = f(x);  dx = dy f'(x) */
void ls_k_activation(ls_activation f, ls_real *y, const ls_real *x, int64_t n);
void ls_k_activation_backward(ls_activation f, ls_real *dx, const ls_real *dy, const ls_real *x,
                              int64_t n, bool add);

/* The same where x, and y, are BF16: computed in ls_real, y rounded once. */
void ls_k_activation_bf16(ls_activation f, uint16_t *y, const uint16_t *x, int64_t n);
void ls_k_activation_backward_bf16(ls_activation f, ls_real *dx, const ls_real *dy,
                                   const uint16_t *x, int64_t n, bool add);

/* y = silu(gate) * up and its two gradients (either may be NULL) */
void ls_k_swiglu(ls_real *y, const ls_real *gate, const ls_real *up, int64_t n);
void ls_k_swiglu_dgate(ls_real *dgate, const ls_real *dy, const ls_real *gate,
                       const ls_real *up, int64_t n, bool add);
void ls_k_swiglu_dup(ls_real *dup, const ls_real *dy, const ls_real *gate, int64_t n, bool add);

/* The same where gate and up, and y, are BF16. */
void ls_k_swiglu_bf16(uint16_t *y, const uint16_t *gate, const uint16_t *up, int64_t n);
void ls_k_swiglu_dgate_bf16(ls_real *dgate, const ls_real *dy, const uint16_t *gate,
                            const uint16_t *up, int64_t n, bool add);
void ls_k_swiglu_dup_bf16(ls_real *dup, const ls_real *dy, const uint16_t *gate, int64_t n,
                          bool add);

#endif

/*
 * adam.h - optimizer updates, element by element.
 *
 * Every element goes through the same operations in the same order, in vector bodies and
 * tails, so a shard of a parameter is updated to the bits of the whole (architecture.md,
 * rule 3).  g is the gradient's sum, multiplied by scale on the way.
 */
#ifndef LS_CORE_KERNELS_ADAM_H
#define LS_CORE_KERNELS_ADAM_H

#include "core/dtype.h"

/* Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019 for the decoupled decay. */
typedef struct {
    ls_real scale; /* of the gradient */
    ls_real decay; /* p *= decay first (AdamW: 1 - lr wd; Adam: 1) */
    ls_real l2;    /* g += l2 p (Adam: wd; AdamW: 0) */
    ls_real one_minus_b1, b2, one_minus_b2;
    ls_real step_size;  /* lr / (1 - b1^t) */
    ls_real root_bias2; /* sqrt(1 - b2^t) */
    ls_real eps;
} ls_adam_args;

void ls_k_adam(const ls_adam_args *a, ls_real *p, const ls_real *g, ls_real *m, ls_real *v,
               int64_t n);

/* buf = momentum buf + g (the first time: g), p -= lr buf; buf NULL: p -= lr g. */
typedef struct {
    ls_real scale, l2, momentum, lr;
    bool    first;
} ls_sgd_args;

void ls_k_sgd(const ls_sgd_args *a, ls_real *p, const ls_real *g, ls_real *buf, int64_t n);

#endif

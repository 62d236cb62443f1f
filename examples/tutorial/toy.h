/*
 * toy.h - what the tutorial's programs share: a network of three layers that learns which
 * points of a square lie in a disc, and a step of MICROS micro-batches.
 *
 * How N ranks take that step is the programs' business, for N = 1, 2 or 4.  A step has
 * MICROS / N rounds; in round k rank r computes micro-batch k N + r.
 *
 *     round 0   rank 0: micro-batch 0    rank 1: micro-batch 1      N = 2
 *     round 1   rank 0: micro-batch 2    rank 1: micro-batch 3
 *
 * docs/tutorial.md walks through the programs.
 */
#ifndef LS_EXAMPLES_TOY_H
#define LS_EXAMPLES_TOY_H

#include "lockstep.h"

enum { MICROS = 4, ROWS = 128, STEPS = 60, SEED = 1337 };

typedef struct {
    ls_comm         *world;
    int              rank, size, rounds; /* of a step */
    ls_module       *mlp;
    ls_named_tensor *p; /* [n] its parameters */
    int              n, step;
    int64_t         *at;    /* [n] where parameter i begins in an array of all of them */
    int64_t          count; /* elements of such an array */
    ls_tape         *tape;
} toy;

/*
 * A whole main(): becomes a rank, makes the network, whose values are another draw on every
 * rank, calls train, and says what went wrong.  The exit status.
 */
int toy_main(ls_status (*train)(toy *t));

/* Forward and backward of one micro-batch of the step; gradients are sums over its rows. */
LS_MUST_CHECK ls_status toy_backward(toy *t, int micro);

/* The place of a parameter in the list. */
int toy_index(const toy *t, const ls_tensor *parameter);

/* Copies gradients of the parameters first .. end - 1, one behind the other, and drops them. */
void toy_take_gradients(toy *t, int first, int end, float *flat);

/* What a program does in a round: leaves the sum over its N micro-batches in sum[count]. */
typedef ls_status (*toy_round)(toy *t, void *own, int round, float *sum);

/*
 * All rounds of a step, added as (0 + 1) + (2 + 3).  So the four micro-batches are added in
 * this order whether one rank has them all, two ranks add two and two, or four add them in one
 * operation: addition of floats is commutative, but not associative.
 */
LS_MUST_CHECK ls_status toy_add_rounds(toy *t, toy_round round, void *own, float *sum,
                                       int64_t count);

/* Makes t's gradient a view of memory; t's values one. */
LS_MUST_CHECK ls_status toy_gradient_at(ls_tensor *t, float *memory);
LS_MUST_CHECK ls_status toy_values_at(ls_tensor *t, float *memory);

/* An update of all parameters from the sums of their gradients, one behind the other. */
LS_MUST_CHECK ls_status toy_update(toy *t, ls_optimizer *adam, float *sum);

/* AdamW without decay; NULL: out of memory.  scale of its steps: toy_scale. */
ls_optimizer       *toy_optimizer(const ls_named_tensor *p, int n);
extern const double toy_scale;

/* All ranks compute the loss of the same points; rank 0 prints it. */
LS_MUST_CHECK ls_status toy_print_loss(toy *t);

/* Rank 0 prints the hash of its parameters, which must be whole. */
LS_MUST_CHECK ls_status toy_print_hash(const toy *t);

#endif

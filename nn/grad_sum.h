/*
 * grad_sum.h - the gradients of a step's micro-batches, summed in the canonical tree.
 *
 * Rule 2 of the law (docs/architecture.md).  As the tape's leaf hook it takes each parameter's
 * gradient the moment it is complete and joins it to the partial sums of that parameter, so a
 * step of M micro-batches holds log2(M) copies of the gradients, plus one parameter.
 *
 *     ls_grad_sum_begin(sum, tape);
 *     for each micro-batch: ls_tape_reset, forward, ls_backward, ls_grad_sum_end_micro(sum);
 *     ls_grad_sum_finish(sum, tape);
 */
#ifndef LS_NN_GRAD_SUM_H
#define LS_NN_GRAD_SUM_H

#include "autograd/tape.h"

typedef struct ls_grad_sum ls_grad_sum;

/* For these parameters; the list is borrowed and must outlive it.  NULL: out of memory. */
ls_grad_sum *ls_grad_sum_new(const ls_named_tensor *parameters, int n);
void         ls_grad_sum_free(ls_grad_sum *s); /* NULL is allowed */

/*
 * Where finished sums go, instead of into the parameters' gradients: memory for that of
 * parameter i, and a call when it is there.  So a sum is on its way while backward still forms
 * others.
 */
typedef struct {
    ls_status (*place)(void *context, int i, ls_real **home);
    ls_status (*done)(void *context, int i);
    void *context;
} ls_grad_sink;

/*
 * The micro-batch to come is the last of the step (sink NULL: it is not, after all): each
 * parameter's sum is finished as soon as its leaf is complete, and goes to the sink (borrowed
 * until ls_grad_sum_finish).  Parameters that the last micro-batch does not use, but one before
 * it did, follow in ls_grad_sum_end_micro(); those of no micro-batch never do.
 */
void ls_grad_sum_last_micro(ls_grad_sum *s, const ls_grad_sink *sink);

/* Starts a step: forgets partial sums, drops the parameters' gradients, hooks into the tape. */
void ls_grad_sum_begin(ls_grad_sum *s, ls_tape *tape);

/* The hook itself, for who puts one before it; `sum` is an ls_grad_sum.  ESTATE for a second
 * gradient of a parameter before ls_grad_sum_end_micro(). */
LS_MUST_CHECK ls_status ls_grad_sum_take(void *sum, ls_tensor *leaf);

/* After the backward of a micro-batch: parameters that it did not use count as +0.  ENOMEM. */
LS_MUST_CHECK ls_status ls_grad_sum_end_micro(ls_grad_sum *s);

/*
 * After the last, or after a failure: unhooks.  Each parameter's gradient is the tree's sum of
 * the micro-batches so far; it has none where no micro-batch had one.
 */
void ls_grad_sum_finish(ls_grad_sum *s, ls_tape *tape);

#endif

/*
 * 2_data_parallel.c - data parallelism by hand: one broadcast, then an all_reduce a gradient.
 *
 *     lockstep run -n 2 -- build/tutorial/2_data_parallel
 *
 * Every rank has the whole network and some micro-batches.  Equal parameters and equal
 * gradients make equal updates, so the replicas never drift apart.
 */
#include <stdlib.h>

#include "toy.h"

/* Step 0: all begin with rank 0's values. */
static ls_status broadcast_values(toy *t)
{
    ls_status status = LS_OK;

    for (int i = 0; i < t->n && !status; i++) {
        ls_tensor *p = t->p[i].tensor;
        status       = ls_comm_broadcast(t->world, ls_reals(p), ls_tensor_numel(p), LS_F32, 0);
    }
    return status;
}

/* This rank's micro-batch of the round, then the sum over all ranks' ones. */
static ls_status take_round(toy *t, void *own, int round, float *sum)
{
    ls_status status = toy_backward(t, round * t->size + t->rank);

    (void)own;
    for (int i = 0; i < t->n && !status; i++) {
        const ls_tensor *p = t->p[i].tensor;
        status             = ls_comm_all_reduce(t->world, sum + t->at[i], ls_tensor_grad(p),
                                                ls_tensor_numel(p), LS_F32, LS_SUM);
    }
    return status;
}

static ls_status train(toy *t)
{
    float        *sum    = ls_calloc((size_t)t->count, sizeof *sum);
    ls_optimizer *adam   = toy_optimizer(t->p, t->n);
    ls_status     status = sum && adam ? broadcast_values(t) : LS_ENOMEM;

    for (; t->step < STEPS && !status; t->step++) {
        status = toy_add_rounds(t, take_round, NULL, sum, t->count);
        if (!status)
            status = toy_update(t, adam, sum);
    }
    if (!status)
        status = toy_print_loss(t);
    if (!status)
        status = toy_print_hash(t);
    ls_optimizer_free(adam);
    free(sum);
    return status;
}

int main(void)
{
    return toy_main(train);
}

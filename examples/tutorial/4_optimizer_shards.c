/*
 * 4_optimizer_shards.c - each rank keeps the moments of its part of the parameters (ZeRO-1).
 *
 *     lockstep run -n 2 -- build/tutorial/4_optimizer_shards
 *
 * AdamW holds two floats for each parameter, and data parallelism holds them on every rank.
 * An all_reduce is a reduce_scatter and an all_gather; between the two halves each rank has the
 * sums of one part, which is all that it needs to update that part:
 *
 *     gradients   -- reduce_scatter -->  sums of my part  -- update -->  my part of the
 *     parameters  <---- all_gather ----------------------------------    parameters
 *
 * An update works on each element alone, so a part of it has the bits of the whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "toy.h"

typedef struct {
    int64_t each;      /* elements of a part; size * each is count, rounded up */
    float  *values;    /* [size * each] all parameters, one behind the other */
    float  *gradients; /* [size * each] of one round */
    float  *sums;      /* [each] of the step, this rank's part */
} shards;

/* The parameters move into one array, with rank 0's values. */
static ls_status flatten(toy *t, const shards *s)
{
    ls_status status = LS_OK;

    for (int i = 0; i < t->n && !status; i++) {
        ls_tensor *p = t->p[i].tensor;
        memcpy(s->values + t->at[i], ls_reals(p), ls_tensor_bytes(p));
        status = toy_values_at(p, s->values + t->at[i]);
    }
    return status ? status : ls_comm_broadcast(t->world, s->values, t->count, LS_F32, 0);
}

static ls_status take_round(toy *t, void *own, int round, float *sum)
{
    const shards *s      = own;
    ls_status     status = toy_backward(t, round * t->size + t->rank);

    if (status)
        return status;
    toy_take_gradients(t, 0, t->n, s->gradients);
    return ls_comm_reduce_scatter(t->world, sum, s->gradients, s->each, LS_F32, LS_SUM);
}

/* To the optimizer this rank's part is one parameter, a vector. */
static ls_status train_part(toy *t, shards *s)
{
    float          *values = s->values + t->rank * s->each;
    ls_tensor       part   = ls_tensor_header(LS_F32, LS_SHAPE1(s->each));
    ls_named_tensor list   = {"part", &part};
    ls_optimizer   *adam   = toy_optimizer(&list, 1);
    ls_status       status = adam ? toy_values_at(&part, values) : LS_ENOMEM;

    if (!status)
        status = toy_gradient_at(&part, s->sums);
    for (; t->step < STEPS && !status; t->step++) {
        status = toy_add_rounds(t, take_round, s, s->sums, s->each);
        if (status)
            break;
        ls_optimizer_step(adam, toy_scale);
        status = ls_comm_all_gather(t->world, s->values, values, s->each, LS_F32);
    }
    ls_optimizer_free(adam);
    ls_tensor_drop(&part);
    return status;
}

static ls_status train(toy *t)
{
    int64_t   each   = (t->count + t->size - 1) / t->size;
    size_t    bytes  = (size_t)(each * t->size) * sizeof(float);
    shards    s      = {.each      = each,
                        .values    = ls_comm_alloc(t->world, bytes),
                        .gradients = ls_comm_alloc(t->world, bytes),
                        .sums      = ls_calloc((size_t)each, sizeof(float))};
    ls_status status = s.values && s.gradients && s.sums ? flatten(t, &s) : LS_ENOMEM;

    if (!status)
        status = train_part(t, &s);
    if (!status && t->rank == 0)
        printf("moments of %lld of %lld parameters on a rank\n", (long long)each,
               (long long)t->count);
    if (!status)
        status = toy_print_loss(t);
    if (!status)
        status = toy_print_hash(t);
    free(s.sums);
    ls_comm_release(t->world, s.gradients);
    ls_comm_release(t->world, s.values);
    return status;
}

int main(void)
{
    return toy_main(train);
}

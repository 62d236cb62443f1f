/*
 * 3_buckets.c - data parallelism with buckets that leave while backward goes on.
 *
 *     lockstep run -n 2 -- build/tutorial/3_buckets
 *
 * An operation for each tensor pays for a meeting each time, and all of them wait for the end
 * of backward.  Here gradients that are complete at about the same time share a bucket, the
 * last layer's first, and a bucket leaves as soon as it is complete:
 *
 *     backward   layer 2 | layer 1 | layer 0 | wait
 *     worker             [ bucket 0 ]        [ bucket 1 ]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "toy.h"

enum { BUCKETS = 2, CUT = 4 }; /* parameters from CUT on, the last layer's, are bucket 0 */

typedef struct {
    int      first, end, missing; /* parameters; of these, gradients that are not there yet */
    ls_work *work;                /* under way; NULL: not started */
} bucket;

typedef struct {
    toy   *t;
    float *flat; /* [t->count] gradients, in memory that other ranks of the host reach */
    bucket buckets[BUCKETS];
    int    rounds, overlapped; /* so far; in which bucket 0 began before backward ended */
} ddp;

static ls_status start_bucket(ddp *d, bucket *b)
{
    const toy *t    = d->t;
    float     *x    = d->flat + t->at[b->first];
    int64_t    end  = b->end < t->n ? t->at[b->end] : t->count;
    ls_call    call = {.kind = LS_ALL_REDUCE, .in = x, .out = x, .dtype = LS_F32};
    call.op         = LS_SUM;
    call.count      = end - t->at[b->first];
    return ls_comm_start(t->world, &call, &b->work);
}

/* The tape calls it when the gradient of a parameter is complete: on all ranks in one order. */
static ls_status take_gradient(void *context, ls_tensor *leaf)
{
    ddp *d = context;
    int  i = toy_index(d->t, leaf);

    toy_take_gradients(d->t, i, i + 1, d->flat + d->t->at[i]);
    bucket *b = &d->buckets[i < CUT];
    return --b->missing ? LS_OK : start_bucket(d, b);
}

/* What has left must be waited for, whatever failed meanwhile. */
static ls_status wait_for_buckets(ddp *d, ls_status status)
{
    int64_t       backward_ended = ls_now_ns();
    ls_work_times times          = {0};

    for (int i = 0; i < BUCKETS; i++) {
        if (!d->buckets[i].work)
            continue;
        ls_status own = ls_work_wait_timed(d->buckets[i].work, &times);
        status        = status ? status : own;
        d->overlapped += i == 0 && times.began < backward_ended;
    }
    d->rounds++;
    return status;
}

static ls_status take_round(toy *t, void *own, int round, float *sum)
{
    ddp *d = own;

    d->buckets[0]    = (bucket){CUT, t->n, t->n - CUT, NULL};
    d->buckets[1]    = (bucket){0, CUT, CUT, NULL};
    ls_status status = wait_for_buckets(d, toy_backward(t, round * t->size + t->rank));
    if (!status)
        memcpy(sum, d->flat, (size_t)t->count * sizeof *sum);
    return status;
}

static ls_status train(toy *t)
{
    ddp           d      = {.t = t, .flat = ls_comm_alloc(t->world, (size_t)t->count * 4)};
    float        *sum    = ls_calloc((size_t)t->count, sizeof *sum);
    ls_optimizer *adam   = toy_optimizer(t->p, t->n);
    ls_status     status = d.flat && sum && adam ? LS_OK : LS_ENOMEM;

    for (int i = 0; i < t->n && !status; i++)
        status = ls_comm_broadcast(t->world, ls_reals(t->p[i].tensor),
                                   ls_tensor_numel(t->p[i].tensor), LS_F32, 0);
    ls_tape_on_leaf(t->tape, take_gradient, &d);
    for (; t->step < STEPS && !status; t->step++) {
        status = toy_add_rounds(t, take_round, &d, sum, t->count);
        if (!status)
            status = toy_update(t, adam, sum);
    }
    if (!status && t->rank == 0)
        printf("bucket 0 began before backward ended in %d of %d rounds\n", d.overlapped,
               d.rounds);
    if (!status)
        status = toy_print_loss(t);
    if (!status)
        status = toy_print_hash(t);
    ls_optimizer_free(adam);
    free(sum);
    ls_comm_release(t->world, d.flat);
    return status;
}

int main(void)
{
    return toy_main(train);
}

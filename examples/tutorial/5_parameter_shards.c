/*
 * 5_parameter_shards.c - each rank keeps its part of the parameters, too (ZeRO-3, FSDP).
 *
 *     lockstep run -n 2 -- build/tutorial/5_parameter_shards
 *
 * A layer's parameters are whole only while the layer runs: gathered before its forward,
 * dropped after it, gathered again before its backward; when its gradients are complete they
 * leave by reduce_scatter, and the parameters are dropped.  Hooks do all of it; the network
 * itself knows nothing of ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "toy.h"

enum { LAYERS = 3, OF_LAYER = 2 }; /* parameters of a layer: weight and bias */

typedef struct fsdp fsdp;

typedef struct {
    fsdp            *all;
    int              first, missing; /* parameters; gradients, in backward */
    int64_t          count, each;    /* elements of the layer; of a rank's part */
    float           *own, *whole;    /* [each]; [size * each], NULL while dropped */
    float           *sums;           /* [each], behind those of the layers before */
    ls_boundary_hook boundary;
} unit;

struct fsdp {
    toy            *t;
    unit            units[LAYERS];
    ls_tensor       parts[LAYERS]; /* what the optimizer sees: one vector a layer */
    ls_named_tensor list[LAYERS];
    int64_t         each, open, most; /* elements: of all parts; whole now; whole at most */
    float          *sums, *round;     /* [each] of the step; of one round */
    ls_optimizer   *adam;
};

/* Headers stay, their memory comes and goes. */
static void point_to(unit *u, float *whole)
{
    toy *t = u->all->t;

    u->all->open += (whole ? u->count : 0) - (u->whole ? u->count : 0);
    if (u->all->open > u->all->most)
        u->all->most = u->all->open;
    free(u->whole);
    u->whole = whole;
    for (int i = u->first; i < u->first + OF_LAYER; i++)
        t->p[i].tensor->storage->data = whole ? whole + t->at[i] - t->at[u->first] : NULL;
}

static ls_status gather(unit *u)
{
    float *whole = ls_calloc((size_t)(u->each * u->all->t->size), sizeof *whole);

    if (!whole)
        return LS_ENOMEM;
    point_to(u, whole);
    return ls_comm_all_gather(u->all->t->world, whole, u->own, u->each, LS_F32);
}

static ls_tensor *before_forward(void *context, ls_module *m, ls_tape *tape, ls_tensor *x)
{
    ls_status status = gather(context);

    (void)m;
    return status ? ls_tape_fail(tape, status) : x;
}

static ls_status before_backward(void *context)
{
    unit *u = context;

    u->missing = OF_LAYER;
    return gather(u);
}

static ls_tensor *after_forward(void *context, ls_module *m, ls_tape *tape, ls_tensor *out)
{
    unit *u = context;

    (void)m;
    point_to(u, NULL);
    return ls_boundary(tape, out, &u->boundary); /* backward comes by here first */
}

/* With the last gradient of a layer only the sums of this rank's part stay. */
static ls_status take_gradient(void *context, ls_tensor *leaf)
{
    fsdp *f = context;
    unit *u = &f->units[toy_index(f->t, leaf) / OF_LAYER];

    if (--u->missing)
        return LS_OK;
    float *flat = ls_calloc((size_t)(u->each * f->t->size), sizeof *flat);
    if (!flat)
        return LS_ENOMEM;
    toy_take_gradients(f->t, u->first, u->first + OF_LAYER, flat);
    ls_status status =
        ls_comm_reduce_scatter(f->t->world, u->sums, flat, u->each, LS_F32, LS_SUM);
    free(flat);
    point_to(u, NULL);
    return status;
}

static ls_status take_round(toy *t, void *own, int round, float *sum)
{
    fsdp     *f      = own;
    ls_status status = toy_backward(t, round * t->size + t->rank);

    memcpy(sum, f->round, (size_t)f->each * sizeof *sum);
    return status;
}

/* Cuts layer i: every rank gets its part of rank 0's values. */
static ls_status shard(fsdp *f, int i, ls_module *layer)
{
    toy  *t = f->t;
    unit *u = &f->units[i];

    *u = (unit){.all = f, .first = i * OF_LAYER, .boundary = {before_backward, u}};
    for (int k = u->first; k < u->first + OF_LAYER; k++)
        u->count += ls_tensor_numel(t->p[k].tensor);
    u->each          = (u->count + t->size - 1) / t->size;
    u->own           = ls_calloc((size_t)u->each, sizeof *u->own);
    float    *flat   = ls_calloc((size_t)(u->each * t->size), sizeof *flat);
    ls_status status = u->own && flat ? LS_OK : LS_ENOMEM;
    for (int k = u->first; k < u->first + OF_LAYER && !status; k++) {
        ls_tensor *p = t->p[k].tensor;
        memcpy(flat + t->at[k] - t->at[u->first], ls_reals(p), ls_tensor_bytes(p));
        status = toy_values_at(p, NULL);
    }
    if (!status)
        status = ls_comm_scatter(t->world, u->own, flat, u->each, LS_F32, 0);
    free(flat);
    ls_module_set_hook(layer, (ls_module_hook){before_forward, after_forward, u});
    f->parts[i] = ls_tensor_header(LS_F32, LS_SHAPE1(u->each));
    f->list[i]  = (ls_named_tensor){"part", &f->parts[i]};
    f->each += u->each;
    return status ? status : toy_values_at(&f->parts[i], u->own);
}

static ls_status open_fsdp(fsdp *f, toy *t)
{
    ls_status status = LS_OK;
    int       i      = 0;

    *f = (fsdp){.t = t};
    for (ls_module *m = t->mlp->children; m && !status; m = m->next, i++)
        status = shard(f, i, m);
    f->sums  = ls_calloc((size_t)f->each, sizeof *f->sums);
    f->round = ls_calloc((size_t)f->each, sizeof *f->round);
    f->adam  = toy_optimizer(f->list, LAYERS);
    if (!status && (!f->sums || !f->round || !f->adam))
        status = LS_ENOMEM;
    for (int64_t k = i = 0; i < LAYERS && !status; k += f->units[i++].each) {
        f->units[i].sums = f->round + k;
        status           = toy_gradient_at(&f->parts[i], f->sums + k);
    }
    ls_tape_on_leaf(t->tape, take_gradient, f);
    return status;
}

static void close_fsdp(fsdp *f)
{
    ls_optimizer_free(f->adam);
    for (int i = 0; i < LAYERS; i++) {
        ls_tensor_drop(&f->parts[i]);
        free(f->units[i].own);
        free(f->units[i].whole);
    }
    free(f->sums);
    free(f->round);
}

static ls_status train(toy *t)
{
    fsdp      f;
    ls_status status = open_fsdp(&f, t);

    for (; t->step < STEPS && !status; t->step++) {
        status = toy_add_rounds(t, take_round, &f, f.sums, f.each);
        if (!status)
            ls_optimizer_step(f.adam, toy_scale);
    }
    if (!status && t->rank == 0)
        printf("%lld of %lld parameters on a rank, and at most %lld whole\n", (long long)f.each,
               (long long)t->count, (long long)f.most);
    if (!status)
        status = toy_print_loss(t);
    for (int i = 0; i < LAYERS && !status; i++)
        status = gather(&f.units[i]);
    if (!status)
        status = toy_print_hash(t);
    close_fsdp(&f);
    return status;
}

int main(void)
{
    return toy_main(train);
}

/*
 * toy.c - see toy.h.
 */
#include "toy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JUDGED = 500 }; /* points for the printed loss */

const double toy_scale = 1.0 / (MICROS * ROWS);

/* ---- the network and its points ---- */

/* Point i of a low-discrepancy sequence (Roberts 2018, "R2") over the square, and its class. */
static int32_t point(int64_t i, float *xy)
{
    static const double step[] = {0.7548776662466927, 0.5698402909980532};

    for (int k = 0; k < 2; k++) {
        double u = (double)(i + 1) * step[k];
        xy[k]    = (float)(2 * (u - floor(u)) - 1);
    }
    return xy[0] * xy[0] + xy[1] * xy[1] < 0.6f;
}

/* The sum of the losses of `rows` points; NULL: the tape has failed. */
static ls_tensor *loss_of(toy *t, int64_t first, int64_t rows)
{
    ls_tape_reset(t->tape);
    ls_tensor *x = ls_tape_tensor(t->tape, LS_F32, LS_SHAPE2(rows, 2));
    ls_tensor *y = ls_tape_tensor(t->tape, LS_I32, LS_SHAPE1(rows));

    for (int64_t i = 0; i < rows && x && y; i++)
        ls_ints(y)[i] = point(first + i, ls_reals(x) + 2 * i);
    return ls_module_call_with(t->mlp, t->tape, x, y);
}

static ls_status open_network(toy *t)
{
    static const int64_t sizes[] = {2, 256, 256, 2};
    ls_mlp_opts          opts    = {4, sizes, LS_MLP_RELU};

    t->mlp  = ls_mlp_new(&opts);
    t->tape = ls_tape_new();
    t->p    = ls_module_list(t->mlp, false, &t->n);
    t->at   = ls_calloc((size_t)t->n + 1, sizeof *t->at);
    if (!t->mlp || !t->tape || !t->p || !t->at)
        return LS_ENOMEM;
    for (int i = 0; i < t->n; i++) {
        t->at[i] = t->count;
        t->count += ls_tensor_numel(t->p[i].tensor);
    }
    return ls_module_init(t->mlp, SEED + (uint64_t)t->rank);
}

static ls_status open_toy(toy *t)
{
    ls_status status = ls_world_join(&(ls_join_opts){0}, NULL, &t->world);

    if (status)
        return status;
    t->rank   = ls_comm_rank(t->world);
    t->size   = ls_comm_size(t->world);
    t->rounds = MICROS / t->size;
    if (t->rounds * t->size != MICROS)
        return ls_fail(LS_ECONFIG, "%d ranks, want 1, 2 or 4", t->size);
    status = ls_compute_start(1);
    return status ? status : open_network(t);
}

int toy_main(ls_status (*train)(toy *t))
{
    toy       t      = {0};
    ls_status status = open_toy(&t);

    if (!status)
        status = train(&t);
    if (status)
        fprintf(stderr, "rank %d: %s\n", t.rank, ls_error_message());
    ls_tape_free(t.tape);
    free(t.at);
    free(t.p);
    ls_module_free(t.mlp);
    ls_compute_stop();
    ls_comm_free(t.world);
    return status != LS_OK;
}

/* ---- a step ---- */

ls_status toy_backward(toy *t, int micro)
{
    for (int i = 0; i < t->n; i++)
        ls_tensor_zero_grad(t->p[i].tensor);
    return ls_backward(t->tape, loss_of(t, (t->step * MICROS + micro) * ROWS, ROWS));
}

int toy_index(const toy *t, const ls_tensor *parameter)
{
    int i = 0;

    while (t->p[i].tensor != parameter)
        i++;
    return i;
}

void toy_take_gradients(toy *t, int first, int end, float *flat)
{
    for (int i = first; i < end; i++) {
        ls_tensor *p = t->p[i].tensor;
        memcpy(flat + t->at[i] - t->at[first], ls_tensor_grad(p), ls_tensor_bytes(p));
        ls_tensor_zero_grad(p);
    }
}

static ls_status add_rounds(toy *t, toy_round round, void *own, int first, int rounds,
                            float *sum, int64_t count)
{
    if (rounds == 1)
        return round(t, own, first, sum);
    int       half   = rounds / 2;
    float    *right  = ls_calloc((size_t)count, sizeof *right);
    ls_status status = right ? LS_OK : LS_ENOMEM;

    if (!status)
        status = add_rounds(t, round, own, first, half, sum, count);
    if (!status)
        status = add_rounds(t, round, own, first + half, half, right, count);
    for (int64_t i = 0; i < count && !status; i++)
        sum[i] += right[i];
    free(right);
    return status;
}

ls_status toy_add_rounds(toy *t, toy_round round, void *own, float *sum, int64_t count)
{
    return add_rounds(t, round, own, 0, t->rounds, sum, count);
}

static ls_status view(ls_storage **storage, float *memory, size_t bytes,
                      ls_mem_category category)
{
    ls_storage_release(*storage);
    *storage = ls_storage_view(memory, bytes, category);
    return *storage ? LS_OK : LS_ENOMEM;
}

ls_status toy_gradient_at(ls_tensor *t, float *memory)
{
    return view(&t->grad, memory, ls_tensor_grad_bytes(t), LS_MEM_GRADS);
}

ls_status toy_values_at(ls_tensor *t, float *memory)
{
    return view(&t->storage, memory, ls_tensor_bytes(t), LS_MEM_PARAMS);
}

ls_optimizer *toy_optimizer(const ls_named_tensor *p, int n)
{
    ls_optimizer_opts opts = {
        .type = LS_OPTIM_ADAMW, .lr = 0.003, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};

    return ls_optimizer_new(p, n, &opts);
}

ls_status toy_update(toy *t, ls_optimizer *adam, float *sum)
{
    ls_status status = LS_OK;

    for (int i = 0; i < t->n && !status; i++)
        status = toy_gradient_at(t->p[i].tensor, sum + t->at[i]);
    if (!status)
        ls_optimizer_step(adam, toy_scale);
    return status;
}

/* ---- what came of it ---- */

ls_status toy_print_loss(toy *t)
{
    bool       was  = ls_tape_set_grad(t->tape, false);
    ls_tensor *loss = loss_of(t, 0, JUDGED);

    ls_tape_set_grad(t->tape, was);
    if (loss && t->rank == 0)
        printf("loss %.6f after %d steps\n", ls_item(loss) / JUDGED, t->step);
    return ls_tape_status(t->tape);
}

ls_status toy_print_hash(const toy *t)
{
    char      hex[LS_SHA256_HEX];
    ls_status status = t->rank ? LS_OK : ls_params_sha256(t->p, (size_t)t->n, hex);

    if (!status && t->rank == 0)
        printf("parameters %.16s\n", hex);
    return status;
}

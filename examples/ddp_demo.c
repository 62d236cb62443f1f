/*
 * ddp_demo.c - data parallelism: what every rank computes, and what all of them then have.
 *
 *     ddp_demo [--world-size N] [--backend shm|tcp|threads] [--out FILE]
 *
 * N ranks (2) train a small MLP on a spiral; rank r computes rows r * ROWS .. of each batch.
 * Beside them rank 0 computes the same batch alone, twice: as N micro-batches joined in the
 * canonical order, which must give the same bits, and as one big batch, whose sums are rounded
 * in another order.  Two races follow: the sum of all ranks divided afterwards against the
 * average, and buckets that leave after backward against buckets that leave during it.
 *
 * Everything goes to outputs/ddp-demo.json; the exit status is 1 where a promise did not hold.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "demo_main.h"
#include "lockstep.h"

enum { ROWS = 64, STEPS = 40, RACES = 7, AVERAGED = 1 << 20 };

static const double limit = 1e-3; /* of a difference between two gradients */

/* ---- a network and its batches ---- */

typedef struct {
    ls_module       *mlp;
    ls_named_tensor *p;
    int              n;
    ls_tape         *tape;
} net;

static ls_status open_net(net *w, const ls_mlp_opts *sizes)
{
    *w      = (net){.mlp = ls_mlp_new(sizes), .tape = ls_tape_new()};
    w->p    = ls_module_list(w->mlp, false, &w->n);
    bool ok = w->mlp && w->tape && w->p;

    return ok ? ls_module_init(w->mlp, 1337) : LS_ENOMEM;
}

static void close_net(net *w)
{
    ls_tape_free(w->tape);
    free(w->p);
    ls_module_free(w->mlp);
}

/* Which arm of a spiral is point i of the run on? */
static int32_t point(int64_t i, float *x, int64_t width)
{
    float   r = (float)(i * 7919 % 1000) / 1000, angle = 9 * r + 3.1416f * (float)(i % 2);
    int32_t arm = (int32_t)(i % 2);

    for (int64_t k = 0; k < width; k += 2) {
        x[k]     = r * cosf(angle);
        x[k + 1] = r * sinf(angle);
    }
    return arm;
}

/* The sum of the losses of `rows` points, from the first one on; NULL: the tape has failed. */
static ls_tensor *loss_of(net *w, int64_t first, int64_t rows)
{
    int64_t    width = w->p[0].tensor->shape.dim[1];
    ls_tensor *x =
        (ls_tape_reset(w->tape), ls_tape_tensor(w->tape, LS_F32, LS_SHAPE2(rows, width)));
    ls_tensor *arm = ls_tape_tensor(w->tape, LS_I32, LS_SHAPE1(rows));

    for (int64_t i = 0; i < rows && x && arm; i++)
        ls_ints(arm)[i] = point(first + i, ls_reals(x) + i * width, width);
    return ls_module_call_with(w->mlp, w->tape, x, arm);
}

/* ---- the same gradient, three times ---- */

/* One step of N ranks: afterwards the gradients are the sums over all ranks' rows. */
static ls_status gradient_of_ranks(net *w, ls_ddp *ddp, int64_t first, int rank)
{
    ls_status status = ls_ddp_begin(ddp, w->tape);

    if (!status)
        status = ls_backward(w->tape, loss_of(w, first + (int64_t)rank * ROWS, ROWS));
    if (!status)
        status = ls_ddp_end_micro(ddp);
    return ls_ddp_finish(ddp, w->tape, status);
}

/* One process, N micro-batches, joined in the canonical order. */
static ls_status gradient_in_order(net *w, int64_t first, int n)
{
    ls_grad_sum *sum    = ls_grad_sum_new(w->p, w->n);
    ls_status    status = sum ? LS_OK : LS_ENOMEM;

    if (!sum)
        return status;
    ls_grad_sum_begin(sum, w->tape);
    for (int m = 0; m < n && !status; m++) {
        status = ls_backward(w->tape, loss_of(w, first + (int64_t)m * ROWS, ROWS));
        if (!status)
            status = ls_grad_sum_end_micro(sum);
    }
    ls_grad_sum_finish(sum, w->tape);
    ls_grad_sum_free(sum);
    return status;
}

/* One process, one batch. */
static ls_status gradient_at_once(net *w, int64_t first, int n)
{
    for (int i = 0; i < w->n; i++)
        ls_tensor_zero_grad(w->p[i].tensor);
    return ls_backward(w->tape, loss_of(w, first, (int64_t)n * ROWS));
}

/* The largest difference between the mean gradients of two networks over `count` rows. */
static double largest_difference(const net *a, const net *b, double count)
{
    double most = 0;

    for (int i = 0; i < a->n; i++) {
        const float *x = ls_tensor_grad(a->p[i].tensor), *y = ls_tensor_grad(b->p[i].tensor);
        for (int64_t k = 0; k < ls_tensor_numel(a->p[i].tensor); k++)
            most = fmax(most, fabs((double)x[k] - (double)y[k]) / count);
    }
    return most;
}

/* ---- the run ---- */

typedef struct {
    int     world, rank;
    double  first_loss, last_loss, norm;
    double  in_order, at_once, spread; /* largest differences over the run */
    double *sums;                      /* [world] each rank's sum of parameters */
    double  divide_ms, average_ms, after_ms, overlapped_ms, after_exposed_ms, exposed_ms;
} report;

static void copy_parameters(net *to, const net *from)
{
    for (int i = 0; i < to->n; i++)
        memcpy(ls_reals(to->p[i].tensor), ls_reals(from->p[i].tensor),
               ls_tensor_bytes(to->p[i].tensor));
}

/* How far ranks are apart in any parameter. */
static ls_status measure_spread(ls_comm *world, const net *w, double *spread)
{
    for (int i = 0; i < w->n; i++) {
        int64_t   n   = ls_tensor_numel(w->p[i].tensor);
        float    *low = ls_calloc((size_t)n * 2, sizeof *low), *high = low + n;
        ls_status status = low ? LS_OK : LS_ENOMEM;
        if (!status)
            status =
                ls_comm_all_reduce(world, low, ls_reals(w->p[i].tensor), n, LS_F32, LS_MIN);
        if (!status)
            status =
                ls_comm_all_reduce(world, high, ls_reals(w->p[i].tensor), n, LS_F32, LS_MAX);
        for (int64_t k = 0; k < n && !status; k++)
            *spread = fmax(*spread, (double)high[k] - (double)low[k]);
        free(low);
        if (status)
            return status;
    }
    return LS_OK;
}

static ls_status compare_alone(net *twin, const net *w, int64_t first, report *r)
{
    double    count = (double)r->world * ROWS;
    ls_status status;

    copy_parameters(twin, w);
    status = gradient_in_order(twin, first, r->world);
    if (status)
        return status;
    r->in_order = fmax(r->in_order, largest_difference(w, twin, count));
    status      = gradient_at_once(twin, first, r->world);
    if (!status)
        r->at_once = fmax(r->at_once, largest_difference(w, twin, count));
    return status;
}

static ls_status take_step(ls_comm *world, net *w, net *twin, ls_ddp *ddp, ls_optimizer *adamw,
                           int step, report *r)
{
    double       count = (double)r->world * ROWS;
    int64_t      first = (int64_t)step * r->world * ROWS;
    ls_exact_sum squares;
    ls_status    status = gradient_of_ranks(w, ddp, first, r->rank);

    ls_exact_sum_init(&squares);
    if (!status)
        status = ls_grad_squares(w->p, w->n, &squares);
    if (!status && r->rank == 0)
        status = compare_alone(twin, w, first, r);
    if (status)
        return status;
    r->norm = ls_grad_norm(&squares, count);
    ls_optimizer_step(adamw, 1 / count);
    return measure_spread(world, w, &r->spread);
}

/* The mean loss over a batch of one's own, for the report alone. */
static double mean_loss(net *w)
{
    bool       was  = ls_tape_set_grad(w->tape, false);
    ls_tensor *loss = loss_of(w, 0, 500);

    ls_tape_set_grad(w->tape, was);
    return loss ? ls_item(loss) / 500 : NAN;
}

static ls_status gather_sums(ls_comm *world, const net *w, report *r)
{
    double sum = 0;

    for (int i = 0; i < w->n; i++)
        for (int64_t k = 0; k < ls_tensor_numel(w->p[i].tensor); k++)
            sum += (double)ls_reals(w->p[i].tensor)[k];
    return ls_comm_all_gather(world, r->sums, &sum, sizeof sum, LS_U8);
}

static ls_status train(ls_comm *world, report *r)
{
    static const int64_t widths[] = {2, 64, 64, 2};
    ls_mlp_opts          sizes    = {4, widths, LS_MLP_RELU};
    ls_optimizer_opts    opts     = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    net                  w, twin;
    ls_status            status = open_net(&w, &sizes), other = open_net(&twin, &sizes);
    ls_ddp              *ddp   = NULL;
    ls_optimizer        *adamw = ls_optimizer_new(w.p, w.n, &opts);

    status = status ? status : other ? other : adamw ? LS_OK : LS_ENOMEM;
    if (!status) /* gradients form in the buckets: every rank has one micro-batch a step */
        status = ls_ddp_new(world, w.p, w.n, &(ls_ddp_opts){0}, &ddp);
    if (!status)
        r->first_loss = mean_loss(&w);
    for (int step = 0; step < STEPS && !status; step++)
        status = take_step(world, &w, &twin, ddp, adamw, step, r);
    if (!status)
        status = ls_ddp_check(ddp);
    if (!status) {
        r->last_loss = mean_loss(&w);
        status       = gather_sums(world, &w, r);
    }
    ls_ddp_free(ddp);
    ls_optimizer_free(adamw);
    close_net(&twin);
    close_net(&w);
    return status;
}

/* ---- two races ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *ms)
{
    qsort(ms, RACES, sizeof *ms, by_size);
    return ms[RACES / 2];
}

/* Milliseconds since `start` of the slowest rank. */
static ls_status slowest(ls_comm *world, int64_t start, double *ms)
{
    int64_t   ns     = ls_now_ns() - start;
    ls_status status = ls_comm_all_reduce(world, &ns, &ns, 1, LS_I64, LS_MAX);

    *ms = (double)ns / 1e6;
    return status;
}

static ls_status average(ls_comm *world, float *x, bool divide)
{
    float n = (float)ls_comm_size(world);

    ls_status status =
        ls_comm_all_reduce(world, x, x, AVERAGED, LS_F32, divide ? LS_SUM : LS_AVG);
    for (int i = 0; i < AVERAGED && divide && !status; i++)
        x[i] /= n;
    return status;
}

static ls_status race_averages(ls_comm *world, bool divide, double *result)
{
    float    *x = ls_comm_alloc(world, AVERAGED * sizeof *x);
    double    ms[RACES];
    ls_status status = x ? average(world, x, divide) : LS_ENOMEM; /* a warm-up */

    for (int i = 0; i < RACES && !status; i++) {
        status        = ls_comm_barrier(world);
        int64_t start = ls_now_ns();
        if (!status)
            status = average(world, x, divide);
        if (!status)
            status = slowest(world, start, &ms[i]);
    }
    if (!status) {
        *result = median(ms);
        status  = ls_comm_barrier(world);
    }
    ls_comm_release(world, x);
    return status;
}

/* Forward, backward and all buckets of a network whose gradients are worth a wait: 4 MiB. */
static ls_status race_steps(ls_comm *world, bool no_overlap, double *result, double *exposed)
{
    static const int64_t widths[] = {512, 512, 512, 512, 512, 2};
    ls_mlp_opts          sizes    = {6, widths, LS_MLP_RELU};
    ls_ddp_opts          opts     = {.bucket_mb = 1, .no_overlap = no_overlap};
    net                  w;
    ls_ddp              *ddp = NULL;
    double               ms[RACES], waited[RACES];
    ls_status            status = open_net(&w, &sizes);

    if (!status)
        status = ls_ddp_new(world, w.p, w.n, &opts, &ddp);
    if (!status)
        status = gradient_of_ranks(&w, ddp, 0, ls_comm_rank(world)); /* a warm-up */
    for (int i = 0; i < RACES && !status; i++) {
        status        = ls_comm_barrier(world);
        int64_t start = ls_now_ns();
        if (!status)
            status = gradient_of_ranks(&w, ddp, i, ls_comm_rank(world));
        waited[i] = ddp ? (double)ls_ddp_get_stats(ddp).exposed_ns / 1e6 : 0;
        if (!status)
            status = slowest(world, start, &ms[i]);
    }
    if (!status) {
        *result  = median(ms);
        *exposed = median(waited);
    }
    ls_ddp_free(ddp);
    close_net(&w);
    return status;
}

static ls_status race(ls_comm *world, report *r)
{
    ls_status status = race_averages(world, true, &r->divide_ms);

    if (!status)
        status = race_averages(world, false, &r->average_ms);
    if (!status)
        status = race_steps(world, true, &r->after_ms, &r->after_exposed_ms);
    if (!status)
        status = race_steps(world, false, &r->overlapped_ms, &r->exposed_ms);
    return status;
}

/* ---- what is left of it ---- */

static ls_status write_report(const report *r, const char *path)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return ls_fail(LS_EIO, "cannot write %s", path);
    fprintf(f, "{\"world_size\": %d,\n \"steps\": %d,\n \"loss\": {\"first\": %.9g, ", r->world,
            STEPS, r->first_loss);
    fprintf(f, "\"last\": %.9g},\n \"parameter_sums\": [", r->last_loss);
    for (int i = 0; i < r->world; i++)
        fprintf(f, "%s%.17g", i ? ", " : "", r->sums[i]);
    fprintf(f, "],\n \"parameter_spread\": %.9g,\n \"grad_norm\": %.17g,\n", r->spread,
            r->norm);
    fprintf(f,
            " \"gradient_difference\": {\"limit\": %g, \"canonical_order\": %.9g, "
            "\"one_big_batch\": %.9g},\n",
            limit, r->in_order, r->at_once);
    fprintf(f, " \"average_ms\": {\"floats\": %d, \"sum_then_divide\": %.3f, \"avg\": %.3f},\n",
            AVERAGED, r->divide_ms, r->average_ms);
    fprintf(f,
            " \"step_ms\": {\"after_backward\": %.3f, \"overlapped\": %.3f, "
            "\"after_backward_exposed\": %.3f, \"overlapped_exposed\": %.3f}}\n",
            r->after_ms, r->overlapped_ms, r->after_exposed_ms, r->exposed_ms);
    return fclose(f) ? ls_fail(LS_EIO, "cannot write %s", path) : LS_OK;
}

static void print_report(const report *r, const char *path)
{
    printf("%d ranks, %d steps: loss %.4f -> %.4f, gradient norm %.6f\n", r->world, STEPS,
           r->first_loss, r->last_loss, r->norm);
    printf("parameters of the ranks: sums %.9g .. %.9g, spread %g\n", r->sums[0],
           r->sums[r->world - 1], r->spread);
    printf("mean gradient against one process: %g in the canonical order, %.2g as one batch\n",
           r->in_order, r->at_once);
    printf("average of %d floats: sum, then divide %.2f ms; avg %.2f ms\n", AVERAGED,
           r->divide_ms, r->average_ms);
    printf(
        "step: buckets after backward %.2f ms (waits %.2f), during it %.2f ms (waits %.2f)\n",
        r->after_ms, r->after_exposed_ms, r->overlapped_ms, r->exposed_ms);
    printf("%s\n", path);
}

static ls_status judge(const report *r)
{
    if (r->in_order != 0 || r->at_once > limit)
        return ls_fail(LS_EMISMATCH, "gradients differ by %g in order, by %g from one batch",
                       r->in_order, r->at_once);
    if (r->spread != 0)
        return ls_fail(LS_EMISMATCH, "parameters of ranks differ by %g", r->spread);
    return LS_OK;
}

static ls_status rank(ls_comm *world, void *context)
{
    const char *path   = context;
    report      r      = {.world = ls_comm_size(world), .rank = ls_comm_rank(world)};
    ls_status   status = ls_compute_start(1);

    if (status)
        return status;
    r.sums = ls_calloc((size_t)r.world, sizeof *r.sums);
    status = r.sums ? train(world, &r) : LS_ENOMEM;
    if (!status)
        status = race(world, &r);
    if (!status && r.rank == 0) {
        status = write_report(&r, path);
        if (!status) {
            print_report(&r, path);
            status = judge(&r);
        }
    }
    free(r.sums);
    ls_compute_stop();
    return status;
}

int main(int argc, char **argv)
{
    return demo_main(argc, argv, "ddp_demo", rank);
}

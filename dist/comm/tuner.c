/*
 * tuner.c - the choice among the algorithms over messages, by the alpha-beta model.
 *
 * An exchange of n bytes takes alpha + beta n, joining n bytes takes gamma n (Thakur,
 * Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521).  The three are measured by the
 * first operation that has a choice, some milliseconds once per group; the slowest rank's
 * numbers count, so that all choose alike.
 *
 * T bytes of the whole vector, N ranks, s = T (N-1)/N, l = ceil(log2 N):
 *
 *                    steps       bytes sent      bytes joined
 *   reduce to slices
 *     direct         N-1         s               s
 *     halving        l           s               s
 *     ring           N-1         s               s
 *     tree (up)      l           l T             l T
 *   gather slices    as reducing, nothing joined
 */
#include "dist/comm/tuner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/collective_impl.h"

void ls_tuner_free(ls_tuner *tuner)
{
    free(tuner);
}

typedef struct {
    double steps, sent, joined;
} cost;

static double levels(int n)
{
    return ceil(log2((double)n));
}

/* One way over the slices (or the tree) of T bytes that travel as `wire` bytes. */
static cost one_way(ls_algorithm a, int n, double wire, bool join)
{
    double s = wire * (n - 1) / n, l = levels(n);

    switch (a) {
    case LS_TREE:
        return (cost){l, l * wire, join ? l * wire : 0};
    case LS_HALVING:
        return (cost){l, s, join ? s : 0};
    case LS_DIRECT:
    case LS_RING:
    case LS_AUTO:
    case LS_ALGORITHM_COUNT:
        break;
    }
    return (cost){n - 1, s, join ? s : 0};
}

static cost plus(cost a, cost b)
{
    return (cost){a.steps + b.steps, a.sent + b.sent, a.joined + b.joined};
}

static cost cost_of(const ls_call *c, ls_algorithm a, int n)
{
    double total = (double)c->count * (double)ls_dtype_bytes(c->dtype);
    double sums  = c->dtype == LS_BF16 && a != LS_DIRECT ? 2 : 1; /* partial sums are floats */
    bool   tree  = a == LS_TREE;

    if (!c->slices && (c->kind == LS_ALL_GATHER || c->kind == LS_REDUCE_SCATTER))
        total *= n;
    cost up = one_way(a, n, sums * total, true), down = one_way(a, n, total, false);
    cost slices = {n - 1, total * (n - 1) / n, 0}; /* between the root and all others */
    switch (c->kind) {
    case LS_ALL_REDUCE:
        return plus(up, down);
    case LS_REDUCE:
        return tree ? up : plus(up, slices);
    case LS_REDUCE_SCATTER:
        return tree ? plus(up, slices) : up;
    case LS_ALL_GATHER:
        return tree ? plus(slices, down) : down;
    case LS_BROADCAST:
        if (a == LS_DIRECT)
            return (cost){n - 1, (n - 1) * total, 0};
        return tree ? down : plus(slices, down);
    case LS_SEND:
    case LS_RECV:
    case LS_BARRIER:
    case LS_GATHER:
    case LS_SCATTER:
    case LS_ALL_TO_ALL:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    return (cost){n - 1, total, 0};
}

double ls_tuner_predict(const ls_tuner *t, const ls_call *call, ls_algorithm a, int size)
{
    if (!ls_algorithm_fits(a, size))
        return -1;
    cost c = cost_of(call, a, size);
    return c.steps * t->alpha + c.sent * t->beta + c.joined * t->gamma;
}

/* ---- measuring ---- */

enum { PINGS = 20, PROBES = 6, PROBE_BYTES = 256 << 10, PROBE_FLOATS = PROBE_BYTES / 4 };

/* Seconds of one exchange of `bytes` with both neighbours on the ring, the best of n. */
static ls_status measure(ls_operation *op, char *buffer, size_t bytes, int n, double *seconds)
{
    int       size = ls__size(op), r = ls__rank(op);
    ls_status status = LS_OK;

    *seconds = INFINITY;
    for (int i = 0; i < n && !status; i++) {
        int64_t start = ls_now_ns();
        status        = ls__swap(op, (r + 1) % size, buffer, bytes, (r + size - 1) % size,
                                 buffer + PROBE_BYTES, bytes);
        *seconds      = fmin(*seconds, (double)(ls_now_ns() - start) * 1e-9);
    }
    return status;
}

static double measure_joining(char *buffer)
{
    const void *in[2]  = {buffer, buffer + PROBE_BYTES};
    void       *out[1] = {buffer};
    int64_t     start  = ls_now_ns();

    memset(buffer, 0, (size_t)2 * PROBE_BYTES);
    ls_k_combine(&(ls_combine){.op    = LS_SUM,
                               .from  = LS_F32,
                               .to    = LS_F32,
                               .n_in  = 2,
                               .n_out = 1,
                               .in    = in,
                               .out   = out,
                               .count = PROBE_FLOATS});
    return (double)(ls_now_ns() - start) * 1e-9 / PROBE_BYTES / 2;
}

/* The largest of all ranks' numbers, everywhere. */
static ls_status agree_on(ls_operation *op, ls_tuner *t)
{
    int       size = ls__size(op), r = ls__rank(op);
    ls_tuner *all    = ls_calloc((size_t)size, sizeof *all);
    ls_status status = all ? LS_OK : LS_ENOMEM;

    for (int k = 1; k < size && !status; k++)
        status = ls__swap(op, (r + k) % size, t, sizeof *t, (r - k + size) % size,
                          &all[(r - k + size) % size], sizeof *t);
    for (int p = 0; p < size && !status; p++) {
        t->alpha = fmax(t->alpha, all[p].alpha);
        t->beta  = fmax(t->beta, all[p].beta);
        t->gamma = fmax(t->gamma, all[p].gamma);
    }
    free(all);
    return status;
}

ls_status ls__tune(ls_operation *op)
{
    ls_collective_state *state = op->state;
    double               quick, slow;

    if (state->tuner)
        return LS_OK;
    int64_t   sent   = op->running.transport->sent; /* what is measured is not the operation's */
    ls_tuner *t      = ls_calloc(1, sizeof *t);
    char     *buffer = ls__scratch(&state->piece, (size_t)2 * PROBE_BYTES);
    ls_tuner  mine   = {0};
    ls_status status = t && buffer ? LS_OK : LS_ENOMEM;
    if (!status)
        mine.gamma = measure_joining(buffer);
    if (!status)
        status = measure(op, buffer, 0, PINGS, &quick);
    if (!status)
        status = measure(op, buffer, PROBE_BYTES, PROBES, &slow);
    if (!status) {
        mine.alpha = quick;
        mine.beta  = fmax(slow - quick, 0) / PROBE_BYTES;
        status     = agree_on(op, &mine);
        *t         = mine;
    }
    op->running.transport->sent = sent;
    if (status)
        free(t);
    else
        state->tuner = t;
    return status;
}

/* ---- choosing ---- */

static bool has_choice(ls_collective kind)
{
    return kind == LS_ALL_REDUCE || kind == LS_REDUCE || kind == LS_REDUCE_SCATTER ||
           kind == LS_ALL_GATHER || kind == LS_BROADCAST;
}

/* Those that follow the canonical order; the ring where speed was asked for, or nothing is
 * summed. */
static bool may_choose(const ls_operation *op, ls_algorithm a)
{
    bool sums = op->call->kind != LS_ALL_GATHER && op->call->kind != LS_BROADCAST;

    return a != LS_RING || op->fast || !sums;
}

ls_status ls__choose(ls_operation *op)
{
    static const ls_algorithm candidates[] = {LS_DIRECT, LS_HALVING, LS_TREE, LS_RING};
    double                    best         = INFINITY;

    op->algorithm = LS_DIRECT;
    if (!has_choice(op->call->kind))
        return LS_OK;
    ls_status status = ls__tune(op);
    for (int i = 0; i < 4 && !status; i++) {
        double t = ls_tuner_predict(op->state->tuner, op->call, candidates[i], ls__size(op));
        if (t < 0 || t >= best || !may_choose(op, candidates[i]))
            continue;
        best          = t;
        op->algorithm = candidates[i];
    }
    return status;
}

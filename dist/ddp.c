/*
 * ddp.c - when buckets leave, and what ranks must agree on.
 *
 * Note [unused parameters]
 * Whether a parameter was used is known to each rank for itself.  A bucket that lacks a
 * gradient cannot leave during backward; at the end of the step every rank sends what has not
 * left, with +0 for what it lacks, and then which parameters it used.  So all ranks start the
 * same collectives, whatever each used, and decide alike afterwards.
 *
 * Note [bf16 on the wire]
 * With it a bucket is rounded into a second array when it leaves, and that one travels; ranks'
 * parts are widened and summed in f32, and the sum is rounded once (dist/comm/collective.h). It
 * comes back into the bucket as f32, the same on all ranks.
 *
 * Note [first in the bucket]
 * The step's first leaf of a parameter is formed in its bucket and stays there: joins happen in
 * the left operand's memory, so the leftmost partial sum, and at last the whole one, never
 * moves.  With it log2(M/N) copies of the gradients are held, the buckets among them, and no
 * fewer than one.
 */
#include "dist/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/kernels/bf16.h"
#include "core/tree_sum.h"
#include "dist/agree.h"
#include "dist/bucket.h"
#include "dist/sync.h"

enum { DEFAULT_MB = 25 };

struct ls_ddp {
    ls_comm     *comm; /* its own group: nothing comes between the buckets */
    ls_ddp_opts  opts;
    ls_sync      sync;
    ls_buckets   buckets;
    ls_storage **views; /* [n] of the gradients in the buckets */
    ls_work    **work;  /* [buckets] */
    uint16_t   **wire;  /* [buckets] bf16, or NULL; Note [bf16 on the wire] */
    int          launched;
    int64_t      first_launch;
    ls_tree_sum *rounds; /* [n] interleaved: sums over all ranks, of the micro-batches so far */
    uint64_t     round;
    ls_ddp_stats stats;
    ls_trace    *trace; /* NULL: none */
};

/* ---- during backward ---- */

static ls_status launch(ls_ddp *d)
{
    ls_bucket *b    = &d->buckets.buckets[d->launched];
    void      *wire = d->wire ? (void *)d->wire[d->launched] : b->data;
    ls_call    call = {.kind  = LS_ALL_REDUCE,
                       .in    = wire,
                       .out   = wire,
                       .count = b->count,
                       .dtype = d->wire ? LS_BF16 : LS_REAL,
                       .op    = LS_SUM};

    if (d->wire)
        ls_k_bf16_round(wire, b->data, b->count);
    if (!d->launched)
        d->first_launch = ls_now_ns();
    d->stats.all_reduces++;
    return ls_comm_start(d->comm, &call, &d->work[d->launched++]);
}

static ls_status launch_complete(ls_ddp *d)
{
    ls_status status = LS_OK;

    while (!status && d->launched < d->buckets.n && !d->buckets.buckets[d->launched].missing)
        status = launch(d);
    return status;
}

static ls_status place(void *context, int i, ls_real **home)
{
    *home = ls_bucket_place(&((ls_ddp *)context)->buckets, i);
    return LS_OK;
}

static ls_status done(void *context, int i)
{
    ls_ddp *d = context;

    d->sync.used[i] = 1;
    d->buckets.buckets[d->buckets.bucket_of[i]].missing--;
    return d->opts.no_overlap ? LS_OK : launch_complete(d);
}

/* ---- the object ---- */

static size_t gradient_bytes(const ls_ddp *d, int i)
{
    return ls_tensor_grad_bytes(d->sync.trained[i].tensor);
}

static ls_status make_views(ls_ddp *d)
{
    for (int i = 0; i < d->sync.n; i++) {
        d->views[i] = ls_storage_view(ls_bucket_place(&d->buckets, i), gradient_bytes(d, i),
                                      LS_MEM_GRADS);
        if (!d->views[i])
            return LS_ENOMEM;
    }
    return LS_OK;
}

/* Where leaves are formed from here on: Note [first in the bucket]. */
static void set_homes(ls_ddp *d, bool in_buckets)
{
    for (int i = 0; i < d->sync.n; i++)
        d->sync.trained[i].tensor->grad_home =
            in_buckets ? ls_bucket_place(&d->buckets, i) : NULL;
}

static ls_status make_wire(ls_ddp *d)
{
    d->wire = ls_calloc((size_t)d->buckets.n + 1, sizeof *d->wire);
    for (int k = 0; k < d->buckets.n && d->wire; k++) {
        size_t bytes = (size_t)d->buckets.buckets[k].count * sizeof **d->wire;
        d->wire[k]   = ls_comm_alloc(d->comm, bytes);
        if (!d->wire[k])
            return LS_ENOMEM;
    }
    return d->wire ? LS_OK : LS_ENOMEM;
}

static ls_status make_parts(ls_ddp *d)
{
    double mb = d->opts.bucket_mb > 0 ? d->opts.bucket_mb : DEFAULT_MB;
    size_t n  = (size_t)d->sync.n;

    ls_status status = ls_buckets_init(&d->buckets, d->comm, d->sync.trained, d->sync.n,
                                       (int64_t)(mb * 1024 * 1024));
    if (status)
        return status;
    d->stats.buckets = d->buckets.n;
    d->views         = ls_calloc(n + 1, sizeof(void *));
    d->work          = ls_calloc((size_t)d->buckets.n + 1, sizeof(void *));
    d->rounds        = ls_calloc(n + 1, sizeof *d->rounds);
    if (!d->views || !d->work || !d->rounds)
        return LS_ENOMEM;
    status = d->opts.bf16 && ls_comm_size(d->comm) > 1 ? make_wire(d) : LS_OK;
    return status ? status : make_views(d);
}

/* This rank cannot go on: nor can the others. */
static ls_status give_up(ls_ddp *d, ls_status own)
{
    ls_status status = ls_sync_give_up(&d->sync, own);
    char      text[400];

    snprintf(text, sizeof text, "%s", ls_error_message());
    for (int k = 0; k < d->launched; k++)
        (void)!ls_work_wait(d->work[k]);
    d->launched = 0;
    return ls_fail(status, "%s", text);
}

static ls_status set_up(ls_ddp *d)
{
    ls_sync  *s      = &d->sync;
    ls_status status = ls_sync_init(s);

    if (!status)
        status = ls_agree_on_list(d->comm, s->all, s->n_all);
    if (!status)
        status = ls_share_values(d->comm, s->all, s->n_all);
    return status ? status : make_parts(d);
}

ls_status ls_ddp_new(ls_comm *comm, const ls_named_tensor *parameters, int n,
                     const ls_ddp_opts *opts, ls_ddp **out)
{
    ls_comm  *own;
    ls_status status = ls_comm_split(comm, 0, 0, &own);

    *out = NULL;
    if (status)
        return ls_fail_in(status, "ddp");
    ls_ddp *d = ls_calloc(1, sizeof *d);
    if (!d) {
        ls_comm_abort(own, ls_error_message());
        ls_comm_free(own);
        return LS_ENOMEM;
    }
    *d      = (ls_ddp){.comm = own, .opts = *opts};
    d->sync = (ls_sync){.who         = "ddp",
                        .comm        = own,
                        .all         = parameters,
                        .n_all       = n,
                        .interleaved = opts->interleaved,
                        .find_unused = opts->find_unused,
                        .crowded     = opts->crowded,
                        .sink        = {place, done, d}};
    status  = set_up(d);
    if (status) {
        status = ls_fail_in(ls_sync_give_up_alone(&d->sync, status), "ddp");
        ls_ddp_free(d);
    } else {
        *out = d;
    }
    return status;
}

static void drop_gradients(ls_ddp *d)
{
    for (int i = 0; i < d->sync.n; i++)
        ls_tensor_zero_grad(d->sync.trained[i].tensor);
}

void ls_ddp_free(ls_ddp *d)
{
    if (!d)
        return;
    drop_gradients(d);
    for (int i = 0; i < d->sync.n; i++) {
        d->sync.trained[i].tensor->grad_home = NULL;
        if (d->views)
            ls_storage_release(d->views[i]);
        if (d->rounds)
            ls_tree_sum_close(&d->rounds[i]);
    }
    for (int k = 0; k < d->buckets.n && d->wire; k++)
        ls_comm_release(d->comm, d->wire[k]);
    free(d->wire);
    free(d->rounds);
    ls_buckets_close(&d->buckets);
    free(d->views);
    free(d->work);
    ls_sync_close(&d->sync);
    ls_comm_free(d->comm);
    free(d);
}

/* ---- a step ---- */

int64_t ls_ddp_micro(const ls_ddp *d, int64_t micros, int64_t k)
{
    return ls_sync_micro(&d->sync, micros, k);
}

static void begin_round(ls_ddp *d)
{
    ls_buckets_reset(&d->buckets);
    d->launched = 0;
}

ls_status ls_ddp_begin(ls_ddp *d, ls_tape *tape)
{
    drop_gradients(d);
    for (int i = 0; i < d->sync.n; i++)
        ls_tree_sum_close(&d->rounds[i]);
    d->round = 0;
    set_homes(d, true);
    begin_round(d);
    return ls_sync_begin(&d->sync, tape);
}

void ls_ddp_no_sync(ls_ddp *d, bool on)
{
    ls_sync_no_sync(&d->sync, on);
}

/* What this rank lacks counts as +0; everything that has not left leaves. */
static ls_status launch_rest(ls_ddp *d)
{
    ls_status status = LS_OK;

    for (int i = 0; i < d->sync.n; i++)
        if (!d->sync.used[i])
            memset(ls_bucket_place(&d->buckets, i), 0, gradient_bytes(d, i));
    while (!status && d->launched < d->buckets.n)
        status = launch(d);
    return status;
}

static void trace_bucket(ls_ddp *d, int k, const ls_work_times *t)
{
    size_t each = ls_dtype_bytes(d->wire ? LS_BF16 : LS_REAL);

    ls_trace_add(d->trace, &(ls_span){.kind     = LS_SPAN_ALL_REDUCE,
                                      .launched = t->started,
                                      .start    = t->began,
                                      .end      = t->ended,
                                      .bytes    = d->buckets.buckets[k].count * (int64_t)each,
                                      .sequence = t->sequence,
                                      .index    = k});
}

static ls_status wait_all(ls_ddp *d)
{
    int64_t   start = ls_now_ns(), cpu = 0;
    ls_status status = LS_OK;

    for (int k = 0; k < d->launched; k++) {
        const ls_bucket *b = &d->buckets.buckets[k];
        ls_work_times    times;
        ls_status        one = ls_work_wait_timed(d->work[k], &times);
        status               = status ? status : one;
        if (!one)
            trace_bucket(d, k, &times);
        cpu += ls_sync_taken(&d->sync, &times, start);
        if (d->wire && !one)
            ls_k_bf16_widen(b->data, d->wire[k], b->count);
    }
    ls_trace_until_now(d->trace, LS_SPAN_WAIT, start, 0);
    d->stats.exposed_ns = ls_now_ns() - start + cpu;
    d->stats.comm_ns    = ls_now_ns() - d->first_launch;
    return status;
}

static void hand_out(ls_ddp *d)
{
    for (int i = 0; i < d->sync.n; i++)
        if (d->sync.ever[i])
            d->sync.trained[i].tensor->grad = ls_storage_retain(d->views[i]);
}

/* ---- interleaved: a round is one micro-batch of every rank ---- */

/* The round's sum of parameter i leaves its bucket, which the next round needs. */
static ls_status keep_round(ls_ddp *d, int i)
{
    ls_status   status = ls_tree_sum_fill(&d->rounds[i], d->round, gradient_bytes(d, i));
    ls_storage *copy   = status ? NULL : ls_storage_new(gradient_bytes(d, i), LS_MEM_GRADS);

    if (!copy)
        return status ? status : LS_ENOMEM;
    memcpy(copy->data, ls_bucket_place(&d->buckets, i), copy->bytes);
    return ls_tree_sum_push(&d->rounds[i], copy);
}

/* The last round's sum is in the bucket, and so the whole step's will be; NULL leaf: +0. */
static ls_status end_rounds(ls_ddp *d, int i)
{
    ls_real    *home   = ls_bucket_place(&d->buckets, i);
    bool        here   = d->sync.any_used[i];
    ls_status   status = ls_tree_sum_fill(&d->rounds[i], d->round, gradient_bytes(d, i));
    ls_storage *leaf =
        here && !status ? ls_storage_view(home, gradient_bytes(d, i), LS_MEM_GRADS) : NULL;

    if (status || (here && !leaf))
        return status ? status : LS_ENOMEM;
    return ls_tree_sum_end(&d->rounds[i], leaf, home, gradient_bytes(d, i));
}

static ls_status send_rest(ls_ddp *d)
{
    ls_status status = launch_rest(d);

    if (!status)
        status = wait_all(d);
    return status ? status : ls_sync_agree_on_used(&d->sync);
}

static ls_status end_round(ls_ddp *d)
{
    ls_sync  *s      = &d->sync;
    ls_status status = send_rest(d);

    for (int i = 0; i < s->n && !status; i++)
        if (s->ever[i] && s->no_sync && s->any_used[i])
            status = keep_round(d, i);
        else if (s->ever[i] && !s->no_sync)
            status = end_rounds(d, i);
    d->round++;
    if (!s->no_sync || status)
        return status;
    begin_round(d);
    ls_sync_begin_round(s);
    return LS_OK;
}

ls_status ls_ddp_end_micro(ls_ddp *d)
{
    ls_status status = ls_sync_end_micro(&d->sync);

    if (!d->opts.interleaved)
        set_homes(d, false);
    return status || !d->opts.interleaved ? status : end_round(d);
}

/* ---- the end of a step ---- */

ls_status ls_ddp_finish(ls_ddp *d, ls_tape *tape, ls_status own)
{
    (void)tape;
    ls_status status = ls_sync_end(&d->sync, own);

    if (status)
        return give_up(d, status);
    if (!d->opts.interleaved)
        status = send_rest(d);
    if (!status)
        status = ls_sync_check_used(&d->sync);
    if (!status)
        hand_out(d);
    return status;
}

void ls_ddp_set_trace(ls_ddp *d, ls_trace *trace)
{
    d->trace = trace;
}

ls_ddp_stats ls_ddp_get_stats(const ls_ddp *d)
{
    return d->stats;
}

ls_status ls_ddp_check(ls_ddp *d)
{
    const ls_sync *s      = &d->sync;
    ls_status      status = ls_agree_on_values(d->comm, s->all, s->n_all);

    return status ? ls_fail_in(ls_sync_give_up_alone(s, status), "ddp") : LS_OK;
}

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
#include "core/kernels/combine.h"
#include "core/tree_sum.h"
#include "dist/agree.h"
#include "dist/bucket.h"
#include "nn/grad_sum.h"

enum { DEFAULT_MB = 25 };

struct ls_ddp {
    ls_comm               *comm; /* its own group: nothing comes between the buckets */
    const ls_named_tensor *all;  /* [n_all] what the ranks share, buffers and frozen ones too */
    int                    n_all;
    ls_named_tensor       *parameters; /* [n] of these, what is trained */
    int                    n;
    ls_ddp_opts            opts;
    ls_grad_sum           *sum;
    ls_grad_sink           sink;
    ls_buckets             buckets;
    ls_storage           **views; /* [n] of the gradients in the buckets */
    ls_work              **work;  /* [buckets] */
    uint16_t             **wire;  /* [buckets] bf16, or NULL; Note [bf16 on the wire] */
    int                    launched;
    int64_t                first_launch;
    uint8_t     *used, *all_used, *any_unused; /* [n] by this rank; by any; not by all */
    uint8_t     *ever, *lacked;                /* [n] the last two, over the step */
    ls_tape     *tape;                         /* of the step that goes on */
    bool         no_sync, synced;
    bool         toggled; /* no_sync was, between a forward and its backward */
    uint64_t     before;  /* calls the tape had recorded before the micro-batch */
    ls_tree_sum *rounds; /* [n] interleaved: sums over all ranks, of the micro-batches so far */
    uint64_t     round;
    ls_ddp_stats stats;
    ls_trace    *trace; /* NULL: none */
};

/* ---- during backward ---- */

/* One array into another of another type. */
static void convert(void *out, ls_dtype to, const void *in, ls_dtype from, int64_t count)
{
    ls_k_combine(&(ls_combine){.op    = LS_SUM,
                               .from  = from,
                               .to    = to,
                               .n_in  = 1,
                               .n_out = 1,
                               .in    = (const void *const[]){in},
                               .out   = (void *const[]){out},
                               .count = count});
}

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
        convert(wire, LS_BF16, b->data, LS_REAL, b->count);
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

static ls_real *place(void *context, int i)
{
    return ls_bucket_place(&((ls_ddp *)context)->buckets, i);
}

static ls_status done(void *context, int i)
{
    ls_ddp *d = context;

    d->used[i] = 1;
    d->buckets.buckets[d->buckets.bucket_of[i]].missing--;
    return d->opts.no_overlap ? LS_OK : launch_complete(d);
}

/* ---- the object ---- */

static size_t gradient_bytes(const ls_ddp *d, int i)
{
    return (size_t)ls_tensor_numel(d->parameters[i].tensor) * sizeof(ls_real);
}

static ls_status make_views(ls_ddp *d)
{
    for (int i = 0; i < d->n; i++) {
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
    for (int i = 0; i < d->n; i++)
        d->parameters[i].tensor->grad_home =
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
    size_t n  = (size_t)d->n;

    ls_status status =
        ls_buckets_init(&d->buckets, d->comm, d->parameters, d->n, (int64_t)(mb * 1024 * 1024));
    if (status)
        return status;
    d->stats.buckets = d->buckets.n;
    d->sum           = ls_grad_sum_new(d->parameters, d->n);
    d->views         = ls_calloc(n + 1, sizeof(void *));
    d->work          = ls_calloc((size_t)d->buckets.n + 1, sizeof(void *));
    d->used          = ls_calloc(6 * n + 1, 1);
    d->rounds        = ls_calloc(n + 1, sizeof *d->rounds);
    if (!d->sum || !d->views || !d->work || !d->used || !d->rounds)
        return LS_ENOMEM;
    d->all_used   = d->used + 2 * n;
    d->any_unused = d->all_used + n;
    d->ever       = d->any_unused + n;
    d->lacked     = d->ever + n;
    d->sink       = (ls_grad_sink){place, done, d};
    status        = d->opts.bf16 && ls_comm_size(d->comm) > 1 ? make_wire(d) : LS_OK;
    return status ? status : make_views(d);
}

/* This rank cannot go on: nor can the others. */
static ls_status give_up(ls_ddp *d, ls_status own)
{
    char text[400];

    snprintf(text, sizeof text, "%s", ls_error_message());
    ls_comm_abort(d->comm, text);
    for (int k = 0; k < d->launched; k++)
        (void)!ls_work_wait(d->work[k]);
    d->launched = 0;
    return ls_fail(own, "%s", text);
}

/* What all ranks have in common they know; what this one alone has, the others must hear of. */
static ls_status give_up_alone(ls_ddp *d, ls_status status)
{
    bool alone =
        status && status != LS_EMISMATCH && status != LS_EPEER && status != LS_ETIMEOUT;

    return alone ? give_up(d, status) : status;
}

/* Every parameter belongs to one ls_ddp; what is trained is listed on its own. */
static ls_status claim(ls_ddp *d)
{
    d->parameters = ls_calloc((size_t)d->n_all + 1, sizeof *d->parameters);
    if (!d->parameters)
        return LS_ENOMEM;
    for (int i = 0; i < d->n_all; i++) {
        ls_tensor *t = d->all[i].tensor;
        if (t->reducer)
            return ls_fail(LS_ESTATE, "parameter %s is already wrapped", d->all[i].name);
        t->reducer = d;
        if (t->requires_grad)
            d->parameters[d->n++] = d->all[i];
    }
    return LS_OK;
}

static void unclaim(ls_ddp *d)
{
    for (int i = 0; i < d->n_all; i++)
        if (d->all[i].tensor->reducer == d)
            d->all[i].tensor->reducer = NULL;
}

static ls_status set_up(ls_ddp *d)
{
    ls_status status = claim(d);

    if (!status)
        status = ls_agree_on_list(d->comm, d->all, d->n_all);
    if (!status)
        status = ls_share_values(d->comm, d->all, d->n_all);
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
    *d     = (ls_ddp){.comm = own, .all = parameters, .n_all = n, .opts = *opts};
    status = set_up(d);
    if (status) {
        status = ls_fail_in(give_up_alone(d, status), "ddp");
        ls_ddp_free(d);
    } else {
        *out = d;
    }
    return status;
}

static void drop_gradients(ls_ddp *d)
{
    for (int i = 0; i < d->n; i++)
        ls_tensor_zero_grad(d->parameters[i].tensor);
}

void ls_ddp_free(ls_ddp *d)
{
    if (!d)
        return;
    unclaim(d);
    drop_gradients(d);
    for (int i = 0; i < d->n; i++) {
        d->parameters[i].tensor->grad_home = NULL;
        if (d->views)
            ls_storage_release(d->views[i]);
        if (d->rounds)
            ls_tree_sum_close(&d->rounds[i]);
    }
    for (int k = 0; k < d->buckets.n && d->wire; k++)
        ls_comm_release(d->comm, d->wire[k]);
    free(d->wire);
    free(d->rounds);
    ls_grad_sum_free(d->sum);
    ls_buckets_close(&d->buckets);
    free(d->views);
    free(d->work);
    free(d->used);
    free(d->parameters);
    ls_comm_free(d->comm);
    free(d);
}

/* ---- a step ---- */

int64_t ls_ddp_micro(const ls_ddp *d, int64_t micros, int64_t k)
{
    int64_t size = ls_comm_size(d->comm), rank = ls_comm_rank(d->comm);

    return d->opts.interleaved ? k * size + rank : rank * (micros / size) + k;
}

/* Before anything of a micro-batch goes anywhere: is its no_sync what its forward saw? */
static ls_status on_leaf(void *context, ls_tensor *leaf)
{
    ls_ddp *d = context;

    if (d->toggled)
        return ls_fail(LS_ESTATE,
                       "ddp: no_sync was turned %s between a forward and its backward; set it "
                       "before the forward",
                       d->no_sync ? "on" : "off");
    if (d->synced)
        return ls_fail(LS_ESTATE, "ddp: a micro-batch after the one that was synchronised; all "
                                  "but the step's last need no_sync");
    return ls_grad_sum_take(d->sum, leaf);
}

/* Where the sums of the micro-batch to come go. */
static void set_sink(ls_ddp *d)
{
    bool keeps = d->no_sync && !d->opts.interleaved;

    ls_grad_sum_last_micro(d->sum, keeps ? NULL : &d->sink);
}

/* Gradients are missing again, the tape's leaves come here. */
static void begin_round(ls_ddp *d)
{
    ls_buckets_reset(&d->buckets);
    memset(d->used, 0, (size_t)d->n);
    d->launched = 0;
    ls_grad_sum_begin(d->sum, d->tape);
    ls_tape_on_leaf(d->tape, on_leaf, d);
    set_sink(d);
}

/* What is trained was settled when buckets were made. */
static ls_status look_for_frozen(const ls_ddp *d)
{
    for (int i = 0, trained = 0; i < d->n_all; i++) {
        const ls_tensor *t   = d->all[i].tensor;
        bool             was = trained < d->n && d->parameters[trained].tensor == t;
        trained += was;
        if (t->requires_grad != was)
            return ls_fail(LS_ESTATE,
                           "ddp: parameter %s was %s after construction; make a new ls_ddp",
                           d->all[i].name, was ? "frozen" : "thawed");
    }
    return LS_OK;
}

ls_status ls_ddp_begin(ls_ddp *d, ls_tape *tape)
{
    drop_gradients(d);
    for (int i = 0; i < d->n; i++)
        ls_tree_sum_close(&d->rounds[i]);
    memset(d->ever, 0, (size_t)d->n);
    memset(d->lacked, 0, (size_t)d->n);
    d->tape   = tape;
    d->round  = 0;
    d->before = ls_tape_recorded(tape);
    d->synced = d->no_sync = d->toggled = false;
    set_homes(d, true);
    begin_round(d);
    return look_for_frozen(d);
}

void ls_ddp_no_sync(ls_ddp *d, bool on)
{
    if (on != d->no_sync && ls_tape_recorded(d->tape) != d->before)
        d->toggled = true;
    d->no_sync = on;
    set_sink(d);
}

/* What this rank lacks counts as +0; everything that has not left leaves. */
static ls_status launch_rest(ls_ddp *d)
{
    ls_status status = LS_OK;

    for (int i = 0; i < d->n; i++)
        if (!d->used[i])
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

/* What an operation took from the computation before the step began to wait. */
static int64_t taken(const ls_work_times *t, int64_t wait)
{
    int64_t before = wait > t->began ? wait - t->began : 0;

    return t->cpu < before ? t->cpu : before;
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
        cpu += taken(&times, start);
        if (d->wire && !one)
            convert(b->data, LS_REAL, d->wire[k], LS_BF16, b->count);
    }
    ls_trace_until_now(d->trace, LS_SPAN_WAIT, start, 0);
    d->stats.exposed_ns = ls_now_ns() - start + (d->opts.crowded ? cpu : 0);
    d->stats.comm_ns    = ls_now_ns() - d->first_launch;
    return status;
}

/* Used by all: min; used by any: max.  In one array: used, and its complement. */
static ls_status agree_on_used(ls_ddp *d)
{
    for (int i = 0; i < d->n; i++)
        d->used[d->n + i] = !d->used[i];
    return ls_comm_all_reduce(d->comm, d->all_used, d->used, 2 * d->n, LS_U8, LS_MAX);
}

static ls_status name_unused(const ls_ddp *d)
{
    char   names[300] = "";
    size_t used       = 0;
    int    more       = 0;

    for (int i = 0; i < d->n; i++) {
        const char *name = d->parameters[i].name;
        if (!d->lacked[i])
            continue;
        if (used + strlen(name) + 8 > sizeof names)
            more++;
        else
            used +=
                (size_t)snprintf(names + used, sizeof names - used, "%s%s%s", used ? ", " : "",
                                 name, d->ever[i] ? "" : " (on any rank)");
    }
    return ls_fail(LS_EINVAL,
                   "ddp: not every rank used %s%s in this step; set find_unused "
                   "(parallel.find_unused) if that is meant",
                   names, more ? ", ..." : "");
}

static bool unused_matters(const ls_ddp *d)
{
    for (int i = 0; i < d->n && !d->opts.find_unused; i++)
        if (d->lacked[i])
            return true;
    return false;
}

static void hand_out(ls_ddp *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->ever[i])
            d->parameters[i].tensor->grad = ls_storage_retain(d->views[i]);
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
    bool        here   = d->all_used[i];
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
    return status ? status : agree_on_used(d);
}

static ls_status end_round(ls_ddp *d)
{
    ls_status status = send_rest(d);

    for (int i = 0; i < d->n && !status; i++) {
        d->ever[i] |= d->all_used[i];
        d->lacked[i] |= d->any_unused[i];
        if (d->ever[i] && d->no_sync && d->all_used[i])
            status = keep_round(d, i);
        else if (d->ever[i] && !d->no_sync)
            status = end_rounds(d, i);
    }
    d->round++;
    if (d->no_sync && !status)
        begin_round(d);
    return status;
}

ls_status ls_ddp_end_micro(ls_ddp *d)
{
    ls_status status = ls_grad_sum_end_micro(d->sum);

    d->synced = d->synced || !d->no_sync;
    d->before = ls_tape_recorded(d->tape);
    if (!d->opts.interleaved)
        set_homes(d, false);
    return status || !d->opts.interleaved ? status : end_round(d);
}

/* ---- the end of a step ---- */

ls_status ls_ddp_finish(ls_ddp *d, ls_tape *tape, ls_status own)
{
    ls_status status = own;

    ls_grad_sum_finish(d->sum, tape);
    drop_gradients(d);
    if (!status && !d->synced)
        status =
            ls_fail(LS_ESTATE, "ddp: no micro-batch of the step was synchronised (no_sync)");
    if (status)
        return give_up(d, status);
    if (!d->opts.interleaved) {
        status = send_rest(d);
        memcpy(d->ever, d->all_used, (size_t)d->n);
        memcpy(d->lacked, d->any_unused, (size_t)d->n);
    }
    if (!status && unused_matters(d))
        return name_unused(d);
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
    ls_status status = ls_agree_on_values(d->comm, d->all, d->n_all);

    return status ? ls_fail_in(give_up_alone(d, status), "ddp") : LS_OK;
}

/*
 * fsdp.c - when units are gathered, dropped and reduced.
 *
 * What happens to a unit, and what it then does:
 *
 *   event          SHARDED         GATHERING        UNSHARDED      REDUCING
 *   AHEAD          gather          -                -              -
 *   USE            gather, await   await            -              gather, await
 *   RELEASE        -               await, drop      drop           -
 *   COMPLETE       reduce          reduce           drop, reduce   -
 *   ARRIVED        -               -                -              -> SHARDED
 *
 *   AHEAD     another unit runs, and this one probably comes soon
 *   USE       its forward, or its backward, begins
 *   RELEASE   its forward is over (unless kept for backward), its backward, the micro-batch
 *   COMPLETE  the last gradient of its parameters is there
 *   ARRIVED   the sum of the gradients is there
 *
 * "reduce" leaves in a fixed order (Note [order of reduce_scatters]).  Where a unit's whole
 * form is kept (ZeRO-1 and 2, one rank) "drop" keeps it until the step ends and the rows
 * change.
 *
 * The events come from two hooks of each unit's module, two boundaries (autograd/tape.h) that
 * these put around it, and the tape's leaves:
 *
 *   x ─> boundary ─> forward of the module ─> boundary ─> out          recorded
 *          RELEASE <─────────────────────────── USE                    in backward
 *
 * In a recomputed block the hooks run again in backward, where they only open the unit.
 */
#include "dist/fsdp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "dist/agree.h"
#include "dist/fsdp_impl.h"

const ls_fsdp_opts ls_fsdp_defaults = {.reshard_after_forward = true, .prefetch = 1};

/* ---- the table ---- */

typedef enum { AHEAD, USE, RELEASE, COMPLETE, ARRIVED, EVENTS } event;

typedef ls_status (*action)(ls_unit *u);

static ls_status await(ls_unit *u)
{
    return ls__whole_await(u);
}

static ls_status gather_and_await(ls_unit *u)
{
    ls_status status = ls__whole_gather(u);

    return status ? status : ls__whole_await(u);
}

static ls_status drop(ls_unit *u)
{
    ls__whole_drop(u);
    return LS_OK;
}

static ls_status await_and_drop(ls_unit *u)
{
    ls_status status = ls__whole_await(u);

    return status ? status : drop(u);
}

/* Frozen parameters may still be read by what remains of the unit's backward. */
static ls_status drop_and_reduce(ls_unit *u)
{
    if (u->n_trained == u->n)
        ls__whole_drop(u);
    if (u->state == SHARDED)
        u->state = REDUCING;
    return ls__grads_launch(u->fsdp);
}

static ls_status reduce(ls_unit *u)
{
    return ls__grads_launch(u->fsdp);
}

static ls_status reduce_from_here(ls_unit *u)
{
    u->state = REDUCING;
    return ls__grads_launch(u->fsdp);
}

static ls_status to_sharded(ls_unit *u)
{
    u->state = SHARDED;
    return LS_OK;
}

/* It is used again while its gradients travel, or wait for their turn. */
static ls_status use_again(ls_unit *u)
{
    u->state = SHARDED;
    return gather_and_await(u);
}

static const action table[EVENTS][UNIT_STATES] = {
    [AHEAD]   = {[SHARDED] = ls__whole_gather},
    [USE]     = {[SHARDED] = gather_and_await, [GATHERING] = await, [REDUCING] = use_again},
    [RELEASE] = {[GATHERING] = await_and_drop, [UNSHARDED] = drop},
    [COMPLETE] =
        {[SHARDED] = reduce_from_here, [GATHERING] = reduce, [UNSHARDED] = drop_and_reduce},
    [ARRIVED] = {[REDUCING] = to_sharded},
};

static ls_status happens(ls_unit *u, event e)
{
    action act = table[e][u->state];

    return act ? act(u) : LS_OK;
}

const char *ls__unit_name(const ls_unit *u)
{
    return u->modules[0]->path[0] ? u->modules[0]->path : "the root unit";
}

void ls__unit_arrived(ls_unit *u)
{
    (void)!happens(u, ARRIVED);
}

static int64_t bytes_of(const ls_unit *u, ls_span_kind kind)
{
    bool half = u->fsdp->opts.reduce_bf16;

    if (kind == LS_SPAN_ALL_GATHER)
        return u->values.count * (int64_t)ls__unit_size(u);
    return u->grads.count * (int64_t)(half ? sizeof(uint16_t) : sizeof(ls_real));
}

ls_status ls__unit_wait(ls_unit *u, ls_work *work, ls_span_kind kind)
{
    ls_fsdp      *f     = u->fsdp;
    bool          ready = ls_work_test(work);
    int64_t       start = ls_now_ns();
    ls_work_times times;
    ls_status     status = ls_work_wait_timed(work, &times);

    if (status)
        return ls_fail_in(status, "fsdp: %s",
                          ls__unit_name(u)); /* which one, where ranks run different units */
    f->stats.exposed_ns += ls_sync_taken(&f->sync, &times, start);
    if (!ready) {
        f->stats.exposed_ns += ls_now_ns() - start;
        ls_trace_until_now(f->trace, LS_SPAN_WAIT, start, u->index);
    }
    f->stats.comm_ns += times.ended - times.began;
    ls_trace_add(f->trace, &(ls_span){.kind     = kind,
                                      .launched = times.started,
                                      .start    = times.began,
                                      .end      = times.ended,
                                      .bytes    = bytes_of(u, kind),
                                      .sequence = times.sequence,
                                      .index    = u->index});
    return LS_OK;
}

/* ---- hooks ---- */

/* u is used now; those that probably follow are gathered meanwhile. */
static ls_status use(ls_unit *u)
{
    ls_fsdp  *f      = u->fsdp;
    ls_unit **next   = f->next;
    ls_status status = happens(u, USE);
    int       n      = ls__order_next(u, next);

    for (int k = 0; k < n && !status; k++)
        status = happens(next[k], AHEAD);
    return status;
}

ls_tensor *ls__fsdp_before(void *context, ls_module *m, ls_tape *tape, ls_tensor *x)
{
    ls_unit *u = context;

    if (ls_tape_status(tape))
        return NULL;
    if (!u->fsdp)
        return ls_tape_fail(tape, ls_fail(LS_ESTATE,
                                          "fsdp: %s is a unit, and its root is none yet "
                                          "(ls_fsdp_new)",
                                          ls__unit_name(u)));
    if (ls__is_root(u))
        ls__order_begin(u->fsdp);
    ls_status status = use(u);
    if (!status && ls__is_root(u) && ls_tape_get_grad(tape))
        status = ls__grads_prepare(u); /* a fused loss forms gradients in forward */
    if (status)
        return ls_tape_fail(tape, status);
    bool first = m == u->modules[0] && !ls__is_root(u);
    return x && first ? ls_boundary(tape, x, &u->at_end) : x;
}

/* Does backward need u again, and is it to stay until then? */
static bool stays_for_backward(const ls_unit *u)
{
    return u->fsdp->stepping && (ls__is_root(u) || !u->opts.reshard_after_forward);
}

ls_tensor *ls__fsdp_after(void *context, ls_module *m, ls_tape *tape, ls_tensor *out)
{
    ls_unit  *u      = context;
    ls_fsdp  *f      = u->fsdp;
    ls_status status = LS_OK;

    if (ls__is_root(u))
        ls__order_end(f);
    if (m == u->modules[u->n_modules - 1] && !f->backward && !stays_for_backward(u))
        status = happens(u, RELEASE);
    return status ? ls_tape_fail(tape, status) : ls_boundary(tape, out, &u->at_backward);
}

static ls_status begin_backward(void *context)
{
    ls_unit *u = context;
    ls_fsdp *f = u->fsdp;

    if (!f->backward) {
        f->backward = true;
        f->cursor   = f->n_order;
    }
    ls_status status = use(u);
    return status ? status : ls__grads_prepare(u);
}

static ls_status end_backward(void *context)
{
    return happens(context, RELEASE);
}

/* The sink of ls_sync: a rank's own sum of gradient i is in its place. */
static ls_status done(void *context, int i)
{
    ls_fsdp *f = context;
    ls_unit *u = f->units[f->unit_of[i]];

    f->sync.used[i] = 1;
    if (--u->missing)
        return LS_OK;
    u->complete = true;
    return happens(u, COMPLETE);
}

/* ---- the object ---- */

static ls_status check_units(const ls_fsdp *f, const ls_comm *comm)
{
    for (int k = 0; k < f->n; k++) {
        const ls_unit      *u = f->units[k];
        const ls_fsdp_opts *o = &u->opts;
        if (u->fsdp)
            return ls_fail(LS_ESTATE, "%s belongs to a model that is sharded",
                           ls__unit_name(u));
        if (u->comm != comm)
            return ls_fail(LS_EINVAL, "%s was sharded over another group than its root",
                           ls__unit_name(u));
        if (o->kind != f->opts.kind || o->prefetch != f->opts.prefetch ||
            o->blocks != f->opts.blocks || o->find_unused != f->opts.find_unused ||
            o->no_share != f->opts.no_share || o->bf16 != f->opts.bf16 ||
            o->reduce_bf16 != f->opts.reduce_bf16)
            return ls_fail(LS_EINVAL,
                           "%s was sharded with other options than its root; only "
                           "reshard_after_forward may differ",
                           ls__unit_name(u));
    }
    return LS_OK;
}

static void find_place(ls_fsdp *f, int i)
{
    for (int k = 0; k < f->n; k++)
        for (int j = 0; j < f->units[k]->n_trained; j++)
            if (f->units[k]->trained[j].tensor == f->sync.trained[i].tensor) {
                f->unit_of[i]          = k;
                f->place_of[i]         = j;
                f->units[k]->number[j] = i;
                return;
            }
}

static ls_status make_units(ls_fsdp *f)
{
    ls_status status = LS_OK;

    for (int k = 0; k < f->n && !status; k++) {
        ls_unit *u     = f->units[k];
        u->fsdp        = f;
        u->index       = k;
        u->at_backward = (ls_boundary_hook){begin_backward, u};
        u->at_end      = (ls_boundary_hook){end_backward, u};
    }
    for (int k = 0; k < f->n && !status; k++)
        status = ls__unit_make(f->units[k]);
    return status;
}

static ls_status make_lists(ls_fsdp *f)
{
    size_t n = (size_t)f->sync.n + 1, units = (size_t)f->n;

    f->room        = 4 * f->n;
    f->unit_of     = ls_calloc(n, sizeof *f->unit_of);
    f->place_of    = ls_calloc(n, sizeof *f->place_of);
    f->order       = ls_calloc(4 * units, sizeof *f->order);
    f->recorded    = ls_calloc(4 * units, sizeof *f->recorded);
    f->next        = ls_calloc(units + (size_t)f->opts.prefetch, sizeof *f->next);
    f->used_before = ls_calloc(n, 1);
    if (!f->unit_of || !f->place_of || !f->order || !f->recorded || !f->next || !f->used_before)
        return LS_ENOMEM;
    for (int i = 0; i < f->sync.n; i++)
        find_place(f, i);
    for (int k = 0; k < f->n - 1; k++)
        f->order[f->n_order++] = k;
    return LS_OK;
}

/* For units of at most so many values and gradients; room for `room` of them. */
static ls_status make_buffers(ls_fsdp *f, ls_buffers *b, int64_t values, int64_t grads,
                              int room)
{
    size_t    whole  = (size_t)(values + 1) * ls__unit_size(f->units[0]);
    size_t    form   = (size_t)(grads + 1) * sizeof(ls_real);
    size_t    wire   = (size_t)(grads + 1) * sizeof(uint16_t);
    ls_status status = ls__pool_init(&b->wholes, f->gathers, whole, room);

    if (!status)
        status = ls__pool_init(&b->grads, f->reduces, form, room);
    return status ? status : ls__pool_init(&b->wires, f->reduces, wire, room);
}

static ls_status make_pools(ls_fsdp *f)
{
    const ls_unit *root   = f->units[f->n - 1];
    int64_t        values = 0, grads = 0;

    for (int k = 0; k < f->n - 1; k++) {
        const ls_unit *u = f->units[k];
        values           = u->values.count > values ? u->values.count : values;
        grads            = u->grads.count > grads ? u->grads.count : grads;
    }
    ls_status status = make_buffers(f, &f->of_units, values, grads, f->n);
    return status ? status
                  : make_buffers(f, &f->of_root, root->values.count, root->grads.count, 1);
}

static void close_buffers(ls_buffers *b)
{
    ls__pool_close(&b->wholes);
    ls__pool_close(&b->grads);
    ls__pool_close(&b->wires);
}

/* Values that are there become rank 0's. */
static ls_status share(ls_fsdp *f)
{
    ls_named_tensor *with = ls_calloc((size_t)f->n_all + 1, sizeof *with);
    int              n    = 0;

    if (!with)
        return LS_ENOMEM;
    for (int i = 0; i < f->n_all; i++)
        if (f->all[i].tensor->storage)
            with[n++] = f->all[i];
    ls_status status = ls_share_values(f->reduces, with, n);
    free(with);
    return status;
}

static ls_status set_up(ls_fsdp *f, ls_module *root, ls_comm *comm)
{
    ls_sync  *s      = &f->sync;
    ls_status status = ls__unit_of(root) ? LS_OK : ls_fsdp_shard(root, comm, &f->opts);

    if (!status)
        status = ls__units_list(root, &f->units, &f->n);
    if (!status)
        status = check_units(f, comm);
    if (!status && !(f->all = ls_module_list(root, true, &f->n_all)))
        status = LS_ENOMEM;
    s->all   = f->all;
    s->n_all = f->n_all;
    if (!status)
        status = ls_sync_init(s);
    if (!status)
        status = ls_agree_on_list(f->reduces, s->all, s->n_all);
    if (!status)
        status = share(f);
    if (!status)
        status = make_units(f);
    if (!status)
        status = make_lists(f);
    return status ? status : make_pools(f);
}

static ls_status split(ls_comm *comm, ls_fsdp *f)
{
    ls_status status = ls_comm_split(comm, 0, 0, &f->reduces);

    return status ? status : ls_comm_split(comm, 0, 0, &f->gathers);
}

/* This rank cannot go on: nor can the others, whichever group they wait in. */
static ls_status give_up(ls_fsdp *f, ls_status own)
{
    ls_status status = ls_sync_give_up(&f->sync, own);
    char      text[400];

    snprintf(text, sizeof text, "%s", ls_error_message());
    ls_comm_abort(f->gathers, text);
    ls__grads_abandon(f);
    ls_fsdp_reshard(f);
    return ls_fail(status, "%s", text);
}

ls_status ls_fsdp_new(ls_module *root, ls_comm *comm, const ls_fsdp_opts *opts, ls_fsdp **out)
{
    ls_fsdp  *f      = ls_calloc(1, sizeof *f);
    ls_status status = f ? split(comm, f) : LS_ENOMEM;

    *out = NULL;
    if (status) {
        if (f)
            ls_comm_free(f->reduces);
        free(f);
        return ls_fail_in(status, "fsdp");
    }
    f->opts = opts ? *opts : ls_fsdp_defaults;
    f->sync = (ls_sync){.who         = "fsdp",
                        .comm        = f->reduces,
                        .interleaved = !f->opts.blocks,
                        .find_unused = f->opts.find_unused,
                        .crowded     = f->opts.crowded,
                        .sink        = {ls__grads_place, done, f}};
    status  = set_up(f, root, comm);
    if (status) {
        status = ls_fail_in(ls_sync_give_up_alone(&f->sync, status), "fsdp");
        ls_fsdp_free(f);
        ls_fsdp_forget(root);
    } else {
        *out = f;
    }
    return status;
}

void ls_fsdp_free(ls_fsdp *f)
{
    if (!f)
        return;
    ls__grads_abandon(f);
    ls__grads_drop(f);
    if (f->n && f->units[0]->shared && !f->alone) /* others read what this rank gives */
        f->alone = ls_comm_barrier(f->reduces) != LS_OK;
    for (int k = 0; k < f->n; k++)
        if (f->units[k]->fsdp == f)
            ls__unit_free(f->units[k]);
    close_buffers(&f->of_units);
    close_buffers(&f->of_root);
    ls_sync_close(&f->sync);
    ls_comm_free(f->gathers);
    ls_comm_free(f->reduces);
    free(f->units);
    free(f->unit_of);
    free(f->place_of);
    free(f->order);
    free(f->recorded);
    free(f->next);
    free(f->used_before);
    free(f->all);
    free(f);
}

void ls_fsdp_abandon(ls_fsdp *f)
{
    if (f)
        f->alone = true;
    ls_fsdp_free(f);
}

/* ---- a step ---- */

int64_t ls_fsdp_micro(const ls_fsdp *f, int64_t micros, int64_t k)
{
    return ls_sync_micro(&f->sync, micros, k);
}

ls_status ls_fsdp_begin(ls_fsdp *f, ls_tape *tape)
{
    ls__grads_drop(f);
    ls__grads_begin_round(f);
    f->stepping         = true;
    f->stats.comm_ns    = 0;
    f->stats.exposed_ns = 0;
    return ls_sync_begin(&f->sync, tape);
}

void ls_fsdp_no_sync(ls_fsdp *f, bool on)
{
    ls_sync_no_sync(&f->sync, on);
}

static ls_status release_all(ls_fsdp *f)
{
    ls_status status = LS_OK;

    for (int k = 0; k < f->n && !status; k++)
        status = happens(f->units[k], RELEASE);
    return status;
}

/* The reduce_scatters of a round, and of blocks those of the step. */
static ls_status end_round(ls_fsdp *f)
{
    ls_status status = ls__grads_finish_round(f);

    if (!status && f->sync.no_sync) {
        for (int i = 0; i < f->sync.n; i++)
            f->used_before[i] |= f->sync.used[i];
        ls__grads_begin_round(f);
        ls_sync_begin_round(&f->sync);
    }
    return status;
}

ls_status ls_fsdp_end_micro(ls_fsdp *f)
{
    ls_status status = ls_sync_end_micro(&f->sync);

    if (!status)
        status = release_all(f);
    f->backward = false;
    return status || !ls_sync_sinks(&f->sync) ? status : end_round(f);
}

ls_status ls_fsdp_finish(ls_fsdp *f, ls_tape *tape, ls_status own)
{
    ls_sync *s = &f->sync;

    (void)tape;
    f->stepping      = false;
    ls_status status = ls_sync_end(s, own);
    if (status)
        return give_up(f, status);
    for (int i = 0; i < s->n; i++)
        s->used[i] |= f->used_before[i];
    memset(f->used_before, 0, (size_t)s->n);
    status = ls_sync_agree_on_used(s);
    if (!status)
        status = ls_sync_check_used(s);
    if (!status)
        ls__grads_hand_out(f);
    ls_fsdp_reshard(f);
    return status;
}

void ls_fsdp_reshard(ls_fsdp *f)
{
    for (int k = 0; k < f->n; k++) {
        ls_unit *u = f->units[k];
        u->rounded = false;
        if (u->state == GATHERING)
            (void)!ls__whole_await(u); /* what fails now fails its next use as well */
        if (u->state == UNSHARDED || u->fresh)
            ls__whole_expire(u);
    }
}

ls_status ls_fsdp_check(ls_fsdp *f)
{
    ls_named_tensor *whole = ls_calloc((size_t)f->n_all + 1, sizeof *whole);
    int              n     = 0;

    for (int i = 0; i < f->n_all && whole; i++)
        if (!f->all[i].tensor->shard)
            whole[n++] = f->all[i];
    ls_status status = whole ? ls_agree_on_values(f->reduces, whole, n) : LS_ENOMEM;
    free(whole);
    return status ? ls_fail_in(ls_sync_give_up_alone(&f->sync, status), "fsdp") : LS_OK;
}

void ls_fsdp_set_trace(ls_fsdp *f, ls_trace *trace)
{
    f->trace = trace;
}

ls_fsdp_stats ls_fsdp_get_stats(const ls_fsdp *f)
{
    ls_fsdp_stats stats = f->stats;

    stats.units = f->n;
    return stats;
}

ls_comm_counters ls_fsdp_counted(const ls_fsdp *f, ls_collective kind)
{
    return ls_comm_counted(kind == LS_ALL_GATHER ? f->gathers : f->reduces, kind);
}

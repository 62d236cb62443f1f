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

ls_status ls__fsdp_begin_backward(void *context)
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

ls_status ls__fsdp_end_backward(void *context)
{
    return happens(context, RELEASE);
}

/* The sink of ls_sync: a rank's own sum of gradient i is in its place. */
ls_status ls__fsdp_done(void *context, int i)
{
    ls_fsdp *f = context;
    ls_unit *u = f->units[f->unit_of[i]];

    f->sync.used[i] = 1;
    if (--u->missing)
        return LS_OK;
    u->complete = true;
    return happens(u, COMPLETE);
}

/* ---- a step ---- */

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

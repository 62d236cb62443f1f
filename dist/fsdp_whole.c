/*
 * fsdp_whole.c - whole forms of units: gathered before they are used, dropped after it.
 *
 * Note [order of units]
 * Which unit is gathered ahead is a guess, good where units run as they did in the first
 * forward (before it: as they are registered), and backward in the opposite order.  A wrong
 * guess costs time and memory, and nothing else: a unit that nobody came for is dropped at the
 * end of the micro-batch.  All ranks guess alike, as all run the same units.
 */
#include <stdlib.h>
#include <string.h>

#include "dist/fsdp_impl.h"

/* ---- buffers ---- */

ls_status ls__pool_init(ls_buffer_pool *p, ls_comm *comm, size_t bytes, int room)
{
    *p      = (ls_buffer_pool){.comm = comm, .bytes = bytes, .room = room};
    p->idle = ls_calloc((size_t)room + 1, sizeof *p->idle);
    return p->idle ? LS_OK : LS_ENOMEM;
}

void *ls__pool_take(ls_buffer_pool *p)
{
    return p->n_idle ? p->idle[--p->n_idle] : NULL;
}

void *ls__pool_get(ls_buffer_pool *p)
{
    void *buffer = ls__pool_take(p);

    if (buffer)
        return buffer;
    buffer = ls_comm_alloc(p->comm, p->bytes);
    p->n += buffer != NULL;
    return buffer;
}

void ls__pool_give(ls_buffer_pool *p, void *buffer)
{
    p->idle[p->n_idle++] = buffer;
}

void ls__pool_close(ls_buffer_pool *p)
{
    for (int i = 0; i < p->n_idle; i++)
        ls_comm_release(p->comm, p->idle[i]);
    free(p->idle);
    *p = (ls_buffer_pool){0};
}

/* ---- one unit ---- */

static void *take_buffer(ls_unit *u)
{
    return u->stays || u->shared ? u->source : ls__pool_get(&ls__buffers(u)->wholes);
}

void ls__whole_release(ls_unit *u)
{
    if (!u->stays && !u->shared)
        ls__pool_give(&ls__buffers(u)->wholes, u->whole);
    u->whole = NULL;
}

/* The whole form of the parameters is here, or (NULL) is not. */
static void show(ls_unit *u, char *whole)
{
    for (int i = 0; i < u->n; i++)
        u->parameters[i].tensor->storage->data =
            whole ? whole + (size_t)u->values.offset[i] * ls__unit_size(u) : NULL;
}

static void count_open(ls_unit *u, int change)
{
    ls_fsdp *f = u->fsdp;

    if (ls__is_root(u) || u->stays)
        return;
    f->open += change;
    if (f->open > f->stats.most_open)
        f->stats.most_open = f->open;
}

ls_status ls__whole_gather(ls_unit *u)
{
    ls_fsdp *f = u->fsdp;

    if (!u->whole && !(u->whole = take_buffer(u)))
        return ls_fail_in(LS_ENOMEM, "fsdp: the whole form of %s", ls__unit_name(u));
    ls_call call = {.kind   = u->shared ? LS_BARRIER : LS_ALL_GATHER,
                    .in     = u->source,
                    .out    = u->whole,
                    .count  = u->values.count,
                    .dtype  = ls__unit_dtype(u),
                    .slices = u->values.slices,
                    .tag    = (uint32_t)u->index + 1};

    ls__unit_round(u);
    ls_status status = u->fresh ? LS_OK : ls_comm_start(f->gathers, &call, &u->gather);
    if (status)
        return ls_fail_in(status, "fsdp: %s", ls__unit_name(u));
    u->state = GATHERING;
    u->fresh = u->shared;
    count_open(u, 1);
    f->stats.all_gathers++;
    return LS_OK;
}

ls_status ls__whole_await(ls_unit *u)
{
    ls_work *work = u->gather;

    u->gather        = NULL;
    u->state         = UNSHARDED;
    ls_status status = work ? ls__unit_wait(u, work, LS_SPAN_ALL_GATHER) : LS_OK;
    if (status)
        ls__whole_expire(u); /* nobody reads what did not arrive */
    else
        show(u, u->whole);
    return status;
}

void ls__whole_drop(ls_unit *u)
{
    if (u->stays)
        return;
    show(u, NULL);
    ls__whole_release(u);
    count_open(u, -1);
    u->state = SHARDED;
}

void ls__whole_expire(ls_unit *u)
{
    if (u->state == UNSHARDED)
        ls__whole_drop(u);
    if (u->stays)
        show(u, NULL);
    u->state = SHARDED;
    u->fresh = false;
}

/* ---- Note [order of units] ---- */

void ls__order_begin(ls_fsdp *f)
{
    f->cursor     = 0;
    f->backward   = false;
    f->n_recorded = 0;
}

void ls__order_end(ls_fsdp *f)
{
    if (f->is_recorded || !f->n_recorded)
        return;
    memcpy(f->order, f->recorded, (size_t)f->n_recorded * sizeof *f->order);
    f->n_order     = f->n_recorded;
    f->is_recorded = true;
}

static void record(ls_unit *u)
{
    ls_fsdp *f = u->fsdp;

    bool again = f->n_recorded && f->recorded[f->n_recorded - 1] == u->index;

    if (!f->is_recorded && !f->backward && !again && f->n_recorded < f->room)
        f->recorded[f->n_recorded++] = u->index;
}

/* Moves the cursor past u, in the direction of the pass. */
static void pass(ls_unit *u)
{
    ls_fsdp *f    = u->fsdp;
    int      step = f->backward ? -1 : 1, at = f->cursor - f->backward;

    for (int k = 0; k < f->n_order && at >= 0 && at < f->n_order; k++, at += step)
        if (f->order[at] == u->index) {
            f->cursor = at + !f->backward;
            return;
        }
}

int ls__order_next(ls_unit *u, ls_unit **next)
{
    ls_fsdp *f    = u->fsdp;
    int      step = f->backward ? -1 : 1, n = 0;

    if (!ls__is_root(u)) {
        record(u);
        pass(u);
    }
    for (int at = f->cursor - f->backward; n < f->opts.prefetch && at >= 0 && at < f->n_order;
         at += step)
        next[n++] = f->units[f->order[at]];
    return n;
}

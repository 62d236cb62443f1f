/*
 * fsdp_grads.c - gradients of units: formed whole, left as sums of the rank's rows.
 *
 * Note [order of reduce_scatters]
 * They leave last unit first and the root at last, whatever order units become complete in, and
 * at the end of a round all that have not: so all ranks start the same, in a group of their
 * own, also where one rank does not use what another does.
 *
 * Note [bf16 on the wire]
 * With reduce_bf16 a unit's gradients are rounded into an array of half the size, which
 * travels; the ranks' parts are widened and summed in f32, and the sum is rounded once
 * (dist/comm/collective.h).
 */
#include <string.h>

#include "core/kernels/bf16.h"
#include "dist/fsdp_impl.h"

/* The unit whose turn is the k-th. */
static ls_unit *in_turn(const ls_fsdp *f, int k)
{
    return f->units[k < f->n - 1 ? f->n - 2 - k : f->n - 1];
}

void ls__grads_release(ls_unit *u)
{
    for (int i = 0; i < u->n_trained; i++)
        u->trained[i].tensor->grad_home = NULL;
    ls__pool_give(&ls__buffers(u)->grads, u->grad);
    u->grad = NULL;
}

/* ---- Note [bf16 on the wire] ---- */

static size_t wire_rows_bytes(const ls_unit *u)
{
    return (size_t)(u->grads.owned + 1) * sizeof(uint16_t);
}

static ls_status put_on_wire(ls_unit *u)
{
    u->wire      = ls__pool_get(&ls__buffers(u)->wires);
    u->wire_rows = u->wire ? ls_mem_alloc(wire_rows_bytes(u), LS_MEM_COMM) : NULL;
    if (!u->wire_rows)
        return LS_ENOMEM;
    ls_k_bf16_round(u->wire, u->grad, u->grads.count);
    ls__grads_release(u);
    return LS_OK;
}

void ls__grads_unwire(ls_unit *u)
{
    ls_mem_free(u->wire_rows, wire_rows_bytes(u), LS_MEM_COMM);
    if (u->wire)
        ls__pool_give(&ls__buffers(u)->wires, u->wire);
    u->wire = u->wire_rows = NULL;
}

static void take_from_wire(ls_unit *u)
{
    ls_k_bf16_widen(u->reduced->data, u->wire_rows, u->grads.owned);
    ls__grads_unwire(u);
}

/* What unit u has sent has arrived: the sum of the rank's rows over ranks, of this round. */
static ls_status join(ls_unit *u)
{
    ls_fsdp *f    = u->fsdp;
    ls_work *work = u->reduce;

    f->joined++;
    u->reduce = NULL;
    if (!work)
        return LS_OK;
    ls_status status = ls__unit_wait(u, work, LS_SPAN_REDUCE_SCATTER);
    if (u->wire)
        take_from_wire(u);
    else
        ls__grads_release(u);
    ls__unit_arrived(u);
    if (status)
        return status;
    ls_storage *rows = u->reduced;
    u->reduced       = NULL;
    return ls_tree_sum_push(&u->sum, rows);
}

/* A buffer that travels now is idle soon; a new one only where none travels. */
static ls_status take_buffer(ls_unit *u)
{
    ls_fsdp        *f      = u->fsdp;
    ls_buffer_pool *p      = &ls__buffers(u)->grads;
    ls_status       status = LS_OK;

    u->grad = ls__pool_take(p);
    while (!u->grad && p->n >= LS_TRAVELLING && f->joined < f->launched && !status) {
        status  = join(in_turn(f, f->joined));
        u->grad = ls__pool_take(p);
    }
    if (!u->grad && !status)
        u->grad = ls__pool_get(p);
    return u->grad ? LS_OK : status ? status : LS_ENOMEM;
}

static ls_status need_buffer(ls_unit *u)
{
    ls_status status = u->grad ? LS_OK : take_buffer(u);

    return status ? ls_fail_in(status, "fsdp: gradients of %s", ls__unit_name(u)) : LS_OK;
}

ls_status ls__grads_prepare(ls_unit *u)
{
    ls_fsdp *f = u->fsdp;

    if (!f->stepping || !ls_sync_sinks(&f->sync) || u->launched || !u->n_trained)
        return LS_OK;
    ls_status status = need_buffer(u);
    for (int i = 0; i < u->n_trained && !status; i++)
        u->trained[i].tensor->grad_home = u->grad + u->grads.offset[i];
    return status;
}

ls_status ls__grads_place(void *context, int i, ls_real **home)
{
    ls_fsdp  *f      = context;
    ls_unit  *u      = f->units[f->unit_of[i]];
    ls_status status = need_buffer(u);

    if (!status)
        *home = u->grad + u->grads.offset[f->place_of[i]];
    return status;
}

/* The first round's stay in their place: the tree joins in its left operand's memory. */
static ls_storage *new_rows(const ls_unit *u)
{
    size_t bytes = (size_t)u->grads.owned * sizeof(ls_real);

    return u->sum.count ? ls_storage_new(bytes, LS_MEM_GRADS)
                        : ls_storage_view(u->home, bytes, LS_MEM_GRADS);
}

static ls_status launch(ls_unit *u)
{
    ls_fsdp  *f      = u->fsdp;
    ls_status status = LS_OK;

    while (!status && f->launched - f->joined >= LS_TRAVELLING)
        status = join(in_turn(f, f->joined)); /* few sums outside of their trees at a time */
    if (!status && u->n_trained)
        status = need_buffer(u); /* may join what left before */
    if (status)
        return status;
    u->launched = true;
    f->launched++;
    if (!u->n_trained)
        return LS_OK;
    for (int i = 0; i < u->n_trained; i++)
        if (!f->sync.used[u->number[i]])
            memset(u->grad + u->grads.offset[i], 0, ls_tensor_grad_bytes(u->trained[i].tensor));
    u->reduced = new_rows(u);
    if (!u->reduced)
        return LS_ENOMEM;
    if (f->opts.reduce_bf16 && put_on_wire(u))
        return LS_ENOMEM;
    ls_call call = {.kind   = LS_REDUCE_SCATTER,
                    .in     = u->wire ? (void *)u->wire : u->grad,
                    .out    = u->wire ? (void *)u->wire_rows : u->reduced->data,
                    .count  = u->grads.count,
                    .dtype  = u->wire ? LS_BF16 : LS_REAL,
                    .op     = LS_SUM,
                    .slices = u->grads.slices,
                    .tag    = (uint32_t)u->index + 1};
    f->stats.reduce_scatters++;
    return ls_comm_start(f->reduces, &call, &u->reduce);
}

/* Sums that have arrived go into the tree now, so that few wait at a time. */
static ls_status join_arrived(ls_fsdp *f)
{
    ls_status status = LS_OK;

    while (!status && f->joined < f->launched) {
        ls_unit *u = in_turn(f, f->joined);
        if (u->reduce && !ls_work_test(u->reduce))
            break;
        status = join(u);
    }
    return status;
}

ls_status ls__grads_launch(ls_fsdp *f)
{
    ls_status status = LS_OK;

    while (!status && f->launched < f->n && in_turn(f, f->launched)->complete)
        status = launch(in_turn(f, f->launched));
    return status ? status : join_arrived(f);
}

ls_status ls__grads_finish_round(ls_fsdp *f)
{
    ls_status status = LS_OK;

    while (!status && f->launched < f->n)
        status = launch(in_turn(f, f->launched));
    while (!status && f->joined < f->launched)
        status = join(in_turn(f, f->joined));
    return status;
}

void ls__grads_begin_round(ls_fsdp *f)
{
    f->launched = f->joined = 0;
    for (int k = 0; k < f->n; k++) {
        ls_unit *u  = f->units[k];
        u->missing  = u->n_trained;
        u->complete = !u->n_trained;
        u->launched = false;
    }
}

void ls__grads_drop(ls_fsdp *f)
{
    for (int k = 0; k < f->n; k++) {
        ls_unit *u = f->units[k];
        for (int i = 0; i < u->n_trained; i++)
            ls_tensor_zero_grad(ls_tensor_owned(u->trained[i].tensor));
        ls_tree_sum_close(&u->sum);
        ls_storage_release(u->result);
        ls_storage_release(u->reduced); /* of a step that failed */
        u->result = u->reduced = NULL;
    }
}

void ls__grads_hand_out(ls_fsdp *f)
{
    for (int k = 0; k < f->n; k++) {
        ls_unit *u = f->units[k];
        u->result  = ls_tree_sum_finish(&u->sum);
        for (int i = 0; i < u->n_trained; i++) {
            u->views[i]->data = (ls_real *)u->result->data + u->grads.packed[i];
            if (f->sync.ever[u->number[i]])
                ls_tensor_owned(u->trained[i].tensor)->grad = ls_storage_retain(u->views[i]);
        }
    }
}

void ls__grads_abandon(ls_fsdp *f)
{
    for (int k = 0; k < f->n; k++) {
        ls_unit *u = f->units[k];
        if (u->state == GATHERING)
            (void)!ls__whole_await(u);
        if (u->reduce)
            (void)!ls_work_wait(u->reduce);
        u->reduce = NULL;
    }
}

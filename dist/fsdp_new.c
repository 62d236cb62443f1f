/*
 * fsdp_new.c - from units to the object that trains them, and its end.
 *
 * All ranks make the same lists in the same order: units inner ones first, the root at last,
 * and parameters by number, each with its unit and its place there.  The buffers of whole forms
 * are pools, one for the units below the root, which take turns, and one for the root.
 */
#include <stdio.h>
#include <stdlib.h>

#include "dist/agree.h"
#include "dist/fsdp.h"
#include "dist/fsdp_impl.h"

const ls_fsdp_opts ls_fsdp_defaults = {.reshard_after_forward = true, .prefetch = 1};

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
        u->at_backward = (ls_boundary_hook){ls__fsdp_begin_backward, u};
        u->at_end      = (ls_boundary_hook){ls__fsdp_end_backward, u};
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
                        .sink        = {ls__grads_place, ls__fsdp_done, f}};
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

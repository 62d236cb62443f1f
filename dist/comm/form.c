/*
 * form.c - how a group gets its transport.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "dist/comm/backend_impl.h"
#include "dist/comm/transport_faulty.h"
#include "dist/comm/transport_local.h"
#include "dist/comm/transport_mixed.h"

static int local_members(const ls_forming *f)
{
    int n = 0;

    for (int r = 0; r < f->size; r++)
        n += f->home->is_local[f->members[r]];
    return n;
}

static bool reaches_out(const ls_forming *f)
{
    return f->home->backend->connect && local_members(f) < f->size;
}

static ls_status make_block(ls_forming *f)
{
    ls_space *space = f->home->space;
    int       users = local_members(f);

    if (!f->home->control || (users == 1 && f->size > 1)) /* nobody else reaches it */
        return LS_OK;
    f->block = ls_local_block_new(space, f->size, users);
    if (f->block)
        f->mine.place = space->ops->place(space, f->block, 1);
    return f->block ? LS_OK : LS_ENOMEM;
}

void ls__form_drop(ls_forming *f)
{
    f->home->space->ops->release(f->home->space, f->block);
    f->block = NULL;
    ls_tcp_listener_close(&f->listener);
}

ls_status ls__form_begin(ls_forming *f)
{
    f->block         = NULL;
    f->listener      = (ls_tcp_listener){.fd = -1};
    f->mine          = (ls_contact){.tag = atomic_load(&f->home->next_tag)};
    ls_status status = make_block(f);
    if (!status && f->home->backend->offer && reaches_out(f))
        status = f->home->backend->offer(f);
    f->mine.failed = status != LS_OK;
    if (status)
        ls__form_drop(f);
    return status;
}

/* ---- the transports ---- */

static ls_status form_local(ls_forming *f, const ls_contact *all, ls_transport **t)
{
    uint64_t *places = ls_calloc((size_t)f->size, sizeof *places);
    void     *block  = f->block;

    if (!places)
        return LS_ENOMEM;
    for (int r = 0; r < f->size; r++)
        places[r] = f->home->is_local[f->members[r]] ? all[r].place : 0;
    f->block         = NULL;
    ls_status status = ls_transport_local(&(ls_local_opts){.space   = f->home->space,
                                                           .members = f->members,
                                                           .block   = block,
                                                           .places  = places,
                                                           .rank    = f->rank,
                                                           .size    = f->size},
                                          t);
    free(places);
    return status;
}

static ls_status form_mixed(ls_forming *f, ls_transport *near, ls_transport *far,
                            ls_transport **t)
{
    bool *is_near = ls_calloc((size_t)f->size, sizeof *is_near);

    if (!is_near) {
        near->ops->close(near);
        far->ops->close(far);
        return LS_ENOMEM;
    }
    for (int r = 0; r < f->size; r++)
        is_near[r] = f->home->is_local[f->members[r]];
    ls_status status = ls_transport_mixed(near, far, is_near, t);
    free(is_near);
    return status;
}

static ls_status form_parts(ls_forming *f, const ls_contact *all, int64_t deadline,
                            ls_transport **t)
{
    ls_transport *near = NULL, *far = NULL;
    ls_status     status = LS_OK;

    if (f->block)
        status = form_local(f, all, &near);
    if (!status && (reaches_out(f) || !near))
        status = f->home->backend->connect(f, all, deadline, &far);
    if (status) {
        if (near)
            near->ops->close(near);
        return status;
    }
    if (near && far)
        return form_mixed(f, near, far, t);
    *t = near ? near : far;
    return LS_OK;
}

ls_status ls__form_transport(ls_forming *f, const ls_contact *all, int64_t deadline,
                             ls_transport **t)
{
    const ls_join_opts *o      = &f->home->opts;
    ls_status           status = form_parts(f, all, deadline, t);

    ls__form_drop(f);
    if (!status && o->fault > 0 && f->id == LS_WORLD_ID)
        status = ls_transport_faulty(*t, o->fault, (ls_fault)o->fault_kind, t);
    return status;
}

/*
 * transport_mixed.c - two transports behind one: shared memory to the ranks of this host, TCP
 * to the others.
 *
 * The two directions of an exchange may go different ways; each part begins what is its own,
 * and both are moved in turn.  Nobody can sleep on both at once, so a wait on both sleeps in
 * short slices.
 *
 * Halving over ranks that are numbered host by host, a power of two on each, needs no special
 * hierarchy: its first distances stay inside the hosts, so only T/n bytes a rank leave a host
 * of n ranks.
 */
#include "dist/comm/transport_mixed.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum { SLICE_NS = 100000 };

typedef struct {
    ls_transport  base;
    ls_transport *near, *far;
    bool         *is_near;
    bool          near_done, far_done;
    ls_transport *receiving; /* the part that receives; NULL: nothing comes */
} mixed;

static bool goes_near(const mixed *m, int peer)
{
    return peer != LS_NO_PEER && m->is_near[peer];
}

static bool goes_far(const mixed *m, int peer)
{
    return peer != LS_NO_PEER && !m->is_near[peer];
}

static ls_status begin_part(ls_transport *part, const ls_descriptor *what, ls_outgoing out,
                            bool with_out, ls_incoming in, bool with_in)
{
    if (!with_out)
        out = (ls_outgoing){.peer = LS_NO_PEER};
    if (!with_in)
        in = (ls_incoming){.peer = LS_NO_PEER};
    return part->ops->begin(part, what, out, in);
}

static ls_status mixed_begin(ls_transport *t, const ls_descriptor *what, ls_outgoing out,
                             ls_incoming in)
{
    mixed    *m        = (mixed *)t;
    bool      near_out = goes_near(m, out.peer), near_in = goes_near(m, in.peer);
    bool      far_out = goes_far(m, out.peer), far_in = goes_far(m, in.peer);
    ls_status status = LS_OK;

    m->receiving = near_in ? m->near : far_in ? m->far : NULL;
    m->near_done = !near_out && !near_in;
    m->far_done  = !far_out && !far_in;
    if (!m->near_done)
        status = begin_part(m->near, what, out, near_out, in, near_in);
    if (!status && !m->far_done)
        status = begin_part(m->far, what, out, far_out, in, far_in);
    if (out.peer != LS_NO_PEER)
        t->sent += (int64_t)out.bytes;
    return status;
}

static ls_status mixed_progress(ls_transport *t, bool *moved, bool *done)
{
    mixed    *m          = (mixed *)t;
    bool      near_moved = false, far_moved = false;
    ls_status status = LS_OK;

    if (!m->near_done)
        status = m->near->ops->progress(m->near, &near_moved, &m->near_done);
    if (!status && !m->far_done)
        status = m->far->ops->progress(m->far, &far_moved, &m->far_done);
    *moved      = near_moved || far_moved;
    t->received = !m->receiving || m->receiving->received;
    *done       = !status && m->near_done && m->far_done;
    return status;
}

static int64_t shorter(int64_t ns, bool both)
{
    return both && ns > SLICE_NS ? SLICE_NS : ns;
}

static void mixed_sleep(ls_transport *t, int64_t ns)
{
    mixed *m    = (mixed *)t;
    bool   both = !m->near_done && !m->far_done;

    if (!ns || !m->near_done || m->far_done) /* nothing under way: a sleep all the same */
        m->near->ops->sleep(m->near, shorter(ns, both));
    if (!ns || !m->far_done)
        m->far->ops->sleep(m->far, shorter(ns, both));
}

static void mixed_wake(ls_transport *t)
{
    mixed *m = (mixed *)t;

    m->near->ops->wake(m->near);
    m->far->ops->wake(m->far);
}

static void mixed_close(ls_transport *t)
{
    mixed *m = (mixed *)t;

    m->near->ops->close(m->near);
    m->far->ops->close(m->far);
    free(m->is_near);
    free(m);
}

static const ls_transport_ops mixed_ops = {
    .name     = "shm+tcp",
    .begin    = mixed_begin,
    .progress = mixed_progress,
    .sleep    = mixed_sleep,
    .wake     = mixed_wake,
    .close    = mixed_close,
};

ls_status ls_transport_mixed(ls_transport *near, ls_transport *far, const bool *is_near,
                             ls_transport **t)
{
    mixed *m    = ls_calloc(1, sizeof *m);
    size_t n    = (size_t)near->size;
    bool  *copy = ls_calloc(n, sizeof *copy);

    if (!m || !copy) {
        near->ops->close(near);
        far->ops->close(far);
        free(copy);
        free(m);
        return LS_ENOMEM;
    }
    memcpy(copy, is_near, n * sizeof *copy);
    m->base    = (ls_transport){.ops = &mixed_ops, .rank = near->rank, .size = near->size};
    m->near    = near;
    m->far     = far;
    m->is_near = copy;
    *t         = &m->base;
    return LS_OK;
}

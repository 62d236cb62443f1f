/*
 * transport_faulty.c - see transport_faulty.h.
 *
 * Everything goes on to the inner transport, but for the one exchange or meeting whose turn it
 * is.  A late one is kept here until it is due:
 *
 *     begin / post ──> kept ── half a second, in which nothing moves ──> inner begin / post
 *
 * It is passed on by whatever looks next (progress, posted); sleep() ends in time for that.
 */
#include "dist/comm/transport_faulty.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/meet.h"

enum { LATE_NS = 500000000 };

typedef enum { NOTHING, EXCHANGE, MEETING } kept;

typedef struct {
    ls_transport  base;
    ls_meet       meet;
    ls_transport *inner;
    ls_fault      fault;
    int64_t       n, left; /* counts down to the one that goes wrong */
    int64_t       seen;    /* of inner->sent */
    bool          cut;
    kept          kept;
    int64_t       due; /* ls_now_ns() */
    /* What is kept of an exchange ... */
    ls_descriptor what;
    ls_outgoing   out;
    ls_incoming   in;
    /* ... and of a meeting. */
    ls_posting    posting;
    void         *payload; /* room for the meeting's payload_limit */
    size_t        payload_bytes;
} faulty;

static bool is_its_turn(faulty *f)
{
    return f->left > 0 && --f->left == 0;
}

static ls_status fail(const faulty *f, const char *what)
{
    return ls_fail(LS_EIO, "rank %d: %s %lld fails, as was asked for", f->base.rank, what,
                   (long long)f->n);
}

static bool is_kept(const faulty *f, kept what)
{
    return f->kept == what && ls_now_ns() < f->due;
}

static void keep(faulty *f, kept what)
{
    f->kept = what;
    f->due  = ls_now_ns() + LATE_NS;
}

/* What the inner transport has sent meanwhile; others may add to base.sent too. */
static void count_sent(faulty *f)
{
    f->base.sent += f->inner->sent - f->seen;
    f->seen = f->inner->sent;
}

/* --- exchanges ---------------------------------------------------------------------------- */

static ls_status begin(faulty *f, const ls_descriptor *what, ls_outgoing out, ls_incoming in)
{
    ls_status status = f->inner->ops->begin(f->inner, what, out, in);

    count_sent(f);
    return status;
}

static void keep_exchange(faulty *f, const ls_descriptor *what, ls_outgoing out, ls_incoming in)
{
    f->what = *what;
    f->out  = out;
    f->in   = in;
    keep(f, EXCHANGE);
}

static ls_status begin_wrong(faulty *f, const ls_descriptor *what, ls_outgoing out,
                             ls_incoming in)
{
    bool empty = out.peer == LS_NO_PEER || !out.bytes;

    if (f->fault == LS_FAULT_FAIL)
        return fail(f, "exchange");
    if (f->fault == LS_FAULT_DELAY)
        keep_exchange(f, what, out, in);
    else if (f->fault == LS_FAULT_CUT || empty)
        f->cut = true;
    else
        return begin(f, what, (ls_outgoing){out.peer, out.data, out.bytes - 1}, in);
    return LS_OK;
}

static ls_status faulty_begin(ls_transport *base, const ls_descriptor *what, ls_outgoing out,
                              ls_incoming in)
{
    faulty *f = (faulty *)base;

    if (f->cut)
        return LS_OK;
    return is_its_turn(f) ? begin_wrong(f, what, out, in) : begin(f, what, out, in);
}

/* Passes on the exchange that is kept. */
static ls_status begin_kept(faulty *f)
{
    f->kept = NOTHING;
    return begin(f, &f->what, f->out, f->in);
}

static ls_status faulty_progress(ls_transport *base, bool *moved, bool *done)
{
    faulty   *f      = (faulty *)base;
    ls_status status = LS_OK;

    *moved = *done = base->received = false;
    if (f->cut || is_kept(f, EXCHANGE))
        return LS_OK;
    if (f->kept == EXCHANGE)
        status = begin_kept(f);
    if (!status)
        status = f->inner->ops->progress(f->inner, moved, done);
    base->received = f->inner->received;
    count_sent(f);
    return status;
}

static void faulty_sleep(ls_transport *base, int64_t ns)
{
    faulty *f    = (faulty *)base;
    int64_t left = f->due - ls_now_ns();

    if (f->kept != NOTHING && ns > 0 && left < ns)
        ns = left > 1 ? left : 1;
    f->inner->ops->sleep(f->inner, ns);
}

static void faulty_wake(ls_transport *base)
{
    faulty *f = (faulty *)base;
    f->inner->ops->wake(f->inner);
}

static void faulty_close(ls_transport *base)
{
    faulty *f = (faulty *)base;

    f->inner->ops->close(f->inner);
    free(f->payload);
    free(f);
}

static const ls_transport_ops faulty_ops = {
    .name     = "faulty",
    .begin    = faulty_begin,
    .progress = faulty_progress,
    .sleep    = faulty_sleep,
    .wake     = faulty_wake,
    .close    = faulty_close,
};

/* --- meetings ----------------------------------------------------------------------------- */

static faulty *of_meet(ls_meet *m)
{
    return (faulty *)(void *)((char *)m - offsetof(faulty, meet));
}

static ls_status post(faulty *f, const ls_posting *mine, const void *payload, size_t bytes)
{
    ls_meet *m = f->inner->meet;
    return m->ops->post(m, mine, payload, bytes);
}

static void keep_meeting(faulty *f, const ls_posting *mine, const void *payload, size_t bytes)
{
    f->posting       = *mine;
    f->payload_bytes = bytes;
    if (bytes)
        memcpy(f->payload, payload, bytes);
    keep(f, MEETING);
}

static ls_status post_wrong(faulty *f, const ls_posting *mine, const void *payload,
                            size_t bytes)
{
    ls_posting less = *mine;

    if (f->fault == LS_FAULT_FAIL)
        return fail(f, "meeting");
    if (f->fault == LS_FAULT_DELAY)
        keep_meeting(f, mine, payload, bytes);
    else if (f->fault == LS_FAULT_CUT || !less.what.count)
        f->cut = true;
    else {
        less.what.count--;
        return post(f, &less, payload, bytes);
    }
    return LS_OK;
}

static ls_status faulty_post(ls_meet *m, const ls_posting *mine, const void *payload,
                             size_t bytes)
{
    faulty *f = of_meet(m);

    if (f->cut)
        return LS_OK;
    return is_its_turn(f) ? post_wrong(f, mine, payload, bytes) : post(f, mine, payload, bytes);
}

/* Where the posting that was kept cannot be put up, the rank is cut off: posted() has no
 * status. */
static void post_kept(faulty *f)
{
    f->kept = NOTHING;
    f->cut  = post(f, &f->posting, f->payload, f->payload_bytes) != LS_OK;
}

static const ls_posting *faulty_posted(ls_meet *m, int rank)
{
    faulty  *f     = of_meet(m);
    ls_meet *inner = f->inner->meet;

    if (is_kept(f, MEETING))
        return NULL;
    if (f->kept == MEETING)
        post_kept(f);
    return f->cut ? NULL : inner->ops->posted(inner, rank);
}

static const void *faulty_payload(ls_meet *m, int rank)
{
    ls_meet *inner = of_meet(m)->inner->meet;
    return inner->ops->payload(inner, rank);
}

static ls_status faulty_advance(ls_meet *m)
{
    faulty  *f     = of_meet(m);
    ls_meet *inner = f->inner->meet;

    return f->cut ? LS_OK : inner->ops->advance(inner);
}

static bool faulty_advanced(ls_meet *m, int rank)
{
    faulty  *f     = of_meet(m);
    ls_meet *inner = f->inner->meet;

    return !f->cut && inner->ops->advanced(inner, rank);
}

static uint64_t faulty_place(ls_meet *m, const void *p, size_t bytes)
{
    ls_meet *inner = of_meet(m)->inner->meet;
    return inner->ops->place(inner, p, bytes);
}

static void *faulty_address(ls_meet *m, int rank, uint64_t place, size_t bytes)
{
    ls_meet *inner = of_meet(m)->inner->meet;
    return inner->ops->address(inner, rank, place, bytes);
}

static const ls_meet_ops faulty_meet_ops = {
    .post     = faulty_post,
    .posted   = faulty_posted,
    .payload  = faulty_payload,
    .advance  = faulty_advance,
    .advanced = faulty_advanced,
    .place    = faulty_place,
    .address  = faulty_address,
};

/* --- making one --------------------------------------------------------------------------- */

static ls_status wrap_meet(faulty *f)
{
    const ls_meet *inner = f->inner->meet;

    if (!inner)
        return LS_OK;
    f->meet      = (ls_meet){&faulty_meet_ops, inner->payload_limit};
    f->base.meet = &f->meet;
    f->payload   = ls_calloc(1, inner->payload_limit + 1);
    return f->payload ? LS_OK : LS_ENOMEM;
}

static ls_status faulty_new(ls_transport *inner, int64_t n, ls_fault fault, faulty **made)
{
    faulty   *f;
    ls_status status;

    if (n < 1 || (unsigned)fault >= LS_FAULT_COUNT)
        return ls_fail(LS_EINVAL, "faulty: fault %d in exchange %lld; they count from 1",
                       (int)fault, (long long)n);
    f = ls_calloc(1, sizeof *f);
    if (!f)
        return LS_ENOMEM;
    f->base  = *inner;
    f->inner = inner;
    f->fault = fault;
    f->seen  = inner->sent;
    f->n = f->left = n;
    f->base.ops    = &faulty_ops;
    status         = wrap_meet(f);
    if (status)
        free(f);
    else
        *made = f;
    return status;
}

ls_status ls_transport_faulty(ls_transport *inner, int64_t n, ls_fault fault,
                              ls_transport **transport)
{
    faulty   *f      = NULL;
    ls_status status = faulty_new(inner, n, fault, &f);

    if (status)
        inner->ops->close(inner);
    *transport = f ? &f->base : NULL;
    return status;
}

/*
 * transport_mpi.c - see transport_mpi.h.
 *
 * A message of ours is one MPI message, or several:
 *
 *     up to 8 KiB:   [ header | payload ]             through buffers of the transport
 *     longer:        [ header ] [ piece ] [ piece ]   pieces from and into the caller's buffers
 *
 * MPI delivers messages of one sender with one tag in the order in which they were sent, so
 * headers and pieces need no numbers.  The receiver asks for pieces only after it has compared
 * the header, so nothing else ever reaches the caller's buffer; the sender does not wait for
 * that.  Two pieces of a direction are under way at a time, so that the next one is known to
 * MPI when one ends.  A piece is also what can be seen to move: waits start anew with each.
 *
 * MPI knows no wait with a time-out.  sleep() therefore looks, and naps between looks for an
 * eighth of the time that nothing has moved, up to two milliseconds.  Where the peer has come
 * it looks all the time, for ten milliseconds: many an MPI moves bytes only while both sides
 * look.
 */
#include "dist/comm/transport_mpi_impl.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"

enum {
    PIECE          = 1 << 20,  /* bytes, unless asked otherwise */
    YIELD_NS       = 200000,   /* time without movement before naps begin */
    FLOW_NS        = 10000000, /* ... where the peer is known to be there */
    LONGEST_NAP_NS = 2000000,  /* of a rank that waits for a late one */
    LET_GO_NS      = 100000000 /* given to MPI when an exchange is given up */
};

/* Exchanges with a peer in the operation that is on. */
typedef struct {
    ls_descriptor what;
    uint64_t      next;
} steps;

typedef struct {
    ls_transport  base;
    int           tag;
    int          *members; /* [size] */
    steps        *steps;   /* [2 * size]: sent to, received from */
    size_t        small, piece;
    ls__mpi_half *out, *in;
    int64_t       moved_at; /* ls_now_ns() */
    atomic_bool   woken;
} mpi_transport;

static ls_status mpi_fail(int code, const char *call, int peer)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int  length                         = 0;

    ls__mpi_enter();
    MPI_Error_string(code, text, &length);
    ls__mpi_leave();
    return ls_fail(LS_EIO, "%s, rank %d: %s", call, peer, text);
}

/* --- requests ----------------------------------------------------------------------------- */

static ls_status post_send(const mpi_transport *t, const ls__mpi_half *h, const void *data,
                           size_t bytes, MPI_Request *request)
{
    int code, to = t->members[h->peer];

    ls__mpi_enter();
    code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, t->tag, ls__mpi.comm, request);
    ls__mpi_leave();
    return code == MPI_SUCCESS ? LS_OK : mpi_fail(code, "MPI_Isend", h->peer);
}

static ls_status post_receive(const mpi_transport *t, const ls__mpi_half *h, void *data,
                              size_t bytes, MPI_Request *request)
{
    int code, from = t->members[h->peer];

    ls__mpi_enter();
    code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, t->tag, ls__mpi.comm, request);
    ls__mpi_leave();
    return code == MPI_SUCCESS ? LS_OK : mpi_fail(code, "MPI_Irecv", h->peer);
}

/* *received: bytes, of a receive that is complete. */
static ls_status test(const ls__mpi_half *h, MPI_Request *request, bool *complete,
                      int *received)
{
    MPI_Status status;
    int        flag = 0, code;

    ls__mpi_enter();
    code = MPI_Test(request, &flag, &status);
    if (code == MPI_SUCCESS && flag && !h->sends)
        code = MPI_Get_count(&status, MPI_BYTE, received);
    ls__mpi_leave();
    *complete = flag;
    return code == MPI_SUCCESS ? LS_OK : mpi_fail(code, "MPI_Test", h->peer);
}

/* Would test() find something?  Changes nothing but what MPI moves by itself meanwhile. */
static bool has_ended(MPI_Request request)
{
    MPI_Status status;
    int        flag = 0;

    if (request == MPI_REQUEST_NULL)
        return false;
    ls__mpi_enter();
    MPI_Request_get_status(request, &flag, &status);
    ls__mpi_leave();
    return flag;
}

/* --- one direction ------------------------------------------------------------------------ */

static ls__mpi_half *half_new(bool sends)
{
    ls__mpi_half *h = ls_calloc(1, sizeof *h);

    for (int i = 0; h && i < LS__MPI_UNDER_WAY; i++)
        h->requests[i] = MPI_REQUEST_NULL;
    if (h)
        h->sends = sends;
    return h;
}

/* Pieces end in the order in which they are posted. */
static MPI_Request *request_of(mpi_transport *t, ls__mpi_half *h, size_t offset)
{
    return &h->requests[offset / t->piece % LS__MPI_UNDER_WAY];
}

static size_t piece_at(const mpi_transport *t, const ls__mpi_half *h, size_t offset)
{
    return h->bytes - offset < t->piece ? h->bytes - offset : t->piece;
}

static ls_status post_piece(mpi_transport *t, ls__mpi_half *h)
{
    MPI_Request *request = request_of(t, h, h->posted);
    size_t       bytes = piece_at(t, h, h->posted), at = h->posted;

    h->posted += bytes;
    return h->sends ? post_send(t, h, h->from + at, bytes, request)
                    : post_receive(t, h, h->to + at, bytes, request);
}

static ls_status post_pieces(mpi_transport *t, ls__mpi_half *h)
{
    ls_status status = LS_OK;

    while (!status && h->posted < h->bytes &&
           h->posted - h->finished < LS__MPI_UNDER_WAY * t->piece)
        status = post_piece(t, h);
    return status;
}

static ls_status piece_ended(mpi_transport *t, ls__mpi_half *h, int received)
{
    size_t bytes = piece_at(t, h, h->finished);

    if (!h->sends && (size_t)received != bytes)
        return ls_fail(LS_EIO, "rank %d sent a piece of %d bytes where %zu were due", h->peer,
                       received, bytes);
    if (h->sends)
        t->base.sent += (int64_t)bytes;
    h->finished += bytes;
    return post_pieces(t, h);
}

static ls_status move_pieces(mpi_transport *t, ls__mpi_half *h, bool *moved)
{
    while (h->finished < h->bytes) {
        bool      complete = false;
        int       received = 0;
        ls_status status   = test(h, request_of(t, h, h->finished), &complete, &received);

        if (status || !complete)
            return status;
        *moved = true;
        status = piece_ended(t, h, received);
        if (status)
            return status;
    }
    h->stage = LS__MPI_IDLE;
    return LS_OK;
}

/* Bytes of the first MPI message of a message. */
static size_t first_bytes(const mpi_transport *t, const ls__mpi_half *h)
{
    return sizeof(ls_header) + (h->bytes <= t->small ? h->bytes : 0);
}

static ls_status compare(const mpi_transport *t, const ls__mpi_half *h, int received)
{
    const ls_header *own = &h->own, *theirs = &h->first.header;
    char             text[LS_DESCRIPTOR_TEXT];
    ls_status        status;

    if ((size_t)received < sizeof *theirs)
        return ls_fail(LS_EIO, "rank %d sent %d bytes where a header of %zu was due", h->peer,
                       received, sizeof *theirs);
    status = ls_descriptor_compare(&own->what, t->base.rank, &theirs->what, h->peer);
    if (status)
        return status;
    ls_descriptor_text(text, &own->what);
    if (theirs->step != own->step)
        return ls_fail(LS_EMISMATCH, "rank %d sent its message %llu where %llu was due (%s)",
                       h->peer, (unsigned long long)theirs->step, (unsigned long long)own->step,
                       text);
    if (theirs->bytes != own->bytes)
        return ls_fail(LS_EMISMATCH, "rank %d sent %llu bytes where %llu were due (%s)",
                       h->peer, (unsigned long long)theirs->bytes,
                       (unsigned long long)own->bytes, text);
    if ((size_t)received != first_bytes(t, h))
        return ls_fail(LS_EIO, "rank %d sent a first message of %d bytes where %zu were due",
                       h->peer, received, first_bytes(t, h));
    return LS_OK;
}

/* The first message is through: what it held is delivered or counted. */
static ls_status first_ended(mpi_transport *t, ls__mpi_half *h, int received)
{
    ls_status status = h->sends ? LS_OK : compare(t, h, received);

    if (status)
        return status;
    if (h->bytes > t->small) {
        h->stage = LS__MPI_PIECES;
        return post_pieces(t, h);
    }
    if (h->sends)
        t->base.sent += (int64_t)h->bytes;
    else if (h->bytes)
        memcpy(h->to, h->first.payload, h->bytes);
    h->stage = LS__MPI_IDLE;
    return LS_OK;
}

static ls_status move_first(mpi_transport *t, ls__mpi_half *h, bool *moved)
{
    bool      complete = false;
    int       received = 0;
    ls_status status   = test(h, &h->requests[0], &complete, &received);

    if (status || !complete)
        return status;
    *moved = true;
    return first_ended(t, h, received);
}

static ls_status move(mpi_transport *t, ls__mpi_half *h, bool *moved)
{
    ls_status status = LS_OK;

    if (h->stage == LS__MPI_FIRST)
        status = move_first(t, h, moved);
    if (!status && h->stage == LS__MPI_PIECES)
        status = move_pieces(t, h, moved);
    return status;
}

/* --- the transport ------------------------------------------------------------------------ */

static uint64_t next_step(mpi_transport *t, const ls__mpi_half *h, const ls_descriptor *what)
{
    steps *s = &t->steps[2 * h->peer + (h->sends ? 0 : 1)];

    if (memcmp(&s->what, what, sizeof *what))
        *s = (steps){*what, 0};
    return s->next++;
}

static ls_header half_begin(mpi_transport *t, ls__mpi_half *h, const ls_descriptor *what,
                            int peer, size_t bytes)
{
    h->stage  = LS__MPI_FIRST;
    h->peer   = peer;
    h->bytes  = bytes;
    h->posted = h->finished = 0;
    return (ls_header){*what, next_step(t, h, what), bytes};
}

static ls_status begin_in(mpi_transport *t, const ls_descriptor *what, ls_incoming in)
{
    ls__mpi_half *h = t->in;

    h->own = half_begin(t, h, what, in.peer, in.bytes);
    h->to  = in.data;
    return post_receive(t, h, &h->first, sizeof h->first, &h->requests[0]);
}

static ls_status begin_out(mpi_transport *t, const ls_descriptor *what, ls_outgoing out)
{
    ls__mpi_half *h = t->out;

    h->first.header = half_begin(t, h, what, out.peer, out.bytes);
    h->from         = out.data;
    if (out.bytes && out.bytes <= t->small)
        memcpy(h->first.payload, out.data, out.bytes);
    return post_send(t, h, &h->first, first_bytes(t, h), &h->requests[0]);
}

static ls_status mpi_begin(ls_transport *base, const ls_descriptor *what, ls_outgoing out,
                           ls_incoming in)
{
    mpi_transport *t      = (mpi_transport *)base;
    ls_status      status = LS_OK;

    t->moved_at = ls_now_ns();
    if (in.peer != LS_NO_PEER)
        status = begin_in(t, what, in);
    if (!status && out.peer != LS_NO_PEER)
        status = begin_out(t, what, out);
    return status;
}

static ls_status mpi_progress(ls_transport *base, bool *moved, bool *done)
{
    mpi_transport *t = (mpi_transport *)base;
    ls_status      status;

    *moved = *done = false;
    status         = move(t, t->out, moved);
    if (!status)
        status = move(t, t->in, moved);
    if (*moved)
        t->moved_at = ls_now_ns();
    base->received = t->in->stage == LS__MPI_IDLE;
    *done          = !status && t->out->stage == LS__MPI_IDLE && base->received;
    return status;
}

static bool may_move(mpi_transport *t, ls__mpi_half *h)
{
    return h->stage != LS__MPI_IDLE && has_ended(*request_of(t, h, h->finished));
}

/* The peer has come, so that bytes flow; of a send only the first piece that arrives tells. */
static bool flows(const ls__mpi_half *h)
{
    return h->stage == LS__MPI_PIECES && (!h->sends || h->finished);
}

static void nap(const mpi_transport *t, int64_t now, int64_t until)
{
    int64_t quiet = now - t->moved_at, left = until - now;
    int64_t ns = quiet / 8 < LONGEST_NAP_NS ? quiet / 8 : LONGEST_NAP_NS;

    if (quiet < (flows(t->out) || flows(t->in) ? FLOW_NS : YIELD_NS))
        sched_yield();
    else
        ls_sleep_ns(ns < left ? ns : left);
}

static void mpi_sleep(ls_transport *base, int64_t ns)
{
    mpi_transport *t   = (mpi_transport *)base;
    int64_t        now = ls_now_ns(), until = now + ns;

    while (now < until && !atomic_exchange(&t->woken, false) && !may_move(t, t->out) &&
           !may_move(t, t->in)) {
        nap(t, now, until);
        now = ls_now_ns();
    }
}

static void mpi_wake(ls_transport *base)
{
    atomic_store(&((mpi_transport *)base)->woken, true);
}

static void mpi_close(ls_transport *base)
{
    mpi_transport *t     = (mpi_transport *)base;
    int64_t        until = ls_now_ns() + LET_GO_NS;

    if (t->out)
        ls__mpi_let_go(t->out, until);
    if (t->in)
        ls__mpi_let_go(t->in, until);
    free(t->members);
    free(t->steps);
    free(t);
}

static const ls_transport_ops mpi_ops = {
    .name     = "mpi",
    .begin    = mpi_begin,
    .progress = mpi_progress,
    .sleep    = mpi_sleep,
    .wake     = mpi_wake,
    .close    = mpi_close,
};

/* --- making one --------------------------------------------------------------------------- */

static ls_status check_members(const int *members, int rank, int size)
{
    for (int i = 0; i < size; i++) {
        if (members[i] < 0 || members[i] >= ls__mpi.world)
            return ls_fail(LS_EINVAL, "mpi: member %d is MPI rank %d, there are %d", i,
                           members[i], ls__mpi.world);
        for (int j = 0; j < i; j++)
            if (members[i] == members[j])
                return ls_fail(LS_EINVAL, "mpi: members %d and %d are both MPI rank %d", j, i,
                               members[i]);
    }
    if (rank < 0 || rank >= size || members[rank] != ls__mpi.rank)
        return ls_fail(LS_EINVAL, "mpi: rank %d of %d is not this process, MPI rank %d", rank,
                       size, ls__mpi.rank);
    return LS_OK;
}

static ls_status check_args(const int *members, int rank, int size, int tag, int64_t largest)
{
    if (!ls__mpi.started)
        return ls_fail(LS_ESTATE, "mpi: a group before ls_mpi_start()");
    if (tag < 0 || tag > ls__mpi.largest_tag)
        return ls_fail(LS_EINVAL, "mpi: tag %d, this MPI has 0 to %d", tag,
                       ls__mpi.largest_tag);
    if (largest && (largest < (int64_t)sizeof(ls_header) || largest > INT_MAX))
        return ls_fail(LS_EINVAL, "mpi: messages of %lld bytes, %zu to %d will do",
                       (long long)largest, sizeof(ls_header), INT_MAX);
    return check_members(members, rank, size);
}

static size_t small_for(size_t largest)
{
    size_t room = largest - sizeof(ls_header);
    return room < LS__MPI_SMALL ? room : LS__MPI_SMALL;
}

static mpi_transport *transport_new(int size)
{
    mpi_transport *t = ls_calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->members = ls_calloc((size_t)size, sizeof *t->members);
    t->steps   = ls_calloc(2 * (size_t)size, sizeof *t->steps);
    t->out     = half_new(true);
    t->in      = half_new(false);
    if (t->members && t->steps && t->out && t->in)
        return t;
    mpi_close(&t->base);
    return NULL;
}

ls_status ls_transport_mpi(const int *members, int rank, int size, int tag, int64_t largest,
                           ls_transport **transport)
{
    ls_status      status = check_args(members, rank, size, tag, largest);
    mpi_transport *t;

    *transport = NULL;
    if (status)
        return status;
    t = transport_new(size);
    if (!t)
        return LS_ENOMEM;
    t->base  = (ls_transport){.ops = &mpi_ops, .rank = rank, .size = size};
    t->tag   = tag;
    t->piece = largest ? (size_t)largest : PIECE;
    t->small = small_for(t->piece);
    memcpy(t->members, members, (size_t)size * sizeof *members);
    *transport = &t->base;
    return LS_OK;
}

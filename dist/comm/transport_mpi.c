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
 *
 * A request that is under way when its transport is closed cannot always be taken back (a send
 * whose receiver refused).  Its half (below) is then kept until MPI has let go of it, or ends.
 */
#include "dist/comm/transport_mpi.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"

enum {
    SMALL          = 8192,     /* bytes of payload that travel with their header */
    PIECE          = 1 << 20,  /* bytes, unless asked otherwise */
    UNDER_WAY      = 2,        /* pieces of a direction */
    YIELD_NS       = 200000,   /* time without movement before naps begin */
    FLOW_NS        = 10000000, /* ... where the peer is known to be there */
    LONGEST_NAP_NS = 2000000,  /* of a rank that waits for a late one */
    LET_GO_NS      = 100000000 /* given to MPI when an exchange is given up */
};

typedef enum { IDLE, FIRST, PIECES } stage;

/* One direction of an exchange. */
typedef struct half half;
struct half {
    half       *next; /* among the abandoned */
    MPI_Request requests[UNDER_WAY];
    stage       stage;
    bool        sends;
    int         peer;
    const char *from; /* the caller's buffer, of a half that sends */
    char       *to;   /* ... and of one that receives */
    size_t      bytes, posted, finished;
    ls_header   own; /* what this rank expects, of a half that receives */
    struct {
        ls_header     header;
        unsigned char payload[SMALL];
    } first; /* as it travels */
};

/* Exchanges with a peer in the operation that is on. */
typedef struct {
    ls_descriptor what;
    uint64_t      next;
} steps;

typedef struct {
    ls_transport base;
    int          tag;
    int         *members; /* [size] */
    steps       *steps;   /* [2 * size]: sent to, received from */
    size_t       small, piece;
    half        *out, *in;
    int64_t      moved_at; /* ls_now_ns() */
    atomic_bool  woken;
} mpi_transport;

/* The library's one variable besides its allocator's, because MPI is one per process. */
static struct {
    pthread_mutex_t lock;  /* of start, end, and the abandoned */
    pthread_mutex_t calls; /* held in every call where MPI wants one thread at a time */
    bool            started, ours, serial;
    MPI_Comm        comm;
    int             rank, world, largest_tag;
    half           *abandoned;
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER, .calls = PTHREAD_MUTEX_INITIALIZER};

static void enter(void)
{
    if (mpi.serial)
        pthread_mutex_lock(&mpi.calls);
}

static void leave(void)
{
    if (mpi.serial)
        pthread_mutex_unlock(&mpi.calls);
}

static ls_status mpi_fail(int code, const char *call, int peer)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int  length                         = 0;

    enter();
    MPI_Error_string(code, text, &length);
    leave();
    return ls_fail(LS_EIO, "%s, rank %d: %s", call, peer, text);
}

/* --- requests ----------------------------------------------------------------------------- */

static ls_status post_send(const mpi_transport *t, const half *h, const void *data,
                           size_t bytes, MPI_Request *request)
{
    int code, to = t->members[h->peer];

    enter();
    code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, t->tag, mpi.comm, request);
    leave();
    return code == MPI_SUCCESS ? LS_OK : mpi_fail(code, "MPI_Isend", h->peer);
}

static ls_status post_receive(const mpi_transport *t, const half *h, void *data, size_t bytes,
                              MPI_Request *request)
{
    int code, from = t->members[h->peer];

    enter();
    code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, t->tag, mpi.comm, request);
    leave();
    return code == MPI_SUCCESS ? LS_OK : mpi_fail(code, "MPI_Irecv", h->peer);
}

/* *received: bytes, of a receive that is complete. */
static ls_status test(const half *h, MPI_Request *request, bool *complete, int *received)
{
    MPI_Status status;
    int        flag = 0, code;

    enter();
    code = MPI_Test(request, &flag, &status);
    if (code == MPI_SUCCESS && flag && !h->sends)
        code = MPI_Get_count(&status, MPI_BYTE, received);
    leave();
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
    enter();
    MPI_Request_get_status(request, &flag, &status);
    leave();
    return flag;
}

/* --- one direction ------------------------------------------------------------------------ */

static half *half_new(bool sends)
{
    half *h = ls_calloc(1, sizeof *h);

    for (int i = 0; h && i < UNDER_WAY; i++)
        h->requests[i] = MPI_REQUEST_NULL;
    if (h)
        h->sends = sends;
    return h;
}

/* Pieces end in the order in which they are posted. */
static MPI_Request *request_of(mpi_transport *t, half *h, size_t offset)
{
    return &h->requests[offset / t->piece % UNDER_WAY];
}

static size_t piece_at(const mpi_transport *t, const half *h, size_t offset)
{
    return h->bytes - offset < t->piece ? h->bytes - offset : t->piece;
}

static ls_status post_piece(mpi_transport *t, half *h)
{
    MPI_Request *request = request_of(t, h, h->posted);
    size_t       bytes = piece_at(t, h, h->posted), at = h->posted;

    h->posted += bytes;
    return h->sends ? post_send(t, h, h->from + at, bytes, request)
                    : post_receive(t, h, h->to + at, bytes, request);
}

static ls_status post_pieces(mpi_transport *t, half *h)
{
    ls_status status = LS_OK;

    while (!status && h->posted < h->bytes && h->posted - h->finished < UNDER_WAY * t->piece)
        status = post_piece(t, h);
    return status;
}

static ls_status piece_ended(mpi_transport *t, half *h, int received)
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

static ls_status move_pieces(mpi_transport *t, half *h, bool *moved)
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
    h->stage = IDLE;
    return LS_OK;
}

/* Bytes of the first MPI message of a message. */
static size_t first_bytes(const mpi_transport *t, const half *h)
{
    return sizeof(ls_header) + (h->bytes <= t->small ? h->bytes : 0);
}

static ls_status compare(const mpi_transport *t, const half *h, int received)
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
static ls_status first_ended(mpi_transport *t, half *h, int received)
{
    ls_status status = h->sends ? LS_OK : compare(t, h, received);

    if (status)
        return status;
    if (h->bytes > t->small) {
        h->stage = PIECES;
        return post_pieces(t, h);
    }
    if (h->sends)
        t->base.sent += (int64_t)h->bytes;
    else if (h->bytes)
        memcpy(h->to, h->first.payload, h->bytes);
    h->stage = IDLE;
    return LS_OK;
}

static ls_status move_first(mpi_transport *t, half *h, bool *moved)
{
    bool      complete = false;
    int       received = 0;
    ls_status status   = test(h, &h->requests[0], &complete, &received);

    if (status || !complete)
        return status;
    *moved = true;
    return first_ended(t, h, received);
}

static ls_status move(mpi_transport *t, half *h, bool *moved)
{
    ls_status status = LS_OK;

    if (h->stage == FIRST)
        status = move_first(t, h, moved);
    if (!status && h->stage == PIECES)
        status = move_pieces(t, h, moved);
    return status;
}

/* --- the transport ------------------------------------------------------------------------ */

static uint64_t next_step(mpi_transport *t, const half *h, const ls_descriptor *what)
{
    steps *s = &t->steps[2 * h->peer + (h->sends ? 0 : 1)];

    if (memcmp(&s->what, what, sizeof *what))
        *s = (steps){*what, 0};
    return s->next++;
}

static ls_header half_begin(mpi_transport *t, half *h, const ls_descriptor *what, int peer,
                            size_t bytes)
{
    h->stage  = FIRST;
    h->peer   = peer;
    h->bytes  = bytes;
    h->posted = h->finished = 0;
    return (ls_header){*what, next_step(t, h, what), bytes};
}

static ls_status begin_in(mpi_transport *t, const ls_descriptor *what, ls_incoming in)
{
    half *h = t->in;

    h->own = half_begin(t, h, what, in.peer, in.bytes);
    h->to  = in.data;
    return post_receive(t, h, &h->first, sizeof h->first, &h->requests[0]);
}

static ls_status begin_out(mpi_transport *t, const ls_descriptor *what, ls_outgoing out)
{
    half *h = t->out;

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
    base->received = t->in->stage == IDLE;
    *done          = !status && t->out->stage == IDLE && base->received;
    return status;
}

static bool may_move(mpi_transport *t, half *h)
{
    return h->stage != IDLE && has_ended(*request_of(t, h, h->finished));
}

/* The peer has come, so that bytes flow; of a send only the first piece that arrives tells. */
static bool flows(const half *h)
{
    return h->stage == PIECES && (!h->sends || h->finished);
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

/* --- giving up ---------------------------------------------------------------------------- */

/* Has MPI let go of all its requests? */
static bool is_free(half *h)
{
    bool all = true;

    for (int i = 0; i < UNDER_WAY; i++) {
        int flag = 1;

        enter();
        if (h->requests[i] != MPI_REQUEST_NULL)
            MPI_Test(&h->requests[i], &flag, MPI_STATUS_IGNORE);
        leave();
        all = all && flag;
    }
    return all;
}

static void cancel(half *h)
{
    for (int i = 0; i < UNDER_WAY; i++) {
        enter();
        if (h->requests[i] != MPI_REQUEST_NULL)
            MPI_Cancel(&h->requests[i]);
        leave();
    }
}

/* Frees those abandoned halves that MPI has let go of; with the lock. */
static void sweep(void)
{
    half **at = &mpi.abandoned;

    while (*at) {
        half *h = *at;

        if (is_free(h)) {
            *at = h->next;
            free(h);
        } else {
            at = &h->next;
        }
    }
}

static void abandon(half *h)
{
    pthread_mutex_lock(&mpi.lock);
    sweep();
    h->next       = mpi.abandoned;
    mpi.abandoned = h;
    pthread_mutex_unlock(&mpi.lock);
}

static void give_up(half *h, int64_t until)
{
    if (!is_free(h))
        cancel(h);
    while (!is_free(h) && ls_now_ns() < until)
        ls_sleep_ns(YIELD_NS);
    if (is_free(h))
        free(h);
    else
        abandon(h);
}

static void mpi_close(ls_transport *base)
{
    mpi_transport *t     = (mpi_transport *)base;
    int64_t        until = ls_now_ns() + LET_GO_NS;

    if (t->out)
        give_up(t->out, until);
    if (t->in)
        give_up(t->in, until);
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
        if (members[i] < 0 || members[i] >= mpi.world)
            return ls_fail(LS_EINVAL, "mpi: member %d is MPI rank %d, there are %d", i,
                           members[i], mpi.world);
        for (int j = 0; j < i; j++)
            if (members[i] == members[j])
                return ls_fail(LS_EINVAL, "mpi: members %d and %d are both MPI rank %d", j, i,
                               members[i]);
    }
    if (rank < 0 || rank >= size || members[rank] != mpi.rank)
        return ls_fail(LS_EINVAL, "mpi: rank %d of %d is not this process, MPI rank %d", rank,
                       size, mpi.rank);
    return LS_OK;
}

static ls_status check_args(const int *members, int rank, int size, int tag, int64_t largest)
{
    if (!mpi.started)
        return ls_fail(LS_ESTATE, "mpi: a group before ls_mpi_start()");
    if (tag < 0 || tag > mpi.largest_tag)
        return ls_fail(LS_EINVAL, "mpi: tag %d, this MPI has 0 to %d", tag, mpi.largest_tag);
    if (largest && (largest < (int64_t)sizeof(ls_header) || largest > INT_MAX))
        return ls_fail(LS_EINVAL, "mpi: messages of %lld bytes, %zu to %d will do",
                       (long long)largest, sizeof(ls_header), INT_MAX);
    return check_members(members, rank, size);
}

static size_t small_for(size_t largest)
{
    size_t room = largest - sizeof(ls_header);
    return room < SMALL ? room : SMALL;
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

/* --- MPI itself --------------------------------------------------------------------------- */

static ls_status initialise(int *level)
{
    int up = 0, down = 0, code;

    MPI_Finalized(&down);
    if (down)
        return ls_fail(LS_ESTATE, "MPI has been finalised and cannot start again");
    MPI_Initialized(&up);
    code =
        up ? MPI_Query_thread(level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, level);
    mpi.ours = !up;
    return code == MPI_SUCCESS ? LS_OK : ls_fail(LS_EIO, "MPI does not start: error %d", code);
}

static int find_largest_tag(void)
{
    int *value = NULL, found = 0;

    MPI_Comm_get_attr(mpi.comm, MPI_TAG_UB, &value, &found);
    return found ? *value : 32767; /* what the standard guarantees */
}

static ls_status start(void)
{
    int       level  = MPI_THREAD_SINGLE, code;
    ls_status status = initialise(&level);

    if (status)
        return status;
    code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi.comm);
    if (code != MPI_SUCCESS)
        return ls_fail(LS_EIO, "MPI_Comm_dup: error %d", code);
    MPI_Comm_set_errhandler(mpi.comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(mpi.comm, &mpi.rank);
    MPI_Comm_size(mpi.comm, &mpi.world);
    mpi.largest_tag = find_largest_tag();
    mpi.serial      = level != MPI_THREAD_MULTIPLE;
    mpi.started     = true;
    return LS_OK;
}

ls_status ls_mpi_start(int *rank, int *world)
{
    ls_status status;

    pthread_mutex_lock(&mpi.lock);
    status = mpi.started ? LS_OK : start();
    *rank  = mpi.rank;
    *world = mpi.world;
    pthread_mutex_unlock(&mpi.lock);
    return status;
}

static void free_requests(half *h)
{
    for (int i = 0; i < UNDER_WAY; i++)
        if (h->requests[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&h->requests[i]);
}

/* What MPI may still read or write stays where it is until MPI has ended. */
static void end(void)
{
    sweep();
    for (half *h = mpi.abandoned; h && mpi.ours; h = h->next)
        free_requests(h);
    MPI_Comm_free(&mpi.comm);
    if (mpi.ours) {
        MPI_Finalize();
        sweep();
    }
}

void ls_mpi_end(void)
{
    pthread_mutex_lock(&mpi.lock);
    if (mpi.started)
        end();
    mpi.started = false;
    pthread_mutex_unlock(&mpi.lock);
}

#define _GNU_SOURCE /* syscall(SYS_futex) */
/*
 * transport_local.c - exchanges and meetings through memory that the ranks share.
 *
 * Each rank of a group has one control block that all members can address.  Every cache line in
 * it has one writer; counters only grow.
 *
 *     posting[2]   number, descriptor, places        written by the owner (meetings)
 *     payload[2]   small operations' data            owner
 *     phase        phases finished                   owner
 *     bell         rung by whoever changed something that a sleeping owner may wait for
 *     pair[p]      lane: pieces sent to p            owner
 *                  taken: pieces received from p     owner
 *
 * A message is a row of pieces.  Data that the receiver can reach is one piece, copied by the
 * receiver straight from the sender's buffer; other data goes through a staging ring in the
 * sender's part of the space, PIECES slots of PIECE bytes, so that copying in and copying out
 * overlap.
 *
 * Note [bell]
 * A rank that goes to sleep sets `sleeping`, looks once more, and waits on `bell`; a rank that
 * changes a counter does so before it reads `sleeping`.  All four are sequentially consistent,
 * so either the sleeper sees the change or the other sees the sleeper (Dekker).
 */
#include "dist/comm/transport_local.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"

enum { LINE = 64, PIECES = 4, PIECE = 64 << 10, PAYLOAD = 16 << 10 };

typedef struct {
    _Alignas(LINE) _Atomic uint64_t number;
    ls_posting posting;
} posting_line;

typedef struct {
    ls_header header; /* of the message, in each of its pieces */
    uint64_t  place, bytes;
} piece;

typedef struct {
    _Alignas(LINE) _Atomic uint64_t sent;
    _Alignas(LINE) piece piece[PIECES];
    _Alignas(LINE) _Atomic uint64_t taken;
} pair;

typedef struct control_block {
    posting_line posting[2];
    _Alignas(LINE) _Atomic uint64_t phase;
    _Alignas(LINE) _Atomic uint32_t bell;
    _Atomic uint32_t sleeping;
    _Alignas(LINE) _Atomic int32_t users; /* members that may still look at it */
    struct control_block *next;           /* owner's: of those it has left */
    char                 *stage;          /* owner's: [size][PIECES][PIECE], at first use */
    _Alignas(LINE) unsigned char payload[2][PAYLOAD];
    pair pair[];
} control_block;

/* One direction of the exchange that is going on. */
typedef struct {
    int       peer;
    char     *data;
    size_t    bytes, moved;
    uint64_t  pieces; /* moved so far */
    ls_header header;
    bool      staged, done;
} direction;

typedef struct {
    ls_transport    base;
    ls_meet         meet;
    ls_space       *space;
    control_block  *own;
    control_block **block; /* [size]; NULL: not reachable */
    int            *members;
    uint64_t       *steps_out, *steps_in; /* [size] messages so far */
    uint64_t        stage_place;
    uint64_t        meetings, phases;
    direction       out, in;
    bool            armed; /* `sleeping` is set, `heard` is the bell before the last look */
    uint32_t        heard;
} local_transport;

/* ---- control blocks and who still looks at them ---- */

static size_t block_bytes(int size)
{
    return sizeof(control_block) + (size_t)size * sizeof(pair);
}

/* Releases the blocks of groups that everybody has left, and what was staged for them. */
static void sweep(ls_space *space)
{
    pthread_mutex_lock(&space->lock);
    control_block *left = space->left, *next;

    space->left = NULL;
    for (; left; left = next) {
        next = left->next;
        if (atomic_load(&left->users)) {
            left->next  = space->left;
            space->left = left;
        } else {
            space->ops->release(space, left->stage);
            space->ops->release(space, left);
        }
    }
    pthread_mutex_unlock(&space->lock);
}

void *ls_local_block_new(ls_space *space, int size, int users)
{
    sweep(space);
    control_block *b = space->ops->alloc(space, block_bytes(size));

    if (b)
        atomic_store(&b->users, users);
    return b;
}

/* In shm the owner releases a block, sooner or later; of threads the last one to leave does. */
static void leave_block(local_transport *t, control_block *b)
{
    ls_space *space = t->space;

    if (b == t->own && !space->any_frees) {
        pthread_mutex_lock(&space->lock);
        b->next     = space->left;
        space->left = b;
        pthread_mutex_unlock(&space->lock);
    }
    bool last = atomic_fetch_sub(&b->users, 1) == 1;
    if (last && space->any_frees)
        space->ops->release(space, b);
}

/* ---- the bell ---- */

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *limit)
{
    return syscall(SYS_futex, word, op, value, limit, NULL, 0);
}

static void ring_always(control_block *b)
{
    atomic_fetch_add(&b->bell, 1);
    futex(&b->bell, FUTEX_WAKE, INT_MAX, NULL);
}

static void ring(control_block *b)
{
    if (atomic_load(&b->sleeping))
        ring_always(b);
}

static void ring_all(local_transport *t)
{
    for (int r = 0; r < t->base.size; r++)
        if (r != t->base.rank && t->block[r])
            ring(t->block[r]);
}

static void local_sleep(ls_transport *base, int64_t ns)
{
    local_transport *t     = (local_transport *)base;
    struct timespec  limit = {ns / 1000000000, ns % 1000000000};

    if (ns && !t->armed) {
        t->heard = atomic_load(&t->own->bell);
        atomic_store(&t->own->sleeping, 1);
        t->armed = true;
        return;
    }
    if (ns)
        futex(&t->own->bell, FUTEX_WAIT, t->heard, &limit);
    if (t->armed)
        atomic_store(&t->own->sleeping, 0);
    t->armed = false;
}

static void local_wake(ls_transport *base)
{
    ring_always(((local_transport *)base)->own);
}

/* ---- exchanges ---- */

static char *stage_slot(local_transport *t, int peer, uint64_t number)
{
    return t->own->stage + ((size_t)peer * PIECES + number % PIECES) * PIECE;
}

static ls_status need_stage(local_transport *t)
{
    size_t bytes = (size_t)t->base.size * PIECES * PIECE;

    if (t->own->stage)
        return LS_OK;
    t->own->stage = t->space->ops->alloc(t->space, bytes);
    if (!t->own->stage)
        return LS_ENOMEM;
    t->stage_place = t->space->ops->place(t->space, t->own->stage, bytes);
    return LS_OK;
}

static ls_status need_reach(const local_transport *t, int peer)
{
    if (peer == LS_NO_PEER || t->block[peer])
        return LS_OK;
    return ls_fail(LS_EINVAL, "rank %d shares no memory with rank %d", t->base.rank, peer);
}

static ls_status local_begin(ls_transport *base, const ls_descriptor *what, ls_outgoing out,
                             ls_incoming in)
{
    local_transport *t      = (local_transport *)base;
    ls_status        status = need_reach(t, out.peer);

    if (!status)
        status = need_reach(t, in.peer);
    t->out = (direction){.done = true, .peer = LS_NO_PEER};
    t->in  = t->out;
    if (!status && out.peer != LS_NO_PEER) {
        t->out        = (direction){.peer   = out.peer,
                                    .data   = (char *)(uintptr_t)out.data,
                                    .bytes  = out.bytes,
                                    .header = {*what, t->steps_out[out.peer]++, out.bytes}};
        t->out.staged = out.bytes && !t->space->ops->place(t->space, out.data, out.bytes);
        if (t->out.staged)
            status = need_stage(t);
        base->sent += (int64_t)out.bytes;
    }
    if (!status && in.peer != LS_NO_PEER)
        t->in = (direction){.peer   = in.peer,
                            .data   = in.data,
                            .bytes  = in.bytes,
                            .header = {*what, t->steps_in[in.peer]++, in.bytes}};
    return status;
}

/* The next piece of a message, in the lane and in the stage if it has to go there. */
static void put_piece(local_transport *t, pair *lane, uint64_t number)
{
    direction *d = &t->out;
    piece     *p = &lane->piece[number % PIECES];
    size_t     n = d->bytes - d->moved;

    p->header = d->header;
    p->place  = 0;
    if (d->staged) {
        n          = n < PIECE ? n : PIECE;
        char *slot = stage_slot(t, d->peer, number);
        memcpy(slot, d->data + d->moved, n);
        p->place = t->stage_place + (uint64_t)(slot - t->own->stage);
    } else if (n) {
        p->place = t->space->ops->place(t->space, d->data, n);
    }
    p->bytes = n;
    d->moved += n;
    d->pieces++;
    atomic_store(&lane->sent, number + 1);
}

static bool send_more(local_transport *t)
{
    direction *d     = &t->out;
    pair      *lane  = &t->own->pair[d->peer];
    uint64_t   taken = atomic_load(&t->block[d->peer]->pair[t->base.rank].taken);
    uint64_t   sent  = atomic_load_explicit(&lane->sent, memory_order_relaxed);
    bool       moved = false;

    while ((d->moved < d->bytes || !d->pieces) && sent - taken < PIECES) {
        put_piece(t, lane, sent++);
        moved = true;
    }
    if (moved)
        ring(t->block[d->peer]);
    d->done = d->pieces && d->moved == d->bytes && (d->staged || sent == taken);
    return moved || d->done;
}

static ls_status check_header(const local_transport *t, const ls_header *got)
{
    const direction *d = &t->in;
    ls_status        status =
        ls_descriptor_compare(&d->header.what, t->base.rank, &got->what, d->peer);
    char text[LS_DESCRIPTOR_TEXT];

    if (!status && (got->bytes != d->header.bytes || got->step != d->header.step))
        status = ls_fail(
            LS_EMISMATCH,
            "rank %d sent %llu bytes (message %llu) where %llu were due (message %llu): %s",
            d->peer, (unsigned long long)got->bytes, (unsigned long long)got->step,
            (unsigned long long)d->header.bytes, (unsigned long long)d->header.step,
            ls_descriptor_text(text, &got->what));
    return status;
}

static ls_status take_piece(local_transport *t, const piece *p)
{
    direction *d      = &t->in;
    ls_status  status = check_header(t, &p->header);

    if (!status && p->bytes > d->bytes - d->moved)
        status = ls_fail(LS_EMISMATCH, "rank %d sent more than it announced", d->peer);
    if (!status && p->bytes) {
        const void *from =
            t->space->ops->address(t->space, t->members[d->peer], p->place, p->bytes);
        if (!from)
            return LS_ENOMEM;
        memcpy(d->data + d->moved, from, p->bytes);
    }
    d->moved += p->bytes;
    d->pieces++;
    return status;
}

static ls_status receive_more(local_transport *t, bool *moved)
{
    direction *d      = &t->in;
    pair      *lane   = &t->block[d->peer]->pair[t->base.rank];
    pair      *mine   = &t->own->pair[d->peer];
    uint64_t   sent   = atomic_load(&lane->sent);
    uint64_t   taken  = atomic_load_explicit(&mine->taken, memory_order_relaxed);
    ls_status  status = LS_OK;

    while (!d->done && sent > taken && !status) {
        status  = take_piece(t, &lane->piece[taken % PIECES]);
        d->done = d->moved == d->bytes;
        if (!status)
            atomic_store(&mine->taken, ++taken);
        *moved = true;
    }
    if (*moved && !status)
        ring(t->block[d->peer]);
    return status;
}

static ls_status local_progress(ls_transport *base, bool *moved, bool *done)
{
    local_transport *t      = (local_transport *)base;
    ls_status        status = LS_OK;

    *moved = false;
    if (!t->in.done)
        status = receive_more(t, moved);
    if (!status && !t->out.done)
        *moved = send_more(t) || *moved;
    base->received = t->in.done;
    *done          = !status && t->in.done && t->out.done;
    return status;
}

/* ---- meetings ---- */

static local_transport *of_meet(ls_meet *m)
{
    return (local_transport *)(void *)((char *)m - offsetof(local_transport, meet));
}

static ls_status meet_post(ls_meet *m, const ls_posting *mine, const void *payload,
                           size_t bytes)
{
    local_transport *t      = of_meet(m);
    uint64_t         number = ++t->meetings;
    posting_line    *line   = &t->own->posting[number & 1];

    if (bytes)
        memcpy(t->own->payload[number & 1], payload, bytes);
    line->posting = *mine;
    atomic_store(&line->number, number);
    ring_all(t);
    return LS_OK;
}

static const ls_posting *meet_posted(ls_meet *m, int rank)
{
    local_transport    *t    = of_meet(m);
    const posting_line *line = &t->block[rank]->posting[t->meetings & 1];

    return atomic_load(&line->number) == t->meetings ? &line->posting : NULL;
}

static const void *meet_payload(ls_meet *m, int rank)
{
    local_transport *t = of_meet(m);

    return t->block[rank]->payload[t->meetings & 1];
}

static ls_status meet_advance(ls_meet *m)
{
    local_transport *t = of_meet(m);

    atomic_store(&t->own->phase, ++t->phases);
    ring_all(t);
    return LS_OK;
}

static bool meet_advanced(ls_meet *m, int rank)
{
    local_transport *t = of_meet(m);

    return atomic_load(&t->block[rank]->phase) >= t->phases;
}

static uint64_t meet_place(ls_meet *m, const void *p, size_t bytes)
{
    ls_space *space = of_meet(m)->space;

    return space->ops->place(space, p, bytes);
}

static void *meet_address(ls_meet *m, int rank, uint64_t place, size_t bytes)
{
    local_transport *t = of_meet(m);

    return t->space->ops->address(t->space, t->members[rank], place, bytes);
}

static const ls_meet_ops meet_ops = {
    .post     = meet_post,
    .posted   = meet_posted,
    .payload  = meet_payload,
    .advance  = meet_advance,
    .advanced = meet_advanced,
    .place    = meet_place,
    .address  = meet_address,
};

/* ---- the transport ---- */

static void local_close(ls_transport *base)
{
    local_transport *t = (local_transport *)base;

    for (int r = 0; t->block && r < base->size; r++)
        if (t->block[r] && r != base->rank)
            leave_block(t, t->block[r]);
    leave_block(t, t->own);
    sweep(t->space);
    free(t->block);
    free(t->members);
    free(t->steps_out);
    free(t);
}

static const ls_transport_ops threads_ops = {
    .name     = "threads",
    .begin    = local_begin,
    .progress = local_progress,
    .sleep    = local_sleep,
    .wake     = local_wake,
    .close    = local_close,
};

static const ls_transport_ops shm_ops = {
    .name     = "shm",
    .begin    = local_begin,
    .progress = local_progress,
    .sleep    = local_sleep,
    .wake     = local_wake,
    .close    = local_close,
};

static ls_status find_blocks(local_transport *t, const uint64_t *places)
{
    bool all = true;

    for (int r = 0; r < t->base.size; r++) {
        if (r == t->base.rank)
            t->block[r] = t->own;
        else if (!places[r])
            all = false;
        else if (!(t->block[r] = t->space->ops->address(t->space, t->members[r], places[r],
                                                        block_bytes(t->base.size))))
            return LS_ENOMEM;
    }
    if (all) {
        t->meet      = (ls_meet){&meet_ops, PAYLOAD};
        t->base.meet = &t->meet;
    }
    return LS_OK;
}

ls_status ls_transport_local(const ls_local_opts *o, ls_transport **out)
{
    size_t           n = (size_t)o->size;
    local_transport *t = ls_calloc(1, sizeof *t);

    if (!t)
        goto out_block;
    t->block     = ls_calloc(n, sizeof(void *));
    t->members   = ls_calloc(n, sizeof(int));
    t->steps_out = ls_calloc(2 * n, sizeof(uint64_t));
    if (!t->block || !t->members || !t->steps_out)
        goto out_parts;
    memcpy(t->members, o->members, n * sizeof(int));
    t->steps_in  = t->steps_out + n;
    t->space     = o->space;
    t->own       = o->block;
    t->base.ops  = o->space->any_frees ? &threads_ops : &shm_ops;
    t->base.rank = o->rank;
    t->base.size = o->size;
    if (find_blocks(t, o->places))
        goto out_parts;
    *out = &t->base;
    return LS_OK;
out_parts:
    free(t->block);
    free(t->members);
    free(t->steps_out);
    free(t);
out_block:
    o->space->ops->release(o->space, o->block);
    return LS_ENOMEM;
}

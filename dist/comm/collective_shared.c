/*
 * collective_shared.c - the direct algorithm in shared memory: on the others' buffers, in
 * place.
 *
 *   small   what a rank contributes travels in its posting; everybody computes its own result.
 * One meeting, no second one: postings are double-buffered. large   every rank reduces its
 * slice of all inputs and stores it into all outputs; then all sync.  Each input is read once
 * and each output written once per host: 2 N T bytes, the least that memory has to move.
 *
 * In both, whoever computes element i joins the ranks in the same tree, so all get the same
 * bits.
 */
#include "dist/comm/collective_impl.h"

/* Above this many bytes for all ranks together, reading everybody's contribution costs more
 * than a second sync. */
enum { SMALL_TOTAL = 64 << 10 };

/* Bytes that `rank` contributes: what others read of its `in` (of a broadcast: of the root's
 * out). */
static size_t contributed(const ls_operation *op, int rank)
{
    const ls_call *c    = op->call;
    int64_t        n    = ls__size(op);
    bool           root = rank == c->root;

    switch (c->kind) {
    case LS_BROADCAST:
        return root ? ls__bytes(op, c->count) : 0;
    case LS_SCATTER:
        return root ? ls__bytes(op, n * c->count) : 0;
    case LS_REDUCE:
    case LS_ALL_REDUCE:
    case LS_GATHER:
        return ls__bytes(op, c->count);
    case LS_ALL_GATHER:
        return ls__bytes(op, ls__slice_count(c, rank));
    case LS_REDUCE_SCATTER:
        return ls__bytes(op, c->slices ? c->count : n * c->count);
    case LS_ALL_TO_ALL:
        return ls__bytes(op, n * c->count);
    case LS_SEND:
    case LS_RECV:
    case LS_BARRIER:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    return 0;
}

/* An all_gather in place lies in the flat buffer; its contribution is not in one piece there.
 */
static bool in_place_slices(const ls_call *c)
{
    return c->kind == LS_ALL_GATHER && c->slices && c->in == c->out;
}

static const void *contribution(const ls_call *c)
{
    return c->kind == LS_BROADCAST ? c->out : c->in;
}

/* Bytes at which others write: the whole output of reductions that are large. */
static size_t pushed(const ls_operation *op, int rank)
{
    const ls_call *c = op->call;

    if (c->kind == LS_ALL_REDUCE || (c->kind == LS_REDUCE && rank == c->root))
        return ls__bytes(op, c->count);
    return 0;
}

static bool is_small(const ls_operation *op)
{
    size_t most = 0, limit = op->running.transport->meet->payload_limit;

    for (int p = 0; p < ls__size(op); p++) {
        size_t bytes = contributed(op, p);
        most         = bytes > most ? bytes : most;
    }
    return most <= limit && most * (size_t)ls__size(op) <= SMALL_TOTAL &&
           !in_place_slices(op->call);
}

/* ---- what a rank computes from the contributions of all, at state->in ---- */

/* n elements from element `first` of all contributions, joined; to element `first_out` of each
 * of outs. */
static void join(ls_operation *op, int64_t first, int64_t n, void *const *outs, int n_out,
                 int64_t first_out)
{
    const ls_call       *c    = op->call;
    ls_collective_state *s    = op->state;
    size_t               size = ls__bytes(op, 1);

    for (int p = 0; p < ls__size(op); p++)
        s->from[p] = ls__at(s->in[p], first, size);
    for (int p = 0; p < n_out; p++)
        s->to[p] = ls__at(outs[p], first_out, size);
    ls__combine(op, &(ls_combine){.op    = c->op,
                                  .from  = c->dtype,
                                  .to    = c->dtype,
                                  .n_in  = ls__size(op),
                                  .n_out = n_out,
                                  .in    = (const void *const *)s->from,
                                  .out   = s->to,
                                  .count = n});
    op->counted->sent += (int64_t)ls__bytes(op, n) * (ls__size(op) - 1);
}

static void join_own_slice(ls_operation *op)
{
    const ls_call   *c     = op->call;
    int              r     = ls__rank(op);
    ls_slice_segment whole = {r * c->count, c->count};
    ls_segment_list  slice = c->slices ? c->slices[r] : (ls_segment_list){&whole, 1};
    bool    home   = c->slices && c->in == c->out; /* at its segments in the flat buffer */
    void   *out[1] = {c->out};
    int64_t packed = 0;

    for (int64_t i = 0; i < slice.n; i++) {
        ls_slice_segment s = slice.segments[i];
        join(op, s.offset, s.count, out, 1, home ? s.offset : packed);
        packed += s.count;
    }
}

/* What is this rank's own was not fetched from a peer. */
static void fetch(ls_operation *op, int rank, void *to, const void *from, size_t bytes)
{
    ls__copy(op, to, from, bytes);
    if (rank != ls__rank(op))
        op->counted->sent += (int64_t)bytes;
}

static void fetch_slice(ls_operation *op, int rank)
{
    const ls_call *c    = op->call;
    size_t         size = ls__bytes(op, 1);

    if (!in_place_slices(c)) {
        ls__unpack(op, c->out, op->state->in[rank], rank);
    } else if (rank != ls__rank(op)) {
        for (int64_t i = 0; i < c->slices[rank].n; i++) {
            ls_slice_segment s = c->slices[rank].segments[i];
            ls__copy(op, ls__at(c->out, s.offset, size),
                     ls__at(op->state->in[rank], s.offset, size), ls__bytes(op, s.count));
        }
    }
    if (rank != ls__rank(op))
        op->counted->sent += (int64_t)ls__bytes(op, ls__slice_count(c, rank));
}

/* Every kind but those whose result many ranks share the work of (share_work). */
static void compute_own(ls_operation *op)
{
    const ls_call *c = op->call;
    int            r = ls__rank(op), n = ls__size(op);
    size_t         size = ls__bytes(op, 1), bytes = ls__bytes(op, c->count);
    void *const   *in     = op->state->in;
    void          *out[1] = {c->out};

    if (c->kind == LS_ALL_REDUCE || (c->kind == LS_REDUCE && r == c->root))
        join(op, 0, c->count, out, 1, 0);
    else if (c->kind == LS_REDUCE_SCATTER)
        join_own_slice(op);
    else if (c->kind == LS_BROADCAST && r != c->root)
        fetch(op, c->root, c->out, in[c->root], bytes);
    else if (c->kind == LS_SCATTER)
        fetch(op, c->root, c->out, ls__at(in[c->root], r * c->count, size), bytes);
    for (int p = 0; p < n; p++)
        if (c->kind == LS_ALL_GATHER)
            fetch_slice(op, p);
        else if (c->kind == LS_GATHER && r == c->root)
            fetch(op, p, ls__at(c->out, p * c->count, size), in[p], bytes);
        else if (c->kind == LS_ALL_TO_ALL)
            fetch(op, p, ls__at(c->out, p * c->count, size), ls__at(in[p], r * c->count, size),
                  bytes);
}

/* This rank's slice of the result, for everybody who gets it. */
static void share_work(ls_operation *op)
{
    const ls_call *c    = op->call;
    int            r    = ls__rank(op);
    void *const   *outs = op->state->out;

    ls__equal_slices(op, c->count);
    int64_t first = op->state->at[r], n = op->state->at[r + 1] - first;
    int     peers = c->kind == LS_ALL_REDUCE ? ls__size(op) - 1 : r != c->root;
    op->counted->sent += (int64_t)ls__bytes(op, n) * peers; /* the stores */
    if (c->kind == LS_ALL_REDUCE)
        join(op, first, n, outs, ls__size(op), first);
    else
        join(op, first, n, &outs[c->root], 1, first);
}

static bool work_is_shared(const ls_call *c)
{
    return c->kind == LS_ALL_REDUCE || c->kind == LS_REDUCE;
}

/* ---- reaching the others ---- */

static ls_status small(ls_operation *op)
{
    ls_meet    *m      = op->running.transport->meet;
    int         r      = ls__rank(op);
    const void *mine   = contribution(op->call);
    ls_status   status = ls_meet_begin(&op->running, 0, 0, mine, contributed(op, r));

    if (status)
        return status;
    for (int p = 0; p < ls__size(op); p++)
        op->state->in[p] = (void *)(uintptr_t)m->ops->payload(m, p);
    if (op->call->count)
        compute_own(op);
    return LS_OK;
}

/* Bytes of `rank`'s input (output) that others need to reach. */
static size_t reach_in(const ls_operation *op, int rank)
{
    return in_place_slices(op->call) ? ls__bytes(op, op->call->count) : contributed(op, rank);
}

static uint64_t place(const ls_operation *op, const void *p, size_t bytes)
{
    ls_meet *m = op->running.transport->meet;

    return bytes ? m->ops->place(m, p, bytes) : 0;
}

static bool all_reachable(const ls_operation *op)
{
    ls_meet *m = op->running.transport->meet;

    for (int p = 0; p < ls__size(op); p++) {
        const ls_posting *posting = m->ops->posted(m, p);
        if ((reach_in(op, p) && !posting->in) || (pushed(op, p) && !posting->out))
            return false;
    }
    return true;
}

static ls_status find_buffers(ls_operation *op)
{
    ls_meet             *m = op->running.transport->meet;
    ls_collective_state *s = op->state;

    for (int p = 0; p < ls__size(op); p++) {
        const ls_posting *posting = m->ops->posted(m, p);
        size_t            in = reach_in(op, p), out = pushed(op, p);
        bool              own = p == ls__rank(op);
        s->in[p]              = own ? (void *)(uintptr_t)contribution(op->call) : NULL;
        s->out[p]             = own ? op->call->out : NULL;
        if (own)
            continue;
        if (in && !(s->in[p] = m->ops->address(m, p, posting->in, in)))
            return LS_ENOMEM;
        if (out && !(s->out[p] = m->ops->address(m, p, posting->out, out)))
            return LS_ENOMEM;
    }
    return LS_OK;
}

static ls_status in_place(ls_operation *op)
{
    ls_status status = find_buffers(op);

    if (status)
        return status;
    if (work_is_shared(op->call))
        share_work(op);
    else
        compute_own(op);
    return ls_meet_sync(&op->running);
}

ls_status ls__run_shared(ls_operation *op, bool *done)
{
    const ls_call *c      = op->call;
    bool           direct = op->algorithm == LS_AUTO || op->algorithm == LS_DIRECT;
    int            r      = ls__rank(op);
    uint64_t       in = 0, out = 0;

    *done = true;
    if (c->kind == LS_BARRIER || !c->count)
        return ls_meet_begin(&op->running, 0, 0, NULL, 0);
    if (direct && is_small(op)) {
        op->algorithm = LS_DIRECT;
        return small(op);
    }
    if (direct) {
        in  = place(op, contribution(c), reach_in(op, r));
        out = place(op, c->out, pushed(op, r));
    }
    ls_status status = ls_meet_begin(&op->running, in, out, NULL, 0);
    if (status)
        return status;
    *done = direct && all_reachable(op);
    if (!*done)
        return LS_OK;
    op->algorithm = LS_DIRECT;
    return in_place(op);
}

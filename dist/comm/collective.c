/*
 * collective.c - checks of a call, the state of a group, and which way an operation goes.
 */
#include "dist/comm/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/collective_impl.h"
#include "dist/comm/tuner.h"

/* ---- the call ---- */

static ls_status check_slices(const ls_call *c, int size)
{
    int64_t total = 0;

    for (int r = 0; r < size; r++)
        for (int64_t i = 0; i < c->slices[r].n; i++) {
            ls_slice_segment s = c->slices[r].segments[i];
            if (s.offset < 0 || s.count < 0 || s.offset > c->count ||
                s.count > c->count - s.offset)
                return ls_fail(LS_EINVAL,
                               "%s: segment %lld of rank %d (offset %lld, count %lld) leaves "
                               "the %lld elements",
                               ls_collective_name(c->kind), (long long)i, r,
                               (long long)s.offset, (long long)s.count, (long long)c->count);
            total += s.count;
        }
    if (total > c->count)
        return ls_fail(LS_EINVAL, "%s: segments of %lld elements overlap in %lld",
                       ls_collective_name(c->kind), (long long)total, (long long)c->count);
    return LS_OK;
}

/* Does this rank read from in, or write to out? */
static bool needs_in(const ls_call *c, int rank)
{
    switch (c->kind) {
    case LS_BARRIER:
    case LS_BROADCAST:
    case LS_RECV:
        return false;
    case LS_SCATTER:
        return rank == c->root;
    case LS_ALL_GATHER:
        return ls__slice_count(c, rank) > 0;
    case LS_SEND:
    case LS_REDUCE:
    case LS_ALL_REDUCE:
    case LS_REDUCE_SCATTER:
    case LS_GATHER:
    case LS_ALL_TO_ALL:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    return true;
}

static bool needs_out(const ls_call *c, int rank)
{
    switch (c->kind) {
    case LS_BARRIER:
    case LS_SEND:
        return false;
    case LS_REDUCE:
    case LS_GATHER:
        return rank == c->root;
    case LS_REDUCE_SCATTER:
        return ls__slice_count(c, rank) > 0;
    case LS_RECV:
    case LS_BROADCAST:
    case LS_ALL_REDUCE:
    case LS_ALL_GATHER:
    case LS_SCATTER:
    case LS_ALL_TO_ALL:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    return true;
}

static ls_status check_dtype(const ls_call *c)
{
    if (c->dtype >= LS_DTYPE_COUNT || c->dtype == LS_F64)
        return ls_fail(LS_EINVAL, "%s: dtype is none of F32, BF16, I32, I64, U8",
                       ls_collective_name(c->kind));
    if (!ls_collective_reduces(c->kind))
        return LS_OK;
    if (c->op >= LS_REDUCE_OP_COUNT)
        return ls_fail(LS_EINVAL, "%s: no such reduce op: %d", ls_collective_name(c->kind),
                       (int)c->op);
    if (c->op == LS_AVG && c->dtype != LS_F32 && c->dtype != LS_BF16)
        return ls_fail(LS_EINVAL, "%s: avg of %s: integers have none; sum them and divide",
                       ls_collective_name(c->kind), ls_dtype_name(c->dtype));
    return LS_OK;
}

static ls_status check_root(const ls_call *c, int rank, int size)
{
    bool paired = ls_collective_is_paired(c->kind);

    if (!paired && !ls_collective_is_rooted(c->kind))
        return LS_OK;
    if (c->root < 0 || c->root >= size)
        return ls_fail(LS_EINVAL, "%s: %s %d of a group of %d", ls_collective_name(c->kind),
                       paired ? "peer" : "root", c->root, size);
    if (paired && c->root == rank)
        return ls_fail(LS_EINVAL, "%s: rank %d with itself", ls_collective_name(c->kind), rank);
    return LS_OK;
}

ls_status ls_call_check(const ls_call *c, int rank, int size)
{
    if (c->kind >= LS_SPLIT)
        return ls_fail(LS_EINVAL, "no such operation: %d", (int)c->kind);
    if (c->kind == LS_BARRIER)
        return LS_OK;
    if (c->count < 0 || c->count > INT64_MAX / 8 / size)
        return ls_fail(LS_EINVAL, "%s: count %lld", ls_collective_name(c->kind),
                       (long long)c->count);
    ls_status status = check_dtype(c);
    if (!status)
        status = check_root(c, rank, size);
    if (!status && c->slices)
        status =
            c->kind == LS_ALL_GATHER || c->kind == LS_REDUCE_SCATTER
                ? check_slices(c, size)
                : ls_fail(LS_EINVAL, "%s takes no segment lists", ls_collective_name(c->kind));
    if (!status && c->count &&
        ((!c->in && needs_in(c, rank)) || (!c->out && needs_out(c, rank))))
        status = ls_fail(LS_EINVAL, "%s: no %s buffer", ls_collective_name(c->kind),
                         !c->in && needs_in(c, rank) ? "input" : "output");
    return status;
}

/* ---- state ---- */

ls_status ls_collective_state_init(ls_collective_state *state, int size)
{
    size_t n = (size_t)size;

    *state    = (ls_collective_state){0};
    state->at = ls_calloc(n + 1, sizeof *state->at);
    state->in = ls_calloc(4 * n, sizeof *state->in);
    if (state->at && state->in) {
        state->out  = state->in + n;
        state->from = state->out + n;
        state->to   = state->from + n;
        return LS_OK;
    }
    ls_collective_state_close(state);
    return LS_ENOMEM;
}

static void scratch_close(ls_scratch *s)
{
    ls_mem_free(s->data, s->bytes, LS_MEM_COMM);
    *s = (ls_scratch){0};
}

void ls_collective_state_close(ls_collective_state *state)
{
    scratch_close(&state->work);
    scratch_close(&state->piece);
    scratch_close(&state->pack);
    scratch_close(&state->gathered);
    free(state->at);
    free(state->in);
    ls_tuner_free(state->tuner);
    *state = (ls_collective_state){0};
}

void *ls__scratch(ls_scratch *s, size_t bytes)
{
    if (s->bytes >= bytes && s->data)
        return s->data;
    scratch_close(s);
    s->data = ls_mem_alloc(bytes, LS_MEM_COMM);
    if (s->data)
        s->bytes = bytes;
    return s->data;
}

/* ---- work on memory ---- */

ls_dtype ls__wide(const ls_operation *op)
{
    return op->call->dtype == LS_BF16 ? LS_F32 : op->call->dtype;
}

void ls__copy(ls_operation *op, void *to, const void *from, size_t bytes)
{
    if (!bytes || to == from)
        return;
    int64_t start = ls_now_ns();
    memcpy(to, from, bytes);
    op->counted->copy_ns += ls_now_ns() - start;
}

void ls__combine(ls_operation *op, const ls_combine *c)
{
    if (!c->count)
        return;
    int64_t start = ls_now_ns();
    ls_k_combine(c);
    op->counted->reduce_ns += ls_now_ns() - start;
}

/* ---- slices ---- */

void ls__equal_slices(ls_operation *op, int64_t total)
{
    int64_t n = ls__size(op), base = total / n, rest = total % n;

    for (int64_t b = 0; b <= n; b++)
        op->state->at[b] = b * base + b * rest / n;
}

int64_t ls__slice_count(const ls_call *call, int rank)
{
    int64_t n = 0;

    if (!call->slices)
        return call->count;
    for (int64_t i = 0; i < call->slices[rank].n; i++)
        n += call->slices[rank].segments[i].count;
    return n;
}

void ls__call_slices(ls_operation *op, int (*rank_of)(int index, int size))
{
    int64_t *at = op->state->at;

    at[0] = 0;
    for (int b = 0; b < ls__size(op); b++)
        at[b + 1] = at[b] + ls__slice_count(op->call, rank_of ? rank_of(b, ls__size(op)) : b);
}

int64_t ls__slice_start(const ls_call *call, int rank)
{
    if (!call->slices)
        return rank * call->count;
    if (call->slices[rank].n == 0)
        return 0;
    return call->slices[rank].n == 1 ? call->slices[rank].segments[0].offset : -1;
}

/* Calls copy for each segment of rank's slice, with its place in the packed slice. */
static void each_segment(ls_operation *op, int rank, void *packed, void *flat, bool pack)
{
    const ls_call   *c     = op->call;
    ls_slice_segment whole = {rank * c->count, c->count};
    ls_segment_list  slice = c->slices ? c->slices[rank] : (ls_segment_list){&whole, 1};
    int64_t          at    = 0;
    size_t           size  = ls__bytes(op, 1);

    for (int64_t i = 0; i < slice.n; i++) {
        ls_slice_segment s = slice.segments[i];
        void            *p = ls__at(packed, at, size), *f = ls__at(flat, s.offset, size);
        ls__copy(op, pack ? p : f, pack ? f : p, ls__bytes(op, s.count));
        at += s.count;
    }
}

void ls__pack(ls_operation *op, void *packed, const void *flat, int rank)
{
    each_segment(op, rank, packed, (void *)(uintptr_t)flat, true);
}

void ls__unpack(ls_operation *op, void *flat, const void *packed, int rank)
{
    each_segment(op, rank, (void *)(uintptr_t)packed, flat, false);
}

/* ---- which way ---- */

static ls_status alone(ls_operation *op)
{
    const ls_call *c = op->call;

    if (c->kind == LS_BARRIER || c->kind == LS_BROADCAST || !c->count)
        return LS_OK;
    if (c->slices && c->in == c->out)
        return LS_OK; /* in place */
    if (c->slices && c->kind == LS_ALL_GATHER)
        ls__unpack(op, c->out, c->in, 0);
    else if (c->slices)
        ls__pack(op, c->out, c->in, 0);
    else
        ls__copy(op, c->out, c->in, ls__bytes(op, c->count));
    return LS_OK;
}

/* Where no bytes go, agreeing is all there is to it. */
static bool is_empty(const ls_call *c)
{
    return c->kind == LS_BARRIER || !c->count;
}

static ls_status run(ls_operation *op)
{
    const ls_call *c      = op->call;
    bool           done   = false;
    ls_status      status = LS_OK;

    if (c->kind == LS_SEND)
        return ls__swap(op, c->root, c->in, ls__bytes(op, c->count), LS_NO_PEER, NULL, 0);
    if (c->kind == LS_RECV)
        return ls__swap(op, LS_NO_PEER, NULL, 0, c->root, c->out, ls__bytes(op, c->count));
    if (ls__size(op) == 1)
        return alone(op);
    if (op->running.transport->meet)
        status = ls__run_shared(op, &done);
    else if (is_empty(c) || ls_collective_is_rooted(c->kind))
        status = ls__agree(op);
    if (status || done || is_empty(c))
        return status;
    if (op->algorithm == LS_AUTO)
        status = ls__choose(op);
    return status ? status : ls__run_messages(op);
}

ls_status ls_collective_run(ls_operation *op)
{
    ls_transport *t      = op->running.transport;
    int64_t       before = t->sent;
    ls_status     status = run(op);

    op->counted->sent += t->sent - before;
    if (status && !ls_guard_failed(op->running.guard)) {
        char text[LS_GUARD_TEXT]; /* of memory: the others wait for this rank in vain */
        snprintf(text, sizeof text, "rank %d: %s", t->rank, ls_error_message());
        return ls_guard_fail(op->running.guard, status, text);
    }
    return status;
}

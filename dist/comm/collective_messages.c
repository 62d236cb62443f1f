/*
 * collective_messages.c - the operations, put together from the steps of the algorithms.
 *
 *     all_reduce      = reduce to slices, then gather the slices    (tree: up, then down)
 *     reduce          = reduce to slices, then send them to the root (tree: up)
 *     reduce_scatter  = reduce to slices                             (tree: up, then scatter)
 *     all_gather      = gather the slices                            (tree: to rank 0, then
 * down) broadcast       = direct: to each; tree: down; halving, ring: scatter, then gather
 */
#include "dist/comm/collective_impl.h"

static int same(int rank, int size)
{
    (void)size;
    return rank;
}

typedef int (*order)(int index, int size);

static order order_of(const ls_operation *op)
{
    return op->algorithm == LS_HALVING ? ls__reversed : same;
}

/* n partial sums at w become finished elements at to: divided (avg), rounded (bf16). */
static void finish(ls_operation *op, void *to, const void *w, int64_t n)
{
    const void *in[1]  = {w};
    void       *out[1] = {to};
    bool        avg    = op->call->op == LS_AVG;

    if (to == w && !avg)
        return;
    ls__combine(op, &(ls_combine){.op      = avg ? LS_AVG : LS_SUM,
                                  .from    = ls__wide(op),
                                  .to      = op->call->dtype,
                                  .divisor = ls__size(op),
                                  .n_in    = 1,
                                  .n_out   = 1,
                                  .in      = in,
                                  .out     = out,
                                  .count   = n});
}

/* n elements of the input as partial sums at w. */
static void widen(ls_operation *op, void *w, const void *x, int64_t n)
{
    const void *in[1]  = {x};
    void       *out[1] = {w};

    if (ls__wide(op) == op->call->dtype)
        ls__copy(op, w, x, ls__bytes(op, n));
    else
        ls__combine(op, &(ls_combine){.op    = LS_SUM,
                                      .from  = op->call->dtype,
                                      .to    = ls__wide(op),
                                      .n_in  = 1,
                                      .n_out = 1,
                                      .in    = in,
                                      .out   = out,
                                      .count = n});
}

static void *wide_scratch(ls_operation *op, int64_t n)
{
    return ls__scratch(&op->state->work, (size_t)n * ls_dtype_bytes(ls__wide(op)));
}

static ls_status reduce_slices(ls_operation *op, void *w)
{
    return op->algorithm == LS_HALVING ? ls__halving_reduce(op, w) : ls__ring_reduce(op, w);
}

static ls_status gather_slices(ls_operation *op, void *v, bool reversed)
{
    if (op->algorithm == LS_HALVING)
        return ls__doubling_gather(op, v, reversed);
    return op->algorithm == LS_RING ? ls__ring_gather(op, v) : ls__direct_gather(op, v);
}

/* Where the slice of this rank is: its index in state->at. */
static int own_index(const ls_operation *op)
{
    return order_of(op)(ls__rank(op), ls__size(op));
}

/* ---- one slice of many: to the root, from the root ---- */

/* Slices of v (index by `index_of` rank, NULL: its number) from everybody to the root; `own` is
 * this rank's. */
static ls_status slices_to_root(ls_operation *op, void *v, const void *own, order index_of,
                                int root)
{
    size_t         size   = ls__bytes(op, 1);
    const int64_t *at     = op->state->at;
    ls_status      status = LS_OK;

    for (int p = 0; p < ls__size(op) && !status; p++) {
        int     b = index_of(p, ls__size(op));
        int64_t n = at[b + 1] - at[b];
        if (p == root && ls__rank(op) == root)
            ls__copy(op, ls__at(v, at[b], size), own, ls__bytes(op, n));
        else if (ls__rank(op) == root)
            status =
                ls__swap(op, LS_NO_PEER, NULL, 0, p, ls__at(v, at[b], size), ls__bytes(op, n));
        else if (ls__rank(op) == p)
            status = ls__swap(op, root, own, ls__bytes(op, n), LS_NO_PEER, NULL, 0);
    }
    return status;
}

static ls_status slices_from_root(ls_operation *op, const void *v, void *own, int root)
{
    size_t         size   = ls__bytes(op, 1);
    const int64_t *at     = op->state->at;
    ls_status      status = LS_OK;

    for (int p = 0; p < ls__size(op) && !status; p++) {
        int64_t n = at[p + 1] - at[p];
        if (p == root && ls__rank(op) == root)
            ls__copy(op, own, ls__at(v, at[p], size), ls__bytes(op, n));
        else if (ls__rank(op) == root)
            status =
                ls__swap(op, p, ls__at(v, at[p], size), ls__bytes(op, n), LS_NO_PEER, NULL, 0);
        else if (ls__rank(op) == p)
            status = ls__swap(op, LS_NO_PEER, NULL, 0, root, own, ls__bytes(op, n));
    }
    return status;
}

/* ---- all_reduce, reduce ---- */

static bool plain_sums(const ls_operation *op)
{
    return ls__wide(op) == op->call->dtype;
}

static ls_status all_reduce_tree(ls_operation *op)
{
    const ls_call *c = op->call;
    void          *w = plain_sums(op) ? c->out : wide_scratch(op, c->count);

    if (!w)
        return LS_ENOMEM;
    widen(op, w, c->in, c->count);
    ls_status status = ls__tree_reduce(op, w, c->count, 0);
    if (!status && ls__rank(op) == 0)
        finish(op, c->out, w, c->count);
    return status ? status : ls__tree_broadcast(op, c->out, ls__bytes(op, c->count), 0);
}

static ls_status all_reduce(ls_operation *op)
{
    const ls_call *c    = op->call;
    size_t         size = ls__bytes(op, 1), wide = ls_dtype_bytes(ls__wide(op));
    ls_status      status;

    if (op->algorithm == LS_TREE)
        return all_reduce_tree(op);
    ls__equal_slices(op, c->count);
    int     b     = own_index(op);
    int64_t first = op->state->at[b], n = op->state->at[b + 1] - first;
    void   *own = ls__at(c->out, first, size);
    if (op->algorithm == LS_DIRECT) {
        status = ls__direct_reduce(op, own, false);
    } else {
        void *w = plain_sums(op) ? c->out : wide_scratch(op, c->count);
        if (!w)
            return LS_ENOMEM;
        widen(op, w, c->in, c->count);
        status = reduce_slices(op, w);
        if (!status)
            finish(op, own, ls__at(w, first, wide), n);
    }
    return status ? status : gather_slices(op, c->out, true);
}

static ls_status reduce_tree(ls_operation *op)
{
    const ls_call *c       = op->call;
    bool           is_root = ls__rank(op) == c->root;
    void          *w       = is_root && plain_sums(op) ? c->out : wide_scratch(op, c->count);

    if (!w)
        return LS_ENOMEM;
    widen(op, w, c->in, c->count);
    ls_status status = ls__tree_reduce(op, w, c->count, c->root);
    if (!status && is_root)
        finish(op, c->out, w, c->count);
    return status;
}

static ls_status reduce(ls_operation *op)
{
    const ls_call *c    = op->call;
    size_t         wide = ls_dtype_bytes(ls__wide(op));
    ls_status      status;

    if (op->algorithm == LS_TREE)
        return reduce_tree(op);
    ls__equal_slices(op, c->count);
    int     b     = own_index(op);
    int64_t first = op->state->at[b], n = op->state->at[b + 1] - first;
    void   *own = ls__scratch(&op->state->pack, ls__bytes(op, n));
    if (!own)
        return LS_ENOMEM;
    if (op->algorithm == LS_DIRECT) {
        status = ls__direct_reduce(op, own, false);
    } else {
        void *w = wide_scratch(op, c->count);
        if (!w)
            return LS_ENOMEM;
        widen(op, w, c->in, c->count);
        status = reduce_slices(op, w);
        if (!status)
            finish(op, own, ls__at(w, first, wide), n);
    }
    return status ? status : slices_to_root(op, c->out, own, order_of(op), c->root);
}

/* ---- reduce_scatter ---- */

/* Where the finished slice goes at once, or NULL: it is in several segments and goes through
 * scratch. */
static void *slice_home(ls_operation *op)
{
    const ls_call *c = op->call;

    if (!c->slices || c->in != c->out)
        return c->out;
    int64_t start = ls__slice_start(c, ls__rank(op));
    return start < 0 ? NULL : ls__at(c->out, start, ls__bytes(op, 1));
}

/* All slices of the input side by side, as partial sums, in the algorithm's order. */
static void *pack_wide(ls_operation *op)
{
    const ls_call *c    = op->call;
    size_t         wide = ls_dtype_bytes(ls__wide(op)), size = ls__bytes(op, 1);
    int            n = ls__size(op);

    ls__call_slices(op, order_of(op));
    char *w = wide_scratch(op, op->state->at[n]);
    char *v =
        plain_sums(op) ? w : ls__scratch(&op->state->pack, ls__bytes(op, op->state->at[n]));
    if (!w || !v)
        return NULL;
    for (int b = 0; b < n; b++)
        ls__pack(op, ls__at(v, op->state->at[b], size), c->in, order_of(op)(b, n));
    if (!plain_sums(op))
        for (int b = 0; b < n; b++)
            widen(op, ls__at(w, op->state->at[b], wide), ls__at(v, op->state->at[b], size),
                  op->state->at[b + 1] - op->state->at[b]);
    return w;
}

static ls_status scatter_sums(ls_operation *op, void *w, void *own)
{
    int       n      = ls__size(op);
    void     *v      = w;
    ls_status status = ls__tree_reduce(op, w, op->state->at[n], 0);

    if (!status && ls__rank(op) == 0) {
        v = plain_sums(op) ? w : ls__scratch(&op->state->pack, ls__bytes(op, op->state->at[n]));
        if (!v)
            return LS_ENOMEM;
        finish(op, v, w, op->state->at[n]);
    }
    return status ? status : slices_from_root(op, v, own, 0);
}

static ls_status reduce_scatter(ls_operation *op)
{
    const ls_call *c    = op->call;
    int            r    = ls__rank(op);
    int64_t        n    = ls__slice_count(c, r);
    void          *home = slice_home(op), *own = home, *w = NULL;
    ls_status      status = LS_OK;

    if (!home && !(own = ls__scratch(&op->state->gathered, ls__bytes(op, n))))
        return LS_ENOMEM;
    if (op->algorithm != LS_DIRECT && !(w = pack_wide(op)))
        return LS_ENOMEM;
    if (op->algorithm == LS_DIRECT)
        status = ls__direct_reduce(op, own, true);
    else if (op->algorithm == LS_TREE)
        status = scatter_sums(op, w, own);
    else if (!(status = reduce_slices(op, w)))
        finish(op, own, ls__at(w, op->state->at[own_index(op)], ls_dtype_bytes(ls__wide(op))),
               n);
    if (!status && !home)
        ls__unpack(op, c->out, own, r);
    return status;
}

/* ---- all_gather, broadcast ---- */

/* Is the flat buffer the slices in rank order, side by side? */
static bool flat_is_packed(ls_operation *op)
{
    for (int p = 0; p < ls__size(op); p++)
        if (ls__slice_count(op->call, p) && ls__slice_start(op->call, p) != op->state->at[p])
            return false;
    return true;
}

static ls_status all_gather(ls_operation *op)
{
    const ls_call *c = op->call;
    int            r = ls__rank(op), n = ls__size(op);
    size_t         size     = ls__bytes(op, 1);
    bool           in_place = c->slices && c->in == c->out;

    ls__call_slices(op, NULL);
    bool  packed = flat_is_packed(op);
    void *v = packed ? c->out : ls__scratch(&op->state->pack, ls__bytes(op, op->state->at[n]));
    if (!v)
        return LS_ENOMEM;
    void *own = ls__at(v, op->state->at[r], size);
    if (!in_place)
        ls__copy(op, own, c->in, ls__bytes(op, ls__slice_count(c, r)));
    else if (!packed)
        ls__pack(op, own, c->in, r);
    ls_status status;
    if (op->algorithm == LS_TREE) {
        status = slices_to_root(op, v, own, same, 0);
        if (!status)
            status = ls__tree_broadcast(op, v, ls__bytes(op, op->state->at[n]), 0);
    } else {
        status = gather_slices(op, v, false);
    }
    for (int p = 0; p < n && !status && !packed; p++)
        if (p != r || !in_place)
            ls__unpack(op, c->out, ls__at(v, op->state->at[p], size), p);
    return status;
}

static ls_status broadcast(ls_operation *op)
{
    const ls_call *c       = op->call;
    size_t         bytes   = ls__bytes(op, c->count);
    bool           is_root = ls__rank(op) == c->root;
    ls_status      status  = LS_OK;

    if (op->algorithm == LS_TREE)
        return ls__tree_broadcast(op, c->out, bytes, c->root);
    if (op->algorithm == LS_DIRECT) {
        for (int p = 0; p < ls__size(op) && !status; p++)
            if (p != c->root && is_root)
                status = ls__swap(op, p, c->out, bytes, LS_NO_PEER, NULL, 0);
        return status || is_root ? status
                                 : ls__swap(op, LS_NO_PEER, NULL, 0, c->root, c->out, bytes);
    }
    ls__equal_slices(op, c->count);
    void *own = ls__at(c->out, op->state->at[ls__rank(op)], ls__bytes(op, 1));
    status    = slices_from_root(op, c->out, own, c->root);
    return status ? status : gather_slices(op, c->out, false);
}

/* ---- those without a choice ---- */

static ls_status gather(ls_operation *op)
{
    ls__equal_slices(op, op->call->count * ls__size(op));
    return slices_to_root(op, op->call->out, op->call->in, same, op->call->root);
}

static ls_status scatter(ls_operation *op)
{
    ls__equal_slices(op, op->call->count * ls__size(op));
    return slices_from_root(op, op->call->in, op->call->out, op->call->root);
}

static ls_status all_to_all(ls_operation *op)
{
    const ls_call *c = op->call;
    int            r = ls__rank(op), n = ls__size(op);
    size_t         size = ls__bytes(op, 1), bytes = ls__bytes(op, c->count);
    ls_status      status = LS_OK;

    ls__copy(op, ls__at(c->out, r * c->count, size), ls__at(c->in, r * c->count, size), bytes);
    for (int k = 1; k < n && !status; k++) {
        int to = (r + k) % n, from = (r - k + n) % n;
        status = ls__swap(op, to, ls__at(c->in, to * c->count, size), bytes, from,
                          ls__at(c->out, from * c->count, size), bytes);
    }
    return status;
}

ls_status ls__run_messages(ls_operation *op)
{
    switch (op->call->kind) {
    case LS_BROADCAST:
        return broadcast(op);
    case LS_REDUCE:
        return reduce(op);
    case LS_ALL_REDUCE:
        return all_reduce(op);
    case LS_ALL_GATHER:
        return all_gather(op);
    case LS_REDUCE_SCATTER:
        return reduce_scatter(op);
    case LS_GATHER:
        return gather(op);
    case LS_SCATTER:
        return scatter(op);
    case LS_ALL_TO_ALL:
        return all_to_all(op);
    case LS_SEND:
    case LS_RECV:
    case LS_BARRIER:
    case LS_SPLIT:
    case LS_COLLECTIVE_COUNT:
        break;
    }
    return ls_fail(LS_EINVAL, "no such operation: %d", (int)op->call->kind);
}

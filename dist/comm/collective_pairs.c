/*
 * collective_pairs.c - messages between pairs of ranks, and the direct algorithm over them.
 */
#include "dist/comm/collective_impl.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

ls_status ls__swap(ls_operation *op, int to, const void *out, size_t out_bytes, int from,
                   void *in, size_t in_bytes)
{
    return ls_exchange(&op->running, (ls_outgoing){to, out, out_bytes},
                       (ls_incoming){from, in, in_bytes});
}

ls_status ls__agree(ls_operation *op)
{
    int       n = ls__size(op), r = ls__rank(op);
    ls_status status = LS_OK;

    for (int d = 1; d < n && !status; d *= 2)
        status = ls__swap(op, (r + d) % n, NULL, 0, (r - d + n) % n, NULL, 0);
    return status;
}

/* acc[0..n) = arrived and acc, the left one first. */
static void join(ls_operation *op, void *acc, const void *arrived, int64_t n, bool arrived_left)
{
    const void *in[2]  = {arrived_left ? arrived : acc, arrived_left ? acc : arrived};
    void       *out[1] = {acc};
    ls_dtype    wide   = ls__wide(op);

    ls__combine(op, &(ls_combine){.op    = op->call->op == LS_AVG ? LS_SUM : op->call->op,
                                  .from  = wide,
                                  .to    = wide,
                                  .n_in  = 2,
                                  .n_out = 1,
                                  .in    = in,
                                  .out   = out,
                                  .count = n});
}

/* The peer of a direction in its i-th piece; an empty direction still sends its header, once.
 */
static int peer_at(int peer, int64_t i, int64_t n, int64_t piece)
{
    return i == 0 || i * piece < n ? peer : LS_NO_PEER;
}

ls_status ls__swap_and_join(ls_operation *op, const ls__joining *j)
{
    size_t    size  = ls_dtype_bytes(ls__wide(op));
    int64_t   piece = LS_PIECE / (int64_t)size, most = j->n_in > j->n_out ? j->n_in : j->n_out;
    void     *tmp    = ls__scratch(&op->state->piece, LS_PIECE);
    ls_status status = tmp ? LS_OK : LS_ENOMEM;

    for (int64_t i = 0; !status && (i == 0 || i * piece < most); i++) {
        int to = peer_at(j->to, i, j->n_out, piece), from = peer_at(j->from, i, j->n_in, piece);
        int64_t at    = i * piece;
        int64_t n_out = to == LS_NO_PEER ? 0 : smaller(piece, j->n_out - at);
        int64_t n_in  = from == LS_NO_PEER ? 0 : smaller(piece, j->n_in - at);
        status = ls__swap(op, to, n_out ? ls__at(j->out, at, size) : NULL, (size_t)n_out * size,
                          from, tmp, (size_t)n_in * size);
        if (!status && n_in)
            join(op, ls__at(j->acc, at, size), tmp, n_in, j->arrived_left);
    }
    return status;
}

/* ---- direct ---- */

/* What this rank's slice of the reduction is made of. */
typedef struct {
    bool        call_slices;
    int64_t     piece; /* elements */
    char       *tmp;   /* [N][piece] what has arrived, by rank */
    const void *packed;
} direct;

static int64_t slice_count(const ls_operation *op, int rank, bool call_slices)
{
    return call_slices ? ls__slice_count(op->call, rank)
                       : op->state->at[rank + 1] - op->state->at[rank];
}

/* Element `at` of rank's slice of this rank's input; slices in several segments were packed. */
static void *contribution(const ls_operation *op, const direct *d, int rank, int64_t at)
{
    size_t  size  = ls__bytes(op, 1);
    int64_t start = op->state->at[rank];

    if (d->packed)
        return ls__at(d->packed, op->state->at[rank] + at, size);
    if (d->call_slices)
        start = ls__slice_start(op->call, rank);
    return ls__at(op->call->in, start + at, size);
}

static ls_status get_piece(ls_operation *op, direct *d, int64_t i)
{
    int       n = ls__size(op), r = ls__rank(op);
    size_t    size = ls__bytes(op, 1);
    int64_t   mine = slice_count(op, r, d->call_slices), at = i * d->piece;
    ls_status status = LS_OK;

    for (int k = 1; k < n && !status; k++) {
        int     to = (r + k) % n, from = (r - k + n) % n;
        int64_t theirs = slice_count(op, to, d->call_slices);
        int64_t n_out  = theirs > at ? smaller(d->piece, theirs - at) : 0;
        int64_t n_in   = mine > at ? smaller(d->piece, mine - at) : 0;
        status         = ls__swap(op, peer_at(to, i, theirs, d->piece),
                          n_out ? contribution(op, d, to, at) : NULL, (size_t)n_out * size,
                                  peer_at(from, i, mine, d->piece),
                                  ls__at(d->tmp, from * d->piece, size), (size_t)n_in * size);
    }
    return status;
}

static void join_piece(ls_operation *op, const direct *d, void *own, int64_t i)
{
    int     n = ls__size(op), r = ls__rank(op);
    size_t  size = ls__bytes(op, 1);
    int64_t mine = slice_count(op, r, d->call_slices), at = i * d->piece;
    void  **in     = op->state->in;
    void   *out[1] = {ls__at(own, at, size)};

    if (at >= mine)
        return;
    for (int p = 0; p < n; p++)
        in[p] = p == r ? contribution(op, d, r, at) : ls__at(d->tmp, p * d->piece, size);
    ls__combine(op, &(ls_combine){.op    = op->call->op,
                                  .from  = op->call->dtype,
                                  .to    = op->call->dtype,
                                  .n_in  = n,
                                  .n_out = 1,
                                  .in    = (const void *const *)in,
                                  .out   = out,
                                  .count = smaller(d->piece, mine - at)});
}

/* Packs all slices where one of them has several segments. */
static ls_status pack_if_needed(ls_operation *op, direct *d)
{
    bool scattered = false;

    for (int p = 0; d->call_slices && p < ls__size(op); p++)
        scattered = scattered || ls__slice_start(op->call, p) < 0;
    if (!scattered)
        return LS_OK;
    ls__call_slices(op, NULL);
    d->packed = ls__scratch(&op->state->pack, ls__bytes(op, op->state->at[ls__size(op)]));
    for (int p = 0; d->packed && p < ls__size(op); p++)
        ls__pack(op, ls__at(d->packed, op->state->at[p], ls__bytes(op, 1)), op->call->in, p);
    return d->packed ? LS_OK : LS_ENOMEM;
}

ls_status ls__direct_reduce(ls_operation *op, void *own, bool call_slices)
{
    direct    d = {.call_slices = call_slices, .piece = LS_PIECE / (int64_t)ls__bytes(op, 1)};
    int64_t   most = 0;
    ls_status status;

    for (int p = 0; p < ls__size(op); p++) {
        int64_t n = slice_count(op, p, call_slices);
        most      = n > most ? n : most;
    }
    d.piece = smaller(d.piece, most ? most : 1);
    d.tmp   = ls__scratch(&op->state->piece, (size_t)ls__size(op) * ls__bytes(op, d.piece));
    status  = d.tmp ? pack_if_needed(op, &d) : LS_ENOMEM;
    for (int64_t i = 0; !status && (i == 0 || i * d.piece < most); i++) {
        status = get_piece(op, &d, i);
        if (!status)
            join_piece(op, &d, own, i);
    }
    return status;
}

ls_status ls__direct_gather(ls_operation *op, void *v)
{
    int            n = ls__size(op), r = ls__rank(op);
    size_t         size   = ls__bytes(op, 1);
    const int64_t *at     = op->state->at;
    ls_status      status = LS_OK;

    for (int k = 1; k < n && !status; k++) {
        int to = (r + k) % n, from = (r - k + n) % n;
        status =
            ls__swap(op, to, ls__at(v, at[r], size), ls__bytes(op, at[r + 1] - at[r]), from,
                     ls__at(v, at[from], size), ls__bytes(op, at[from + 1] - at[from]));
    }
    return status;
}

/*
 * collective_blocks.c - halving and ring: the vector in N slices, each step a part of them.
 *
 * Halving (Note [canonical order]): slices are laid out so that what a rank keeps is always one
 * range.  At distance d = 1 it keeps a half, at 2 a quarter, ...: rank bit k decides over bit
 * log2(N) - 1 - k of the slice's index, so rank r ends with the slice whose index is r's bits
 * reversed.  N = 4:
 *
 *     index    0    1    2    3
 *     rank 0   ****|****                 d = 1: keeps 0, 1; sends 2, 3 to rank 1
 *              ****                      d = 2: keeps 0;    sends 1    to rank 2
 *
 * Gathering doubles the range again, in either layout.
 *
 * Ring: at step s rank r passes slice r-1-s on to r+1, and what it got before is joined
 * into it; after N-1 steps slice r is complete at rank r.
 */
#include "dist/comm/collective_impl.h"

int ls__reversed(int rank, int size)
{
    int index = 0;

    for (int bit = 1; bit < size; bit <<= 1)
        index = index << 1 | ((rank & bit) != 0);
    return index;
}

static void *slice(const ls_operation *op, const void *v, int b, size_t element)
{
    return ls__at(v, op->state->at[b], element);
}

static int64_t count(const ls_operation *op, int first, int n)
{
    return op->state->at[first + n] - op->state->at[first];
}

ls_status ls__halving_reduce(ls_operation *op, void *w)
{
    int       n = ls__size(op), r = ls__rank(op), first = 0;
    size_t    size   = ls_dtype_bytes(ls__wide(op));
    ls_status status = LS_OK;

    for (int d = 1, half = n / 2; d < n && !status; d *= 2, half /= 2) {
        bool        upper = (r & d) != 0;
        int         keep = first + (upper ? half : 0), give = first + (upper ? 0 : half);
        ls__joining j = {.to           = r ^ d,
                         .out          = slice(op, w, give, size),
                         .n_out        = count(op, give, half),
                         .from         = r ^ d,
                         .acc          = slice(op, w, keep, size),
                         .n_in         = count(op, keep, half),
                         .arrived_left = upper};
        status        = ls__swap_and_join(op, &j);
        first         = keep;
    }
    return status;
}

ls_status ls__doubling_gather(ls_operation *op, void *v, bool reversed)
{
    int       n = ls__size(op), r = ls__rank(op), index = reversed ? ls__reversed(r, n) : r;
    size_t    size   = ls__bytes(op, 1);
    ls_status status = LS_OK;

    for (int d = 1; d < n && !status; d *= 2) {
        int mine = index & ~(d - 1), theirs = mine ^ d;
        int peer = reversed ? ls__reversed(index ^ d, n) : index ^ d;
        status =
            ls__swap(op, peer, slice(op, v, mine, size), ls__bytes(op, count(op, mine, d)),
                     peer, slice(op, v, theirs, size), ls__bytes(op, count(op, theirs, d)));
    }
    return status;
}

ls_status ls__ring_reduce(ls_operation *op, void *w)
{
    int       n = ls__size(op), r = ls__rank(op);
    size_t    size   = ls_dtype_bytes(ls__wide(op));
    ls_status status = LS_OK;

    for (int s = 0; s < n - 1 && !status; s++) {
        int         give = (r - 1 - s + 2 * n) % n, take = (r - 2 - s + 2 * n) % n;
        ls__joining j = {.to           = (r + 1) % n,
                         .out          = slice(op, w, give, size),
                         .n_out        = count(op, give, 1),
                         .from         = (r + n - 1) % n,
                         .acc          = slice(op, w, take, size),
                         .n_in         = count(op, take, 1),
                         .arrived_left = true};
        status        = ls__swap_and_join(op, &j);
    }
    return status;
}

ls_status ls__ring_gather(ls_operation *op, void *v)
{
    int       n = ls__size(op), r = ls__rank(op);
    size_t    size   = ls__bytes(op, 1);
    ls_status status = LS_OK;

    for (int s = 0; s < n - 1 && !status; s++) {
        int give = (r - s + n) % n, take = (r - s - 1 + n) % n;
        status = ls__swap(op, (r + 1) % n, slice(op, v, give, size),
                          ls__bytes(op, count(op, give, 1)), (r + n - 1) % n,
                          slice(op, v, take, size), ls__bytes(op, count(op, take, 1)));
    }
    return status;
}

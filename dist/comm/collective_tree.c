/*
 * collective_tree.c - the binomial tree, up and down.
 *
 * The node of level d starts at a multiple a of 2d and joins ranks [a, a+d) with [a+d, a+2d).
 * One rank stands for each node: the root where it is in it, else the lowest.  Up: who stands
 * for one half sends to who stands for the whole.  Down: the same pairs, the other way.
 *
 *     N = 6, root 0:     0   1   2   3   4   5
 *                        0 <-1   2 <-3   4 <-5      d = 1
 *                        0 <---- 2       4          d = 2
 *                        0 <------------ 4          d = 4
 */
#include "dist/comm/collective_impl.h"

typedef struct {
    int  peer;  /* who stands for the other half; LS_NO_PEER: there is none, or this rank is not
                   asked */
    bool stays; /* this rank stands for the whole */
    bool is_left; /* this rank's half is the left one */
} pairing;

static int stands_for(int first, int end, int root)
{
    return root >= first && root < end ? root : first;
}

static pairing pair_at(int rank, int d, int size, int root)
{
    int first = rank / (2 * d) * (2 * d), middle = first + d;
    int end = first + 2 * d < size ? first + 2 * d : size;

    if (middle >= size)
        return (pairing){.peer = LS_NO_PEER};
    int left = stands_for(first, middle, root), right = stands_for(middle, end, root);
    if (rank != left && rank != right)
        return (pairing){.peer = LS_NO_PEER};
    return (pairing){.peer    = rank == left ? right : left,
                     .stays   = rank == stands_for(first, end, root),
                     .is_left = rank == left};
}

ls_status ls__tree_reduce(ls_operation *op, void *w, int64_t n, int root)
{
    ls_status status = LS_OK;

    for (int d = 1; d < ls__size(op) && !status; d *= 2) {
        pairing     p = pair_at(ls__rank(op), d, ls__size(op), root);
        ls__joining j = {
            .to = LS_NO_PEER, .from = LS_NO_PEER, .acc = w, .arrived_left = !p.is_left};
        if (p.peer == LS_NO_PEER)
            continue;
        if (p.stays) {
            j.from = p.peer;
            j.n_in = n;
        } else {
            j.to    = p.peer;
            j.out   = w;
            j.n_out = n;
        }
        status = ls__swap_and_join(op, &j);
    }
    return status;
}

ls_status ls__tree_broadcast(ls_operation *op, void *v, size_t bytes, int root)
{
    ls_status status = LS_OK;
    int       top    = 1;

    while (2 * top < ls__size(op))
        top *= 2;
    for (int d = top; d >= 1 && !status; d /= 2) {
        pairing p = pair_at(ls__rank(op), d, ls__size(op), root);
        if (p.peer == LS_NO_PEER)
            continue;
        if (p.stays)
            status = ls__swap(op, p.peer, v, bytes, LS_NO_PEER, NULL, 0);
        else
            status = ls__swap(op, LS_NO_PEER, NULL, 0, p.peer, v, bytes);
    }
    return status;
}

/*
 * attention_impl.h - a tile of the score matrix, and what is done to its rows in ls_real.
 *
 * Shared by attention.c and attention_bf16.c, which differ in what they multiply and in how
 * many keys they take at once.  A tile's arrays have rows `row` apart.
 */
#ifndef LS_CORE_KERNELS_ATTENTION_IMPL_H
#define LS_CORE_KERNELS_ATTENTION_IMPL_H

#include "core/kernels/attention.h"
#include "core/kernels/clones.h"
#include "core/kernels/lanes.h"
#include "core/kernels/real_math.h"

enum { TILE = 64 }; /* query rows at once */

/* Query rows from i0, key rows from j0. */
typedef struct {
    int64_t i0, ni, j0, nj, row;
} ls__tile;

static inline int64_t ls__shorter(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Keys that query row i of the tile may see. */
static inline int64_t ls__visible(const ls__tile *t, int64_t i)
{
    return ls__shorter(t->nj, t->i0 + i + 1 - t->j0);
}

/* Factors of dropout (0 or 1 / (1 - p)); an element is (head, query, key) of the sequence. */
static inline void ls__tile_dropout(const ls_attention_args *a, int64_t sequence, int64_t head,
                                    const ls__tile *t, ls_real *factor)
{
    for (int64_t i = 0; i < t->ni; i++) {
        int64_t first = (head * a->t + t->i0 + i) * a->t + t->j0;
        ls_k_dropout_factors(a->dropout, sequence, first, t->nj, factor + i * t->row);
    }
}

/* y = p * factor over the tile */
LS_INLINE void ls__tile_apply(const ls__tile *t, ls_real *y, const ls_real *p,
                              const ls_real *factor)
{
    for (int64_t i = 0; i < t->ni; i++)
        for (int64_t j = 0; j < t->nj; j++)
            y[i * t->row + j] = p[i * t->row + j] * factor[i * t->row + j];
}

/*
 * Scores of n visible keys become exp(s - m) with the new running maximum, those up to
 * hidden_to 0; o and l shrink by exp(m_old - m).
 */
LS_INLINE void ls__absorb_row(ls_real *s, int64_t n, int64_t hidden_to, ls_real *m, ls_real *l,
                              ls_real *o, int64_t d)
{
    ls_real here = ls_lanes_max(s, n), largest = here > *m ? here : *m;
    double  sum;

    ls_real shrink = ls_exp(*m - largest);
    for (int64_t j = 0; j < n; j++)
        s[j] = ls_exp(s[j] - largest);
    for (int64_t j = n; j < hidden_to; j++)
        s[j] = 0;
    LS_LANES_SUM(sum, j, n, (double)s[j]);
    for (int64_t c = 0; c < d; c++)
        o[c] *= shrink;
    *l = *l * shrink + (ls_real)sum;
    *m = largest;
}

/* Scores become p = exp(s - lse), zero where the key lies after the query. */
LS_INLINE void ls__tile_weights(const ls__tile *t, ls_real *p, const ls_real *lse)
{
    for (int64_t i = 0; i < t->ni; i++) {
        ls_real *row = p + i * t->row, shift = lse[t->i0 + i];
        int64_t  n = ls__visible(t, i);
        for (int64_t j = 0; j < n; j++)
            row[j] = ls_exp(row[j] - shift);
        for (int64_t j = n > 0 ? n : 0; j < t->nj; j++)
            row[j] = 0;
    }
}

/* ds = p (ds - delta) scale */
LS_INLINE void ls__tile_gradients(const ls__tile *t, ls_real *ds, const ls_real *p,
                                  const ls_real *delta, ls_real scale)
{
    for (int64_t i = 0; i < t->ni; i++)
        for (int64_t j = 0; j < t->nj; j++)
            ds[i * t->row + j] = p[i * t->row + j] * (ds[i * t->row + j] - delta[i]) * scale;
}

static inline void ls__clear_rows(ls_real *x, int64_t row, int64_t t, int64_t n)
{
    for (int64_t i = 0; i < t; i++)
        memset(x + i * row, 0, (size_t)n * sizeof *x);
}

#endif

/*
 * attention.c - the tiles.
 */
#include "core/kernels/attention.h"

#include <math.h>
#include <string.h>

#include "core/kernels/attention_impl.h"
#include "core/kernels/gemm.h"
#include "core/thread.h"

typedef struct {
    const ls_attention_args *a;
    const ls_real           *dout;
    ls_real                 *dqkv;
    bool                     add;
} job;

/* One head of one sequence; rows of q, k, v lie `row` elements apart, those of o `out_row`. */
typedef struct {
    const ls_attention_args *a;
    int64_t                  sequence, head, row, out_row;
    const ls_real           *q, *k, *v;
    ls_real                 *o, *lse;
    ls_real                  scale;
} head_view;

static head_view head_at(const ls_attention_args *a, int64_t sequence, int64_t head)
{
    int64_t        row = (a->h + 2 * a->k) * a->d, kv = head / (a->h / a->k);
    const ls_real *at = a->qkv + sequence * a->t * row;

    return (head_view){
        .a        = a,
        .sequence = sequence,
        .head     = head,
        .row      = row,
        .out_row  = a->h * a->d,
        .q        = at + head * a->d,
        .k        = at + (a->h + kv) * a->d,
        .v        = at + (a->h + a->k + kv) * a->d,
        .o        = a->out + sequence * a->t * a->h * a->d + head * a->d,
        .lse      = a->lse + (sequence * a->h + head) * a->t,
        .scale    = (ls_real)(1 / sqrt((double)a->d)),
    };
}

/* s = scale * q k^T, rows TILE apart */
static void scores(const head_view *v, const ls__tile *t, ls_real *s)
{
    ls_gemm_tile(&(ls_gemm_args){.transpose_b = true,
                                 .m           = t->ni,
                                 .n           = t->nj,
                                 .k           = v->a->d,
                                 .alpha       = v->scale,
                                 .a           = v->q + t->i0 * v->row,
                                 .lda         = v->row,
                                 .b           = v->k + t->j0 * v->row,
                                 .ldb         = v->row,
                                 .c           = s,
                                 .ldc         = TILE});
}

LS_CLONES static void apply_factors(const ls__tile *t, ls_real *y, const ls_real *p,
                                    const ls_real *factor)
{
    ls__tile_apply(t, y, p, factor);
}

LS_CLONES static void absorb_rows(const head_view *v, const ls__tile *t, ls_real *s, ls_real *m,
                                  ls_real *l)
{
    for (int64_t i = 0; i < t->ni; i++)
        ls__absorb_row(s + i * TILE, ls__visible(t, i), t->nj, &m[i], &l[i],
                       v->o + (t->i0 + i) * v->out_row, v->a->d);
}

static void absorb_tile(const head_view *v, const ls__tile *t, ls_real *m, ls_real *l)
{
    ls_real s[TILE * TILE];

    scores(v, t, s);
    absorb_rows(v, t, s, m, l);
    if (v->a->dropout) {
        ls_real factor[TILE * TILE];
        ls__tile_dropout(v->a, v->sequence, v->head, t, factor);
        apply_factors(t, s, s, factor);
    }
    ls_gemm_tile(&(ls_gemm_args){.m     = t->ni,
                                 .n     = v->a->d,
                                 .k     = t->nj,
                                 .alpha = 1,
                                 .a     = s,
                                 .lda   = TILE,
                                 .b     = v->v + t->j0 * v->row,
                                 .ldb   = v->row,
                                 .beta  = 1,
                                 .c     = v->o + t->i0 * v->out_row,
                                 .ldc   = v->out_row});
}

static void forward_rows(const head_view *v, int64_t i0, int64_t ni)
{
    ls_real m[TILE], l[TILE];

    for (int64_t i = 0; i < ni; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
        memset(v->o + (i0 + i) * v->out_row, 0, (size_t)v->a->d * sizeof *v->o);
    }
    for (int64_t j0 = 0; j0 <= i0; j0 += TILE) {
        ls__tile t = {i0, ni, j0, ls__shorter(TILE, v->a->t - j0), TILE};
        absorb_tile(v, &t, m, l);
    }
    for (int64_t i = 0; i < ni; i++) {
        ls_real *o = v->o + (i0 + i) * v->out_row;
        for (int64_t c = 0; c < v->a->d; c++)
            o[c] /= l[i];
        v->lse[i0 + i] = m[i] + (ls_real)log((double)l[i]);
    }
}

static void forward_task(void *context, int64_t index)
{
    const job *j = context;
    head_view  v = head_at(j->a, index / j->a->h, index % j->a->h);

    for (int64_t i0 = 0; i0 < j->a->t; i0 += TILE)
        forward_rows(&v, i0, ls__shorter(TILE, j->a->t - i0));
}

void ls_k_attention(const ls_attention_args *a)
{
    job j = {.a = a};
    ls_parallel(a->b * a->h, forward_task, &j);
}

/* Gradients of one head, at the places of q, k, v and o. */
typedef struct {
    ls_real       *dq, *dk, *dv;
    const ls_real *dout;
} head_grads;

LS_CLONES static void weights(const head_view *v, const ls__tile *t, ls_real *p)
{
    scores(v, t, p);
    ls__tile_weights(t, p, v->lse);
}

/* c (rows `ldc` apart) += op(tile) b, the tile being (ni,nj); transposed for sums over queries
 */
static void add_product(const head_view *v, const ls__tile *t, const ls_real *s,
                        bool transposed, const ls_real *b, int64_t ldb, ls_real *c)
{
    ls_gemm_tile(&(ls_gemm_args){.transpose_a = transposed,
                                 .m           = transposed ? t->nj : t->ni,
                                 .n           = v->a->d,
                                 .k           = transposed ? t->ni : t->nj,
                                 .alpha       = 1,
                                 .a           = s,
                                 .lda         = TILE,
                                 .b           = b,
                                 .ldb         = ldb,
                                 .beta        = 1,
                                 .c           = c,
                                 .ldc         = v->row});
}

LS_CLONES static void score_gradients(const ls__tile *t, ls_real *ds, const ls_real *p,
                                      const ls_real *delta, ls_real scale)
{
    ls__tile_gradients(t, ds, p, delta, scale);
}

/*
 * With P the weights, D the dropout factors and delta = rowsum(dO * O):
 * dV += (P D)^T dO,  dS = P (dO V^T D - delta) * scale,  dQ += dS K,  dK += dS^T Q
 */
static void backward_tile(const head_view *v, const ls__tile *t, const head_grads *g,
                          const ls_real *delta)
{
    ls_real        p[TILE * TILE], dropped[TILE * TILE], ds[TILE * TILE], factor[TILE * TILE];
    const ls_real *dout = g->dout + t->i0 * v->out_row, *used = p;

    weights(v, t, p);
    if (v->a->dropout) {
        ls__tile_dropout(v->a, v->sequence, v->head, t, factor);
        apply_factors(t, dropped, p, factor);
        used = dropped;
    }
    add_product(v, t, used, true, dout, v->out_row, g->dv + t->j0 * v->row);
    ls_gemm_tile(&(ls_gemm_args){.transpose_b = true,
                                 .m           = t->ni,
                                 .n           = t->nj,
                                 .k           = v->a->d,
                                 .alpha       = 1,
                                 .a           = dout,
                                 .lda         = v->out_row,
                                 .b           = v->v + t->j0 * v->row,
                                 .ldb         = v->row,
                                 .c           = ds,
                                 .ldc         = TILE});
    if (v->a->dropout)
        apply_factors(t, ds, ds, factor);
    score_gradients(t, ds, p, delta, v->scale);
    add_product(v, t, ds, false, v->k + t->j0 * v->row, v->row, g->dq + t->i0 * v->row);
    add_product(v, t, ds, true, v->q + t->i0 * v->row, v->row, g->dk + t->j0 * v->row);
}

static void backward_rows(const head_view *v, const head_grads *g, int64_t i0, int64_t ni)
{
    ls_real delta[TILE];

    for (int64_t i = 0; i < ni; i++) {
        const ls_real *o = v->o + (i0 + i) * v->out_row, *d = g->dout + (i0 + i) * v->out_row;
        double         sum;
        LS_LANES_SUM(sum, c, v->a->d, (double)o[c] * (double)d[c]);
        delta[i] = (ls_real)sum;
    }
    for (int64_t j0 = 0; j0 <= i0; j0 += TILE) {
        ls__tile t = {i0, ni, j0, ls__shorter(TILE, v->a->t - j0), TILE};
        backward_tile(v, &t, g, delta);
    }
}

static void backward_task(void *context, int64_t index)
{
    const job               *j        = context;
    const ls_attention_args *a        = j->a;
    int64_t                  sequence = index / a->k, kv = index % a->k, group = a->h / a->k;
    int64_t                  row = (a->h + 2 * a->k) * a->d;
    ls_real                 *at  = j->dqkv + sequence * a->t * row;
    head_grads g = {.dk = at + (a->h + kv) * a->d, .dv = at + (a->h + a->k + kv) * a->d};

    if (!j->add) {
        ls__clear_rows(at + kv * group * a->d, row, a->t, group * a->d);
        ls__clear_rows(g.dk, row, a->t, a->d);
        ls__clear_rows(g.dv, row, a->t, a->d);
    }
    for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
        head_view v = head_at(a, sequence, head);
        g.dq        = at + head * a->d;
        g.dout      = j->dout + (v.o - a->out);
        for (int64_t i0 = 0; i0 < a->t; i0 += TILE)
            backward_rows(&v, &g, i0, ls__shorter(TILE, a->t - i0));
    }
}

void ls_k_attention_backward(const ls_attention_args *a, const ls_real *dout, ls_real *dqkv,
                             bool add)
{
    job j = {a, dout, dqkv, add};
    ls_parallel(a->b * a->k, backward_task, &j);
}

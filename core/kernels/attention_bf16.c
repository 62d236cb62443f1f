/*
 * attention_bf16.c - the tiles of attention.c with products of bf16.
 *
 * Up to KEYS keys are taken at once, so a product has more to do for what a call of it costs:
 * 64 x 64 x 64 run at three quarters of the rate of 64 x 64 x 256.
 *
 * A task owns TILE rows of its scratch: in forward the running sums of a query tile's output;
 * in backward its dout in BF16, which all key tiles read, and before that one row in ls_real.
 */
#include <math.h>
#include <string.h>

#include "core/kernels/attention_impl.h"
#include "core/kernels/bf16.h"
#include "core/kernels/gemm_bf16.h"
#include "core/kernels/reduce.h"
#include "core/thread.h"

enum { KEYS = 256 };

typedef struct {
    const ls_attention_bf16_args *a;
    const ls_real                *dout;
    ls_real                      *dqkv;
    bool                          add;
} job;

/* One head of one sequence; rows of q, k, v lie `row` elements apart, those of o `out_row`. */
typedef struct {
    const ls_attention_args *a;
    int64_t                  sequence, head, row, out_row, d;
    const uint16_t          *q, *k, *v;
    uint16_t                *o;
    ls_real                 *lse;
    ls_real                  scale;
} head_view;

static head_view head_at(const ls_attention_bf16_args *args, int64_t sequence, int64_t head)
{
    const ls_attention_args *a   = &args->a;
    int64_t                  row = (a->h + 2 * a->k) * a->d, kv = head / (a->h / a->k);
    const uint16_t          *at = args->qkv16 + sequence * a->t * row;

    return (head_view){
        .a        = a,
        .sequence = sequence,
        .head     = head,
        .row      = row,
        .out_row  = a->h * a->d,
        .d        = a->d,
        .q        = at + head * a->d,
        .k        = at + (a->h + kv) * a->d,
        .v        = at + (a->h + a->k + kv) * a->d,
        .o        = args->out16 + sequence * a->t * a->h * a->d + head * a->d,
        .lse      = a->lse + (sequence * a->h + head) * a->t,
        .scale    = (ls_real)(1 / sqrt((double)a->d)),
    };
}

size_t ls_k_attention_bf16_scratch(const ls_attention_args *a)
{
    return (size_t)(a->b * a->h * TILE * a->d) * sizeof(ls_real);
}

static ls_real *scratch_of(const ls_attention_bf16_args *a, int64_t task)
{
    return (ls_real *)a->scratch + task * TILE * a->a.d;
}

/* s = x y^T over the tile; x and y have rows of d */
static void scores(const head_view *v, const ls__tile *t, const uint16_t *x, int64_t ldx,
                   const uint16_t *y, ls_real *s)
{
    ls_gemm_bf16_tile(&(ls_gemm_bf16_args){.transpose_b = true,
                                           .m           = t->ni,
                                           .n           = t->nj,
                                           .k           = v->d,
                                           .a           = x,
                                           .lda         = ldx,
                                           .b           = y,
                                           .ldb         = v->row,
                                           .c           = s,
                                           .ldc         = t->row});
}

/* Rows of a matrix, `ld` elements apart. */
typedef struct {
    const uint16_t *data;
    int64_t         ld;
} factor_rows;

typedef struct {
    ls_real *data;
    int64_t  ld;
} sum_rows;

/* c += op(tile) b, the tile being (ni,nj); transposed for sums over queries */
static void add_product(const head_view *v, const ls__tile *t, const uint16_t *s,
                        bool transposed, factor_rows b, sum_rows c)
{
    ls_gemm_bf16_tile(&(ls_gemm_bf16_args){.transpose_a = transposed,
                                           .m           = transposed ? t->nj : t->ni,
                                           .n           = v->d,
                                           .k           = transposed ? t->ni : t->nj,
                                           .a           = s,
                                           .lda         = t->row,
                                           .b           = b.data,
                                           .ldb         = b.ld,
                                           .add         = true,
                                           .c           = c.data,
                                           .ldc         = c.ld});
}

LS_INLINE void scale_tile(const ls__tile *t, ls_real *s, ls_real scale)
{
    for (int64_t i = 0; i < t->ni; i++)
        for (int64_t j = 0; j < t->nj; j++)
            s[i * t->row + j] *= scale;
}

LS_INLINE void round_tile(const ls__tile *t, uint16_t *to, const ls_real *from)
{
    for (int64_t i = 0; i < t->ni; i++)
        for (int64_t j = 0; j < t->nj; j++)
            to[i * t->row + j] = ls_bf16_round((float)from[i * t->row + j]);
}

/* What is known so far of some queries: the largest score, the sum of weights, and o (rows of
 * d) before its division. */
typedef struct {
    ls_real *m, *l, *o;
} running;

/* Scores of the tile become weights that go into r; factor: dropout's, or NULL. */
LS_CLONES static void absorb_rows(const head_view *v, const ls__tile *t, ls_real *s,
                                  const ls_real *factor, uint16_t *p, const running *r)
{
    scale_tile(t, s, v->scale);
    for (int64_t i = 0; i < t->ni; i++)
        ls__absorb_row(s + i * t->row, ls__visible(t, i), t->nj, &r->m[i], &r->l[i],
                       r->o + i * v->d, v->d);
    if (factor)
        ls__tile_apply(t, s, s, factor);
    round_tile(t, p, s);
}

static void absorb_tile(const head_view *v, const ls__tile *t, const running *r)
{
    ls_real  s[TILE * KEYS], factor[TILE * KEYS];
    uint16_t p[TILE * KEYS];

    scores(v, t, v->q + t->i0 * v->row, v->row, v->k + t->j0 * v->row, s);
    if (v->a->dropout)
        ls__tile_dropout(v->a, v->sequence, v->head, t, factor);
    absorb_rows(v, t, s, v->a->dropout ? factor : NULL, p, r);
    add_product(v, t, p, false, (factor_rows){v->v + t->j0 * v->row, v->row},
                (sum_rows){r->o, v->d});
}

/* o / l, rounded; lse */
LS_CLONES static void finish_row(const head_view *v, int64_t i, const ls_real *o, ls_real m,
                                 ls_real l)
{
    uint16_t *out = v->o + i * v->out_row;

    for (int64_t c = 0; c < v->d; c++)
        out[c] = ls_bf16_round((float)(o[c] / l));
    v->lse[i] = m + (ls_real)log((double)l);
}

static void forward_rows(const head_view *v, int64_t i0, int64_t ni, ls_real *o)
{
    ls_real m[TILE], l[TILE];

    for (int64_t i = 0; i < ni; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
    memset(o, 0, (size_t)(ni * v->d) * sizeof *o);
    for (int64_t j0 = 0; j0 < i0 + ni; j0 += KEYS) {
        ls__tile t = {i0, ni, j0, ls__shorter(KEYS, i0 + ni - j0), KEYS};
        absorb_tile(v, &t, &(running){m, l, o});
    }
    for (int64_t i = 0; i < ni; i++)
        finish_row(v, i0 + i, o + i * v->d, m[i], l[i]);
}

static void forward_task(void *context, int64_t index)
{
    const job *j = context;
    head_view  v = head_at(j->a, index / j->a->a.h, index % j->a->a.h);

    for (int64_t i0 = 0; i0 < v.a->t; i0 += TILE)
        forward_rows(&v, i0, ls__shorter(TILE, v.a->t - i0), scratch_of(j->a, index));
}

void ls_k_attention_bf16(const ls_attention_bf16_args *a)
{
    job j = {.a = a};
    ls_parallel(a->a.b * a->a.h, forward_task, &j);
}

/* Gradients of one head, at the places of q, k and v; dout at the place of o, and rounded. */
typedef struct {
    ls_real       *dq, *dk, *dv;
    const ls_real *dout;
    uint16_t      *dout16; /* of the query tile, rows of d */
    ls_real       *wide;   /* room for a row */
} head_grads;

/* s: scores, becomes weights; used: the weights that dV sees, rounded */
LS_CLONES static void weights(const head_view *v, const ls__tile *t, ls_real *s,
                              const ls_real *factor, ls_real *dropped, uint16_t *used)
{
    scale_tile(t, s, v->scale);
    ls__tile_weights(t, s, v->lse);
    if (factor)
        ls__tile_apply(t, dropped, s, factor);
    round_tile(t, used, factor ? dropped : s);
}

LS_CLONES static void score_gradients(const head_view *v, const ls__tile *t, ls_real *ds,
                                      const ls_real *p, const ls_real *factor,
                                      const ls_real *delta, uint16_t *rounded)
{
    if (factor)
        ls__tile_apply(t, ds, ds, factor);
    ls__tile_gradients(t, ds, p, delta, v->scale);
    round_tile(t, rounded, ds);
}

/* As backward_tile of attention.c, whose formulas these are. */
static void backward_tile(const head_view *v, const ls__tile *t, const head_grads *g,
                          const ls_real *delta)
{
    ls_real        p[TILE * KEYS], ds[TILE * KEYS], factor[TILE * KEYS];
    uint16_t       rounded[TILE * KEYS];
    const ls_real *drops = v->a->dropout ? factor : NULL;

    if (drops)
        ls__tile_dropout(v->a, v->sequence, v->head, t, factor);
    scores(v, t, v->q + t->i0 * v->row, v->row, v->k + t->j0 * v->row, p);
    weights(v, t, p, drops, ds, rounded);
    add_product(v, t, rounded, true, (factor_rows){g->dout16, v->d},
                (sum_rows){g->dv + t->j0 * v->row, v->row});
    scores(v, t, g->dout16, v->d, v->v + t->j0 * v->row, ds);
    score_gradients(v, t, ds, p, drops, delta, rounded);
    add_product(v, t, rounded, false, (factor_rows){v->k + t->j0 * v->row, v->row},
                (sum_rows){g->dq + t->i0 * v->row, v->row});
    add_product(v, t, rounded, true, (factor_rows){v->q + t->i0 * v->row, v->row},
                (sum_rows){g->dk + t->j0 * v->row, v->row});
}

/* dout of a row, rounded; the row's delta.  wide: room for a row */
static ls_real prepare_row(const uint16_t *o, const ls_real *dout, int64_t d, uint16_t *dout16,
                           ls_real *wide)
{
    ls_k_bf16_round_here(dout16, dout, d);
    ls_k_bf16_widen_here(wide, o, d);
    return (ls_real)ls_k_row_dot(wide, dout, d);
}

static void backward_rows(const head_view *v, const head_grads *g, int64_t i0, int64_t ni)
{
    ls_real delta[TILE];

    for (int64_t i = 0; i < ni; i++)
        delta[i] = prepare_row(v->o + (i0 + i) * v->out_row, g->dout + (i0 + i) * v->out_row,
                               v->d, g->dout16 + i * v->d, g->wide);
    for (int64_t j0 = 0; j0 < i0 + ni; j0 += KEYS) {
        ls__tile t = {i0, ni, j0, ls__shorter(KEYS, i0 + ni - j0), KEYS};
        backward_tile(v, &t, g, delta);
    }
}

static void backward_task(void *context, int64_t index)
{
    const job               *j        = context;
    const ls_attention_args *a        = &j->a->a;
    int64_t                  sequence = index / a->k, kv = index % a->k, group = a->h / a->k;
    int64_t                  row = (a->h + 2 * a->k) * a->d;
    ls_real                 *at  = j->dqkv + sequence * a->t * row;
    head_grads               g   = {.dk     = at + (a->h + kv) * a->d,
                                    .dv     = at + (a->h + a->k + kv) * a->d,
                                    .wide   = scratch_of(j->a, index),
                                    .dout16 = (uint16_t *)(scratch_of(j->a, index) + a->d)};

    if (!j->add) {
        ls__clear_rows(at + kv * group * a->d, row, a->t, group * a->d);
        ls__clear_rows(g.dk, row, a->t, a->d);
        ls__clear_rows(g.dv, row, a->t, a->d);
    }
    for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
        head_view v = head_at(j->a, sequence, head);
        g.dq        = at + head * a->d;
        g.dout      = j->dout + (v.o - j->a->out16);
        for (int64_t i0 = 0; i0 < a->t; i0 += TILE)
            backward_rows(&v, &g, i0, ls__shorter(TILE, a->t - i0));
    }
}

void ls_k_attention_bf16_backward(const ls_attention_bf16_args *a, const ls_real *dout,
                                  ls_real *dqkv, bool add)
{
    job j = {a, dout, dqkv, add};
    ls_parallel(a->a.b * a->a.k, backward_task, &j);
}

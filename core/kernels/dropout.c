/*
 * dropout.c - Srivastava et al. 2014, with counter-based draws, sixteen Philox blocks abreast.
 *
 * Note [random draws]
 * The counter of a draw is (site, element / 4) as its index, the step and the sequence's
 * number in the step as its streams.  Neither the rank nor the micro-batch that computes the
 * sequence enters, so every way of sharing a step among ranks drops the same elements.
 */
#include "core/kernels/dropout.h"

#include "core/kernels/clones.h"
#include "core/rng.h"
#include "core/thread.h"

enum {
    ELEMENTS   = 4096, /* of a task */
    SITE_SHIFT = 40,
    ABREAST    = 16,         /* Philox blocks that one loop works on */
    BATCH      = 4 * ABREAST /* elements that they give */
};

/* Counters and results of ABREAST blocks, word by word. */
typedef struct {
    uint32_t v[4][ABREAST];
} blocks;

/* The round of core/rng.c, over all blocks; it is a loop of its own so that it vectorises. */
LS_INLINE void round_all(blocks *c, uint32_t k0, uint32_t k1)
{
    for (int l = 0; l < ABREAST; l++) {
        uint64_t p0 = (uint64_t)LS_PHILOX_M0 * c->v[0][l];
        uint64_t p1 = (uint64_t)LS_PHILOX_M1 * c->v[2][l];
        c->v[0][l]  = (uint32_t)(p1 >> 32) ^ c->v[1][l] ^ k0;
        c->v[1][l]  = (uint32_t)p1;
        c->v[2][l]  = (uint32_t)(p0 >> 32) ^ c->v[3][l] ^ k1;
        c->v[3][l]  = (uint32_t)p0;
    }
}

/* Factors of the BATCH elements from group * 4 on; equal to ls_rng_draw()'s to the bit. */
LS_CLONES static void draw_batch(const ls_dropout_args *d, int64_t sequence, int64_t group,
                                 ls_real *factor)
{
    uint64_t key   = ls_rng_key(d->seed, LS_RNG_DROPOUT);
    uint64_t first = (uint64_t)d->site << SITE_SHIFT | (uint64_t)group;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t below = (uint32_t)(d->p * 0x1p32);
    ls_real  keep  = (ls_real)(1 / (1 - d->p));
    blocks   c;

    for (int l = 0; l < ABREAST; l++) {
        c.v[0][l] = (uint32_t)(first + (uint64_t)l);
        c.v[1][l] = (uint32_t)((first + (uint64_t)l) >> 32);
        c.v[2][l] = d->step;
        c.v[3][l] = d->first_sequence + (uint32_t)sequence;
    }
    for (int i = 0; i < LS_PHILOX_ROUNDS; i++) {
        round_all(&c, k0, k1);
        k0 += LS_PHILOX_W0;
        k1 += LS_PHILOX_W1;
    }
    for (int l = 0; l < ABREAST; l++)
        for (int w = 0; w < 4; w++)
            factor[4 * l + w] = c.v[w][l] < below ? 0 : keep;
}

void ls_k_dropout_factors(const ls_dropout_args *d, int64_t sequence, int64_t first, int64_t n,
                          ls_real *factor)
{
    ls_real batch[BATCH];

    for (int64_t at = first / 4 * 4; at < first + n; at += BATCH) {
        int64_t from = at < first ? first : at;
        int64_t end  = at + BATCH < first + n ? at + BATCH : first + n;
        draw_batch(d, sequence, at / 4, batch);
        for (int64_t i = from; i < end; i++)
            factor[i - first] = batch[i - at];
    }
}

typedef struct {
    const ls_dropout_args *d;
    ls_real               *y;
    const ls_real         *x, *residual; /* residual: joined to what is dropped, or NULL */
    int64_t                n;
    bool                   add;
} job;

/* n elements from `at` on */
LS_INLINE void apply(const job *j, int64_t at, int64_t n, const ls_real *factor)
{
    if (j->residual)
        for (int64_t i = 0; i < n; i++)
            j->y[at + i] = j->residual[at + i] + j->x[at + i] * factor[i];
    else if (j->add)
        for (int64_t i = 0; i < n; i++)
            j->y[at + i] += j->x[at + i] * factor[i];
    else
        for (int64_t i = 0; i < n; i++)
            j->y[at + i] = j->x[at + i] * factor[i];
}

/* Blocks start at multiples of ELEMENTS, so whole batches fit. */
LS_CLONES static void drop_block(void *context, int64_t index)
{
    const job *j        = context;
    int64_t    per      = ls_block_count(j->n, ELEMENTS);
    ls_block   b        = ls_block_at(j->n, ELEMENTS, index % per);
    int64_t    sequence = index / per;
    ls_real    factor[BATCH];

    for (int64_t i = b.first; i < b.end; i += BATCH) {
        draw_batch(j->d, sequence, i / 4, factor);
        apply(j, sequence * j->n + i, b.end - i < BATCH ? b.end - i : BATCH, factor);
    }
}

void ls_k_dropout(const ls_dropout_args *d, ls_real *y, const ls_real *x, int64_t sequences,
                  int64_t n, bool add)
{
    job j = {d, y, x, NULL, n, add};
    ls_parallel(sequences * ls_block_count(n, ELEMENTS), drop_block, &j);
}

void ls_k_residual(const ls_dropout_args *d, ls_real *y, const ls_real *residual,
                   const ls_real *x, int64_t sequences, int64_t n)
{
    job j = {d, y, x, residual, n, false};
    ls_parallel(sequences * ls_block_count(n, ELEMENTS), drop_block, &j);
}

/*
 * dropout.c - Srivastava et al. 2014, with counter-based draws.
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

enum { ELEMENTS = 4096, SITE_SHIFT = 40 };

LS_INLINE ls_philox_block draw(const ls_dropout_args *d, int64_t sequence, int64_t group)
{
    return ls_rng_draw(d->seed, LS_RNG_DROPOUT, d->step, d->first_sequence + (uint32_t)sequence,
                       (uint64_t)d->site << SITE_SHIFT | (uint64_t)group);
}

void ls_k_dropout_factors(const ls_dropout_args *d, int64_t sequence, int64_t first, int64_t n,
                          ls_real *factor)
{
    uint64_t threshold = (uint64_t)(d->p * 0x1p32);
    ls_real  keep      = (ls_real)(1 / (1 - d->p));

    for (int64_t i = first; i < first + n;) {
        ls_philox_block block = draw(d, sequence, i / 4);
        int64_t         end   = (i / 4 + 1) * 4;
        for (; i < end && i < first + n; i++)
            factor[i - first] = block.v[i % 4] < threshold ? 0 : keep;
    }
}

typedef struct {
    const ls_dropout_args *d;
    ls_real               *y;
    const ls_real         *x;
    int64_t                n;
    bool                   add;
} job;

LS_CLONES static void drop_block(void *context, int64_t index)
{
    const job *j        = context;
    int64_t    per      = ls_block_count(j->n, ELEMENTS);
    ls_block   b        = ls_block_at(j->n, ELEMENTS, index % per);
    int64_t    sequence = index / per, at = sequence * j->n + b.first;
    ls_real    factor[ELEMENTS];

    ls_k_dropout_factors(j->d, sequence, b.first, b.end - b.first, factor);
    for (int64_t i = 0; i < b.end - b.first; i++)
        /* All of factor is written.  NOLINTNEXTLINE(clang-analyzer-core.Undefined*) */
        j->y[at + i] = (j->add ? j->y[at + i] : 0) + j->x[at + i] * factor[i];
}

void ls_k_dropout(const ls_dropout_args *d, ls_real *y, const ls_real *x, int64_t sequences,
                  int64_t n, bool add)
{
    job j = {d, y, x, n, add};
    ls_parallel(sequences * ls_block_count(n, ELEMENTS), drop_block, &j);
}

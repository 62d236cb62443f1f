/*
 * sampler.c - sequences in order, or in a permutation of each epoch.
 *
 * The permutation of 0..S-1 is computed element by element, without a table: a Feistel
 * network permutes the 2h-bit numbers, 4^(h-1) < S <= 4^h, and a result that is not below S
 * is sent through again until one is (cycle walking; Black and Rogaway 2002, "Ciphers with
 * arbitrary finite domains").  That restricts the permutation of all 4^h numbers to one of
 * 0..S-1, at fewer than 4 passes on average.  The round function is Philox.
 */
#include "data/sampler.h"

#include <assert.h>

#include "core/rng.h"

/* Four would do for large S (Luby and Rackoff 1988); few bits need more to mix evenly. */
enum { ROUNDS = 8 };

ls_status ls_sampler_init(ls_sampler *sampler, const ls_tokens *tokens, int64_t context,
                          ls_order order, uint64_t seed)
{
    if (context < 1)
        return ls_fail(LS_ECONFIG, "context is %lld, at least 1 is needed", (long long)context);
    if (tokens->count <= context)
        return ls_fail(LS_ECONFIG,
                       "context is longer than the data: %lld tokens, context %lld needs %lld",
                       (long long)tokens->count, (long long)context, (long long)context + 1);
    *sampler = (ls_sampler){tokens, NULL, context, (tokens->count - 1) / context, order, seed};
    return LS_OK;
}

ls_status ls_sampler_init_rows(ls_sampler *sampler, const ls_table *rows, ls_order order,
                               uint64_t seed)
{
    if (rows->rows < 1)
        return ls_fail(LS_ECONFIG, "%lld rows, at least 1 is needed", (long long)rows->rows);
    *sampler = (ls_sampler){
        .rows = rows, .context = 1, .sequences = rows->rows, .order = order, .seed = seed};
    return LS_OK;
}

int64_t ls_sampler_sequence_count(const ls_sampler *sampler)
{
    return sampler->sequences;
}

static int half_bits(uint64_t n)
{
    int h = 1;

    while (h < 31 && n > (uint64_t)1 << 2 * h)
        h++;
    return h;
}

/* A permutation of the 2h-bit numbers: (left, right) -> (right, left ^ F(round, right)). */
static uint64_t feistel(uint64_t seed, uint64_t epoch, int h, uint64_t x)
{
    uint32_t mask = ((uint32_t)1 << h) - 1, left = (uint32_t)(x >> h),
             right = (uint32_t)x & mask;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t f = ls_rng_draw(seed, LS_RNG_SHUFFLE, right, i, epoch).v[0] & mask;
        uint32_t l = left;
        left       = right;
        right      = l ^ f;
    }
    return (uint64_t)left << h | right;
}

static int64_t permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t x)
{
    int      h = half_bits((uint64_t)n);
    uint64_t y = (uint64_t)x;

    do
        y = feistel(seed, epoch, h, y);
    while (y >= (uint64_t)n);
    return (int64_t)y;
}

int64_t ls_sampler_place(const ls_sampler *sampler, int64_t q)
{
    int64_t n = sampler->sequences;

    assert(q >= 0);
    if (sampler->order == LS_ORDER_SEQUENTIAL)
        return q % n;
    return permute(sampler->seed, (uint64_t)(q / n), n, q % n);
}

void ls_sampler_fill(const ls_sampler *sampler, int64_t q, int32_t *inputs, int32_t *targets)
{
    int64_t first = ls_sampler_place(sampler, q) * sampler->context;

    ls_tokens_read(sampler->tokens, first, sampler->context, inputs);
    ls_tokens_read(sampler->tokens, first + 1, sampler->context, targets);
}

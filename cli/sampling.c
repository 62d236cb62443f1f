/*
 * sampling.c - temperature, top-k, top-p, one draw.
 *
 * Candidates are sorted by weight, tokens of equal weight by their number, so the choice does
 * not depend on how the sort goes about it.
 */
#include "cli/sampling.h"

#include <math.h>
#include <stdlib.h>

#include "core/rng.h"

static int heavier_first(const void *a, const void *b)
{
    const ls_candidate *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

static ls_status find_largest(const ls_real *logits, int64_t n, int32_t *largest)
{
    *largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(logits[i]))
            return ls_fail(LS_ENOTFINITE, "the logit of token %lld is not a number",
                           (long long)i);
        if (logits[i] > logits[*largest])
            *largest = (int32_t)i;
    }
    if (n < 1 || isinf(logits[*largest]))
        return ls_fail(LS_ENOTFINITE, "of %lld logits the largest is %g", (long long)n,
                       n < 1 ? 0.0 : (double)logits[*largest]);
    return LS_OK;
}

static double weight_of(const ls_candidate *c, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += c[i].weight;
    return sum;
}

/* How many of the n heaviest make up the share p of them all. */
static int64_t nucleus(const ls_candidate *c, int64_t n, double p)
{
    double  want = p * weight_of(c, n), sum = 0;
    int64_t i = 0;

    while (i < n && (i == 0 || sum < want))
        sum += c[i++].weight;
    return i;
}

ls_status ls_sample(const ls_sampling *s, const ls_real *logits, int64_t n, uint64_t index,
                    ls_candidate *room, int32_t *token)
{
    int32_t   largest;
    ls_status status = find_largest(logits, n, &largest);

    *token = largest;
    if (status || s->temperature <= 0)
        return status;
    for (int64_t i = 0; i < n; i++)
        room[i] = (ls_candidate){
            (int32_t)i, exp(((double)logits[i] - (double)logits[largest]) / s->temperature)};
    if (s->top_k || s->top_p < 1)
        qsort(room, (size_t)n, sizeof *room, heavier_first);
    if (s->top_k && s->top_k < n)
        n = s->top_k;
    if (s->top_p < 1)
        n = nucleus(room, n, s->top_p);
    ls_philox_block draw = ls_rng_draw(s->seed, LS_RNG_SAMPLE, 0, 0, index);
    double          left =
        (ls_rng_unit(draw.v[0]) + ls_rng_unit(draw.v[1]) * 0x1p-32) * weight_of(room, n);
    for (int64_t i = 0; i < n; i++) {
        *token = room[i].weight > 0 ? room[i].token : *token;
        left -= room[i].weight;
        if (left < 0)
            break;
    }
    return LS_OK;
}

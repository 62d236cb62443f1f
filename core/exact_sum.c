/*
 * exact_sum.c - the small superaccumulator.
 *
 * A double with biased exponent e and significand f is f * 2^(e - 1) in units of 2^-1074, so f
 * lands at bit e - 1: limb (e - 1) / 32 and the two above it get 32 bits each.  The topmost
 * limb takes the carries and, in two's complement, the sign.
 */
#include "core/exact_sum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    LIMB_BITS        = 32,
    TOP              = LS_EXACT_LIMBS - 1,
    SIGNIFICAND_BITS = 53,
    LOWEST_EXPONENT  = -1074
};

static const int64_t limb_mask = 0xffffffff;
static const int64_t most_adds = (int64_t)1 << 30;

void ls_exact_sum_init(ls_exact_sum *s)
{
    *s = (ls_exact_sum){0};
}

void ls_exact_sum_carry(ls_exact_sum *s)
{
    int64_t carry = 0;

    for (int i = 0; i < TOP; i++) {
        int64_t sum = s->limb[i] + carry;
        s->limb[i]  = sum & limb_mask;
        carry       = (sum - s->limb[i]) / (limb_mask + 1); /* exact, also below zero */
    }
    s->limb[TOP] += carry;
    s->adds = 1;
}

static void add_special(ls_exact_sum *s, double x)
{
    if (isnan(x))
        s->nan++;
    else if (x > 0)
        s->plus_inf++;
    else
        s->minus_inf++;
}

void ls_exact_sum_add(ls_exact_sum *s, double x)
{
    uint64_t bits;

    if (!isfinite(x)) {
        add_special(s, x);
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    uint64_t exponent = bits >> 52 & 0x7ff, f = bits & 0xfffffffffffffu;
    if (exponent)
        f |= (uint64_t)1 << 52;
    uint64_t at    = exponent ? exponent - 1 : 0;
    unsigned shift = at % LIMB_BITS;
    int64_t *limb  = s->limb + at / LIMB_BITS;
    int64_t  part0 = (int64_t)(f << shift) & limb_mask;
    int64_t  part1 = (int64_t)(f >> (LIMB_BITS - shift)) & limb_mask;
    int64_t  part2 = (int64_t)(f >> (LIMB_BITS - shift) >> LIMB_BITS);
    int64_t  sign  = bits >> 63 ? -1 : 1;

    limb[0] += sign * part0;
    limb[1] += sign * part1;
    limb[2] += sign * part2;
    if (++s->adds >= most_adds)
        ls_exact_sum_carry(s);
}

void ls_exact_sum_merge(ls_exact_sum *s, const ls_exact_sum *other)
{
    ls_exact_sum o = *other;

    ls_exact_sum_carry(s);
    ls_exact_sum_carry(&o);
    for (int i = 0; i < LS_EXACT_LIMBS; i++)
        s->limb[i] += o.limb[i];
    s->adds += o.adds;
    s->nan += o.nan;
    s->plus_inf += o.plus_inf;
    s->minus_inf += o.minus_inf;
}

static void negate(ls_exact_sum *s)
{
    for (int i = 0; i < LS_EXACT_LIMBS; i++)
        s->limb[i] = -s->limb[i];
    ls_exact_sum_carry(s);
}

static bool bit_at(const ls_exact_sum *s, int bit)
{
    int i = bit / LIMB_BITS < TOP ? bit / LIMB_BITS : TOP;
    return s->limb[i] >> (bit - i * LIMB_BITS) & 1;
}

/* Position of the highest bit of a carried sum that is not negative; -1 for zero. */
static int highest_bit(const ls_exact_sum *s)
{
    for (int i = TOP; i >= 0; i--)
        if (s->limb[i])
            return i * LIMB_BITS + 63 - __builtin_clzll((uint64_t)s->limb[i]);
    return -1;
}

static bool any_bit_below(const ls_exact_sum *s, int bit)
{
    for (int i = 0; i < bit; i++)
        if (bit_at(s, i))
            return true;
    return false;
}

static double round_magnitude(const ls_exact_sum *s)
{
    int      high   = highest_bit(s);
    int      lowest = high < SIGNIFICAND_BITS ? 0 : high - SIGNIFICAND_BITS + 1;
    uint64_t f      = 0;

    for (int bit = high; bit >= lowest; bit--)
        f = f << 1 | bit_at(s, bit);
    if (lowest && bit_at(s, lowest - 1) && ((f & 1) || any_bit_below(s, lowest - 1)))
        f++;
    return ldexp((double)f, lowest + LOWEST_EXPONENT);
}

double ls_exact_sum_round(const ls_exact_sum *s)
{
    ls_exact_sum t = *s;

    if (t.nan || (t.plus_inf && t.minus_inf))
        return NAN;
    if (t.plus_inf || t.minus_inf)
        return t.plus_inf ? INFINITY : -INFINITY;
    ls_exact_sum_carry(&t);
    if (t.limb[TOP] >= 0)
        return round_magnitude(&t);
    negate(&t);
    return -round_magnitude(&t);
}

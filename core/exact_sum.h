/*
 * exact_sum.h - sums of doubles without rounding, in any order.
 *
 * Neal 2015, "Fast exact summation using small and large superaccumulators",
 * arXiv:1505.05571.  Every double is an integer multiple of 2^-1074; the sum of any number of
 * them is kept as one wide fixed-point integer in limbs of 32 bits, and rounded once, at the
 * end.  Integer addition is associative, so who adds what, and in which order, changes no bit.
 *
 *     limb[i] counts 2^(32 i - 1074); an int64 leaves room for 2^31 additions between carries
 *
 * Across ranks: after ls_exact_sum_carry() the states of at most 2^29 ranks may be summed as
 * arrays of LS_EXACT_WORDS int64, element by element (an all_reduce of i64 with sum); the
 * result is the state of the sum over all ranks.
 */
#ifndef LS_CORE_EXACT_SUM_H
#define LS_CORE_EXACT_SUM_H

#include <stdint.h>

enum { LS_EXACT_LIMBS = 67 };

/* Nothing but int64; all zero is the empty sum. */
typedef struct {
    int64_t limb[LS_EXACT_LIMBS];
    int64_t adds;                     /* bound on additions since the last carry */
    int64_t nan, plus_inf, minus_inf; /* how many of each were added */
} ls_exact_sum;

enum { LS_EXACT_WORDS = sizeof(ls_exact_sum) / sizeof(int64_t) };

void ls_exact_sum_init(ls_exact_sum *s);
void ls_exact_sum_add(ls_exact_sum *s, double x);
void ls_exact_sum_merge(ls_exact_sum *s, const ls_exact_sum *other); /* s += other */

/* Brings every limb but the topmost into 0 .. 2^32 - 1; the value stays. */
void ls_exact_sum_carry(ls_exact_sum *s);

/*
 * The sum, rounded once to the nearest double, ties to even.  Infinite beyond the largest
 * double; an exact zero is +0, also for a sum of -0.  NaN when a NaN, or infinities of both
 * signs, were added; else the infinity that was.
 */
double ls_exact_sum_round(const ls_exact_sum *s);

#endif

/*
 * rng.h - counter-based random numbers: Philox4x32-10.
 *
 * Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".  A draw is
 * a pure function of a 64-bit key and a 128-bit counter; there is no state to keep, to save
 * or to disagree about.  Who draws, in which order, on how many ranks, changes nothing.
 */
#ifndef LS_CORE_RNG_H
#define LS_CORE_RNG_H

#include <stdint.h>

typedef struct {
    uint32_t v[4];
} ls_philox_block;

/* Its constants: multipliers, and what the two halves of the key grow by each round. */
#define LS_PHILOX_M0 0xD2511F53u
#define LS_PHILOX_M1 0xCD9E8D57u
#define LS_PHILOX_W0 0x9E3779B9u
#define LS_PHILOX_W1 0xBB67AE85u
enum { LS_PHILOX_ROUNDS = 10 };

/* Ten rounds; equal to Random123's philox4x32. */
ls_philox_block ls_philox(ls_philox_block counter, uint32_t key0, uint32_t key1);

/* What a draw is for; different purposes never share a counter. */
typedef enum { LS_RNG_INIT = 1, LS_RNG_DROPOUT, LS_RNG_SHUFFLE, LS_RNG_SAMPLE } ls_rng_purpose;

/* The key of a seed and a purpose, low half first. */
uint64_t ls_rng_key(uint64_t seed, ls_rng_purpose purpose);

/*
 * Four 32-bit draws of (seed, purpose, stream a, stream b, index).  The key is the seed with
 * the purpose mixed in; the counter is (index low, index high, a, b).
 */
ls_philox_block ls_rng_draw(uint64_t seed, ls_rng_purpose purpose, uint32_t a, uint32_t b,
                            uint64_t index);

/* Uniform in [0, 1), 32 bits of it, exact in double. */
static inline double ls_rng_unit(uint32_t x)
{
    return x / 4294967296.0;
}

/* Two independent N(0, 1) values of two draws (Box and Muller 1958), in double. */
void ls_rng_normal(uint32_t x, uint32_t y, double out[2]);

/* FNV-1a of a name, to make it a stream. */
uint64_t ls_rng_hash(const char *name);

#endif

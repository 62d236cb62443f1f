/*
 * rng.c - Philox4x32-10 and what is made from it.
 */
#include "core/rng.h"

#include <math.h>

static void round_once(ls_philox_block *c, uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)LS_PHILOX_M0 * c->v[0];
    uint64_t p1 = (uint64_t)LS_PHILOX_M1 * c->v[2];

    *c = (ls_philox_block){{(uint32_t)(p1 >> 32) ^ c->v[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c->v[3] ^ k1, (uint32_t)p0}};
}

ls_philox_block ls_philox(ls_philox_block counter, uint32_t key0, uint32_t key1)
{
    for (int i = 0; i < LS_PHILOX_ROUNDS; i++) {
        round_once(&counter, key0, key1);
        key0 += LS_PHILOX_W0;
        key1 += LS_PHILOX_W1;
    }
    return counter;
}

/* splitmix64's finaliser spreads the few bits of small seeds and purposes over the key. */
uint64_t ls_rng_key(uint64_t seed, ls_rng_purpose purpose)
{
    uint64_t key = seed + 0x9E3779B97F4A7C15u * (uint64_t)purpose;

    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9u;
    key = (key ^ key >> 27) * 0x94D049BB133111EBu;
    return key ^ key >> 31;
}

ls_philox_block ls_rng_draw(uint64_t seed, ls_rng_purpose purpose, uint32_t a, uint32_t b,
                            uint64_t index)
{
    uint64_t key = ls_rng_key(seed, purpose);

    return ls_philox((ls_philox_block){{(uint32_t)index, (uint32_t)(index >> 32), a, b}},
                     (uint32_t)key, (uint32_t)(key >> 32));
}

void ls_rng_normal(uint32_t x, uint32_t y, double out[2])
{
    double radius = sqrt(-2 * log((x + 0.5) * 0x1p-32)); /* never log(0) */
    double angle  = 6.283185307179586477 * (y * 0x1p-32);

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

uint64_t ls_rng_hash(const char *name)
{
    uint64_t h = 0xCBF29CE484222325u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    return h;
}

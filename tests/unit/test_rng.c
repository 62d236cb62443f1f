/*
 * test_rng.c - Philox against Random123's known answers; streams and moments.
 */
#include "core/rng.h"
#include "test.h"

static const struct {
    const char     *name;
    ls_philox_block counter;
    uint32_t        key[2];
    ls_philox_block want;
} known[] = {
    {"zeros", {{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {"ones",
     {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     {0xffffffff, 0xffffffff},
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {"pi",
     {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     {0xa4093822, 0x299f31d0},
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
};

static void test_known_answers(void)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        TEST_ROW(known[i].name);
        ls_philox_block got = ls_philox(known[i].counter, known[i].key[0], known[i].key[1]);
        CHECK_BITS(&got, &known[i].want, sizeof got);
    }
}

typedef struct {
    uint64_t       seed;
    ls_rng_purpose purpose;
    uint32_t       a, b;
    uint64_t       index;
} place;

/* Places that differ in one thing only: all their draws must differ. */
static void test_streams(void)
{
    static const place places[] = {
        {1, LS_RNG_INIT, 0, 0, 0},          {2, LS_RNG_INIT, 0, 0, 0},
        {1, LS_RNG_DROPOUT, 0, 0, 0},       {1, LS_RNG_SHUFFLE, 0, 0, 0},
        {1, LS_RNG_SAMPLE, 0, 0, 0},        {1, LS_RNG_INIT, 1, 0, 0},
        {1, LS_RNG_INIT, 0, 1, 0},          {1, LS_RNG_INIT, 0, 0, 1},
        {1, LS_RNG_INIT, 0, 0, 1ull << 32}, {0, LS_RNG_INIT, 0, 0, 0},
        {1ull << 63, LS_RNG_INIT, 0, 0, 0},
    };
    enum { N = sizeof places / sizeof *places };
    ls_philox_block draw[N];

    TEST_ROW("purposes, streams, indices");
    for (int i = 0; i < N; i++) {
        const place *p        = &places[i];
        draw[i]               = ls_rng_draw(p->seed, p->purpose, p->a, p->b, p->index);
        ls_philox_block again = ls_rng_draw(p->seed, p->purpose, p->a, p->b, p->index);
        CHECK_BITS(&draw[i], &again, sizeof again);
        for (int j = 0; j < i; j++)
            for (int k = 0; k < 4; k++)
                CHECK(draw[i].v[k] != draw[j].v[k]);
    }
}

enum { DRAWS = 1 << 16 };

/* Bounds are five standard errors of the mean of n values. */
static void check_moments(double sum, double squares, double mean, double variance,
                          double fourth, double n)
{
    CHECK_CLOSE(sum / n, mean, 5 * sqrt(variance / n));
    CHECK_CLOSE(squares / n - mean * mean, variance, 5 * sqrt(fourth / n));
}

static void test_moments(void)
{
    double u = 0, uu = 0, z = 0, zz = 0, cross = 0;

    for (uint64_t i = 0; i < DRAWS; i++) {
        ls_philox_block d = ls_rng_draw(42, LS_RNG_INIT, 1, 2, i);
        double          x = ls_rng_unit(d.v[0]) - 0.5, n[2];
        u += x;
        uu += x * x;
        ls_rng_normal(d.v[2], d.v[3], n);
        z += n[0] + n[1];
        zz += n[0] * n[0] + n[1] * n[1];
        cross += n[0] * n[1];
    }
    TEST_ROW("uniform");
    check_moments(u, uu, 0, 1.0 / 12, 1.0 / 180, DRAWS);
    TEST_ROW("normal");
    check_moments(z, zz, 0, 1, 2, 2.0 * DRAWS);
    CHECK_CLOSE(cross / DRAWS, 0, 5 / sqrt(DRAWS));
}

static void test_edges(void)
{
    double n[2];

    TEST_ROW("edges");
    CHECK(ls_rng_unit(0) == 0 && ls_rng_unit(0xffffffff) < 1 && ls_rng_unit(0x80000000) == 0.5);
    ls_rng_normal(0, 0, n);
    CHECK(isfinite(n[0]) && n[0] > 6 && n[1] == 0);
    ls_rng_normal(0xffffffff, 0, n);
    CHECK(isfinite(n[0]) && n[0] >= 0 && n[0] < 1e-4);
    CHECK(ls_rng_hash("") == 0xCBF29CE484222325u);
    CHECK(ls_rng_hash("a") == 0xAF63DC4C8601EC8Cu); /* FNV's published value */
}

int main(void)
{
    test_known_answers();
    test_streams();
    test_moments();
    test_edges();
    return test_summary("rng");
}

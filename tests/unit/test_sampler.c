/*
 * test_sampler.c - the contract's formula, and permutations that are what they claim to be.
 */
#include "data/sampler.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "test.h"

/* Tokens 0, 1, 2, ..., so that a token tells its position. */
static ls_tokens counting(int64_t count)
{
    ls_tokens tokens;

    CHECK_OK(ls_tokens_init(&tokens, count, (int32_t)count));
    for (int64_t i = 0; i < count; i++)
        ls_tokens_set(&tokens, i, (int32_t)i);
    return tokens;
}

static const struct {
    const char *name;
    int64_t     count, context, sequences;
} shapes[] = {
    {"one sequence", 5, 4, 1},          {"one token short of two", 8, 4, 1},
    {"exactly two", 9, 4, 2},           {"context 1", 10, 1, 9},
    {"8-bit tokens", 256, 16, 15},      {"16-bit tokens", 257, 16, 16},
    {"32-bit tokens", 65537, 64, 1024},
};

static void check_sequence(const ls_sampler *s, int64_t q, int64_t first)
{
    int32_t inputs[64], targets[64];

    ls_sampler_fill(s, q, inputs, targets);
    for (int64_t t = 0; t < s->context; t++)
        CHECK(inputs[t] == first + t && targets[t] == first + t + 1);
}

static void test_sequential(void)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t    T = shapes[i].context, S = shapes[i].sequences;
        ls_tokens  tokens = counting(shapes[i].count);
        ls_sampler s;

        TEST_ROW(shapes[i].name);
        CHECK_OK(ls_sampler_init(&s, &tokens, T, LS_ORDER_SEQUENTIAL, 1));
        CHECK(ls_sampler_sequence_count(&s) == S);
        for (int64_t q = 0; q < 2 * S + 1; q++)
            check_sequence(&s, q, q % S * T);
        check_sequence(&s, 1000000007 * S + S - 1, (S - 1) * T);
        CHECK_OK(ls_sampler_init(&s, &tokens, T, LS_ORDER_SHUFFLE, 1));
        for (int64_t q = 0; q < 2 * S + 1; q++)
            check_sequence(&s, q, ls_sampler_place(&s, q) * T);
        ls_tokens_close(&tokens);
    }
}

/* S sequences of context 1; only the count of tokens is looked at. */
static ls_sampler shuffled(ls_tokens *tokens, int64_t S, uint64_t seed)
{
    ls_sampler s;

    *tokens = (ls_tokens){.count = S + 1, .width = 1};
    CHECK_OK(ls_sampler_init(&s, tokens, 1, LS_ORDER_SHUFFLE, seed));
    return s;
}

static void check_permutation(const ls_sampler *s, int64_t epoch)
{
    int64_t S    = s->sequences;
    char   *seen = calloc((size_t)S, 1);

    for (int64_t i = 0; i < S; i++) {
        int64_t place = ls_sampler_place(s, epoch * S + i);
        if (CHECK(place >= 0 && place < S))
            CHECK(!seen[place]++);
    }
    free(seen);
}

static int64_t agreeing(const ls_sampler *a, int64_t epoch_a, const ls_sampler *b,
                        int64_t epoch_b)
{
    int64_t S = a->sequences, same = 0;

    for (int64_t i = 0; i < S; i++)
        same += ls_sampler_place(a, epoch_a * S + i) == ls_sampler_place(b, epoch_b * S + i);
    return same;
}

static void test_permutations(void)
{
    static const int64_t  sizes[]  = {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4096, 4097};
    static const int64_t  epochs[] = {0, 1, 2, 1000, (int64_t)1 << 40};
    static const uint64_t seeds[]  = {0, 1, 1337, UINT64_MAX};
    ls_tokens             tokens;

    TEST_ROW("permutation of every epoch");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof seeds / sizeof *seeds; k++)
            for (size_t e = 0; e < sizeof epochs / sizeof *epochs; e++) {
                ls_sampler s = shuffled(&tokens, sizes[i], seeds[k]);
                check_permutation(&s, epochs[e]);
            }
}

static void test_differences(void)
{
    ls_tokens  tokens;
    ls_sampler a = shuffled(&tokens, 1000, 1), b = shuffled(&tokens, 1000, 2);
    ls_sampler in_order = a;

    in_order.order = LS_ORDER_SEQUENTIAL;
    TEST_ROW("two random permutations agree in 1 place on average, in 10 with p = 1e-7");
    CHECK(agreeing(&a, 0, &a, 0) == 1000);
    CHECK(agreeing(&a, 0, &a, 1) < 10);
    CHECK(agreeing(&a, 0, &a, (int64_t)1 << 32) < 10);
    CHECK(agreeing(&a, 0, &b, 0) < 10);
    CHECK(agreeing(&a, 0, &b, 1) < 10);
    CHECK(agreeing(&a, 0, &in_order, 0) < 10);
}

static void test_random_access(void)
{
    enum { S = 100, EPOCHS = 3 };
    ls_tokens  tokens;
    ls_sampler s = shuffled(&tokens, S, 7);
    int64_t    forward[S * EPOCHS];

    TEST_ROW("random access, another sampler of the same data");
    for (int64_t q = 0; q < S * EPOCHS; q++)
        forward[q] = ls_sampler_place(&s, q);
    s = shuffled(&tokens, S, 7);
    for (int64_t k = 0, q = 0; k < S * EPOCHS; k++, q = (q + 77) % (S * EPOCHS))
        CHECK(ls_sampler_place(&s, q) == forward[q]);
}

/* What seed 1337 draws is fixed: runs of earlier versions must come out alike. */
static void test_fixed(void)
{
    static const int64_t wanted[3][7] = {
        {0, 5, 6, 2, 4, 3, 1}, {3, 1, 2, 0, 4, 5, 6}, {0, 6, 3, 4, 2, 5, 1}};
    ls_tokens  tokens;
    ls_sampler s = shuffled(&tokens, 7, 1337);

    TEST_ROW("seed 1337");
    for (int64_t q = 0; q < 21; q++)
        CHECK(ls_sampler_place(&s, q) == wanted[q / 7][q % 7]);
}

/* Each of the 24 orders of 4, over 24,000 epochs: 1000 +- 31 times; each of 6 of 3 as well. */
static void check_uniform(int S, int orders)
{
    int        times[256] = {0}, found = 0; /* by an order's digits in base 4 */
    ls_tokens  tokens;
    ls_sampler s = shuffled(&tokens, S, 42);

    for (int64_t epoch = 0; epoch < 1000 * orders; epoch++) {
        int64_t order = 0;
        for (int64_t i = 0; i < S; i++)
            order = order * 4 + ls_sampler_place(&s, epoch * S + i);
        times[order]++;
    }
    for (int i = 0; i < 256; i++)
        if (times[i] && ++found)
            CHECK_CLOSE(times[i], 1000, 150);
    CHECK(found == orders);
}

static void test_uniform(void)
{
    TEST_ROW("every order is as likely, 2");
    check_uniform(2, 2);
    TEST_ROW("every order is as likely, 3");
    check_uniform(3, 6);
    TEST_ROW("every order is as likely, 4");
    check_uniform(4, 24);
}

static void test_errors(void)
{
    ls_tokens  tokens = counting(8);
    ls_sampler s;

    TEST_ROW("too short");
    CHECK_OK(ls_sampler_init(&s, &tokens, 7, LS_ORDER_SHUFFLE, 0));
    CHECK_FAILS(ls_sampler_init(&s, &tokens, 8, LS_ORDER_SHUFFLE, 0), LS_ECONFIG,
                "8 tokens, context 8 needs 9");
    CHECK_FAILS(ls_sampler_init(&s, &tokens, 0, LS_ORDER_SHUFFLE, 0), LS_ECONFIG,
                "context is 0");
    ls_tokens_close(&tokens);
}

static void test_tokens(void)
{
    static const struct {
        const char *name;
        int32_t     vocab;
        int         width;
    } rows[]       = {{"1 byte", 256, 1},
                      {"2 bytes", 257, 2},
                      {"2 bytes, full", 65536, 2},
                      {"4 bytes", 65537, 4},
                      {"4 bytes, full", INT32_MAX, 4}};
    int64_t before = ls_mem_get_stats().total;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_tokens tokens, part;
        int32_t   out[2];

        TEST_ROW(rows[i].name);
        CHECK_OK(ls_tokens_init(&tokens, 3, rows[i].vocab));
        CHECK(tokens.width == rows[i].width);
        for (int64_t k = 0; k < 3; k++)
            ls_tokens_set(&tokens, k, rows[i].vocab - 3 + (int32_t)k);
        part = ls_tokens_slice(&tokens, 1, 2);
        ls_tokens_read(&part, 0, 2, out);
        CHECK(out[0] == rows[i].vocab - 2 && out[1] == rows[i].vocab - 1);
        ls_tokens_close(&part);
        CHECK(ls_tokens_at(&tokens, 0) == rows[i].vocab - 3);
        ls_tokens_close(&tokens);
        ls_alloc_fail_after(0);
        CHECK_FAILS(ls_tokens_init(&tokens, 3, rows[i].vocab), LS_ENOMEM, "3 tokens");
        ls_tokens_close(&tokens);
    }
    CHECK(ls_mem_get_stats().total == before);
}

int main(void)
{
    test_tokens();
    test_sequential();
    test_permutations();
    test_differences();
    test_random_access();
    test_uniform();
    test_fixed();
    test_errors();
    return test_summary("sampler");
}

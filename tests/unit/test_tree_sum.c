/*
 * test_tree_sum.c - the binary counter against a tree written down by its definition.
 */
#include <string.h>

#include "core/tree_sum.h"
#include "test.h"

enum { LEAVES = 64, LENGTH = 7 };

static ls_real leaf[LEAVES][LENGTH];

/* Magnitudes far apart, so that every other order rounds differently; some -0. */
static void make_leaves(void)
{
    uint32_t seed = 7;
    for (int m = 0; m < LEAVES; m++)
        for (int i = 0; i < LENGTH; i++) {
            seed       = seed * 1664525u + 1013904223u;
            leaf[m][i] = (ls_real)ldexp((int)(seed >> 8) - (1 << 23), (int)(seed % 40) - 40);
            if (i == 0)
                leaf[m][i] = (ls_real)-0.0;
        }
}

static void naive(int first, int count, ls_real *out)
{
    ls_real right[LENGTH];
    int     left = 1;

    if (count == 1) {
        memcpy(out, leaf[first], sizeof leaf[0]);
        return;
    }
    while (2 * left < count)
        left *= 2;
    naive(first, left, out);
    naive(first + left, count - left, right);
    for (int i = 0; i < LENGTH; i++)
        out[i] += right[i];
}

static ls_storage *storage_of(int m)
{
    ls_storage *s = ls_storage_new(sizeof leaf[m], LS_MEM_GRADS);
    memcpy(s->data, leaf[m], sizeof leaf[m]);
    return s;
}

static void test_order(void)
{
    TEST_ROW("left-balanced tree, M = 1 .. 64");
    for (int m = 1; m <= LEAVES; m++) {
        ls_tree_sum t;
        ls_real     want[LENGTH];
        ls_tree_sum_init(&t);
        for (int i = 0; i < m; i++)
            CHECK_OK(ls_tree_sum_push(&t, storage_of(i)));
        ls_storage *sum = ls_tree_sum_finish(&t);
        naive(0, m, want);
        CHECK(sum && sum->refs == 1 && t.count == 0);
        CHECK_BITS(sum->data, want, sizeof want);
        ls_storage_release(sum);
    }
}

static void test_zero_leaves(void)
{
    ls_real saved[LEAVES][LENGTH];

    TEST_ROW("leaves of +0");
    memcpy(saved, leaf, sizeof leaf);
    for (int m = 1; m <= 16; m++)
        for (unsigned zeros = 0; zeros < 1u << m && zeros < 4096; zeros += m < 12 ? 1 : 7) {
            ls_tree_sum t;
            ls_real     want[LENGTH];
            ls_tree_sum_init(&t);
            for (int i = 0; i < m; i++)
                if (zeros >> i & 1) {
                    memset(leaf[i], 0, sizeof leaf[i]);
                    CHECK_OK(ls_tree_sum_push_zero(&t, sizeof leaf[i]));
                } else {
                    CHECK_OK(ls_tree_sum_push(&t, storage_of(i)));
                }
            naive(0, m, want);
            ls_storage *sum = ls_tree_sum_finish(&t);
            CHECK_BITS(sum->data, want, sizeof want);
            ls_storage_release(sum);
            memcpy(leaf, saved, sizeof leaf);
        }
}

static void test_ownership(void)
{
    ls_tree_sum t;
    int64_t     before = ls_mem_get_stats().total;

    TEST_ROW("a leaf alone is moved");
    ls_tree_sum_init(&t);
    ls_storage *only = storage_of(3);
    void       *data = only->data;
    CHECK_OK(ls_tree_sum_push(&t, only));
    ls_storage *sum = ls_tree_sum_finish(&t);
    CHECK(sum == only && sum->data == data);
    ls_storage_release(sum);
    CHECK(!ls_tree_sum_finish(&t));

    TEST_ROW("refused leaves are released, the sum stays");
    CHECK_OK(ls_tree_sum_push(&t, storage_of(1)));
    ls_storage *shared = ls_storage_retain(storage_of(2));
    CHECK_FAILS(ls_tree_sum_push(&t, shared), LS_ESTATE, "2 references");
    CHECK(shared->refs == 1);
    ls_storage_release(shared);
    CHECK_FAILS(ls_tree_sum_push(&t, ls_storage_new(8, LS_MEM_GRADS)), LS_ESHAPE, "8 bytes");
    CHECK_FAILS(ls_tree_sum_push_zero(&t, 8), LS_ESHAPE, "8 bytes");
    CHECK_OK(ls_tree_sum_push_zero(&t, sizeof leaf[0]));
    CHECK(t.count == 2);
    for (int n = 0; n < 2; n++) {
        ls_alloc_fail_after(n);
        CHECK(ls_tree_sum_push_zero(&t, sizeof leaf[0]) == LS_ENOMEM);
    }
    CHECK(t.count == 2);
    ls_tree_sum_close(&t);
    CHECK(t.count == 0 && ls_mem_get_stats().total == before);
}

static void test_memory(void)
{
    ls_tree_sum t;

    TEST_ROW("log2(M) + 1 arrays at most");
    ls_tree_sum_init(&t);
    ls_mem_reset_peaks();
    int64_t before = ls_mem_get_stats().current[LS_MEM_GRADS];
    for (int i = 0; i < LEAVES; i++)
        CHECK_OK(ls_tree_sum_push(&t, storage_of(i)));
    CHECK(ls_mem_get_stats().current[LS_MEM_GRADS] - before <= 64);
    CHECK(ls_mem_get_stats().peak[LS_MEM_GRADS] - before <= 8 * 64);
    ls_tree_sum_close(&t);
}

int main(void)
{
    make_leaves();
    test_order();
    test_zero_leaves();
    test_ownership();
    test_memory();
    ls_mem_trim();
    return test_summary("tree_sum");
}

/*
 * test_alloc.c - size classes, figures, limit, injected failures, many threads at once.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "test.h"

static void test_size_classes(void)
{
    TEST_ROW("size classes");
    for (size_t bytes = 0; bytes < 70000; bytes += bytes < 1200 ? 1 : 997) {
        int64_t before = ls_mem_get_stats().total;
        char   *block  = ls_mem_alloc(bytes, LS_MEM_OTHER);
        int64_t taken  = ls_mem_get_stats().total - before;
        int64_t most   = (int64_t)bytes + (int64_t)bytes / 8 + 64;

        if (!CHECK(block && (uintptr_t)block % 64 == 0 && taken >= (int64_t)bytes &&
                   taken <= most))
            return;
        memset(block, 0x5a, bytes);
        ls_mem_free(block, bytes, LS_MEM_OTHER);
        if (!CHECK(ls_mem_get_stats().total == before))
            return;
    }
}

static void test_reuse(void)
{
    TEST_ROW("a freed block is the next of its class");
    void   *a        = ls_mem_alloc(10000, LS_MEM_GRADS);
    int64_t reserved = ls_mem_get_stats().reserved;
    ls_mem_free(a, 10000, LS_MEM_GRADS);
    void *b = ls_mem_alloc(9900, LS_MEM_PARAMS);
    CHECK(a == b);
    CHECK(ls_mem_get_stats().reserved == reserved);
    ls_mem_free(b, 9900, LS_MEM_PARAMS);
    ls_mem_free(NULL, 5, LS_MEM_PARAMS);
}

static void test_categories(void)
{
    static const char *const names[] = {
#define X(name, text) text,
        LS_MEM_MAP(X)
#undef X
    };
    void *block[LS_MEM_COUNT];

    ls_mem_stats before = ls_mem_get_stats();
    for (int c = 0; c < LS_MEM_COUNT; c++) {
        TEST_ROW(names[c]);
        CHECK(!strcmp(ls_mem_category_name((ls_mem_category)c), names[c]));
        block[c] = ls_mem_alloc(1024u << c, (ls_mem_category)c);
    }
    ls_mem_stats during = ls_mem_get_stats();
    for (int c = 0; c < LS_MEM_COUNT; c++) {
        TEST_ROW(names[c]);
        CHECK(during.current[c] - before.current[c] == 1024 << c);
        CHECK(during.peak[c] >= during.current[c]);
        ls_mem_free(block[c], 1024u << c, (ls_mem_category)c);
    }
    TEST_ROW("totals");
    CHECK(during.total - before.total == 1024 * ((1 << LS_MEM_COUNT) - 1));
    CHECK(ls_mem_get_stats().total == before.total);
}

static void test_peaks(void)
{
    TEST_ROW("peaks");
    ls_mem_reset_peaks();
    ls_mem_stats start = ls_mem_get_stats();
    CHECK(start.total_peak == start.total);
    void *a = ls_mem_alloc(4096, LS_MEM_OPTIM), *b = ls_mem_alloc(4096, LS_MEM_OPTIM);
    ls_mem_free(a, 4096, LS_MEM_OPTIM);
    a               = ls_mem_alloc(2048, LS_MEM_OPTIM);
    ls_mem_stats at = ls_mem_get_stats();
    CHECK(at.peak[LS_MEM_OPTIM] == start.current[LS_MEM_OPTIM] + 8192);
    CHECK(at.current[LS_MEM_OPTIM] == start.current[LS_MEM_OPTIM] + 6144);
    CHECK(at.total_peak == start.total + 8192);
    ls_mem_free(a, 2048, LS_MEM_OPTIM);
    ls_mem_free(b, 4096, LS_MEM_OPTIM);
    CHECK(ls_mem_get_stats().peak[LS_MEM_OPTIM] == at.peak[LS_MEM_OPTIM]);
    ls_mem_reset_peaks();
    CHECK(ls_mem_get_stats().peak[LS_MEM_OPTIM] == start.current[LS_MEM_OPTIM]);
}

static void test_limit(void)
{
    char peak[64];

    TEST_ROW("limit");
    ls_mem_set_limit(ls_mem_get_stats().total + 10000);
    void *a = ls_mem_alloc(8192, LS_MEM_OTHER);
    CHECK(a != NULL);
    snprintf(peak, sizeof peak, "(peak %lld)", (long long)ls_mem_get_stats().total_peak);
    CHECK(!ls_mem_alloc(4096, LS_MEM_ACTIVATIONS));
    CHECK(strstr(ls_error_message(), "4096 bytes for activations") != NULL);
    CHECK(strstr(ls_error_message(), peak) != NULL);
    CHECK(strstr(ls_error_message(), "limit of") != NULL);
    ls_mem_free(a, 8192, LS_MEM_OTHER);
    a = ls_mem_alloc(4096, LS_MEM_ACTIVATIONS);
    CHECK(a != NULL);
    ls_mem_free(a, 4096, LS_MEM_ACTIVATIONS);
    ls_mem_set_limit(0);
}

/* A snapshot has what the largest use so far leaves: Note [what later steps need]. */
static void test_snapshot(void)
{
    TEST_ROW("snapshot");
    ls_mem_reset_peaks();
    ls_mem_set_limit(ls_mem_get_stats().total + 12288);
    void *step = ls_mem_alloc(8192, LS_MEM_ACTIVATIONS);
    ls_mem_free(step, 8192, LS_MEM_ACTIVATIONS);
    CHECK(!ls_mem_alloc(8192, LS_MEM_SNAPSHOT));
    CHECK(strstr(ls_error_message(), "8192 bytes for snapshot") != NULL);
    for (int i = 0; i < 2; i++) { /* what was held beside a snapshot counts without it */
        void *snapshot = ls_mem_alloc(4096, LS_MEM_SNAPSHOT);
        CHECK(snapshot != NULL);
        CHECK(!ls_mem_alloc(64, LS_MEM_SNAPSHOT));
        step = ls_mem_alloc(8192, LS_MEM_ACTIVATIONS);
        CHECK(step != NULL);
        ls_mem_free(step, 8192, LS_MEM_ACTIVATIONS);
        ls_mem_free(snapshot, 4096, LS_MEM_SNAPSHOT);
    }
    ls_mem_reset_peaks();
    void *snapshot = ls_mem_alloc(8192, LS_MEM_SNAPSHOT);
    CHECK(snapshot != NULL);
    ls_mem_free(snapshot, 8192, LS_MEM_SNAPSHOT);
    ls_mem_set_limit(0);
}

static void test_too_much(void)
{
    TEST_ROW("more than there is");
    static const size_t huge[] = {(size_t)1 << 46, (size_t)1 << 50, SIZE_MAX};
    for (int i = 0; i < 3; i++) {
        CHECK(!ls_mem_alloc(huge[i], LS_MEM_OTHER));
        CHECK(strstr(ls_error_message(), "asked for") != NULL);
    }
}

static void test_trim(void)
{
    TEST_ROW("trim");
    void *kept  = ls_mem_alloc(1 << 20, LS_MEM_OTHER),
         *freed = ls_mem_alloc(1 << 22, LS_MEM_OTHER);
    ls_mem_free(freed, 1 << 22, LS_MEM_OTHER);
    CHECK(ls_mem_get_stats().reserved > ls_mem_get_stats().total);
    ls_mem_trim();
    CHECK(ls_mem_get_stats().reserved == ls_mem_get_stats().total);
    ls_mem_free(kept, 1 << 20, LS_MEM_OTHER);
    ls_mem_trim();
}

static void test_injected_failure(void)
{
    TEST_ROW("injected failure");
    for (int n = 0; n < 4; n++) {
        void *p[5];
        ls_alloc_fail_after(n);
        p[0] = ls_mem_alloc(100, LS_MEM_OTHER);
        p[1] = ls_calloc(3, 5);
        p[2] = ls_strdup("text");
        p[3] = ls_sprintf("%d", 12);
        p[4] = ls_mem_alloc(100, LS_MEM_OTHER);
        for (int i = 0; i < 5; i++)
            CHECK(!p[i] == (i == n));
        CHECK(strstr(ls_error_message(), "injected") != NULL);
        ls_mem_free(p[0], 100, LS_MEM_OTHER);
        ls_mem_free(p[4], 100, LS_MEM_OTHER);
        for (int i = 1; i < 4; i++)
            free(p[i]);
    }
    ls_alloc_fail_after(0);
    ls_alloc_fail_after(-1);
    char *text = ls_sprintf("%s-%03d", "off", 7);
    CHECK(text && !strcmp(text, "off-007"));
    free(text);
}

static void test_plain(void)
{
    static const char zeros[64];

    TEST_ROW("ls_calloc is zeroed");
    char *p = ls_calloc(8, 8), *none = ls_calloc(0, 8);
    CHECK(p && none);
    CHECK_BITS(p, zeros, 64);
    free(p);
    free(none);
    CHECK(!ls_calloc(SIZE_MAX / 2, 16));
}

enum { HAMMERS = 4, BLOWS = 20000, HELD = 16 };

/* Each block holds the hammer's own pattern: a block given out twice shows at once. */
static void *hammer(void *arg)
{
    unsigned       seed = *(unsigned *)arg, mark = seed;
    unsigned char *block[HELD] = {0};
    size_t         bytes[HELD] = {0};
    bool           fine        = true;

    for (int i = 0; i < BLOWS + HELD; i++) {
        int at = i % HELD;
        seed   = seed * 1664525u + 1013904223u;
        if (block[at])
            fine &= block[at][0] == mark && block[at][bytes[at] - 1] == mark;
        ls_mem_free(block[at], bytes[at], LS_MEM_COMM);
        block[at] = NULL;
        if (i >= BLOWS)
            continue;
        bytes[at] = 1 + (seed >> 8) % 5000;
        block[at] = ls_mem_alloc(bytes[at], LS_MEM_COMM);
        if (block[at])
            memset(block[at], (int)mark, bytes[at]);
    }
    *(unsigned *)arg = fine;
    return NULL;
}

static void test_threads(void)
{
    pthread_t thread[HAMMERS];
    unsigned  arg[HAMMERS];
    int64_t   before = ls_mem_get_stats().current[LS_MEM_COMM];

    TEST_ROW("threads hammering");
    for (unsigned i = 0; i < HAMMERS; i++) {
        arg[i] = i + 1;
        CHECK(!pthread_create(&thread[i], NULL, hammer, &arg[i]));
    }
    for (int i = 0; i < HAMMERS; i++) {
        pthread_join(thread[i], NULL);
        CHECK(arg[i] == 1);
    }
    CHECK(ls_mem_get_stats().current[LS_MEM_COMM] == before);
    ls_mem_trim();
}

int main(void)
{
    test_size_classes();
    test_reuse();
    test_categories();
    test_peaks();
    test_limit();
    test_snapshot();
    test_too_much();
    test_trim();
    test_injected_failure();
    test_plain();
    test_threads();
    return test_summary("alloc");
}

/*
 * test_thread.c - every task runs once, whoever runs it; many pools, many generations.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "test.h"

enum { TASKS = 1000 };

typedef struct {
    atomic_int times[TASKS];
    double     value[TASKS];
} job;

static void run_task(void *context, int64_t i)
{
    job   *j = context;
    double x = 1 + (double)i;

    for (int k = 0; k < 50; k++)
        x = x * 1.0000001 + 1 / x;
    atomic_fetch_add(&j->times[i], 1);
    j->value[i] = x;
}

static void run_job(job *j, int64_t n)
{
    memset(j, 0, sizeof *j);
    ls_parallel(n, run_task, j);
}

static bool ran_once(job *j, int64_t n)
{
    for (int64_t i = 0; i < TASKS; i++)
        if (atomic_load(&j->times[i]) != (i < n))
            return false;
    return true;
}

static void test_counts(void)
{
    static const struct {
        const char *name;
        int         threads;
    } rows[] = {
        {"1 thread", 1}, {"2 threads", 2}, {"3 threads", 3}, {"5 threads", 5}, {"0", 0}};
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 64, TASKS};
    static job           alone, shared;

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        TEST_ROW(rows[r].name);
        ls_pool *pool = ls_pool_new(rows[r].threads);
        if (!CHECK(pool != NULL))
            continue;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            run_job(&alone, sizes[s]);
            CHECK(!ls_pool_use(pool));
            run_job(&shared, sizes[s]);
            CHECK(ls_pool_use(NULL) == pool);
            CHECK(ran_once(&alone, sizes[s]) && ran_once(&shared, sizes[s]));
            CHECK_BITS(alone.value, shared.value, sizeof alone.value);
        }
        ls_pool_free(pool);
    }
}

static void count_one(void *context, int64_t i)
{
    (void)i;
    atomic_fetch_add((atomic_int *)context, 1);
}

static void nest(void *context, int64_t i)
{
    (void)i;
    ls_parallel(10, count_one, context);
}

static void test_nested(void)
{
    atomic_int count = 0;

    TEST_ROW("nested");
    ls_pool *pool = ls_pool_new(3);
    ls_pool_use(pool);
    ls_parallel(20, nest, &count);
    CHECK(atomic_load(&count) == 200);
    ls_parallel(20, count_one, &count); /* the caller may go wide again */
    CHECK(atomic_load(&count) == 220);
    ls_pool_free(pool);
    CHECK(!ls_pool_use(NULL));
}

static void test_generations(void)
{
    enum { GENERATIONS = 2000 };
    int plain[4] = {0};

    TEST_ROW("many short generations");
    ls_pool *pool = ls_pool_new(3);
    ls_pool_use(pool);
    for (int g = 0; g < GENERATIONS; g++) {
        atomic_int count = 0;
        ls_parallel(1 + g % 4, count_one, &count);
        plain[g % 4] += atomic_load(&count);
    }
    for (int k = 0; k < 4; k++)
        CHECK(plain[k] == GENERATIONS / 4 * (k + 1));
    ls_pool_use(NULL);
    ls_pool_free(pool);
}

/* What one task writes without atomics, the caller reads after ls_parallel. */
static void write_plain(void *context, int64_t i)
{
    ((int64_t *)context)[i] += i;
}

static void *rank(void *arg)
{
    int64_t  sum[100] = {0};
    ls_pool *pool     = ls_pool_new(2 + *(int *)arg % 2);

    ls_pool_use(pool);
    for (int round = 0; round < 200; round++)
        ls_parallel(100, write_plain, sum);
    ls_pool_use(NULL);
    ls_pool_free(pool);
    *(int *)arg = 1;
    for (int64_t i = 0; i < 100; i++)
        if (sum[i] != 200 * i)
            *(int *)arg = 0;
    return NULL;
}

static void test_pools_at_once(void)
{
    enum { RANKS = 4 };
    pthread_t thread[RANKS];
    int       arg[RANKS];

    TEST_ROW("pools on several threads at once");
    for (int r = 0; r < RANKS; r++) {
        arg[r] = r;
        CHECK(!pthread_create(&thread[r], NULL, rank, &arg[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(thread[r], NULL);
        CHECK(arg[r] == 1);
    }
}

static void test_no_memory(void)
{
    TEST_ROW("out of memory");
    for (int n = 0; n < 2; n++) {
        ls_alloc_fail_after(n);
        CHECK(!ls_pool_new(2));
    }
    ls_alloc_fail_after(-1);
    ls_pool_free(NULL);
}

static void test_blocks(void)
{
    TEST_ROW("blocks cover a range once");
    for (int64_t n = 0; n < 40; n++)
        for (int64_t grain = 1; grain < 12; grain++) {
            int64_t at = 0;
            for (int64_t i = 0; i < ls_block_count(n, grain); i++) {
                ls_block b = ls_block_at(n, grain, i);
                CHECK(b.first == at && b.end > b.first && b.end - b.first <= grain);
                at = b.end;
            }
            CHECK(at == n);
        }
    CHECK(ls_cpu_count() >= 1);
}

int main(void)
{
    test_counts();
    test_nested();
    test_generations();
    test_pools_at_once();
    test_no_memory();
    test_blocks();
    return test_summary("thread");
}

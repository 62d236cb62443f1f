#define _DEFAULT_SOURCE /* madvise() */
/*
 * memory_rate.c - how long memory takes for the traffic of an all_reduce that nobody can avoid.
 *
 *     memory_rate THREADS BYTES[,BYTES...]
 *
 * N ranks with S bytes each read N * S and write N * S bytes.  Here threads share so many BYTES
 * (N * S, in huge pages where there are any) and pass over them once, in three ways:
 *
 *     update    writes where it reads
 *     copy      reads one half and writes the other, then the reverse
 *     combine   adds two halves and writes the sum into both, as two ranks would
 *
 * No line is another thread's and nobody waits.  A JSON line for each size, medians; the
 * fastest is the floor.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/kernels/clones.h"

enum { WAYS = 3, HUGE_PAGE = 2 << 20, MOST_THREADS = 64, REPEATS = 9, MOST_ROUND = 5000 };

static const double ROUND_US = 20000;

typedef struct {
    pthread_barrier_t meet;
    float             factor;
    int               round; /* passes in one measurement */
    size_t            count; /* floats of each thread, even */
} plan;

typedef struct {
    plan     *plan;
    pthread_t thread;
    double    us[WAYS];
} worker;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

LS_CLONES static void update(float *x, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        x[i] *= factor;
}

/* The half that was written is the one that is read next. */
static void copy(float *x, size_t count, float factor)
{
    size_t half = count / 2;

    (void)factor;
    memcpy(x + half, x, half * sizeof *x);
    memcpy(x, x + half, half * sizeof *x);
}

LS_CLONES static void add_halves(float *restrict a, float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        a[i] = b[i] = a[i] + b[i];
}

static void combine(float *x, size_t count, float factor)
{
    (void)factor;
    add_halves(x, x + count / 2, count / 2);
}

typedef void (*way)(float *x, size_t count, float factor);

static const way         ways[WAYS]  = {update, copy, combine};
static const char *const names[WAYS] = {"update", "copy", "combine"};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_round(plan *p, float *x, way pass)
{
    double start;

    pthread_barrier_wait(&p->meet);
    start = now_us();
    for (int i = 0; i < p->round; i++)
        pass(x, p->count, p->factor);
    pthread_barrier_wait(&p->meet);
    return (now_us() - start) / p->round;
}

static double median_us(plan *p, float *x, way pass)
{
    double us[REPEATS];

    time_round(p, x, pass);
    for (int i = 0; i < REPEATS; i++)
        us[i] = time_round(p, x, pass);
    qsort(us, REPEATS, sizeof *us, ascending);
    return us[REPEATS / 2];
}

static void *work(void *argument)
{
    worker *w     = argument;
    size_t  bytes = w->plan->count * sizeof(float);
    void   *x;

    if (posix_memalign(&x, HUGE_PAGE, bytes))
        abort();
    madvise(x, bytes, MADV_HUGEPAGE); /* a wish */
    memset(x, 0, bytes);
    for (int i = 0; i < WAYS; i++)
        w->us[i] = median_us(w->plan, x, ways[i]);
    free(x);
    return NULL;
}

/* So many passes that a measurement takes about ROUND_US at 10 GB/s. */
static int passes(size_t bytes)
{
    double round = ROUND_US / ((double)bytes * 2 / 1e4);

    return round > MOST_ROUND ? MOST_ROUND : round < 2 ? 2 : (int)round;
}

static void print_line(int threads, size_t bytes, const double us[WAYS])
{
    double best = us[0];

    printf("{\"threads\":%d,\"bytes\":%zu", threads, bytes);
    for (int i = 0; i < WAYS; i++) {
        printf(",\"%s_us\":%.3f", names[i], us[i]);
        best = us[i] < best ? us[i] : best;
    }
    printf(",\"best_us\":%.3f,\"gb_per_s\":%.2f}\n", best, (double)bytes * 2 / best / 1e3);
}

static void measure(int threads, size_t bytes)
{
    worker w[MOST_THREADS];
    plan   p = {.factor = 1, .round = passes(bytes)};

    p.count = bytes / sizeof(float) / (size_t)threads / 2 * 2;
    pthread_barrier_init(&p.meet, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        w[i] = (worker){.plan = &p};
        if (pthread_create(&w[i].thread, NULL, work, &w[i]))
            abort();
    }
    for (int i = 0; i < threads; i++)
        pthread_join(w[i].thread, NULL);
    pthread_barrier_destroy(&p.meet);
    print_line(threads, bytes, w[0].us);
}

int main(int argc, char **argv)
{
    int   threads = argc == 3 ? atoi(argv[1]) : 0;
    char *at      = argc == 3 ? argv[2] : NULL;

    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "usage: memory_rate THREADS BYTES[,BYTES...]\n");
        return 2;
    }
    while (*at) {
        char  *end;
        size_t bytes = (size_t)strtoull(at, &end, 10);

        if (end == at || (*end && *end != ',') || bytes < (size_t)threads * 2 * sizeof(float))
            return 2;
        measure(threads, bytes);
        at = *end ? end + 1 : end;
    }
    return 0;
}

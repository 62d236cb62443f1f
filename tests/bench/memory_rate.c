/*
 * memory_rate.c - how long memory takes for the traffic of an all_reduce that nobody can avoid.
 *
 *     memory_rate THREADS BYTES[,BYTES...]
 *
 * N ranks with S bytes each read N * S and write N * S bytes.  Here threads share so many BYTES
 * (N * S) and pass over them once: `update` writes where it reads, `copy` reads one half and
 * writes the other, twice.  A JSON line for each size, medians; the faster is the floor.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 64, REPEATS = 9, MOST_ROUND = 5000 };

static const double ROUND_US = 20000;

typedef struct {
    int               threads;
    pthread_barrier_t meet;
    float             factor;
    int               round; /* passes in one measurement */
    size_t            count; /* floats of each thread, even */
} plan;

typedef struct {
    plan     *plan;
    int       rank;
    pthread_t thread;
    double    update_us, copy_us;
} worker;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void update(float *x, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        x[i] *= factor;
}

/* The half that was written is the one that is read next. */
static void copy(float *x, size_t count)
{
    size_t half = count / 2;

    memcpy(x + half, x, half * sizeof *x);
    memcpy(x, x + half, half * sizeof *x);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_round(plan *p, float *x, bool by_copy)
{
    double start;

    pthread_barrier_wait(&p->meet);
    start = now_us();
    for (int i = 0; i < p->round; i++) {
        if (by_copy)
            copy(x, p->count);
        else
            update(x, p->count, p->factor);
    }
    pthread_barrier_wait(&p->meet);
    return (now_us() - start) / p->round;
}

static double median_us(plan *p, float *x, bool by_copy)
{
    double us[REPEATS];

    time_round(p, x, by_copy);
    for (int i = 0; i < REPEATS; i++)
        us[i] = time_round(p, x, by_copy);
    qsort(us, REPEATS, sizeof *us, ascending);
    return us[REPEATS / 2];
}

static void *work(void *argument)
{
    worker *w = argument;
    plan   *p = w->plan;
    float  *x = malloc(p->count * sizeof *x);

    if (!x)
        abort();
    for (size_t i = 0; i < p->count; i++)
        x[i] = 1;
    w->update_us = median_us(p, x, false);
    w->copy_us   = median_us(p, x, true);
    free(x);
    return NULL;
}

/* So many passes that a measurement takes about ROUND_US at 10 GB/s. */
static int passes(size_t bytes)
{
    double round = ROUND_US / ((double)bytes * 2 / 1e4);

    return round > MOST_ROUND ? MOST_ROUND : round < 2 ? 2 : (int)round;
}

static void measure(int threads, size_t bytes)
{
    static const char form[] =
        "{\"threads\":%d,\"bytes\":%zu,\"update_us\":%.3f,\"copy_us\":%.3f,"
        "\"gb_per_s\":%.2f}\n";
    worker w[MOST_THREADS];
    plan   p = {.threads = threads, .factor = 1, .round = passes(bytes)};
    double best;

    p.count = bytes / sizeof(float) / (size_t)threads / 2 * 2;
    pthread_barrier_init(&p.meet, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        w[i] = (worker){.plan = &p, .rank = i};
        if (pthread_create(&w[i].thread, NULL, work, &w[i]))
            abort();
    }
    for (int i = 0; i < threads; i++)
        pthread_join(w[i].thread, NULL);
    pthread_barrier_destroy(&p.meet);
    best = w[0].update_us < w[0].copy_us ? w[0].update_us : w[0].copy_us;
    printf(form, threads, bytes, w[0].update_us, w[0].copy_us, (double)bytes * 2 / best / 1e3);
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

/*
 * collective_peer.c - the rows that all peers compute, and how all are measured.
 *
 * Element i of rank r is a function of (kind, r, i) alone; check_collectives.py has the same
 * function.  "whole" numbers add exactly in any order; "real" ones do not.
 */
#include "collective_peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATH_BYTES = 4096, REPEATS = 9, MOST_REPEATS = 101, WARM_UPS = 3, MOST_ROUND = 2000 };

static const double ROUND_US = 20000; /* one measurement: long against a clock's tick */

static const char *const kinds[]  = {"whole", "real"};
static const size_t      counts[] = {0, 1, 3, 7, 1000, (1 << 20) + 3};

enum { KINDS = 2, COUNTS = sizeof counts / sizeof *counts };

/* ---- inputs and hashes ---- */

/* 64 well mixed bits: multiplication by 2^64 over the golden ratio mixes upwards, the shift
 * downwards. */
static uint64_t mix(uint64_t x)
{
    for (int i = 0; i < 3; i++) {
        x *= UINT64_C(0x9e3779b97f4a7c15);
        x ^= x >> 32;
    }
    return x;
}

static float input(int kind, int rank, size_t i)
{
    uint64_t h    = mix((uint64_t)i * 64 + (uint64_t)rank * 2 + (uint64_t)kind + 1);
    int32_t  high = (int32_t)(h >> 40) - (1 << 23); /* 24 bits, signed */

    if (kind == 0)
        return (float)(high >> 8);
    return ldexpf((float)high, (int)(h & 15) - 31);
}

static void fill(float *x, int kind, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = input(kind, rank, i);
}

/* A step's multiplication by an odd number is invertible: one other bit gives another hash. */
static uint64_t hash(const float *x, size_t count)
{
    uint64_t h = count;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

/* ---- memory ---- */

static float *get(const collective_peer *p, size_t count)
{
    size_t bytes = count ? count * sizeof(float) : sizeof(float);
    void  *block = NULL;

    if (p->alloc)
        block = p->alloc(p->context, bytes);
    else if (posix_memalign(&block, 64, bytes))
        block = NULL;
    if (!block)
        fprintf(stderr, "%s: rank %d has no %zu bytes\n", p->name, p->rank, bytes);
    return block;
}

static void put(const collective_peer *p, float *block)
{
    if (p->release)
        p->release(p->context, block);
    else
        free(block);
}

/* ---- check ---- */

typedef struct {
    const collective_peer *peer;
    const char            *folder;
    FILE                  *rows;
    int                    kind;
    size_t                 count;
} check;

static bool row(const check *c, const char *operation, bool ok, const float *result,
                size_t count)
{
    if (!ok)
        fprintf(stderr, "%s: rank %d: %s %s %zu failed\n", c->peer->name, c->peer->rank,
                operation, kinds[c->kind], c->count);
    return ok && fprintf(c->rows, "%s %s %zu %016llx\n", operation, kinds[c->kind], c->count,
                         (unsigned long long)hash(result, count)) > 0;
}

static bool write_result(const check *c, const float *x)
{
    char   path[PATH_BYTES];
    FILE  *file;
    size_t done;

    snprintf(path, sizeof path, "%s/%s-%zu.f32", c->folder, kinds[c->kind], c->count);
    file = fopen(path, "wb");
    if (!file)
        return false;
    done = fwrite(x, sizeof *x, c->count, file);
    return fclose(file) == 0 && done == c->count;
}

static bool check_all_reduce(const check *c, float *out, const float *in)
{
    const collective_peer *p = c->peer;

    return row(c, "all_reduce", p->all_reduce(p->context, out, in, c->count), out, c->count) &&
           (p->rank > 0 || write_result(c, out));
}

static bool check_all_gather(const check *c, float *out, const float *in)
{
    const collective_peer *p  = c->peer;
    bool                   ok = p->all_gather(p->context, out, in, c->count);

    return row(c, "all_gather", ok, out, c->count * (size_t)p->n);
}

static bool check_broadcast(const check *c, float *out, const float *in)
{
    const collective_peer *p    = c->peer;
    int                    root = p->n - 1;

    memset(out, 0, c->count * sizeof *out);
    if (p->rank == root)
        memcpy(out, in, c->count * sizeof *out);
    return row(c, "broadcast", p->broadcast(p->context, out, c->count, root), out, c->count);
}

/* Rows "scatter" and "slice" are of the same numbers: by reduce_scatter, and out of an
 * all_reduce. */
static bool check_reduce_scatter(const check *c, float *out, const float *in, float *all)
{
    const collective_peer *p    = c->peer;
    size_t                 part = c->count / (size_t)p->n;
    bool                   ok   = p->reduce_scatter(p->context, out, in, part);

    return row(c, "scatter", ok, out, part) &&
           row(c, "slice", p->all_reduce(p->context, all, in, part * (size_t)p->n),
               all + part * (size_t)p->rank, part);
}

static bool check_count(check *c)
{
    const collective_peer *p  = c->peer;
    float                 *in = get(p, c->count), *out = get(p, c->count),
          *all = get(p, c->count * (size_t)p->n);
    bool ok    = in && out && all;

    if (ok)
        fill(in, c->kind, p->rank, c->count);
    ok = ok && check_all_reduce(c, out, in) && check_all_gather(c, all, in) &&
         check_broadcast(c, out, in) &&
         (!p->reduce_scatter || check_reduce_scatter(c, out, in, all));
    put(p, in);
    put(p, out);
    put(p, all);
    return ok;
}

static bool run_check(const collective_peer *p, const char *folder)
{
    check c = {.peer = p, .folder = folder};
    char  path[PATH_BYTES];
    bool  ok = true;

    snprintf(path, sizeof path, "%s/%d.txt", folder, p->rank);
    c.rows = fopen(path, "w");
    if (!c.rows) {
        perror(path);
        return false;
    }
    for (c.kind = 0; c.kind < KINDS && ok; c.kind++)
        for (int i = 0; i < COUNTS && ok; i++) {
            c.count = counts[i];
            ok      = check_count(&c);
        }
    return fclose(c.rows) == 0 && ok;
}

/* ---- bench ---- */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* One measurement: all ranks meet, then `round` operations back to back; us of each, < 0: no.
 */
static double time_round(const collective_peer *p, float *x, size_t count, int round)
{
    double start;

    if (!p->barrier(p->context))
        return -1;
    start = now_us();
    for (int i = 0; i < round; i++)
        if (!p->all_reduce(p->context, x, x, count))
            return -1;
    return (now_us() - start) / round;
}

/* How many operations a measurement has: what rank 0 thinks, the same on all; 0: failure. */
static int choose_round(const collective_peer *p, float *x, size_t count)
{
    double us     = time_round(p, x, count, WARM_UPS);
    float *round  = get(p, 1);
    int    chosen = 0;

    if (us >= 0 && round) {
        *round = (float)fmin(MOST_ROUND, fmax(2, ceil(ROUND_US / fmax(us, 0.01))));
        chosen = p->broadcast(p->context, round, 1, 0) ? (int)*round : 0;
    }
    put(p, round);
    return chosen;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Zeros, so that any number of sums in place stays where it is; all pages are touched. */
static bool bench_size(const collective_peer *p, size_t bytes, int repeats)
{
    double us[MOST_REPEATS];
    size_t count = bytes / sizeof(float);
    float *x     = get(p, count);
    int    round = 0;

    if (x) {
        memset(x, 0, count * sizeof *x);
        round = time_round(p, x, count, WARM_UPS) < 0 ? 0 : choose_round(p, x, count);
    }
    for (int i = 0; i < repeats && round; i++) {
        us[i] = time_round(p, x, count, round);
        if (us[i] < 0)
            round = 0;
    }
    put(p, x);
    if (!round) {
        fprintf(stderr, "%s: rank %d: all_reduce of %zu bytes failed\n", p->name, p->rank,
                bytes);
        return false;
    }
    qsort(us, (size_t)repeats, sizeof *us, ascending);
    if (p->rank == 0)
        printf("{\"peer\":\"%s\",\"op\":\"all_reduce\",\"n\":%d,\"bytes\":%zu%s,"
               "\"median_us\":%.3f,\"min_us\":%.3f,\"round\":%d,\"repeats\":%d}\n",
               p->name, p->n, bytes, p->detail, us[repeats / 2], us[0], round, repeats);
    return fflush(stdout) == 0;
}

static bool run_bench(const collective_peer *p, const char *sizes, int repeats)
{
    while (*sizes) {
        char              *end;
        unsigned long long bytes = strtoull(sizes, &end, 10);

        if (end == sizes || (*end && *end != ',') || bytes < sizeof(float))
            return false;
        if (!bench_size(p, (size_t)bytes, repeats))
            return false;
        sizes = *end ? end + 1 : end;
    }
    return true;
}

bool collective_run(const collective_peer *peer, int n, char **arguments)
{
    int repeats = n > 2 ? atoi(arguments[2]) : REPEATS;

    if (n == 2 && !strcmp(arguments[0], "check"))
        return run_check(peer, arguments[1]);
    if ((n == 2 || n == 3) && !strcmp(arguments[0], "bench") && repeats > 0 &&
        repeats <= MOST_REPEATS)
        return run_bench(peer, arguments[1], repeats);
    fprintf(stderr, "%s: wanted: check DIR, or bench SIZES [REPEATS]\n", peer->name);
    return false;
}

/*
 * alloc.c - the caching allocator and the plain one.
 *
 * Size classes are eight steps to a power of two, so that at most an eighth of a block is
 * unused.  A freed block goes on its class's list, linked through its own first word, and
 * the next request of that class takes it from there.  Blocks go back to the system only by
 * ls_mem_trim().  Charged bytes are those of the class, which is what the block really takes.
 */
#define _DEFAULT_SOURCE /* madvise */
#include "core/alloc.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ALIGNMENT = 64,
    SMALLEST  = 64,
    STEPS     = 8,
    MIN_SHIFT = 6,
    CLASSES   = (48 - MIN_SHIFT) * STEPS
};

/*
 * Blocks from HUGE_FROM bytes on ask for huge pages, where the system gives them on request: a
 * product that packs a matrix then misses the TLB less.
 */
enum { HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20 };

typedef struct free_block {
    struct free_block *next;
} free_block;

static struct {
    pthread_mutex_t lock;
    free_block     *cached[CLASSES];
    ls_mem_stats    stats;
    int64_t         limit;
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int64_t fail_after = -1;

void ls_alloc_fail_after(int64_t n)
{
    fail_after = n;
}

static bool injected_failure(void)
{
    if (fail_after < 0 || fail_after-- > 0)
        return false;
    ls_fail(LS_ENOMEM, "injected allocation failure");
    return true;
}

const char *ls_mem_category_name(ls_mem_category category)
{
    static const char *const names[] = {
#define X(name, text) [LS_MEM_##name] = text,
        LS_MEM_MAP(X)
#undef X
    };
    return names[category];
}

/* Bytes of class c: (STEPS + c % STEPS) / STEPS * 2^(c / STEPS + MIN_SHIFT). */
static size_t class_bytes(int c)
{
    size_t base = (size_t)1 << (c / STEPS + MIN_SHIFT);
    return base + base / STEPS * (size_t)(c % STEPS);
}

/* The smallest class that holds bytes, or -1.  Classes below 512 bytes round up to 64. */
static int class_of(size_t bytes)
{
    if (bytes < SMALLEST)
        bytes = SMALLEST;
    int shift = 63 - __builtin_clzll(bytes);
    int step  = (int)((bytes - ((size_t)1 << shift)) / (((size_t)1 << shift) / STEPS));
    int c     = (shift - MIN_SHIFT) * STEPS + step;

    while (c < CLASSES && (class_bytes(c) < bytes || class_bytes(c) % ALIGNMENT))
        c++;
    return c < CLASSES ? c : -1;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void charge(int64_t bytes, ls_mem_category category)
{
    ls_mem_stats *s = &heap.stats;

    s->current[category] += bytes;
    s->total += bytes;
    s->peak[category] = larger(s->peak[category], s->current[category]);
    s->total_peak     = larger(s->total_peak, s->total);
    s->working_peak   = larger(s->working_peak, s->total - s->current[LS_MEM_SNAPSHOT]);
}

/* What counts against the limit: Note [what later steps need] in alloc.h. */
static int64_t in_use_locked(ls_mem_category category)
{
    const ls_mem_stats *s = &heap.stats;

    return category == LS_MEM_SNAPSHOT ? s->working_peak + s->current[LS_MEM_SNAPSHOT]
                                       : s->total;
}

static void trim_locked(void)
{
    for (int c = 0; c < CLASSES; c++)
        for (free_block *b = heap.cached[c], *next; b; b = next) {
            next = b->next;
            free(b);
            heap.stats.reserved -= (int64_t)class_bytes(c);
            heap.cached[c] = next;
        }
}

static void *from_system(size_t bytes)
{
    if (bytes < HUGE_FROM)
        return aligned_alloc(ALIGNMENT, bytes);
    void *block; /* aligned_alloc would want a multiple of HUGE_PAGE */
    if (posix_memalign(&block, HUGE_PAGE, bytes))
        return NULL;
#ifdef MADV_HUGEPAGE
    if (madvise(block, bytes, MADV_HUGEPAGE))
        return block; /* a wish that was not granted */
#endif
    return block;
}

/* A block of class c from the cache or the system; NULL when neither has one. */
static void *take_locked(int c)
{
    free_block *b = heap.cached[c];

    if (b) {
        heap.cached[c] = b->next;
        return b;
    }
    size_t bytes = class_bytes(c);
    void  *block = from_system(bytes);
    if (!block) {
        trim_locked();
        block = from_system(bytes);
    }
    if (block)
        heap.stats.reserved += (int64_t)bytes;
    return block;
}

static ls_status over_limit(size_t bytes, ls_mem_category category, int64_t total, int64_t peak,
                            int64_t limit)
{
    return ls_fail(
        LS_ENOMEM,
        "%zu bytes for %s asked for with %lld in use (peak %lld) and a limit of %lld bytes "
        "(run.memory_mb)",
        bytes, ls_mem_category_name(category), (long long)total, (long long)peak,
        (long long)limit);
}

void *ls_mem_alloc(size_t bytes, ls_mem_category category)
{
    if (injected_failure())
        return NULL;
    int     c       = class_of(bytes);
    int64_t charged = ls_mem_charged(bytes);

    pthread_mutex_lock(&heap.lock);
    int64_t limit = heap.limit, total = in_use_locked(category), peak = heap.stats.total_peak;
    bool    over  = limit && charged > limit - total;
    void   *block = over || c < 0 ? NULL : take_locked(c);
    if (block)
        charge(charged, category);
    pthread_mutex_unlock(&heap.lock);
    if (over)
        over_limit(bytes, category, total, peak, limit);
    else if (!block)
        ls_fail(LS_ENOMEM, "%zu bytes for %s asked for with %lld in use (peak %lld)", bytes,
                ls_mem_category_name(category), (long long)total, (long long)peak);
    return block;
}

int64_t ls_mem_charged(size_t bytes)
{
    int c = class_of(bytes);
    return c < 0 ? INT64_MAX : (int64_t)class_bytes(c);
}

void ls_mem_free(void *block, size_t bytes, ls_mem_category category)
{
    if (!block)
        return;
    int         c = class_of(bytes);
    free_block *b = block;

    pthread_mutex_lock(&heap.lock);
    charge(-(int64_t)class_bytes(c), category);
    b->next        = heap.cached[c];
    heap.cached[c] = b;
    pthread_mutex_unlock(&heap.lock);
}

ls_status ls_mem_charge(size_t bytes, ls_mem_category category)
{
    if (injected_failure())
        return LS_ENOMEM;
    pthread_mutex_lock(&heap.lock);
    int64_t limit = heap.limit, total = in_use_locked(category), peak = heap.stats.total_peak;
    bool    over = limit && (bytes > INT64_MAX || (int64_t)bytes > limit - total);
    if (!over)
        charge((int64_t)bytes, category);
    pthread_mutex_unlock(&heap.lock);
    return over ? over_limit(bytes, category, total, peak, limit) : LS_OK;
}

void ls_mem_discharge(size_t bytes, ls_mem_category category)
{
    pthread_mutex_lock(&heap.lock);
    charge(-(int64_t)bytes, category);
    pthread_mutex_unlock(&heap.lock);
}

ls_mem_stats ls_mem_get_stats(void)
{
    pthread_mutex_lock(&heap.lock);
    ls_mem_stats stats = heap.stats;
    pthread_mutex_unlock(&heap.lock);
    return stats;
}

void ls_mem_reset_peaks(void)
{
    pthread_mutex_lock(&heap.lock);
    memcpy(heap.stats.peak, heap.stats.current, sizeof heap.stats.peak);
    heap.stats.total_peak   = heap.stats.total;
    heap.stats.working_peak = heap.stats.total - heap.stats.current[LS_MEM_SNAPSHOT];
    pthread_mutex_unlock(&heap.lock);
}

void ls_mem_set_limit(int64_t bytes)
{
    pthread_mutex_lock(&heap.lock);
    heap.limit = bytes;
    pthread_mutex_unlock(&heap.lock);
}

void ls_mem_trim(void)
{
    pthread_mutex_lock(&heap.lock);
    trim_locked();
    pthread_mutex_unlock(&heap.lock);
}

void *ls_calloc(size_t n, size_t size)
{
    if (injected_failure())
        return NULL;
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p)
        ls_fail(LS_ENOMEM, "%zu x %zu bytes asked for", n, size);
    return p;
}

char *ls_strdup(const char *text)
{
    return ls_sprintf("%s", text);
}

char *ls_sprintf(const char *fmt, ...)
{
    va_list args, again;

    va_start(args, fmt);
    va_copy(again, args);
    int   n    = vsnprintf(NULL, 0, fmt, args);
    char *text = n < 0 ? NULL : ls_calloc((size_t)n + 1, 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

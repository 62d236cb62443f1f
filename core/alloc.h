/*
 * alloc.h - the allocators: a caching one for tensor bytes, a plain one for machinery.
 *
 * ls_mem_alloc() hands out blocks by size class and keeps what is freed, so that a training
 * step in its steady state asks the system for nothing.  Every byte in use is charged to a
 * category, with current and peak figures and an optional limit.  Like malloc itself it is
 * one per process and safe to call from any thread.
 *
 * Note [what later steps need]
 * A snapshot of the state is held while steps go on.  Where there is a limit it may have what
 * the largest use so far of everything else leaves, not what is free at the moment: between
 * two steps their activations are not there.
 *
 * ls_calloc() is for small objects with no place in the statistics.  Both count down the same
 * injected failure, so that a test can let the n-th allocation fail for every n.
 */
#ifndef LS_CORE_ALLOC_H
#define LS_CORE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

#define LS_MEM_MAP(X)             \
    X(PARAMS, "params")           \
    X(GRADS, "grads")             \
    X(OPTIM, "optim")             \
    X(ACTIVATIONS, "activations") \
    X(COMM, "comm")               \
    X(SNAPSHOT, "snapshot")       \
    X(OTHER, "other")

typedef enum {
#define X(name, text) LS_MEM_##name,
    LS_MEM_MAP(X)
#undef X
        LS_MEM_COUNT
} ls_mem_category;

typedef struct {
    int64_t current[LS_MEM_COUNT]; /* bytes in use, by category */
    int64_t peak[LS_MEM_COUNT];    /* their largest values so far */
    int64_t total;                 /* bytes in use */
    int64_t total_peak;
    int64_t working_peak; /* the largest total without snapshots */
    int64_t reserved;     /* bytes taken from the system, in use or cached */
} ls_mem_stats;

/* "params", "grads", ...; a literal. */
const char *ls_mem_category_name(ls_mem_category category);

/* Figures of the whole process, in bytes; peaks since the start or the last reset. */
ls_mem_stats ls_mem_get_stats(void);
void         ls_mem_reset_peaks(void);

/*
 * Limit on the bytes in use; 0 means none.  Beyond it an allocation fails with ENOMEM; that of
 * a snapshot also where it would leave less than Note [what later steps need] says.
 */
void ls_mem_set_limit(int64_t bytes);

/* Returns every cached block to the system. */
void ls_mem_trim(void);

/*
 * bytes of memory at an address divisible by 64, contents undefined; NULL on failure (ENOMEM,
 * with the bytes asked for and the peak so far).  Zero bytes give a valid block.
 */
void *ls_mem_alloc(size_t bytes, ls_mem_category category);

/* What a block of so many bytes is charged with: its size class; INT64_MAX beyond any. */
int64_t ls_mem_charged(size_t bytes);

/* Gives back a block; bytes and category as it was asked for.  NULL is allowed. */
void ls_mem_free(void *block, size_t bytes, ls_mem_category category);

/*
 * Charges memory that comes from elsewhere (mapped, shared) to a category, against the limit
 * too; ENOMEM, and nothing is charged, beyond it.  ls_mem_discharge() takes it back.
 */
LS_MUST_CHECK ls_status ls_mem_charge(size_t bytes, ls_mem_category category);
void                    ls_mem_discharge(size_t bytes, ls_mem_category category);

/* Zeroed memory, or NULL (ENOMEM).  Freed with free(). */
void *ls_calloc(size_t n, size_t size);

/* A copy of text, or NULL (ENOMEM).  Freed with free(). */
char *ls_strdup(const char *text);

/* printf into fresh memory, or NULL (ENOMEM).  Freed with free(). */
char *ls_sprintf(const char *fmt, ...) LS_PRINTF(1, 2);

/*
 * Test hook: let the n-th allocation of this thread from now fail (0 is the next one), once;
 * -1 switches it off.
 */
void ls_alloc_fail_after(int64_t n);

#endif

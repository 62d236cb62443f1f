/*
 * thread.h - a pool of threads for kernels.
 *
 * Work is cut into tasks by the caller, by shapes alone; threads take tasks from a counter.
 * Which thread runs a task changes no bit, because a task's result depends on its index
 * only.  The pool in use belongs to the calling thread (ranks may be threads of one
 * process); with none, or inside a task, tasks run one after another on the caller.
 */
#ifndef LS_CORE_THREAD_H
#define LS_CORE_THREAD_H

#include <stdint.h>

#include "core/error.h"

typedef struct ls_pool ls_pool;

/* May run on any thread of the pool, at the same time as others; it must not fail. */
typedef void (*ls_task)(void *context, int64_t index);

/*
 * A pool that works with n threads (at least 1), the caller's among them; NULL: ENOMEM.  Most
 * programs call ls_compute_start() of compute.h instead.  Free it on the thread that uses it.
 */
ls_pool *ls_pool_new(int n);
void     ls_pool_free(ls_pool *pool); /* NULL is allowed */

/* Makes pool the one in use on this thread (NULL: none); returns the one before. */
ls_pool *ls_pool_use(ls_pool *pool);

/* Runs task(context, i) for i in 0..n-1 and returns when all are done. */
void ls_parallel(int64_t n, ls_task task, void *context);

/*
 * Cuts 0..n-1 into blocks of `grain` (the last one shorter) and runs a task for each;
 * the task's range is ls_block_at(n, grain, index).
 */
typedef struct {
    int64_t first, end;
} ls_block;

static inline int64_t ls_block_count(int64_t n, int64_t grain)
{
    return (n + grain - 1) / grain;
}

static inline ls_block ls_block_at(int64_t n, int64_t grain, int64_t index)
{
    int64_t  first = index * grain, end = first + grain;
    ls_block block = {first, end < n ? end : n};

    return block;
}

/* Cores this process may use: the affinity mask, capped by the cgroup's cpu quota. */
int ls_cpu_count(void);

#endif

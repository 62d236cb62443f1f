/*
 * thread.c - the pool: one job of tasks at a time.
 *
 * The caller publishes a job and takes part in it; workers that wake in time enter it, take
 * indices from an atomic counter and leave when it has run out.  The caller closes the job
 * and waits for those inside alone: a worker that the system has not let run yet finds it
 * closed and holds up no one.  A worker spins for some microseconds before it sleeps, since
 * the kernels of one step follow each other closely; with more threads than cores nobody
 * spins, as that would take the core from the one who is waited for.
 */
#define _GNU_SOURCE
#include "core/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"

enum { SPINS = 1500 }; /* of a pause: some 30 microseconds */

struct ls_pool {
    int             threads; /* the caller's included */
    pthread_t      *worker;
    int             started;
    pthread_mutex_t lock;
    pthread_cond_t  wake, done;
    int             spins;
    atomic_uint     generation; /* of the newest job */
    bool            stop;
    /* the job; but for next, changed under the lock only */
    bool            open;
    atomic_int      inside; /* workers that have entered and not left */
    ls_task         task;
    void           *context;
    int64_t         n;
    _Atomic int64_t next;
};

static _Thread_local ls_pool *current;
static _Thread_local bool     inside_task;

static void run_tasks(ls_pool *p)
{
    inside_task = true;
    for (int64_t i; (i = atomic_fetch_add(&p->next, 1)) < p->n;)
        p->task(p->context, i);
    inside_task = false;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits for a job newer than seen and enters it, if it is still open; false: the pool ends. */
static bool enter_next(ls_pool *p, unsigned *seen, bool *entered)
{
    for (int i = 0; i < p->spins && atomic_load(&p->generation) == *seen; i++)
        pause_briefly();
    pthread_mutex_lock(&p->lock);
    while (!p->stop && atomic_load(&p->generation) == *seen)
        pthread_cond_wait(&p->wake, &p->lock);
    bool go  = !p->stop;
    *seen    = atomic_load(&p->generation);
    *entered = go && p->open;
    if (*entered)
        atomic_fetch_add(&p->inside, 1);
    pthread_mutex_unlock(&p->lock);
    return go;
}

static void leave(ls_pool *p)
{
    pthread_mutex_lock(&p->lock);
    if (atomic_fetch_sub(&p->inside, 1) == 1)
        pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg)
{
    ls_pool *p = arg;
    bool     entered;

    for (unsigned seen = 0; enter_next(p, &seen, &entered);) {
        if (!entered)
            continue;
        run_tasks(p);
        leave(p);
    }
    return NULL;
}

ls_pool *ls_pool_new(int n)
{
    ls_pool *p = ls_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->threads = n > 1 ? n : 1;
    p->spins   = p->threads <= ls_cpu_count() ? SPINS : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    p->worker = ls_calloc((size_t)p->threads, sizeof *p->worker);
    if (!p->worker) {
        ls_pool_free(p);
        return NULL;
    }
    for (; p->started < p->threads - 1; p->started++)
        if (pthread_create(&p->worker[p->started], NULL, work, p)) {
            ls_fail(LS_ENOMEM, "thread %d of %d cannot be started", p->started + 1, n);
            ls_pool_free(p);
            return NULL;
        }
    return p;
}

void ls_pool_free(ls_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->worker[i], NULL);
    if (current == p)
        current = NULL;
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->worker);
    free(p);
}

ls_pool *ls_pool_use(ls_pool *pool)
{
    ls_pool *before = current;
    current         = pool;
    return before;
}

static void publish(ls_pool *p, int64_t n, ls_task task, void *context)
{
    pthread_mutex_lock(&p->lock);
    p->task    = task;
    p->context = context;
    p->n       = n;
    p->open    = true;
    atomic_store(&p->next, 0);
    atomic_fetch_add(&p->generation, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void close_and_wait(ls_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->open = false;
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->spins && atomic_load(&p->inside); i++)
        pause_briefly();
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->inside))
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void ls_parallel(int64_t n, ls_task task, void *context)
{
    ls_pool *p = current;

    if (!p || p->threads == 1 || n <= 1 || inside_task) {
        for (int64_t i = 0; i < n; i++)
            task(context, i);
        return;
    }
    publish(p, n, task, context);
    run_tasks(p);
    close_and_wait(p);
}

/* cgroup v2 "quota period" (or "max period") in cores, rounded up; 0 where there is no limit.
 */
static int cgroup_quota(void)
{
    long long quota = 0, period = 0;
    FILE     *f = fopen("/sys/fs/cgroup/cpu.max", "re");

    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2)
            quota = 0;
        fclose(f);
        return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
    }
    f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%lld", &quota) != 1)
        quota = 0;
    fclose(f);
    f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%lld", &period) != 1)
        period = 0;
    fclose(f);
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int ls_cpu_count(void)
{
    cpu_set_t set;
    int       cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    int       quota = cgroup_quota();

    return quota && quota < cores ? quota : cores;
}

/*
 * thread.c - the pool: one job of tasks at a time.
 *
 * The caller publishes a job and takes part in it; workers that wake in time enter it, take
 * indices from an atomic counter and leave when it has run out.  The caller closes the job
 * and waits for those inside alone: a worker that the system has not let run yet finds it
 * closed and holds up no one.  One atomic word says all of that:
 *
 *     gate:  generation of the job | open | workers inside
 *
 * so that on the fast path nobody takes a lock, which two threads that wait for each other
 * would always find taken.  A worker spins for some microseconds before it sleeps, since the
 * kernels of one step follow each other closely; with more threads than cores nobody spins,
 * as that would take the core from the one who is waited for.
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

/*
 * Looks at the gate before sleeping, some 50 microseconds of them; every so many of them a
 * pause. A pause each time would be an invitation to a hypervisor to take the core away
 * (pause-loop exiting): on virtual machines every short job then finds its worker elsewhere.
 */
enum { SPINS = 50000, LOOKS_A_PAUSE = 64 };

#define GENERATION ((uint64_t)1 << 32)
#define OPEN ((uint64_t)1 << 31)
#define INSIDE (OPEN - 1)

struct ls_pool {
    int              threads; /* the caller's included */
    pthread_t       *worker;
    int              started;
    int              spins;
    _Atomic uint64_t gate;
    _Atomic int64_t  next; /* the next index to take */
    /* the job; written while nobody is inside and the gate is closed */
    ls_task          task;
    void            *context;
    int64_t          n;
    /* the slow path; whoever sleeps says so before looking at the gate for the last time */
    pthread_mutex_t  lock;
    pthread_cond_t   wake, done;
    atomic_int       asleep;  /* workers in wake */
    atomic_bool      waiting; /* the caller is in done */
    atomic_bool      stop;
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

static void breathe(int look)
{
#if defined(__x86_64__)
    if (look % LOOKS_A_PAUSE == 0)
        __builtin_ia32_pause();
#else
    (void)look;
#endif
}

static bool is_new(ls_pool *p, uint64_t seen)
{
    return atomic_load(&p->gate) / GENERATION != seen || atomic_load(&p->stop);
}

static void wait_for_job(ls_pool *p, uint64_t seen)
{
    for (int i = 0; i < p->spins; i++) {
        if (is_new(p, seen))
            return;
        breathe(i);
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->asleep, 1);
    while (!is_new(p, seen))
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->lock);
}

/* Enters the newest job unless it is closed; *seen gets its generation. */
static bool enter(ls_pool *p, uint64_t *seen)
{
    uint64_t gate = atomic_load(&p->gate);

    while (gate & OPEN)
        if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1))
            break;
    *seen = gate / GENERATION;
    return gate & OPEN;
}

static void leave(ls_pool *p)
{
    uint64_t before = atomic_fetch_sub(&p->gate, 1);

    if ((before & INSIDE) > 1 || !atomic_load(&p->waiting))
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg)
{
    ls_pool *p = arg;

    for (uint64_t seen = 0;;) {
        wait_for_job(p, seen);
        if (atomic_load(&p->stop))
            return NULL;
        if (!enter(p, &seen))
            continue;
        run_tasks(p);
        leave(p);
    }
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
    atomic_store(&p->stop, true);
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
    uint64_t generation = atomic_load(&p->gate) / GENERATION + 1;

    p->task    = task;
    p->context = context;
    p->n       = n;
    atomic_store(&p->next, 0);
    atomic_store(&p->gate, (generation * GENERATION) | OPEN);
    if (!atomic_load(&p->asleep))
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void close_and_wait(ls_pool *p)
{
    atomic_fetch_and(&p->gate, ~OPEN);
    for (int i = 0; i < p->spins && atomic_load(&p->gate) & INSIDE; i++)
        breathe(i);
    if (!(atomic_load(&p->gate) & INSIDE))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->waiting, true);
    while (atomic_load(&p->gate) & INSIDE)
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->waiting, false);
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

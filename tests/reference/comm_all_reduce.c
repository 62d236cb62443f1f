/*
 * comm_all_reduce.c - Lockstep's collectives under collective_peer.h, by ranks.h.
 *
 *     comm_all_reduce N BACKEND MEMORY ALGORITHM check DIR | bench SIZES [REPEATS]
 *
 * BACKEND: shm, tcp, threads, mixed.  MEMORY: heap (ls_comm_alloc) or ordinary.  ALGORITHM:
 * auto, direct, tree, halving, ring, or fast: auto that may choose the ring.
 */
#include <stdlib.h>

#include "collective_peer.h"
#include "ranks.h"

enum { LIMIT_S = 600 };

typedef struct {
    const char *backend, *memory, *algorithm;
    int         n_task;
    char      **task;
} options;

static bool done(ls_status status)
{
    return CHECK_OK(status);
}

static void *alloc(void *world, size_t bytes)
{
    return ls_comm_alloc(world, bytes);
}

static void release(void *world, void *block)
{
    ls_comm_release(world, block);
}

static bool barrier(void *world)
{
    return done(ls_comm_barrier(world));
}

static bool all_reduce(void *world, float *out, const float *in, size_t count)
{
    return done(ls_comm_all_reduce(world, out, in, (int64_t)count, LS_F32, LS_SUM));
}

static bool all_gather(void *world, float *out, const float *in, size_t count)
{
    return done(ls_comm_all_gather(world, out, in, (int64_t)count, LS_F32));
}

static bool broadcast(void *world, float *out, size_t count, int root)
{
    return done(ls_comm_broadcast(world, out, (int64_t)count, LS_F32, root));
}

static bool reduce_scatter(void *world, float *out, const float *in, size_t count)
{
    return done(ls_comm_reduce_scatter(world, out, in, (int64_t)count, LS_F32, LS_SUM));
}

static void body(ls_comm *world, void *context)
{
    const options  *o    = context;
    bool            heap = !strcmp(o->memory, "heap");
    char            detail[256];
    collective_peer peer = {.name           = "lockstep",
                            .detail         = detail,
                            .context        = world,
                            .rank           = ls_comm_rank(world),
                            .n              = ls_comm_size(world),
                            .alloc          = heap ? alloc : NULL,
                            .release        = heap ? release : NULL,
                            .barrier        = barrier,
                            .all_reduce     = all_reduce,
                            .all_gather     = all_gather,
                            .broadcast      = broadcast,
                            .reduce_scatter = reduce_scatter};

    snprintf(detail, sizeof detail,
             ",\"backend\":\"%s\",\"memory\":\"%s\",\"algorithm\":\"%s\"",
             ls_comm_transport(world), o->memory, o->algorithm);
    CHECK(collective_run(&peer, o->n_task, o->task));
}

int main(int argc, char **argv)
{
    options    o   = {0};
    ranks_opts run = {.limit_s = LIMIT_S, .timeout_s = LIMIT_S};

    if (argc < 7) {
        fprintf(stderr,
                "usage: comm_all_reduce N shm|tcp|threads|mixed heap|ordinary ALGORITHM "
                "check DIR | bench SIZES [REPEATS]\n");
        return 2;
    }
    o           = (options){argv[2], argv[3], argv[4], argc - 5, argv + 5};
    run.n       = atoi(argv[1]);
    run.backend = o.backend;
    run.fast    = !strcmp(o.algorithm, "fast");
    if (run.n < 1 || (!run.fast && !ls_algorithm_parse(o.algorithm, &run.algorithm))) {
        fprintf(stderr, "comm_all_reduce: %s ranks, algorithm %s?\n", argv[1], o.algorithm);
        return 2;
    }
    return ranks_run(&run, body, &o) != 0;
}

/*
 * collective_peer.h - what the programs that compare collectives share: the same inputs, the
 * same rows, the same way to measure, for Lockstep, gloo and Open MPI.
 *
 *     comm_all_reduce.c ──┐
 *     gloo_all_reduce.cc ─┼── collective_peer: a table of operations ── collective_run()
 *     mpi_all_reduce.c ───┘
 *
 * check DIR      each rank writes DIR/RANK.txt, lines "operation kind count hash" of the bytes
 * of each result; rank 0 also writes DIR/KIND-COUNT.f32, the results of all_reduce. bench SIZES
 * rank 0 prints a JSON line for each size in bytes, "1024,65536": the median time of an
 * all_reduce of f32 in place.
 *
 * check_collectives.py and collectives_peers.py run them.  C and C++ include this.
 */
#ifndef LS_TESTS_COLLECTIVE_PEER_H
#define LS_TESTS_COLLECTIVE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One rank of somebody's collectives.  Operations return false when they failed. */
typedef struct {
    const char *name;   /* "gloo" */
    const char *detail; /* more members of the JSON line, each with a comma in front, or "" */
    void       *context;
    int         rank, n;

    /* NULL: posix_memalign() and free(). */
    void *(*alloc)(void *context, size_t bytes);
    void (*release)(void *context, void *block);

    bool (*barrier)(void *context);
    bool (*all_reduce)(void *context, float *out, const float *in, size_t count);
    bool (*all_gather)(void *context, float *out, const float *in, size_t count);
    bool (*broadcast)(void *context, float *out, size_t count, int root);
    /* NULL: has none. */
    bool (*reduce_scatter)(void *context, float *out, const float *in, size_t count);
} collective_peer;

/* "check DIR" or "bench SIZES [REPEATS]" at arguments[0..n-1]; false (and why, on stderr) when
 * it failed or the arguments are wrong. */
bool collective_run(const collective_peer *peer, int n, char **arguments);

#ifdef __cplusplus
}
#endif

#endif

/*
 * collective_compare.h - `lockstep bench collectives`: on which ranks, and two algorithms
 * against each other and against the model.
 */
#ifndef LS_CLI_COLLECTIVE_COMPARE_H
#define LS_CLI_COLLECTIVE_COMPARE_H

#include "cli/collective_bench.h"
#include "dist/comm/local_world.h"
#include "dist/comm/rendezvous.h"

/* On n processes of this command's own, or as rank `rank` of n that a launcher has started. */
typedef struct {
    int  n, rank;
    bool launched;
} ls_bench_ranks;

/* Runs body on them, over this transport with this algorithm. */
LS_MUST_CHECK ls_status ls_bench_world(const ls_bench_ranks *ranks, const char *transport,
                                       ls_algorithm algorithm, ls_local_body body,
                                       void *context);

typedef struct {
    ls_bench_ranks ranks;
    const char    *transport; /* NULL: shm, then tcp */
    ls_algorithm   algorithm[2];
    ls_bench_task  task; /* bytes 0: 1 KiB to 16 MiB */
    bool           json;
} ls_compare_opts;

/*
 * The times of both algorithms, measured in turn, beside what the model predicts, and the size
 * from which on the one wins, by both.  Over messages: the buffers are ordinary memory.
 */
LS_MUST_CHECK ls_status ls_bench_compare(const ls_compare_opts *opts);

#endif

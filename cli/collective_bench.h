/*
 * collective_bench.h - one operation of dist/comm verified and timed, as nccl-tests do.
 *
 * S is the bytes of an operation as nccl-tests count them: one rank's vector for all_reduce,
 * reduce, broadcast and send_recv, the vector of all ranks' parts for the others.
 *
 *     algbw = S / t        busbw = algbw * factor
 *
 *     all_reduce                                                2 (N-1)/N
 *     reduce_scatter, all_gather, gather, scatter, all_to_all     (N-1)/N
 *     broadcast, reduce, send_recv                                      1
 *
 * In shared memory no bus is the bottleneck but memory, so there is a third rate: the bytes
 * that all ranks together have to load and store, at least, divided by t.
 */
#ifndef LS_CLI_COLLECTIVE_BENCH_H
#define LS_CLI_COLLECTIVE_BENCH_H

#include "dist/comm/comm.h"

typedef enum { LS_OUT_OF_PLACE, LS_IN_PLACE, LS_PLACES } ls_bench_place;

typedef struct {
    const char   *name;
    ls_collective kind;      /* LS_SEND: send_recv, half of there and back */
    bool          of_all;    /* S counts the parts of all ranks */
    double        per_n;     /* factor = per_n * (N-1)/N; 0: it is 1 */
    bool          places[2]; /* has it that form? */
    bool          reduces, rooted;
} ls_bench_op;

/* The one of that name, or NULL; and the i-th, NULL at the end. */
const ls_bench_op *ls_bench_op_find(const char *name);
const ls_bench_op *ls_bench_op_at(int i);

double ls_bench_factor(const ls_bench_op *op, int n);

/* Bytes that the loads and stores of all ranks move, at least, in an operation of S bytes. */
double ls_bench_traffic(const ls_bench_op *op, ls_bench_place place, int n, double bytes);

typedef struct {
    const ls_bench_op *op;
    int64_t            bytes; /* S asked for */
    ls_dtype           dtype;
    ls_reduce_op       reduce;
    int                root;
    bool               heap; /* buffers in the symmetric heap */
} ls_bench_task;

typedef struct {
    int64_t bytes, count;     /* S as it was, and the count of the calls */
    double  us[LS_PLACES];    /* median over rounds of the mean over ranks; < 0: no such form */
    int64_t wrong[LS_PLACES]; /* elements of all ranks that differ from the definition */
    ls_algorithm algorithm;
} ls_bench_result;

/* All members of the group call it; all get the same result. */
LS_MUST_CHECK ls_status ls_bench_run(ls_comm *comm, const ls_bench_task *task,
                                     ls_bench_result *result);

/* The form that training uses: in place where there is one. */
ls_bench_place ls_bench_main_place(const ls_bench_op *op);

#endif

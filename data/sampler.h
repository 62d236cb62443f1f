/*
 * sampler.h - which tokens the q-th sequence of a run holds.
 *
 *     tokens   0        T        2T       3T
 *              |--------|--------|--------|--- n     T context, S = floor((n - 1) / T)
 *     inputs   [ 0 .. T-1 ]  targets [ 1 .. T ]      of sequence 0
 *
 * A pure function of (tokens, context, order, seed, q): no state to keep, to save or to
 * disagree about.  Step s (from 0) of a run uses q = s * batch.global + i; an evaluation
 * uses q = 0 .. S-1 in sequential order.
 */
#ifndef LS_DATA_SAMPLER_H
#define LS_DATA_SAMPLER_H

#include "data/table.h"
#include "data/token_file.h"

typedef enum { LS_ORDER_SEQUENTIAL, LS_ORDER_SHUFFLE } ls_order;

typedef struct {
    const ls_tokens *tokens; /* borrowed; one of these two */
    const ls_table  *rows;
    int64_t          context;
    int64_t          sequences; /* S */
    ls_order         order;
    uint64_t         seed; /* of the shuffle */
} ls_sampler;

/* LS_ECONFIG, with both numbers, when there are fewer than context + 1 tokens. */
LS_MUST_CHECK ls_status ls_sampler_init(ls_sampler *sampler, const ls_tokens *tokens,
                                        int64_t context, ls_order order, uint64_t seed);

/* The rows of a table instead of sequences; context is 1.  LS_ECONFIG when there is none. */
LS_MUST_CHECK ls_status ls_sampler_init_rows(ls_sampler *sampler, const ls_table *rows,
                                             ls_order order, uint64_t seed);

/* S: whole sequences in the data, the length of an epoch. */
int64_t ls_sampler_sequence_count(const ls_sampler *sampler);

/*
 * Position in the data (in sequences, 0 .. S-1) of sequence q >= 0: q mod S, or under shuffle
 * its image in the permutation of epoch q / S, which depends on (seed, epoch, S) only.
 */
int64_t ls_sampler_place(const ls_sampler *sampler, int64_t q);

/* inputs and targets (context each) of sequence q. */
void ls_sampler_fill(const ls_sampler *sampler, int64_t q, int32_t *inputs, int32_t *targets);

#endif

/*
 * bucket.h - parameters whose gradients travel together.
 *
 * Buckets are filled in reverse registration order, the order in which backward completes
 * gradients in our models, and leave in that order, whatever order they become complete in: so
 * all ranks start the same collectives in the same order.
 *
 *     registration   p0 p1 p2 p3 p4 p5 p6
 *     bucket 0       [ p6 ]                  at most 1 MiB: communication starts early
 *     bucket 1       [ p5 | p4 | p3 ]        until it holds bucket_mb or more
 *     bucket 2       [ p2 | p1 | p0 ]
 *
 * Each is one flat array in the symmetric heap; a parameter's gradient is a part of it.
 */
#ifndef LS_DIST_BUCKET_H
#define LS_DIST_BUCKET_H

#include "core/tensor.h"
#include "dist/comm/comm.h"

typedef struct {
    int      first, n; /* its parameters: first, first - 1, ..., first - n + 1 */
    int64_t  count;    /* elements */
    ls_real *data;
    int      missing; /* gradients that are not complete */
} ls_bucket;

typedef struct {
    int        n;
    ls_bucket *buckets;
    int        n_parameters;
    int       *bucket_of; /* [n_parameters] */
    int64_t   *offset_of; /* [n_parameters] in its bucket, in elements */
    ls_comm   *comm;
} ls_buckets;

/* A bucket is closed when it holds `bytes` or more, the first one before it would exceed 1 MiB
 * (unless `bytes` is less).  ENOMEM. */
LS_MUST_CHECK ls_status ls_buckets_init(ls_buckets *b, ls_comm *comm,
                                        const ls_named_tensor *parameters, int n,
                                        int64_t bytes);
void                    ls_buckets_close(ls_buckets *b);

/* Where parameter i's gradient lies. */
ls_real *ls_bucket_place(const ls_buckets *b, int i);

/* All gradients are missing again. */
void ls_buckets_reset(ls_buckets *b);

#endif

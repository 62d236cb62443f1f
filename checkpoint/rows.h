/*
 * rows.h - a tensor as rows, and which of them a rank writes and reads.
 *
 *     sharded      a rank has the rows of its shard, and no other has them
 *     replicated   every rank has all rows; they share the work: rank r of N takes the r-th of
 *                  N runs of ceil(rows / N), the last ones shorter or empty
 *
 * So the shares of all ranks are disjoint and make up the whole, whatever the strategy.  A row
 * is an index of dimension 0; a scalar is one row.
 */
#ifndef LS_CHECKPOINT_ROWS_H
#define LS_CHECKPOINT_ROWS_H

#include "checkpoint/manifest.h"
#include "core/tensor.h"

/* A tensor of the training state under its name; neither is owned. */
typedef struct {
    const char    *name;
    ls_tensor     *tensor; /* its header has the shape of the whole (ls_shard) */
    ls_tensor_kind kind;
} ls_stored_tensor;

typedef struct {
    uint64_t first, rows;
} ls_row_range;

uint64_t ls_rows_of(const ls_tensor *t);      /* of the whole */
uint64_t ls_row_bytes_of(const ls_tensor *t); /* 0 where the tensor is empty */
ls_dtype ls_rows_dtype(const ls_tensor *t); /* of what is owned: masters, not working copies */

/* What this rank writes, and reads from a checkpoint. */
ls_row_range ls_rows_share(const ls_tensor *t, int rank, int size);

/* Address of a row that this rank has. */
char *ls_rows_at(const ls_tensor *t, uint64_t row);

/* ESTATE, EINVAL for one without memory or with gaps. */
LS_MUST_CHECK ls_status ls_rows_check(const ls_stored_tensor *t);

#endif

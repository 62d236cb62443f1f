/*
 * shard.h - who owns which rows, and where rows lie in the flat array that travels.
 *
 * A parameter is sharded by rows (dimension 0) in chunks of ceil(rows / N): rank r owns the
 * r-th, as PyTorch's FSDP2 cuts; the last chunks may be smaller or empty, and a scalar is one
 * row.  Parameters that travel together lie one behind the other in a flat array, and each
 * rank's rows of them, in the same order, in its packed shard:
 *
 *     flat      [ w: row 0 | row 1 | row 2 ][ b: 0 | 1 | 2 ]     N = 2: chunks of two rows
 *     rank 0      xxxxxxxxxxxxx                  xxxxx           packed [ w 0 | w 1 | b 0 1 ]
 *     rank 1                     xxxxxxx               xx        packed [ w 2 | b 2 ]
 */
#ifndef LS_DIST_SHARD_H
#define LS_DIST_SHARD_H

#include "core/tensor.h"
#include "dist/comm/comm.h"

typedef struct {
    int64_t first, count;
} ls_rows;

/* The rows that a rank owns, of `rows`. */
ls_rows ls_shard_rows(int64_t rows, int rank, int size);

/* The header of this rank's rows, without memory. */
ls_shard ls_shard_header(const ls_tensor *t, ls_comm *group);

typedef struct {
    int               n;
    int64_t          *offset; /* [n] of the whole parameter in the flat array, in elements */
    int64_t          *packed; /* [n] of this rank's rows in its packed shard */
    int64_t           count;  /* elements of the flat array */
    int64_t           owned;  /* of the packed shard */
    ls_segment_list  *slices; /* [size] who owns what of the flat array */
    ls_slice_segment *segments;
} ls_shard_layout;

/* ENOMEM. */
LS_MUST_CHECK ls_status ls_shard_layout_init(ls_shard_layout       *l,
                                             const ls_named_tensor *parameters, int n, int rank,
                                             int size);
void                    ls_shard_layout_close(ls_shard_layout *l);

#endif

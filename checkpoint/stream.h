/*
 * stream.h - the values of a tensor, block after block in row-major order, wherever its rows
 * are.
 *
 * Rows of a sharded tensor (core/tensor.h) come to rank 0 of its group, one block at a time,
 * so the whole is nowhere.  Of those, all ranks of the group call this alike; rank 0 gets the
 * values.
 */
#ifndef LS_CHECKPOINT_STREAM_H
#define LS_CHECKPOINT_STREAM_H

#include "core/tensor.h"

/* Takes a block; a failure is handed on when all blocks have come. */
typedef ls_status (*ls_stream_take)(void *context, const void *data, size_t bytes);

/* Is it rank 0 of its group, or not sharded? */
bool ls_stream_arrives(const ls_tensor *t);

/* Errors of `take`, which may be NULL where it does not arrive; of the group; ENOMEM. */
LS_MUST_CHECK ls_status ls_stream_values(const ls_named_tensor *t, ls_stream_take take,
                                         void *context);

#endif

/*
 * working.h - parameters that operators read in BF16, and that are updated, saved and compared
 * in ls_real.
 *
 *     header, BF16 --> working copy: every element of the master, rounded once
 *        shard ------> rows: the master (all rows, first 0) and its gradient
 *
 * So whoever asks for ls_tensor_owned() gets the master, as of a sharded parameter the rank's
 * rows: the optimizer, the norm, files, what ranks compare.  Whoever computes sees a BF16
 * tensor and nothing else.  Gradients are ls_real.
 */
#ifndef LS_NN_WORKING_H
#define LS_NN_WORKING_H

#include "core/tensor.h"

typedef struct ls_working ls_working;

/*
 * Gives each parameter, which has its values, a working copy rounded from them.  The list is
 * borrowed.  Before anything that keeps places of values or shards.  ENOMEM, and all is as it
 * was; ESTATE for a parameter without values, or sharded.
 */
LS_MUST_CHECK ls_status ls_working_new(const ls_named_tensor *parameters, int n,
                                       ls_working **working);

/*
 * A step of one process or of DDP: when its gradients are summed they go from the leaves to the
 * masters; after the update the masters are rounded anew, and their gradients are dropped.
 */
void ls_working_take_gradients(const ls_working *working);
void ls_working_update(const ls_working *working);

/* The masters become the parameters' values again.  NULL is allowed. */
void ls_working_free(ls_working *working);

#endif

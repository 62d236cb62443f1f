/*
 * load.h - a training state out of a checkpoint, on one rank or many.
 *
 * Each byte is read once in the job: a rank reads the rows that are its share (rows.h); those
 * of replicated tensors then go to the others.  So a checkpoint of any strategy and world fits
 * any other, and no rank needs more memory than its tensors.
 */
#ifndef LS_CHECKPOINT_LOAD_H
#define LS_CHECKPOINT_LOAD_H

#include "checkpoint/rows.h"
#include "checkpoint/view.h"
#include "dist/comm/comm.h"

/*
 * Fills the tensors (or their shards) from a view of the whole state.  All ranks call it with
 * the same names, shapes and dtypes; all fail alike; comm is NULL for one process.  ESHAPE,
 * with one message that lists all that is missing, unexpected or different, before anything is
 * read: nothing is cast, skipped or guessed.  EFORMAT, EIO where a file is damaged: the
 * tensors' values are undefined then, until another load fills them.
 */
LS_MUST_CHECK ls_status ls_checkpoint_load(const ls_safetensors   *view,
                                           const ls_stored_tensor *list, size_t n,
                                           ls_comm *comm);

#endif

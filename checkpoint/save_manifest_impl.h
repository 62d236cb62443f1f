/*
 * save_manifest_impl.h - the manifest of a save, when all ranks have written.
 */
#ifndef LS_CHECKPOINT_SAVE_MANIFEST_IMPL_H
#define LS_CHECKPOINT_SAVE_MANIFEST_IMPL_H

#include "checkpoint/save_rank_impl.h"
#include "dist/comm/comm.h"

/*
 * All ranks call it with what each has written (comm NULL: one process).  On rank 0 tensors,
 * files and chunks are added to *m, and proved to make up every tensor; *m is to be freed, in
 * failure too.  folder stands in messages.  All ranks return the same.
 */
LS_MUST_CHECK ls_status ls__manifest_gather(ls_comm *comm, const ls__part *part,
                                            const char *folder, ls_manifest *m);

#endif

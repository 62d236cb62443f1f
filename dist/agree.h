/*
 * agree.h - lists of tensors that must be the same on all ranks of a group.
 *
 * All ranks call these with what they hold; all come to the same verdict, with the same
 * message, from the same data, so none is left waiting.
 */
#ifndef LS_DIST_AGREE_H
#define LS_DIST_AGREE_H

#include "core/tensor.h"
#include "dist/comm/comm.h"

/*
 * The same number of tensors, and for each the same name, shape, dtype and requires_grad, on
 * all ranks: else EMISMATCH, which names the first that differs.
 */
LS_MUST_CHECK ls_status ls_agree_on_list(ls_comm *comm, const ls_named_tensor *list, int n);

/*
 * The same bits in all tensors, of lists that agree: else EMISMATCH, which names the first
 * tensor and element that differ, with ranks and values.  Reads every byte once and exchanges
 * eight bytes a tensor; more only where there is a difference.
 */
LS_MUST_CHECK ls_status ls_agree_on_values(ls_comm *comm, const ls_named_tensor *list, int n);

/* Tensors of lists that agree become rank 0's. */
LS_MUST_CHECK ls_status ls_share_values(ls_comm *comm, const ls_named_tensor *list, int n);

#endif

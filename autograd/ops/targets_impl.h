/*
 * targets_impl.h - the check of target indices that both cross-entropies make.
 */
#ifndef LS_AUTOGRAD_OPS_TARGETS_IMPL_H
#define LS_AUTOGRAD_OPS_TARGETS_IMPL_H

#include "autograd/op.h"

/* attr.i[0] is the index to ignore. */
static inline ls_status ls__check_targets(const ls_node *call, const ls_tensor *targets,
                                          int64_t classes)
{
    const int32_t *t = ls_ints(targets);
    int64_t        n = ls_tensor_numel(targets);

    for (int64_t i = 0; i < n; i++)
        if (t[i] != call->attr.i[0] && (t[i] < 0 || t[i] >= classes))
            return ls_fail(LS_EINVAL, "%s: target %d at position %lld, want 0 to %lld or %lld",
                           call->op->name, t[i], (long long)i, (long long)classes - 1,
                           (long long)call->attr.i[0]);
    return LS_OK;
}

#endif

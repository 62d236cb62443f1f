/*
 * op_impl.h - what the rules of several operators share.
 */
#ifndef LS_AUTOGRAD_OP_IMPL_H
#define LS_AUTOGRAD_OP_IMPL_H

#include "autograd/op.h"

/* Input i is of ls_real, or an error that names operator, input and dtypes. */
LS_MUST_CHECK ls_status ls__want_real(const ls_node *call, int i);

/* ls_real or BF16, of all inputs from `first` on alike; else such an error. */
LS_MUST_CHECK ls_status ls__want_one_float(const ls_node *call, int first);
bool                    ls__is_bf16(const ls_tensor *t);

/* "mul: (2,3) and (4,5), want what" */
LS_MUST_CHECK ls_status ls__shape_mismatch(const ls_node *call, const char *want);

/* infer of operators with one input, whose result is like it: ls_real, same shape. */
LS_MUST_CHECK ls_status ls__infer_same(const ls_node *call, ls_plan *plan);

/* The same for operators over the last dimension: there is one, and it is not empty. */
LS_MUST_CHECK ls_status ls__infer_rows(const ls_node *call, ls_plan *plan);

/* Input i holds I32 in 0..n-1, or ignore; else an error that names position and value. */
LS_MUST_CHECK ls_status ls__check_targets(const ls_node *call, int i, int64_t n,
                                          int32_t ignore);

/* infer of operators whose result is like their first input: ls_real or BF16, same shape. */
LS_MUST_CHECK ls_status ls__infer_like(const ls_node *call, ls_plan *plan);

/* A scalar's value, and its rounding as its element. */
void ls__set_wide(ls_tensor *scalar, double value);

/* Number of rows before the last dimension, and its size. */
int64_t ls__rows(const ls_tensor *t);
int64_t ls__last(const ls_tensor *t);

/* A dimension 0..ndim-1 from one that may count from the end; -1 when there is no such one. */
int ls__dim(const ls_shape *shape, int64_t dim);

#endif

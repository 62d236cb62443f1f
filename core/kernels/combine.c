/*
 * combine.c - arrays joined in the canonical order.
 */
#include "core/kernels/combine.h"

const char *ls_reduce_op_name(ls_reduce_op op)
{
    static const char *const name[] = {
#define X(id, text) [LS_##id] = text,
        LS_REDUCE_OP_MAP(X)
#undef X
    };
    return (unsigned)op < LS_REDUCE_OP_COUNT ? name[op] : "unknown reduction";
}

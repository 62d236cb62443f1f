/*
 * reduce_op.c - names of the reductions.
 */
#include "core/reduce_op.h"

#include <string.h>

static const char *const names[] = {
#define X(id, text) [LS_##id] = text,
    LS_REDUCE_OP_MAP(X)
#undef X
};

const char *ls_reduce_op_name(ls_reduce_op op)
{
    return (unsigned)op < LS_REDUCE_OP_COUNT ? names[op] : "unknown reduction";
}

bool ls_reduce_op_parse(const char *name, ls_reduce_op *op)
{
    for (int i = 0; i < LS_REDUCE_OP_COUNT; i++) {
        if (strcmp(name, names[i]))
            continue;
        *op = (ls_reduce_op)i;
        return true;
    }
    return false;
}

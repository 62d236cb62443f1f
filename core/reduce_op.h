/*
 * reduce_op.h - how the elements of several ranks become one.
 */
#ifndef LS_CORE_REDUCE_OP_H
#define LS_CORE_REDUCE_OP_H

#include <stdbool.h>

#define LS_REDUCE_OP_MAP(X) \
    X(SUM, "sum")           \
    X(AVG, "avg")           \
    X(MIN, "min")           \
    X(MAX, "max")           \
    X(PROD, "prod")

typedef enum {
#define X(name, text) LS_##name,
    LS_REDUCE_OP_MAP(X)
#undef X
        LS_REDUCE_OP_COUNT
} ls_reduce_op;

/* "sum", "avg", ...; a literal. */
const char *ls_reduce_op_name(ls_reduce_op op);

/* The one of that name; false when there is none. */
bool ls_reduce_op_parse(const char *name, ls_reduce_op *op);

#endif

/*
 * init.h - initial values as functions of (seed, name, element).
 *
 * So a rank that holds some rows of a parameter makes just these, and gets the bits that one
 * process would have made.
 */
#ifndef LS_NN_INIT_H
#define LS_NN_INIT_H

#include "core/dtype.h"

typedef enum { LS_INIT_CONSTANT, LS_INIT_NORMAL, LS_INIT_UNIFORM } ls_init_kind;

typedef struct {
    ls_init_kind kind;
    double       value; /* the constant; the standard deviation; the bound of [-bound, bound) */
} ls_init;

/* out[i] = value of element first + i, for i < n. */
void ls_init_fill(const ls_init *init, uint64_t seed, const char *name, int64_t first,
                  int64_t n, ls_real *out);

#endif

/*
 * profile.h - where the time of a step goes, by operator.
 */
#ifndef LS_AUTOGRAD_PROFILE_H
#define LS_AUTOGRAD_PROFILE_H

#include "autograd/tape.h"

enum { LS_PROFILE_OPS = 64 };

typedef struct {
    const char *name; /* of the operator */
    double      forward_s, backward_s;
    int64_t     calls;
} ls_op_time;

/* Zeroed is empty; operators beyond the table's length share its last row. */
typedef struct {
    ls_op_time op[LS_PROFILE_OPS];
    int        n;
} ls_profile;

/* From here on the tape adds its rules' times to profile (borrowed); NULL: no longer. */
void ls_tape_set_profile(ls_tape *tape, ls_profile *profile);

#endif

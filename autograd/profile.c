/*
 * profile.c - times of the operators' rules.
 */
#include "autograd/profile.h"

#include <string.h>
#include <time.h>

#include "autograd/tape_impl.h"

void ls_tape_set_profile(ls_tape *tape, ls_profile *profile)
{
    tape->profile = profile;
}

static ls_op_time *row_of(ls_profile *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->op[i].name, name))
            return &p->op[i];
    if (p->n < LS_PROFILE_OPS)
        p->op[p->n++].name = name;
    return &p->op[p->n - 1];
}

double ls__profile_now(const ls_tape *tape)
{
    struct timespec t;

    if (!tape->profile)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void ls__profile_forward(const ls_tape *tape, const ls_op *op, double since)
{
    if (!tape->profile)
        return;
    ls_op_time *row = row_of(tape->profile, op->name);
    row->forward_s += ls__profile_now(tape) - since;
    row->calls++;
}

void ls__profile_backward(const ls_tape *tape, const ls_op *op, double since)
{
    if (tape->profile)
        row_of(tape->profile, op->name)->backward_s += ls__profile_now(tape) - since;
}

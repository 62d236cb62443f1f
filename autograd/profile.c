/*
 * profile.c - times of the operators' rules.
 */
#include "autograd/profile.h"

#include <string.h>

#include "autograd/tape_impl.h"
#include "core/clock.h"

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
    return tape->profile ? 1e-9 * (double)ls_now_ns() : 0;
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

/*
 * boundary.c - an identity whose backward calls back: the second hook.
 */
#include "autograd/ops.h"
#include "autograd/tape_impl.h"

static ls_status replay(ls_node *call)
{
    const ls_boundary_hook *hook   = call->attr.p;
    ls_status               status = hook->reached(hook->context);

    return status ? status : ls__grad_pass(call->in[0], call->out->grad);
}

const ls_op ls_op_boundary = {.name = "boundary", .n_in = 1, .replay = replay};

ls_tensor *ls_boundary(ls_tape *tape, ls_tensor *x, const ls_boundary_hook *boundary)
{
    if (tape->failed)
        return NULL;
    if (!boundary)
        return ls__tape_null(tape, "boundary: the hook");
    ls_status status = ls__check_input(tape, &ls_op_boundary, x, 0);
    if (status)
        return ls_tape_fail(tape, status);
    if (!tape->grad || !x->requires_grad)
        return x;
    ls_tensor *out  = ls__tape_alias(tape, x);
    ls_node   *call = out ? ls__tape_record(tape, &ls_op_boundary, x, out) : NULL;
    if (!call)
        return NULL;
    call->attr.p = boundary;
    return out;
}

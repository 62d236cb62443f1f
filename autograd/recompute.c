/*
 * recompute.c - activation checkpointing.
 *
 * The first run records nothing but the leaves that it uses, so that their hook waits for this
 * segment; each counts as one use.  The replay runs the segment again on a list of calls of
 * its own, exchanges that one use for those of the calls, and goes back through them.
 */
#include "autograd/ops.h"
#include "autograd/tape_impl.h"

typedef struct {
    ls__leaf  *leaves; /* first, so that ls__mark finds the list; see record_segment */
    ls_segment run;
    void      *context;
    uint32_t   site;
} segment;

static ls_tensor *run_again(ls_tape *tape, const ls_node *call, const segment *s, ls_tensor *x)
{
    ls_random random   = tape->random;
    uint32_t  site     = tape->site;
    bool      training = tape->training, grad = tape->grad;

    tape->random   = call->random;
    tape->site     = s->site;
    tape->training = call->training;
    tape->grad     = true;
    ls_tensor *out = s->run(s->context, tape, x);
    tape->random   = random;
    tape->site     = site;
    tape->training = training;
    tape->grad     = grad;
    return out;
}

/* The segment's one use of each leaf is over; those of its calls have been counted. */
static ls_status exchange_uses(ls_tape *tape, const segment *s)
{
    ls_status status = LS_OK;

    for (ls__leaf *l = s->leaves; l && !status; l = l->prev)
        status = ls__leaf_used(tape, l->leaf);
    return status;
}

/*
 * What later calls gave to the segment's input goes on as a sum inside, in the order of a plain
 * run: the bits of a sum depend on it.  A leaf from outside the tape keeps its own, because the
 * segment may use it by its own name as well.
 */
static void lend_grad(ls_tensor *from, ls_tensor *to)
{
    if (!from->tape)
        return;
    to->grad   = from->grad;
    from->grad = NULL;
}

static ls_status return_grad(ls_tensor *from, ls_tensor *to, ls_status status)
{
    if (to->tape) {
        to->grad   = from->grad;
        from->grad = NULL;
    } else if (!status && from->grad) {
        status = ls__grad_pass(to, from->grad);
    }
    ls_tensor_zero_grad(from);
    return status;
}

static ls_status replay_inside(ls_tape *tape, ls_node *call, const segment *s)
{
    ls_tensor *x = ls__tape_alias(tape, call->in[0]);
    if (!x)
        return LS_ENOMEM;
    x->requires_grad = call->in[0]->requires_grad;
    ls_tensor *out   = run_again(tape, call, s, x);
    if (!out)
        return tape->failed;
    if (!out->requires_grad)
        return exchange_uses(tape, s);
    lend_grad(call->in[0], x);
    ls_status status = ls__grad_pass(out, call->out->grad); /* out may be x itself */
    if (!status)
        status = ls__mark(tape, out);
    if (!status)
        status = exchange_uses(tape, s);
    if (!status)
        status = ls__replay(tape, false);
    return return_grad(x, call->in[0], status);
}

static ls_status replay(ls_node *call)
{
    ls_tape *tape  = call->tape;
    ls_node *outer = tape->last;
    ls_scope scope = ls_tape_scope_begin(tape);

    tape->last       = NULL;
    ls_status status = replay_inside(tape, call, call->attr.p);
    for (ls_node *n = tape->last; n; n = n->prev)
        ls__call_release(n);
    ls_tape_scope_end(tape, scope, NULL);
    tape->last = outer;
    return status;
}

const ls_op ls_op_recompute = {
    .name = "recompute", .n_in = 1, .replay = replay, .saves = LS_SAVE_IN0};

/* The first run: nothing recorded, leaves noted in s. */
static ls_tensor *run_first(ls_tape *tape, segment *s, ls_tensor *x)
{
    ls_scope  scope    = ls_tape_scope_begin(tape);
    ls__leaf *leaves   = tape->leaves;
    bool      counting = tape->counting;

    ls_tape_set_grad(tape, false);
    tape->leaves   = NULL;
    tape->counting = true;
    s->site        = tape->site;
    ls_tensor *out = s->run(s->context, tape, x);
    s->leaves      = tape->leaves;
    tape->leaves   = leaves;
    tape->counting = counting;
    ls_tape_set_grad(tape, true);
    ls_tape_scope_end(tape, scope, out);
    return out;
}

ls_tensor *ls_recompute(ls_tape *tape, ls_tensor *x, ls_segment run, void *context)
{
    if (tape->failed)
        return NULL;
    if (!run)
        return ls__tape_null(tape, "recompute: the segment");
    ls_status status = ls__check_input(tape, &ls_op_recompute, x, 0);
    if (status)
        return ls_tape_fail(tape, status);
    if (!tape->grad) /* also inside another segment's first run, which notes the leaves */
        return run(context, tape, x);
    segment *s = ls__tape_alloc(tape, sizeof *s);
    if (!s)
        return NULL;
    *s             = (segment){.run = run, .context = context};
    ls_tensor *out = run_first(tape, s, x);
    if (!out || !out->tape || (!x->requires_grad && !s->leaves))
        return out; /* also a leaf that the segment hands on as it is */
    ls_tensor *alias = ls__tape_alias(tape, out); /* out may be x itself */
    ls_node   *call  = alias ? ls__tape_record(tape, &ls_op_recompute, x, alias) : NULL;
    if (!call)
        return NULL;
    call->attr.p = s;
    call->extra  = s->leaves;
    return alias;
}

/*
 * tape.c - arena, scopes and recording.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/ops.h"
#include "autograd/tape_impl.h"
#include "core/kernels/gemm.h"
#include "core/kernels/gemm_bf16.h"

enum { CHUNK_BYTES = 1 << 16 };

ls_tape *ls_tape_new(void)
{
    ls_tape *tape = ls_calloc(1, sizeof *tape);
    if (!tape)
        return NULL;
    tape->grad = tape->training = true;
    ls_blas_init();
    return tape;
}

static void release_calls(ls_tape *tape)
{
    for (ls_node *n = tape->last; n; n = n->prev)
        ls__call_release(n);
    tape->last = NULL;
}

void ls__call_release(ls_node *call)
{
    ls_storage_release(call->aux);
    call->aux = NULL;
    for (int i = 0; i < call->n_in; i++) {
        if (call->early[i] && call->early[i]->is_view)
            call->in[i]->home_lent = false;
        ls_storage_release(call->early[i]);
        call->early[i] = NULL;
    }
}

void ls_tape_reset(ls_tape *tape)
{
    release_calls(tape);
    for (ls__cell *c = tape->cells; c; c = c->prev)
        ls_tensor_drop(&c->tensor);
    for (ls__chunk *c = tape->first; c; c = c->next)
        c->used = sizeof *c;
    tape->chunk    = tape->first;
    tape->cells    = NULL;
    tape->failed   = LS_OK;
    tape->site     = 0;
    tape->counting = false;
    tape->leaves   = NULL;
}

void ls_tape_free(ls_tape *tape)
{
    if (!tape)
        return;
    ls_tape_reset(tape);
    for (ls__chunk *c = tape->first, *next; c; c = next) {
        next = c->next;
        ls_mem_free(c, CHUNK_BYTES, LS_MEM_OTHER);
    }
    free(tape);
}

ls_status ls_tape_status(const ls_tape *tape)
{
    return tape->failed;
}

ls_tensor *ls_tape_fail(ls_tape *tape, ls_status status)
{
    if (!tape->failed)
        tape->failed = status;
    return NULL;
}

ls_tensor *ls__tape_null(ls_tape *tape, const char *what)
{
    return tape->failed ? NULL : ls_tape_fail(tape, ls_fail(LS_EINVAL, "%s is NULL", what));
}

static ls__chunk *next_chunk(ls_tape *tape)
{
    ls__chunk *c = tape->chunk ? tape->chunk->next : tape->first;

    if (!c) {
        c = ls_mem_alloc(CHUNK_BYTES, LS_MEM_OTHER);
        if (!c)
            return NULL;
        *c = (ls__chunk){.used = sizeof *c};
        if (tape->chunk)
            tape->chunk->next = c;
        else
            tape->first = c;
    }
    return tape->chunk = c;
}

void *ls__tape_alloc(ls_tape *tape, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (!tape->chunk || tape->chunk->used + bytes > CHUNK_BYTES)
        if (!next_chunk(tape))
            return ls_tape_fail(tape, LS_ENOMEM);
    void *p = (char *)tape->chunk + tape->chunk->used;
    tape->chunk->used += bytes;
    return memset(p, 0, bytes);
}

/* A tensor header of the tape without storage. */
static ls_tensor *new_header(ls_tape *tape, ls_dtype dtype, ls_shape shape)
{
    ls__cell *c = ls__tape_alloc(tape, sizeof *c);
    if (!c)
        return NULL;
    c->tensor        = ls_tensor_header(dtype, shape);
    c->tensor.tape   = tape;
    c->tensor.holds  = 1;
    c->tensor.scoped = true;
    c->prev          = tape->cells;
    tape->cells      = c;
    return &c->tensor;
}

ls_tensor *ls_tape_tensor(ls_tape *tape, ls_dtype dtype, ls_shape shape)
{
    if (tape->failed)
        return NULL;
    ls_status  status = ls_shape_check(&shape, dtype);
    ls_tensor *t      = status ? NULL : new_header(tape, dtype, shape);
    if (t)
        status = ls_tensor_materialize(t, LS_MEM_ACTIVATIONS);
    return status ? ls_tape_fail(tape, status) : t;
}

ls_tensor *ls_tape_input(ls_tape *tape, ls_dtype dtype, ls_shape shape, const void *data)
{
    ls_tensor *t = ls_tape_tensor(tape, dtype, shape);
    if (!t || ls_tensor_numel(t) == 0)
        return t;
    if (!data)
        return ls__tape_null(tape, "input: data");
    memcpy(ls_tensor_data(t), data, ls_tensor_bytes(t));
    return t;
}

ls_tensor *ls__tape_alias(ls_tape *tape, ls_tensor *x)
{
    ls_tensor *t = new_header(tape, x->dtype, x->shape);
    if (!t)
        return NULL;
    memcpy(t->stride, x->stride, sizeof t->stride);
    t->offset  = x->offset;
    t->storage = ls_storage_retain(x->storage);
    t->is_wide = x->is_wide;
    t->wide    = x->wide;
    return t;
}

static void hold(ls_tensor *t)
{
    t->holds++;
}

/* Values of leaves outside the tape belong to their owner. */
void ls__tensor_let_go(ls_tensor *t)
{
    if (t->tape && --t->holds == 0) {
        ls_storage_release(t->storage);
        t->storage = NULL;
    }
}

ls_scope ls_tape_scope_begin(ls_tape *tape)
{
    return (ls_scope){tape->cells};
}

void ls_tape_scope_end(ls_tape *tape, ls_scope scope, ls_tensor *keep)
{
    for (ls__cell *c = tape->cells; c && c != scope.mark; c = c->prev) {
        if (&c->tensor == keep || !c->tensor.scoped)
            continue;
        c->tensor.scoped = false;
        ls__tensor_let_go(&c->tensor);
    }
}

bool ls_tape_set_grad(ls_tape *tape, bool on)
{
    bool before = tape->grad;
    tape->grad  = on;
    return before;
}

uint64_t ls_tape_recorded(const ls_tape *tape)
{
    return tape->recorded;
}

bool ls_tape_get_grad(const ls_tape *tape)
{
    return tape->grad;
}

bool ls_tape_set_training(ls_tape *tape, bool on)
{
    bool before    = tape->training;
    tape->training = on;
    return before;
}

bool ls_tape_get_training(const ls_tape *tape)
{
    return tape->training;
}

void ls_tape_set_random(ls_tape *tape, const ls_random *random)
{
    tape->random = *random;
    tape->site   = 0;
}

void ls_tape_on_leaf(ls_tape *tape, ls_leaf_hook hook, void *context)
{
    tape->on_leaf         = hook;
    tape->on_leaf_context = context;
}

static void note_leaf(ls_tape *tape, ls_tensor *t)
{
    for (ls__leaf *l = tape->leaves; l; l = l->prev)
        if (l->leaf == t)
            return;
    ls__leaf *l = ls__tape_alloc(tape, sizeof *l);
    if (!l)
        return;
    *l           = (ls__leaf){tape->leaves, t};
    tape->leaves = l;
}

ls_status ls__check_input(const ls_tape *tape, const ls_op *op, const ls_tensor *t, int i)
{
    if (!t)
        return ls_fail(LS_EINVAL, "%s: input %d is NULL", op->name, i);
    if (t->tape && t->tape != tape)
        return ls_fail(LS_EINVAL, "%s: input %d belongs to another tape", op->name, i);
    if (t->shard && !(t->storage && t->storage->data))
        return ls_fail(
            LS_ESTATE,
            "%s: input %d is a sharded parameter, which is whole only while the module "
            "runs that was sharded (ls_fsdp_shard)",
            op->name, i);
    if (!t->storage || !t->storage->data)
        return ls_fail(LS_ESTATE, "%s: the value of input %d was released", op->name, i);
    return LS_OK;
}

/* Takes the inputs into the call, row-major where the operator wants that. */
static ls_status take_inputs(ls_tape *tape, ls_node *call, ls_tensor *const *in, int n_in)
{
    const ls_op *op = call->op;

    if (n_in < 1 || n_in > LS_MAX_INPUTS || (op->n_in >= 0 && n_in != op->n_in))
        return ls_fail(LS_EINVAL, "%s: %d inputs", op->name, n_in);
    call->n_in = n_in;
    for (int i = 0; i < n_in; i++) {
        ls_status status = ls__check_input(tape, op, in[i], i);
        if (status)
            return status;
        call->in[i] = in[i];
        if (!op->strided && !ls_tensor_is_contiguous(in[i]))
            call->in[i] = ls_contiguous(tape, in[i]);
        if (!call->in[i])
            return tape->failed;
    }
    return LS_OK;
}

static bool wants_grad(ls_tape *tape, const ls_node *call)
{
    bool any = false;

    for (int i = 0; i < call->n_in; i++) {
        any |= call->in[i]->requires_grad;
        if (tape->counting && call->in[i]->requires_grad && !call->in[i]->tape)
            note_leaf(tape, call->in[i]);
    }
    return any && tape->grad;
}

static ls_status make_output(ls_tape *tape, ls_node *call, const ls_plan *plan)
{
    ls_status status = ls_shape_check(&plan->shape, plan->dtype);
    if (status)
        return ls_fail_in(status, "%s", call->op->name);
    call->out = new_header(tape, plan->dtype, plan->shape);
    if (!call->out)
        return LS_ENOMEM;
    if (!plan->view)
        return ls_tensor_materialize(call->out, LS_MEM_ACTIVATIONS);
    memcpy(call->out->stride, plan->stride, sizeof plan->stride);
    call->out->offset  = plan->offset;
    call->out->storage = ls_storage_retain(call->in[0]->storage);
    return LS_OK;
}

/* Room for the gradients that forward will form. */
static ls_status make_early(ls_node *call, unsigned early)
{
    for (int i = 0; i < call->n_in; i++) {
        if (!call->recorded || !(early & (1u << i)) || !call->in[i]->requires_grad)
            continue;
        call->early[i] = ls__new_grad(call->in[i]);
        if (!call->early[i])
            return LS_ENOMEM;
        if (call->early[i]->is_view)
            call->in[i]->home_lent = true;
    }
    return LS_OK;
}

static ls_status run_forward(ls_node *call, const ls_plan *plan)
{
    if (make_early(call, plan->early))
        return LS_ENOMEM;
    if (plan->aux_bytes) {
        call->aux = ls_storage_new(plan->aux_bytes, LS_MEM_ACTIVATIONS);
        if (!call->aux)
            return LS_ENOMEM;
    }
    if (plan->forward_scratch_bytes) {
        call->scratch = ls_mem_alloc(plan->forward_scratch_bytes, LS_MEM_ACTIVATIONS);
        if (!call->scratch)
            return LS_ENOMEM;
    }
    double start = ls__profile_now(call->tape);
    call->op->forward(call);
    ls__profile_forward(call->tape, call->op, start);
    ls_mem_free(call->scratch, plan->forward_scratch_bytes, LS_MEM_ACTIVATIONS);
    call->scratch = NULL;
    return ls_gemm_bf16_check();
}

/*
 * What can be formed again is not held, but by a call whose own output is formed again: so
 * rebuild() in backward.c finds all that it needs.
 */
static bool is_held(const ls_node *call, int i)
{
    const ls_node *maker = call->in[i]->node;
    bool again = maker && maker->op->rebuilds && !maker->consumed && !call->op->rebuilds;

    return call->saves & (1u << i) && !again;
}

static void link_call(ls_tape *tape, ls_node *call)
{
    call->out->node          = call;
    call->out->requires_grad = true;
    for (int i = 0; i < call->n_in; i++)
        if (is_held(call, i)) {
            call->held |= 1u << i;
            hold(call->in[i]);
        }
    if (call->saves & LS_SAVE_OUT) {
        call->held |= LS_SAVE_OUT;
        hold(call->out);
    }
    call->prev = tape->last;
    tape->last = call;
    tape->recorded++;
}

static ls_status perform(ls_tape *tape, ls_node *call)
{
    ls_plan   plan   = {.saves = call->op->saves};
    ls_status status = call->op->infer(call, &plan);

    if (status)
        return status;
    call->saves                  = plan.saves;
    call->backward_scratch_bytes = plan.backward_scratch_bytes;
    call->recorded               = wants_grad(tape, call);
    status                       = make_output(tape, call, &plan);
    return status ? status : run_forward(call, &plan);
}

ls_tensor *ls_tape_apply(ls_tape *tape, const ls_op *op, ls_tensor *const *in, int n_in,
                         const ls_attr *attr)
{
    if (tape->failed)
        return NULL; /* keep the message of the first failure */
    ls_node *call = ls__tape_alloc(tape, sizeof *call);
    if (!call)
        return NULL;
    call->op       = op;
    call->tape     = tape;
    call->training = tape->training;
    call->random   = tape->random;
    if (attr)
        call->attr = *attr;
    if (op->random)
        call->site = tape->site++;
    ls_status status = take_inputs(tape, call, in, n_in);
    if (!status)
        status = perform(tape, call);
    if (status || !call->recorded)
        ls__call_release(call);
    if (status)
        return ls_tape_fail(tape, status);
    if (call->recorded)
        link_call(tape, call);
    return tape->failed ? NULL : call->out;
}

ls_node *ls__tape_record(ls_tape *tape, const ls_op *op, ls_tensor *in, ls_tensor *out)
{
    ls_node *call = ls__tape_alloc(tape, sizeof *call);
    if (!call)
        return NULL;
    *call = (ls_node){.op       = op,
                      .n_in     = 1,
                      .in       = {in},
                      .out      = out,
                      .tape     = tape,
                      .random   = tape->random,
                      .training = tape->training,
                      .recorded = true,
                      .saves    = op->saves};
    link_call(tape, call);
    return call;
}

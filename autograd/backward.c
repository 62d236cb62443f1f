/*
 * backward.c - from the loss back through the recorded calls.
 *
 * First a walk that marks what lies on a path to the loss and counts, for each leaf, the uses
 * whose gradients will arrive.  Then the replay: each marked call gets the gradient of its
 * output, delivers those of its inputs and lets go of what it saved.  The first gradient of a
 * tensor is written, later ones are added; where an operator hands its gradient through
 * unchanged (add, reshape) the storage is shared until someone must add to it.
 *
 * The gradient of a leaf is formed in fresh memory and joined to what earlier backwards left
 * only when it is complete.
 */
#include <string.h>

#include "autograd/tape_impl.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/gemm_bf16.h"

static bool is_outer_leaf(const ls_tensor *t)
{
    return !t->tape;
}

static void mark_use(ls_tensor *t)
{
    if (is_outer_leaf(t)) {
        if (t->pending++ == 0 && !t->marked) {
            t->grad_before = t->grad;
            t->grad        = NULL;
        }
    }
    t->marked = true;
}

ls_status ls__mark(ls_tape *tape, ls_tensor *root)
{
    root->marked = true;
    for (ls_node *n = tape->last; n; n = n->prev) {
        if (!n->out->marked)
            continue;
        if (n->consumed)
            return ls_fail(LS_ESTATE,
                           "backward: the values that %s saved are used up; the first "
                           "backward must retain them",
                           n->op->name);
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i]->requires_grad)
                mark_use(n->in[i]);
        for (ls__leaf *l = n->op->replay ? n->extra : NULL; l; l = l->prev)
            mark_use(l->leaf);
    }
    return LS_OK;
}

/* Takes marks and counts back; a leaf whose backward did not finish keeps its old gradient. */
static void unmark_leaf(ls_tensor *t)
{
    if (!is_outer_leaf(t) || !t->marked)
        return;
    if (t->pending) {
        ls_storage_release(t->grad);
        t->grad = t->grad_before;
    }
    t->grad_before = NULL;
    t->pending     = 0;
    t->marked      = false;
}

static void unmark_all(ls_tape *tape)
{
    for (ls_node *n = tape->last; n; n = n->prev) {
        for (int i = 0; i < n->n_in; i++) {
            unmark_leaf(n->in[i]);
            n->in[i]->marked = false;
        }
        for (ls__leaf *l = n->op->replay ? n->extra : NULL; l; l = l->prev)
            unmark_leaf(l->leaf);
        n->out->marked = false;
    }
}

ls_storage *ls__new_grad(const ls_tensor *t)
{
    if (t->grad_home && !t->home_lent)
        return ls_storage_view(t->grad_home, ls_tensor_grad_bytes(t), LS_MEM_GRADS);
    return ls_storage_new(ls_tensor_grad_bytes(t),
                          is_outer_leaf(t) ? LS_MEM_GRADS : LS_MEM_ACTIVATIONS);
}

/* A gradient that nobody shares, so that it can be added to. */
static ls_status own_grad(ls_tensor *t)
{
    if (t->grad->refs == 1)
        return LS_OK;
    ls_storage *copy = ls__new_grad(t);
    if (!copy)
        return LS_ENOMEM;
    memcpy(copy->data, t->grad->data, t->grad->bytes);
    ls_storage_release(t->grad);
    t->grad = copy;
    return LS_OK;
}

/* Gives t a gradient to write or add to; passes on ENOMEM. */
static ls_status grad_open(ls_tensor *t, ls_grad *out)
{
    bool      add    = t->grad != NULL;
    ls_status status = LS_OK;

    if (add)
        status = own_grad(t);
    else if (!(t->grad = ls__new_grad(t)))
        status = LS_ENOMEM;
    if (!status)
        *out = (ls_grad){t->grad->data, add};
    return status;
}

ls_status ls__grad_pass(ls_tensor *t, ls_storage *grad)
{
    if (!t->grad && !is_outer_leaf(t)) {
        t->grad = ls_storage_retain(grad);
        return LS_OK;
    }
    ls_grad   into;
    ls_status status = grad_open(t, &into);
    if (status)
        return status;
    if (into.add)
        ls_k_add_to(into.data, grad->data, ls_tensor_numel(t));
    else
        memcpy(into.data, grad->data, grad->bytes);
    return LS_OK;
}

ls_status ls__leaf_used(ls_tape *tape, ls_tensor *leaf)
{
    if (!is_outer_leaf(leaf) || --leaf->pending > 0)
        return LS_OK;
    if (leaf->grad && leaf->grad_before) {
        ls_k_add_to(leaf->grad->data, leaf->grad_before->data, ls_tensor_numel(leaf));
        ls_storage_release(leaf->grad_before);
    } else if (leaf->grad_before) {
        leaf->grad = leaf->grad_before;
    }
    leaf->grad_before = NULL;
    return tape->on_leaf ? tape->on_leaf(tape->on_leaf_context, leaf) : LS_OK;
}

static bool is_passed(const ls_node *n, int i)
{
    return n->op->passes & (1u << i) && ls_tensor_numel(n->in[i]) == ls_tensor_numel(n->out);
}

/*
 * Values that an operator of the cheap kind made were not kept for the calls that read them:
 * they are formed again from that operator's own saves, and stay until its turn comes.
 */
static ls_status rebuild(ls_tensor *t)
{
    ls_node *maker = t->node;

    if (t->storage)
        return LS_OK;
    t->rebuilt = true;
    if (ls_tensor_materialize(t, LS_MEM_ACTIVATIONS))
        return LS_ENOMEM;
    maker->op->forward(maker);
    return LS_OK;
}

static ls_status rebuild_inputs(const ls_node *n)
{
    ls_status status = LS_OK;

    for (int i = 0; i < n->n_in && !status; i++)
        if (n->saves & (1u << i))
            status = rebuild(n->in[i]);
    return status;
}

/* A gradient that forward formed for dout = 1 becomes the input's, or joins it. */
static ls_status deliver_early(ls_node *n, int i, bool retain)
{
    ls_tensor  *t     = n->in[i];
    ls_storage *early = n->early[i];
    ls_real     dout  = *(const ls_real *)n->out->grad->data;
    ls_grad     into;

    if (!retain && !t->grad && (!t->grad_home || early->is_view)) {
        if (dout != 1)
            ls_k_scale(early->data, early->data, dout, ls_tensor_numel(t), false);
        if (early->is_view)
            t->home_lent = false;
        t->grad     = early;
        n->early[i] = NULL;
        return LS_OK;
    }
    ls_status status = grad_open(t, &into);
    if (!status)
        ls_k_scale(into.data, early->data, dout, ls_tensor_numel(t), into.add);
    return status;
}

/* Gradients of the inputs: passed on where they are dout itself, else formed by the operator.
 */
static ls_status deliver(ls_node *n, bool retain)
{
    ls_grad   din[LS_MAX_INPUTS] = {{0}};
    bool      work               = false;
    ls_status status             = LS_OK;

    for (int i = 0; i < n->n_in && !status; i++) {
        if (!n->in[i]->requires_grad)
            continue;
        if (n->early[i]) {
            status = deliver_early(n, i, retain);
            continue;
        }
        if (is_passed(n, i)) {
            status = ls__grad_pass(n->in[i], n->out->grad);
            continue;
        }
        /* an input that stands twice is written by its first place and added to by the next */
        status = grad_open(n->in[i], &din[i]);
        work   = true;
    }
    if (!status && work)
        status = rebuild_inputs(n);
    if (status || !work)
        return status;
    if (n->backward_scratch_bytes) {
        n->scratch = ls_mem_alloc(n->backward_scratch_bytes, LS_MEM_ACTIVATIONS);
        if (!n->scratch)
            return LS_ENOMEM;
    }
    double start = ls__profile_now(n->tape);
    n->op->backward(n, n->out->grad->data, din);
    ls__profile_backward(n->tape, n->op, start);
    ls_mem_free(n->scratch, n->backward_scratch_bytes, LS_MEM_ACTIVATIONS);
    n->scratch = NULL;
    return ls_gemm_bf16_check();
}

static void drop_rebuilt(ls_tensor *t)
{
    ls_storage_release(t->storage);
    t->storage = NULL;
    t->rebuilt = false;
}

static void consume(ls_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->held & (1u << i))
            ls__tensor_let_go(n->in[i]);
    if (n->held & LS_SAVE_OUT)
        ls__tensor_let_go(n->out);
    ls__call_release(n);
    n->consumed = true;
}

static ls_status replay_segment(ls_node *n)
{
    ls_status status = rebuild_inputs(n);
    return status ? status : n->op->replay(n);
}

/* A marked call may get no gradient (a recomputed segment that ignores its input): its leaves
 * are told all the same, or they would wait for ever. */
static ls_status replay_call(ls_tape *tape, ls_node *n, bool retain)
{
    ls_status status = LS_OK;

    if (n->out->grad && n->op->replay)
        status = replay_segment(n);
    else if (n->out->grad)
        status = deliver(n, retain);
    if (status)
        return status;
    ls_tensor_zero_grad(n->out);
    if (n->out->rebuilt)
        drop_rebuilt(n->out);
    if (!retain)
        consume(n);
    for (int i = 0; i < n->n_in && !status; i++)
        if (n->in[i]->requires_grad)
            status = ls__leaf_used(tape, n->in[i]);
    return status;
}

ls_status ls__replay(ls_tape *tape, bool retain)
{
    ls_status status = LS_OK;

    for (ls_node *n = tape->last; n && !status; n = n->prev)
        if (n->out->marked)
            status = replay_call(tape, n, retain);
    return status;
}

static ls_status check_root(const ls_tape *tape, const ls_tensor *root, const ls_real *seed)
{
    ls_shape_text text;

    if (tape->failed)
        return tape->failed;
    if (!root)
        return ls_fail(LS_EINVAL, "backward: the loss is NULL");
    if (root->tape != tape)
        return ls_fail(LS_EINVAL, "backward: the loss belongs to another tape");
    if (!root->storage)
        return ls_fail(LS_ESTATE, "backward: the value of the loss was released");
    if (!root->node)
        return ls_fail(LS_ESTATE,
                       "backward: the loss depends on nothing that requires a gradient "
                       "(or recording was off)");
    if (!seed && ls_tensor_numel(root) != 1)
        return ls_fail(LS_ESHAPE, "backward: the loss has shape %s, want one element",
                       ls_shape_print(&root->shape, &text));
    return LS_OK;
}

static ls_status seed_root(ls_tensor *root, const ls_real *seed)
{
    root->grad = ls__new_grad(root);
    if (!root->grad)
        return LS_ENOMEM;
    if (seed)
        memcpy(root->grad->data, seed, root->grad->bytes);
    else
        *(ls_real *)root->grad->data = 1;
    return LS_OK;
}

ls_status ls_backward_with(ls_tape *tape, ls_tensor *root, const ls_backward_opts *opts)
{
    ls_backward_opts o      = opts ? *opts : (ls_backward_opts){0};
    ls_status        status = check_root(tape, root, o.seed);

    if (status)
        return status;
    status = ls__mark(tape, root);
    if (!status)
        status = seed_root(root, o.seed);
    if (!status)
        status = ls__replay(tape, o.retain);
    unmark_all(tape);
    if (status)
        ls_tape_fail(tape, status);
    return status;
}

ls_status ls_backward(ls_tape *tape, ls_tensor *loss)
{
    return ls_backward_with(tape, loss, NULL);
}

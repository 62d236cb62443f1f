/*
 * grad_sum.c - one tree a parameter.
 */
#include "nn/grad_sum.h"

#include <stdlib.h>

#include "core/tree_sum.h"

typedef struct {
    ls_tree_sum tree;
    bool        used; /* in some micro-batch of the step; until then zeros are only counted */
} slot;

struct ls_grad_sum {
    const ls_named_tensor *parameters;
    int                    n;
    uint64_t               micro; /* finished micro-batches of the step */
    slot                  *slots;
};

ls_grad_sum *ls_grad_sum_new(const ls_named_tensor *parameters, int n)
{
    ls_grad_sum *s = ls_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->parameters = parameters;
    s->n          = n;
    s->slots      = ls_calloc((size_t)n, sizeof *s->slots);
    if (s->slots)
        return s;
    free(s);
    return NULL;
}

static void clear(ls_grad_sum *s)
{
    for (int i = 0; i < s->n; i++) {
        ls_tree_sum_close(&s->slots[i].tree);
        s->slots[i].used = false;
    }
    s->micro = 0;
}

void ls_grad_sum_free(ls_grad_sum *s)
{
    if (!s)
        return;
    clear(s);
    free(s->slots);
    free(s);
}

static slot *slot_of(ls_grad_sum *s, const ls_tensor *leaf)
{
    for (int i = 0; i < s->n; i++)
        if (s->parameters[i].tensor == leaf)
            return &s->slots[i];
    return NULL;
}

static size_t gradient_bytes(const ls_tensor *t)
{
    return (size_t)ls_tensor_numel(t) * sizeof(ls_real);
}

/* Brings a slot's count to `leaves` with leaves of +0. */
static ls_status fill_up(slot *x, const ls_tensor *t, uint64_t leaves)
{
    ls_status status = LS_OK;

    while (x->tree.count < leaves && !status)
        status = ls_tree_sum_push_zero(&x->tree, gradient_bytes(t));
    return status;
}

static ls_status take(void *context, ls_tensor *leaf)
{
    ls_grad_sum *s = context;
    slot        *x = slot_of(s, leaf);

    if (!x || !leaf->grad)
        return LS_OK;
    ls_status status = fill_up(x, leaf, s->micro);
    if (status)
        return status;
    ls_storage *grad = leaf->grad;
    leaf->grad       = NULL;
    x->used          = true;
    return ls_tree_sum_push(&x->tree, grad);
}

void ls_grad_sum_begin(ls_grad_sum *s, ls_tape *tape)
{
    clear(s);
    for (int i = 0; i < s->n; i++)
        ls_tensor_zero_grad(s->parameters[i].tensor);
    ls_tape_on_leaf(tape, take, s);
}

ls_status ls_grad_sum_end_micro(ls_grad_sum *s)
{
    ls_status status = LS_OK;

    s->micro++;
    for (int i = 0; i < s->n && !status; i++)
        if (s->slots[i].used)
            status = fill_up(&s->slots[i], s->parameters[i].tensor, s->micro);
    return status;
}

void ls_grad_sum_finish(ls_grad_sum *s, ls_tape *tape)
{
    ls_tape_on_leaf(tape, NULL, NULL);
    for (int i = 0; i < s->n; i++) {
        ls_tensor_zero_grad(s->parameters[i].tensor);
        if (s->slots[i].used)
            s->parameters[i].tensor->grad = ls_tree_sum_finish(&s->slots[i].tree);
    }
    clear(s);
}

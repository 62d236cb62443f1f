/*
 * grad_sum.c - one tree a parameter.
 */
#include "nn/grad_sum.h"

#include <stdlib.h>

#include "core/tree_sum.h"

typedef struct {
    ls_tree_sum tree;
    bool        sunk; /* its sum is with the sink */
    bool        used; /* in some micro-batch of the step; until then zeros are only counted */
} slot;

struct ls_grad_sum {
    const ls_named_tensor *parameters;
    int                    n;
    uint64_t               micro; /* finished micro-batches of the step */
    slot                  *slots;
    const ls_grad_sink    *sink; /* in the last micro-batch of a step */
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
        s->slots[i].used = s->slots[i].sunk = false;
    }
    s->micro = 0;
    s->sink  = NULL;
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

/* The last leaf (NULL: +0) of parameter i: its sum goes to the sink. */
static ls_status sink_leaf(ls_grad_sum *s, int i, ls_storage *leaf)
{
    slot     *x = &s->slots[i];
    ls_real  *home;
    ls_status status = s->sink->place(s->sink->context, i, &home);

    x->sunk = true;
    if (status)
        ls_storage_release(leaf);
    else
        status = ls_tree_sum_end(&x->tree, leaf, home,
                                 ls_tensor_grad_bytes(s->parameters[i].tensor));
    return status ? status : s->sink->done(s->sink->context, i);
}

ls_status ls_grad_sum_take(void *context, ls_tensor *leaf)
{
    ls_grad_sum *s = context;
    slot        *x = slot_of(s, leaf);

    if (!x || !leaf->grad)
        return LS_OK;
    if (x->sunk || x->tree.count > s->micro)
        return ls_fail(LS_ESTATE,
                       "a second backward of one micro-batch reached parameter %s; add up its "
                       "losses and go back once",
                       s->parameters[x - s->slots].name);
    ls_status status = ls_tree_sum_fill(&x->tree, s->micro, ls_tensor_grad_bytes(leaf));
    if (status)
        return status;
    ls_storage *grad = leaf->grad;
    leaf->grad       = NULL;
    x->used          = true;
    return s->sink ? sink_leaf(s, (int)(x - s->slots), grad) : ls_tree_sum_push(&x->tree, grad);
}

void ls_grad_sum_begin(ls_grad_sum *s, ls_tape *tape)
{
    clear(s);
    for (int i = 0; i < s->n; i++)
        ls_tensor_zero_grad(s->parameters[i].tensor);
    ls_tape_on_leaf(tape, ls_grad_sum_take, s);
}

ls_status ls_grad_sum_end_micro(ls_grad_sum *s)
{
    ls_status status = LS_OK;

    s->micro++;
    for (int i = 0; i < s->n && !status; i++)
        if (s->sink && s->slots[i].used && !s->slots[i].sunk)
            status = sink_leaf(s, i, NULL);
        else if (s->slots[i].used && !s->slots[i].sunk)
            status = ls_tree_sum_fill(&s->slots[i].tree, s->micro,
                                      ls_tensor_grad_bytes(s->parameters[i].tensor));
    return status;
}

void ls_grad_sum_finish(ls_grad_sum *s, ls_tape *tape)
{
    ls_tape_on_leaf(tape, NULL, NULL);
    for (int i = 0; i < s->n; i++) {
        ls_tensor_zero_grad(s->parameters[i].tensor);
        if (s->slots[i].used && !s->slots[i].sunk)
            s->parameters[i].tensor->grad = ls_tree_sum_finish(&s->slots[i].tree);
    }
    clear(s);
}

void ls_grad_sum_last_micro(ls_grad_sum *s, const ls_grad_sink *sink)
{
    s->sink = sink;
}

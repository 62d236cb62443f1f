/*
 * fsdp_chain.h - a chain of equal linear layers, loss = sum(l7(...l0(x))), for tests of FSDP.
 */
#ifndef LS_TESTS_FSDP_CHAIN_H
#define LS_TESTS_FSDP_CHAIN_H

#include <stdlib.h>

#include "dist/fsdp.h"
#include "lockstep.h"
#include "ranks.h"

enum { LAYERS = 8, W = 6, ROWS = 3 };

/* before: called in front of each child, the k-th; returns what goes on in place of x. */
typedef struct {
    ls_module base;
    ls_tensor *(*before)(void *context, ls_tape *tape, ls_tensor *x, int k);
    void *context;
} chain;

typedef struct {
    ls_module       *root, *layer[LAYERS];
    ls_named_tensor *list;
    int              n, rank;
    ls_tape         *tape;
    ls_fsdp         *fsdp;
} model;

static inline ls_tensor *forward_chain(ls_module *self, ls_tape *tape, ls_tensor *x,
                                       ls_tensor *y)
{
    chain *m  = (chain *)self;
    int    at = 0;

    (void)y;
    for (ls_module *c = self->children; c; c = c->next, at++) {
        if (m->before)
            x = m->before(m->context, tape, x, at);
        x = ls_module_call(c, tape, x);
    }
    return ls_sum(tape, x);
}

static const ls_module_class chain_class = {"chain", forward_chain};

static inline void open_model(model *m, ls_comm *world)
{
    ls_init        init   = {LS_INIT_NORMAL, 0.4};
    ls_linear_opts linear = {
        .in = W, .out = W, .bias = true, .weight_init = init, .bias_init = init};
    static const char *const names[] = {"l0", "l1", "l2", "l3", "l4", "l5", "l6", "l7"};

    *m      = (model){.tape = ls_tape_new(), .rank = ls_comm_rank(world)};
    m->root = ls_module_new(&chain_class, sizeof(chain), NULL, "");
    for (int i = 0; i < LAYERS; i++)
        m->layer[i] = ls_linear_new(m->root, names[i], &linear);
    m->list = ls_module_list(m->root, false, &m->n);
    for (int i = 0; i < m->n; i++)
        m->list[i].tensor->requires_grad = true;
}

static inline void close_model(model *m)
{
    ls_tape_free(m->tape);
    ls_fsdp_free(m->fsdp);
    ls_fsdp_forget(m->root);
    free(m->list);
    ls_module_free(m->root);
}

/* The layers from `first` on are units. */
static inline void wrap(model *m, ls_comm *world, const ls_fsdp_opts *opts, int first)
{
    for (int i = first; i < LAYERS; i++)
        CHECK_OK(ls_fsdp_shard(m->layer[i], world, opts));
    CHECK_OK(ls_fsdp_new(m->root, world, opts, &m->fsdp));
    CHECK_OK(ls_module_init(m->root, 3));
    CHECK_OK(ls_comm_barrier(world)); /* no rank's failure comes before another has its fsdp */
}

static inline ls_tensor *input(model *m)
{
    ls_real x[ROWS * W];

    for (int i = 0; i < ROWS * W; i++)
        x[i] = (ls_real)(i % 5 - 2) / 4;
    return ls_tape_input(m->tape, LS_REAL, LS_SHAPE2(ROWS, W), x);
}

static inline ls_tensor *forward(model *m)
{
    ls_tape_reset(m->tape);
    return ls_module_call(m->root, m->tape, input(m));
}

static inline ls_status backward(model *m, ls_tensor *loss)
{
    ls_status status = ls_backward(m->tape, loss);

    return status ? status : ls_fsdp_end_micro(m->fsdp);
}

static inline ls_status step(model *m)
{
    ls_status status = ls_fsdp_begin(m->fsdp, m->tape);

    if (!status)
        status = backward(m, forward(m));
    return ls_fsdp_finish(m->fsdp, m->tape, status);
}

static inline double evaluate(model *m)
{
    bool       grad = ls_tape_set_grad(m->tape, false);
    ls_tensor *loss = forward(m);
    double     item = loss ? ls_item(loss) : NAN;

    ls_tape_set_grad(m->tape, grad);
    return item;
}

#endif

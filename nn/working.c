/*
 * working.c - masters behind their copies.
 */
#include "nn/working.h"

#include <stdlib.h>

#include "core/kernels/bf16.h"

struct ls_working {
    const ls_named_tensor *parameters;
    int                    n;
    ls_shard              *masters; /* [n] */
};

/* t's values move to the master, t gets room for the copy; on failure t is as it was. */
static ls_status split(ls_shard *master, const ls_named_tensor *p)
{
    ls_tensor *t = p->tensor;

    if (!t->storage || t->shard || t->dtype != LS_REAL || !ls_tensor_is_contiguous(t))
        return ls_fail(LS_ESTATE, "working copy: parameter %s has no plain values of its own",
                       p->name);
    ls_tensor copy = ls_tensor_header(LS_BF16, t->shape);
    if (ls_tensor_materialize(&copy, LS_MEM_PARAMS))
        return ls_fail_in(LS_ENOMEM, "working copy of %s", p->name);
    master->rows         = ls_tensor_header(LS_REAL, t->shape);
    master->rows.storage = t->storage;
    master->rows.offset  = t->offset;
    t->storage           = copy.storage;
    t->offset            = 0;
    t->dtype             = LS_BF16;
    t->shard             = master;
    return LS_OK;
}

static void join(ls_tensor *t)
{
    ls_tensor *master = &t->shard->rows;

    ls_storage_release(t->storage);
    t->storage = master->storage;
    t->offset  = master->offset;
    t->dtype   = LS_REAL;
    t->shard   = NULL;
    ls_tensor_zero_grad(master);
}

static void round_all(const ls_working *w)
{
    for (int i = 0; i < w->n; i++)
        ls_k_bf16_round(ls_halves(w->parameters[i].tensor), ls_reals(&w->masters[i].rows),
                        ls_tensor_numel(&w->masters[i].rows));
}

ls_status ls_working_new(const ls_named_tensor *parameters, int n, ls_working **working)
{
    ls_working *w = ls_calloc(1, sizeof *w);

    *working = NULL;
    if (!w)
        return LS_ENOMEM;
    w->parameters    = parameters;
    w->masters       = ls_calloc((size_t)n, sizeof *w->masters);
    ls_status status = w->masters ? LS_OK : LS_ENOMEM;
    for (; w->n < n && !status; w->n += !status)
        status = split(&w->masters[w->n], &parameters[w->n]);
    if (status) {
        ls_working_free(w);
        return status;
    }
    round_all(w);
    *working = w;
    return LS_OK;
}

void ls_working_take_gradients(const ls_working *w)
{
    for (int i = 0; i < w->n; i++) {
        ls_tensor *leaf = w->parameters[i].tensor, *master = &w->masters[i].rows;
        ls_tensor_zero_grad(master);
        master->grad = leaf->grad;
        leaf->grad   = NULL;
    }
}

void ls_working_update(const ls_working *w)
{
    for (int i = 0; i < w->n; i++)
        ls_tensor_zero_grad(&w->masters[i].rows);
    round_all(w);
}

void ls_working_free(ls_working *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->n; i++)
        join(w->parameters[i].tensor);
    free(w->masters);
    free(w);
}

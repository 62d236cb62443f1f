/*
 * embedding.c - rows of a table.
 *
 * The gradient adds the rows of dy in token order into the table's gradient, after what is
 * there already (a tied head's part), threads split by channel.
 */
#include <string.h>

#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/gather.h"

enum { W, IDS };

static ls_status check_ids(const ls_tensor *ids, int64_t rows)
{
    const int32_t *id = ls_ints(ids);
    int64_t        n  = ls_tensor_numel(ids);

    for (int64_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= rows)
            return ls_fail(LS_EINVAL, "embedding: index %d at position %lld, want 0 to %lld",
                           id[i], (long long)i, (long long)rows - 1);
    return LS_OK;
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    const ls_tensor *w = call->in[W], *ids = call->in[IDS];
    ls_shape_text    wt, it;

    if ((w->dtype != LS_REAL && w->dtype != LS_BF16) || ids->dtype != LS_I32 ||
        w->shape.ndim != 2 || ids->shape.ndim >= LS_MAX_DIMS)
        return ls_fail(LS_ESHAPE, "embedding: table %s %s, indices %s %s",
                       ls_dtype_name(w->dtype), ls_shape_print(&w->shape, &wt),
                       ls_dtype_name(ids->dtype), ls_shape_print(&ids->shape, &it));
    plan->shape                         = ids->shape;
    plan->shape.dim[plan->shape.ndim++] = w->shape.dim[1];
    plan->dtype                         = LS_REAL;
    return check_ids(ids, w->shape.dim[0]);
}

static void forward(ls_node *call)
{
    const ls_tensor *w   = call->in[W];
    const int32_t   *ids = ls_ints(call->in[IDS]);
    int64_t          n = ls_tensor_numel(call->in[IDS]), c = w->shape.dim[1];

    if (ls__is_bf16(w))
        ls_k_gather_rows_bf16(ls_reals(call->out), ls_halves(w), ids, n, c);
    else
        ls_k_gather_rows(ls_reals(call->out), ls_reals(w), ids, n, c);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    const ls_tensor *w = call->in[W];

    if (!din[W].data)
        return;
    if (!din[W].add)
        memset(din[W].data, 0, (size_t)ls_tensor_numel(w) * sizeof(ls_real));
    ls_k_scatter_add_rows(din[W].data, dout, ls_ints(call->in[IDS]),
                          ls_tensor_numel(call->in[IDS]), w->shape.dim[1]);
}

const ls_op ls_op_embedding = {.name     = "embedding",
                               .n_in     = 2,
                               .infer    = infer,
                               .forward  = forward,
                               .backward = backward,
                               .saves    = LS_SAVE_IN1};

ls_tensor *ls_embedding(ls_tape *tape, ls_tensor *w, ls_tensor *ids)
{
    return ls_tape_apply(tape, &ls_op_embedding, (ls_tensor *[]){w, ids}, 2, NULL);
}

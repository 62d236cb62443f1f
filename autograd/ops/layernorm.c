/*
 * layernorm.c - layer normalisation over the last dimension, with or without bias.
 */
#include "core/kernels/layernorm.h"
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/reduce.h"

enum { X, W, B };

static int64_t columns_of(const ls_node *call)
{
    return call->in[W]->shape.dim[0];
}

static int64_t rows_of(const ls_node *call)
{
    int64_t c = columns_of(call);
    return c ? ls_tensor_numel(call->in[X]) / c : 0;
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    const ls_shape *x = &call->in[X]->shape;
    ls_shape_text   xt, wt;

    ls_status status = ls__want_real(call, X);
    if (!status)
        status = ls__want_one_float(call, W);
    if (status)
        return status;
    for (int i = W; i < call->n_in; i++)
        if (x->ndim < 1 || call->in[i]->shape.ndim != 1 ||
            call->in[i]->shape.dim[0] != x->dim[x->ndim - 1])
            return ls_fail(LS_ESHAPE, "layernorm: x %s, %s %s", ls_shape_print(x, &xt),
                           i == W ? "weight" : "bias",
                           ls_shape_print(&call->in[i]->shape, &wt));
    plan->shape                  = *x;
    plan->dtype                  = call->in[W]->dtype;
    plan->aux_bytes              = 2 * (size_t)rows_of(call) * sizeof(double);
    plan->backward_scratch_bytes = ls_k_columns_scratch(rows_of(call), columns_of(call));
    return LS_OK;
}

static ls_layernorm_args args_of(const ls_node *call)
{
    double           *aux = ls_aux(call);
    ls_tensor        *w = call->in[W], *b = call->n_in > 2 ? call->in[B] : NULL;
    ls_layernorm_args args = {.n    = rows_of(call),
                              .c    = columns_of(call),
                              .x    = ls_reals(call->in[X]),
                              .mean = aux,
                              .rstd = aux + rows_of(call),
                              .eps  = call->attr.f[0]};

    if (ls__is_bf16(w)) {
        args.w16 = ls_halves(w);
        args.b16 = b ? ls_halves(b) : NULL;
    } else {
        args.w = ls_reals(w);
        args.b = b ? ls_reals(b) : NULL;
    }
    return args;
}

static void forward(ls_node *call)
{
    ls_layernorm_args a = args_of(call);
    ls_k_layernorm(&a, ls_tensor_data(call->out));
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    ls_layernorm_args  a = args_of(call);
    ls_layernorm_grads g = {.dw = din[W].data, .add_w = din[W].add, .scratch = call->scratch};

    if (call->n_in > 2) {
        g.db    = din[B].data;
        g.add_b = din[B].add;
    }
    if (g.dw || g.db)
        ls_k_layernorm_dw(&a, dout, &g);
    if (din[X].data)
        ls_k_layernorm_dx(&a, dout, din[X].data, din[X].add);
}

const ls_op ls_op_layernorm = {.name     = "layernorm",
                               .n_in     = -1,
                               .infer    = infer,
                               .forward  = forward,
                               .backward = backward,
                               .saves    = LS_SAVE_INPUTS,
                               .rebuilds = true};

ls_tensor *ls_layernorm(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *b, double eps)
{
    return ls_tape_apply(tape, &ls_op_layernorm, (ls_tensor *[]){x, w, b}, b ? 3 : 2,
                         &(ls_attr){.f = {eps}});
}

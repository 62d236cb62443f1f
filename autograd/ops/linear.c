/*
 * linear.c - y = x W^T + b, the layout of PyTorch's nn.Linear.
 *
 * N rows of x, K inputs, M outputs.  The bias is laid into y first and the product added to it,
 * so it costs no pass of its own.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/gather.h"
#include "core/kernels/gemm.h"
#include "core/kernels/reduce.h"

enum { X, W, B };

static bool fits(const ls_node *call)
{
    const ls_shape *x = &call->in[X]->shape, *w = &call->in[W]->shape;

    if (x->ndim < 1 || w->ndim != 2 || x->dim[x->ndim - 1] != w->dim[1])
        return false;
    return call->n_in < 3 ||
           (call->in[B]->shape.ndim == 1 && call->in[B]->shape.dim[0] == w->dim[0]);
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_shape_text x, w, b;

    for (int i = 0; i < call->n_in; i++)
        if (call->in[i]->dtype != LS_REAL)
            return ls_fail(LS_ESHAPE, "linear: input %d has dtype %s", i,
                           ls_dtype_name(call->in[i]->dtype));
    if (!fits(call))
        return ls_fail(LS_ESHAPE, "linear: x %s, weight %s%s%s",
                       ls_shape_print(&call->in[X]->shape, &x),
                       ls_shape_print(&call->in[W]->shape, &w), call->n_in > 2 ? ", bias " : "",
                       call->n_in > 2 ? ls_shape_print(&call->in[B]->shape, &b) : "");
    plan->shape                                  = call->in[X]->shape;
    plan->shape.dim[call->in[X]->shape.ndim - 1] = call->in[W]->shape.dim[0];
    plan->dtype                                  = LS_REAL;
    if (call->n_in > 2 && call->in[B]->requires_grad)
        plan->backward_scratch_bytes =
            ls_k_columns_scratch(ls__rows(call->in[X]), call->in[W]->shape.dim[0]);
    return LS_OK;
}

typedef struct {
    int64_t n, k, m;
} sizes;

static sizes sizes_of(const ls_node *call)
{
    const int64_t *w = call->in[W]->shape.dim;
    return (sizes){ls__rows(call->in[X]), w[1], w[0]};
}

static void forward(ls_node *call)
{
    sizes    s = sizes_of(call);
    ls_real *y = ls_reals(call->out);

    if (call->n_in > 2)
        ls_k_repeat_rows(y, ls_reals(call->in[B]), s.n, s.m);
    ls_gemm(&(ls_gemm_args){.transpose_b = true,
                            .m           = s.n,
                            .n           = s.m,
                            .k           = s.k,
                            .alpha       = 1,
                            .a           = ls_reals(call->in[X]),
                            .lda         = s.k,
                            .b           = ls_reals(call->in[W]),
                            .ldb         = s.k,
                            .beta        = call->n_in > 2,
                            .c           = y,
                            .ldc         = s.m});
}

/* dx = dy W,  dW = dy^T x,  db = column sums of dy */
static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    sizes s = sizes_of(call);

    if (din[X].data)
        ls_gemm(&(ls_gemm_args){.m     = s.n,
                                .n     = s.k,
                                .k     = s.m,
                                .alpha = 1,
                                .a     = dout,
                                .lda   = s.m,
                                .b     = ls_reals(call->in[W]),
                                .ldb   = s.k,
                                .beta  = din[X].add,
                                .c     = din[X].data,
                                .ldc   = s.k});
    if (din[W].data)
        ls_gemm(&(ls_gemm_args){.transpose_a = true,
                                .m           = s.m,
                                .n           = s.k,
                                .k           = s.n,
                                .alpha       = 1,
                                .a           = dout,
                                .lda         = s.m,
                                .b           = ls_reals(call->in[X]),
                                .ldb         = s.k,
                                .beta        = din[W].add,
                                .c           = din[W].data,
                                .ldc         = s.k});
    if (call->n_in > 2 && din[B].data)
        ls_k_columns(&(ls_columns){.y       = din[B].data,
                                   .a       = dout,
                                   .rows    = s.n,
                                   .n       = s.m,
                                   .add     = din[B].add,
                                   .scratch = call->scratch});
}

const ls_op ls_op_linear = {.name     = "linear",
                            .n_in     = -1,
                            .infer    = infer,
                            .forward  = forward,
                            .backward = backward,
                            .saves    = LS_SAVE_IN0 | LS_SAVE_IN1};

ls_tensor *ls_linear(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *b)
{
    return ls_tape_apply(tape, &ls_op_linear, (ls_tensor *[]){x, w, b}, b ? 3 : 2, NULL);
}

/*
 * linear.c - y = x W^T + b, the layout of PyTorch's nn.Linear.
 *
 * N rows of x, K inputs, M outputs.  The bias is laid into y first and the product added to it,
 * so it costs no pass of its own.
 *
 * With a BF16 W all operands of the products are BF16: x and b come so, dy is rounded once for
 * both of its products, while its columns are summed for db.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/bf16.h"
#include "core/kernels/gather.h"
#include "core/kernels/gemm.h"
#include "core/kernels/gemm_bf16.h"
#include "core/kernels/reduce.h"

enum { X, W, B };

enum { ALIGNMENT = 64 };

static bool fits(const ls_node *call)
{
    const ls_shape *x = &call->in[X]->shape, *w = &call->in[W]->shape;

    if (x->ndim < 1 || w->ndim != 2 || x->dim[x->ndim - 1] != w->dim[1])
        return false;
    return call->n_in < 3 ||
           (call->in[B]->shape.ndim == 1 && call->in[B]->shape.dim[0] == w->dim[0]);
}

typedef struct {
    int64_t n, k, m;
} sizes;

static sizes sizes_of(const ls_node *call)
{
    const int64_t *w = call->in[W]->shape.dim;
    return (sizes){ls__rows(call->in[X]), w[1], w[0]};
}

/* Of dy in BF16, which lies first in backward's scratch. */
static size_t rounded_bytes(const ls_node *call)
{
    sizes  s     = sizes_of(call);
    size_t bytes = (size_t)(s.n * s.m) * sizeof(uint16_t);

    return ls__is_bf16(call->in[W]) ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
}

/* attr.i: the result is BF16 where W is */
static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_shape_text x, w, b;
    ls_status     status = ls__want_one_float(call, X);

    if (status)
        return status;
    if (!fits(call))
        return ls_fail(LS_ESHAPE, "linear: x %s, weight %s%s%s",
                       ls_shape_print(&call->in[X]->shape, &x),
                       ls_shape_print(&call->in[W]->shape, &w), call->n_in > 2 ? ", bias " : "",
                       call->n_in > 2 ? ls_shape_print(&call->in[B]->shape, &b) : "");
    sizes s                                      = sizes_of(call);
    plan->shape                                  = call->in[X]->shape;
    plan->shape.dim[call->in[X]->shape.ndim - 1] = s.m;
    plan->dtype                  = call->attr.i[0] ? call->in[W]->dtype : LS_REAL;
    plan->backward_scratch_bytes = rounded_bytes(call);
    if (call->n_in > 2 && call->in[B]->requires_grad)
        plan->backward_scratch_bytes += ls_k_columns_scratch(s.n, s.m);
    return LS_OK;
}

static void forward_bf16(const ls_node *call)
{
    sizes s = sizes_of(call);

    ls_gemm_bf16(&(ls_gemm_bf16_args){.transpose_b = true,
                                      .m           = s.n,
                                      .n           = s.m,
                                      .k           = s.k,
                                      .a           = ls_halves(call->in[X]),
                                      .lda         = s.k,
                                      .b           = ls_halves(call->in[W]),
                                      .ldb         = s.k,
                                      .bias  = call->n_in > 2 ? ls_halves(call->in[B]) : NULL,
                                      .round = ls__is_bf16(call->out),
                                      .c     = ls_tensor_data(call->out),
                                      .ldc   = s.m});
}

static void forward(ls_node *call)
{
    sizes s = sizes_of(call);

    if (ls__is_bf16(call->in[W])) {
        forward_bf16(call);
        return;
    }
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

/* dx = dy W,  dW = dy^T x */
static void backward_real(const ls_node *call, const ls_real *dout, ls_grad *din)
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
}

static void backward_bf16(const ls_node *call, const uint16_t *dy, ls_grad *din)
{
    sizes s = sizes_of(call);

    if (din[X].data)
        ls_gemm_bf16(&(ls_gemm_bf16_args){.m   = s.n,
                                          .n   = s.k,
                                          .k   = s.m,
                                          .a   = dy,
                                          .lda = s.m,
                                          .b   = ls_halves(call->in[W]),
                                          .ldb = s.k,
                                          .add = din[X].add,
                                          .c   = din[X].data,
                                          .ldc = s.k});
    if (din[W].data)
        ls_gemm_bf16(&(ls_gemm_bf16_args){.transpose_a = true,
                                          .m           = s.m,
                                          .n           = s.k,
                                          .k           = s.n,
                                          .a           = dy,
                                          .lda         = s.m,
                                          .b           = ls_halves(call->in[X]),
                                          .ldb         = s.k,
                                          .add         = din[W].add,
                                          .c           = din[W].data,
                                          .ldc         = s.k});
}

/* db = column sums of dy; on the way dy is rounded, where the products want that. */
static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    sizes     s         = sizes_of(call);
    bool      half      = ls__is_bf16(call->in[W]);
    bool      with_bias = call->n_in > 2 && din[B].data;
    uint16_t *dy        = half ? call->scratch : NULL;

    if (with_bias)
        ls_k_columns(&(ls_columns){.y       = din[B].data,
                                   .a       = dout,
                                   .rows    = s.n,
                                   .n       = s.m,
                                   .add     = din[B].add,
                                   .scratch = (char *)call->scratch + rounded_bytes(call),
                                   .rounded = dy});
    else if (half)
        ls_k_bf16_round(dy, dout, s.n * s.m);
    if (half)
        backward_bf16(call, dy, din);
    else
        backward_real(call, dout, din);
}

const ls_op ls_op_linear = {.name     = "linear",
                            .n_in     = -1,
                            .infer    = infer,
                            .forward  = forward,
                            .backward = backward,
                            .saves    = LS_SAVE_IN0 | LS_SAVE_IN1};

static ls_tensor *apply(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *b, bool narrow)
{
    if (x && w && w->dtype == LS_BF16)
        x = ls_cast(tape, x, LS_BF16);
    return ls_tape_apply(tape, &ls_op_linear, (ls_tensor *[]){x, w, b}, b ? 3 : 2,
                         &(ls_attr){.i = {narrow}});
}

ls_tensor *ls_linear(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *b)
{
    return apply(tape, x, w, b, false);
}

ls_tensor *ls_linear_narrow(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *b)
{
    return apply(tape, x, w, b, true);
}

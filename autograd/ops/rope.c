/*
 * rope.c - rotary positions for the query and key heads of a packed projection.
 *
 *     qkv (B,T,(n_head + 2 n_kv_head) * D);  aux: cosines and sines (T,2,D/2)
 */
#include "core/kernels/rope.h"

#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "autograd/ops/heads_impl.h"
#include "autograd/tape_impl.h"

enum { DEFAULT_BASE = 10000 };

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls__head_sizes s      = {0};
    ls_status      status = ls__head_sizes_of(call, &s);
    double         base   = call->attr.f[0];

    if (status)
        return status;
    if (s.d % 2 || s.d == 0)
        return ls_fail(LS_ESHAPE, "rope: heads of size %lld, want an even size",
                       (long long)s.d);
    if (!(base > 0))
        return ls_fail(LS_EINVAL, "rope: base %g, want more than 0", base);
    plan->aux_bytes = (size_t)(s.t * s.d) * sizeof(ls_real);
    return ls__infer_like(call, plan);
}

static ls_rope_args arguments_of(const ls_node *call)
{
    const ls_shape *shape = &call->in[0]->shape;
    int64_t turned = call->attr.i[0] + call->attr.i[1], heads = turned + call->attr.i[1];

    return (ls_rope_args){.batch  = shape->dim[0],
                          .time   = shape->dim[1],
                          .heads  = heads,
                          .turned = turned,
                          .size   = shape->dim[2] / heads,
                          .table  = ls_aux(call)};
}

static void forward(ls_node *call)
{
    ls_rope_args a = arguments_of(call);

    ls_k_rope_table(ls_aux(call), a.time, a.size, call->attr.f[0]);
    if (ls__is_bf16(call->in[0]))
        ls_k_rope_bf16(ls_halves(call->out), ls_halves(call->in[0]), &a);
    else
        ls_k_rope(ls_reals(call->out), ls_reals(call->in[0]), &a);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    ls_rope_args a = arguments_of(call);

    if (din[0].data)
        ls_k_rope_backward(din[0].data, dout, &a, din[0].add);
}

const ls_op ls_op_rope = {
    .name = "rope", .n_in = 1, .infer = infer, .forward = forward, .backward = backward};

ls_tensor *ls_rope(ls_tape *tape, ls_tensor *qkv, const ls_heads *heads)
{
    if (!heads)
        return ls__tape_null(tape, "rope: heads");
    ls_attr attr = ls__heads_attr(heads);

    attr.f[0] = heads->rope_base != 0 ? heads->rope_base : DEFAULT_BASE;
    return ls_tape_apply(tape, &ls_op_rope, &qkv, 1, &attr);
}

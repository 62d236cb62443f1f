/*
 * rope.c - rotary positions for the query and key heads of a packed projection.
 *
 *     qkv (B,T,(n_head + 2 n_kv_head) * D);  aux: cosines and sines (T,2,D/2)
 */
#include "core/kernels/rope.h"

#include "autograd/op_impl.h"
#include "autograd/ops.h"

enum { DEFAULT_BASE = 10000 };

/* attr.i: n_head, n_kv_head;  attr.f: base.  Accepted by infer before sizes are taken. */
static ls_rope_args arguments_of(const ls_node *call)
{
    const ls_shape *shape = &call->in[0]->shape;
    int64_t         heads = call->attr.i[0] + 2 * call->attr.i[1];

    return (ls_rope_args){.batch  = shape->dim[0],
                          .time   = shape->dim[1],
                          .heads  = heads,
                          .turned = call->attr.i[0] + call->attr.i[1],
                          .size   = shape->dim[2] / heads,
                          .table  = call->aux ? call->aux->data : NULL};
}

static ls_status check_heads(const ls_node *call)
{
    const ls_shape *shape  = &call->in[0]->shape;
    long long       n_head = call->attr.i[0], n_kv_head = call->attr.i[1];
    ls_shape_text   text;

    if (n_head < 1 || n_kv_head < 1 || n_head % n_kv_head)
        return ls_fail(LS_EINVAL, "rope: %lld heads, %lld key and value heads", n_head,
                       n_kv_head);
    long long heads = n_head + 2 * n_kv_head;
    if (shape->ndim != 3 || shape->dim[2] == 0 || shape->dim[2] % (2 * heads))
        return ls_fail(
            LS_ESHAPE,
            "rope: %s, want (B,T,%lld * D), D even: %lld query, %lld key, %lld value "
            "heads",
            ls_shape_print(shape, &text), heads, n_head, n_kv_head, n_kv_head);
    return LS_OK;
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_status status = ls__infer_same(call, plan);

    if (!status)
        status = check_heads(call);
    if (status)
        return status;
    if (!(call->attr.f[0] > 0))
        return ls_fail(LS_EINVAL, "rope: base %g, want more than 0", call->attr.f[0]);
    ls_rope_args a  = arguments_of(call);
    plan->aux_bytes = (size_t)(a.time * a.size) * sizeof(ls_real);
    return LS_OK;
}

static void forward(ls_node *call)
{
    ls_rope_args a = arguments_of(call);

    ls_k_rope_table(call->aux->data, a.time, a.size, call->attr.f[0]);
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
    ls_attr attr = {.i = {heads->n_head, heads->n_kv_head ? heads->n_kv_head : heads->n_head},
                    .f = {heads->rope_base != 0 ? heads->rope_base : DEFAULT_BASE}};
    return ls_tape_apply(tape, &ls_op_rope, &qkv, 1, &attr);
}

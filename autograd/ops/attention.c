/*
 * attention.c - causal attention over a packed projection.
 */
#include "core/kernels/attention.h"
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "autograd/ops/heads_impl.h"
#include "autograd/tape_impl.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls__head_sizes s;
    ls_status      status = ls__head_sizes_of(call, &s);
    double         p      = call->attr.f[0];

    if (status)
        return status;
    if (!(p >= 0 && p < 1))
        return ls_fail(LS_EINVAL, "attention: dropout %g, want 0 <= p < 1", p);
    plan->shape     = LS_SHAPE3(s.b, s.t, s.h * s.d);
    plan->dtype     = call->in[0]->dtype;
    plan->aux_bytes = (size_t)(s.b * s.h * s.t) * sizeof(ls_real);
    if (ls__is_bf16(call->in[0])) {
        ls_attention_args a          = {.b = s.b, .t = s.t, .h = s.h, .k = s.k, .d = s.d};
        plan->forward_scratch_bytes  = ls_k_attention_bf16_scratch(&a);
        plan->backward_scratch_bytes = plan->forward_scratch_bytes;
    }
    return LS_OK;
}

typedef struct {
    ls_attention_bf16_args half; /* with a in it, which is all that f32 has */
    ls_dropout_args        dropout;
} arguments;

static void arguments_of(const ls_node *call, arguments *x)
{
    ls__head_sizes s;

    (void)ls__head_sizes_of(call, &s); /* infer has accepted them */
    x->dropout = (ls_dropout_args){call->random.seed, call->random.step,
                                   call->random.first_sequence, call->site, call->attr.f[0]};
    bool drops = call->training && call->attr.f[0] > 0;
    x->half    = (ls_attention_bf16_args){.a       = {.b       = s.b,
                                                      .t       = s.t,
                                                      .h       = s.h,
                                                      .k       = s.k,
                                                      .d       = s.d,
                                                      .lse     = ls_aux(call),
                                                      .dropout = drops ? &x->dropout : NULL},
                                          .scratch = call->scratch};
    if (ls__is_bf16(call->in[0])) {
        x->half.qkv16 = ls_halves(call->in[0]);
        x->half.out16 = ls_halves(call->out);
    } else {
        x->half.a.qkv = ls_reals(call->in[0]);
        x->half.a.out = ls_reals(call->out);
    }
}

static void forward(ls_node *call)
{
    arguments x;

    arguments_of(call, &x);
    if (ls__is_bf16(call->in[0]))
        ls_k_attention_bf16(&x.half);
    else
        ls_k_attention(&x.half.a);
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    arguments x;

    arguments_of(call, &x);
    if (din[0].data && ls__is_bf16(call->in[0]))
        ls_k_attention_bf16_backward(&x.half, dout, din[0].data, din[0].add);
    else if (din[0].data)
        ls_k_attention_backward(&x.half.a, dout, din[0].data, din[0].add);
}

const ls_op ls_op_attention = {.name     = "attention",
                               .n_in     = 1,
                               .infer    = infer,
                               .forward  = forward,
                               .backward = backward,
                               .saves    = LS_SAVE_IN0 | LS_SAVE_OUT,
                               .random   = true};

ls_tensor *ls_attention(ls_tape *tape, ls_tensor *qkv, const ls_heads *heads)
{
    if (!heads)
        return ls__tape_null(tape, "attention: heads");
    ls_attr attr = ls__heads_attr(heads);

    attr.f[0] = heads->dropout;
    return ls_tape_apply(tape, &ls_op_attention, &qkv, 1, &attr);
}

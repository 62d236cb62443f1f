/*
 * head_cross_entropy.c - the head's product and the cross-entropy in one, in chunks of rows.
 *
 * N tokens, C channels, V vocabulary.  A chunk's logits exist only while the chunk is worked
 * on; backward forms them again from x, W and the log-sum-exp that forward kept:
 *
 *     dlogits = (softmax(x W^T) - onehot) dout,   dx = dlogits W,   dW = sum of dlogits^T x
 *
 * Chunk sizes depend on the shapes alone, chunks follow each other in row order.
 */
#include "autograd/ops.h"
#include "autograd/ops/targets_impl.h"
#include "core/kernels/gemm.h"
#include "core/kernels/softmax.h"
#include "core/thread.h"

enum { X, W, TARGETS };

enum {
    CHUNK_ELEMENTS = 1 << 20,
    CHUNK_ROWS     = 64
}; /* of logits at once; at least so many rows */

typedef struct {
    int64_t n, c, v, rows; /* rows of a chunk */
} sizes;

static sizes sizes_of(const ls_node *call)
{
    const ls_shape *w    = &call->in[W]->shape;
    int64_t         n    = ls_tensor_numel(call->in[TARGETS]);
    int64_t         rows = w->dim[0] ? CHUNK_ELEMENTS / w->dim[0] : 1;

    rows = rows > CHUNK_ROWS ? rows : CHUNK_ROWS;
    return (sizes){n, w->dim[1], w->dim[0], rows < n ? rows : n};
}

/* Rows of x and the targets' number must agree. */
static bool fits(const ls_node *call)
{
    const ls_shape *x = &call->in[X]->shape, *w = &call->in[W]->shape;

    return x->ndim > 0 && w->ndim == 2 && x->dim[x->ndim - 1] == w->dim[1] &&
           ls_tensor_numel(call->in[TARGETS]) * w->dim[1] == ls_tensor_numel(call->in[X]);
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_shape_text x, w, t;

    if (call->in[X]->dtype != LS_REAL || call->in[W]->dtype != LS_REAL ||
        call->in[TARGETS]->dtype != LS_I32 || !fits(call))
        return ls_fail(
            LS_ESHAPE, "head_cross_entropy: x %s %s, weight %s %s, targets %s %s",
            ls_dtype_name(call->in[X]->dtype), ls_shape_print(&call->in[X]->shape, &x),
            ls_dtype_name(call->in[W]->dtype), ls_shape_print(&call->in[W]->shape, &w),
            ls_dtype_name(call->in[TARGETS]->dtype),
            ls_shape_print(&call->in[TARGETS]->shape, &t));
    sizes s         = sizes_of(call);
    plan->shape     = LS_SHAPE0;
    plan->dtype     = LS_REAL;
    plan->aux_bytes = (size_t)s.n * sizeof(double);
    plan->forward_scratch_bytes =
        (size_t)s.rows * ((size_t)s.v * sizeof(ls_real) + sizeof(double));
    plan->backward_scratch_bytes = (size_t)(s.rows * s.v) * sizeof(ls_real);
    return ls__check_targets(call, call->in[TARGETS], s.v);
}

/* logits of the rows of a chunk, (b.end - b.first, V) */
static void chunk_logits(const ls_node *call, const sizes *s, ls_block b, ls_real *logits)
{
    ls_gemm(&(ls_gemm_args){.transpose_b = true,
                            .m           = b.end - b.first,
                            .n           = s->v,
                            .k           = s->c,
                            .alpha       = 1,
                            .a           = ls_reals(call->in[X]) + b.first * s->c,
                            .lda         = s->c,
                            .b           = ls_reals(call->in[W]),
                            .ldb         = s->c,
                            .c           = logits,
                            .ldc         = s->v});
}

static ls_scored scored_chunk(const ls_node *call, const sizes *s, ls_block b,
                              const ls_real *logits)
{
    return (ls_scored){logits, ls_ints(call->in[TARGETS]) + b.first, (int32_t)call->attr.i[0],
                       b.end - b.first, s->v};
}

static void forward(ls_node *call)
{
    sizes    s    = sizes_of(call);
    double  *loss = call->scratch, *lse = call->aux->data, total = 0;
    ls_real *logits = (ls_real *)(loss + s.rows);

    for (int64_t i = 0; i < ls_block_count(s.n, s.rows); i++) {
        ls_block b = ls_block_at(s.n, s.rows, i);
        chunk_logits(call, &s, b, logits);
        ls_scored rows = scored_chunk(call, &s, b, logits);
        ls_k_cross_entropy(loss, lse + b.first, &rows);
        total = ls_k_add_losses(total, loss, b.end - b.first);
    }
    ls_reals(call->out)[0] = (ls_real)total;
    call->out->wide        = total;
    call->out->is_wide     = true;
}

static void chunk_gradients(const ls_node *call, const sizes *s, ls_block b,
                            const ls_real *dlogits, const ls_grad *din)
{
    if (din[X].data)
        ls_gemm(&(ls_gemm_args){.m     = b.end - b.first,
                                .n     = s->c,
                                .k     = s->v,
                                .alpha = 1,
                                .a     = dlogits,
                                .lda   = s->v,
                                .b     = ls_reals(call->in[W]),
                                .ldb   = s->c,
                                .beta  = din[X].add,
                                .c     = din[X].data + b.first * s->c,
                                .ldc   = s->c});
    if (din[W].data)
        ls_gemm(&(ls_gemm_args){.transpose_a = true,
                                .m           = s->v,
                                .n           = s->c,
                                .k           = b.end - b.first,
                                .alpha       = 1,
                                .a           = dlogits,
                                .lda         = s->v,
                                .b           = ls_reals(call->in[X]) + b.first * s->c,
                                .ldb         = s->c,
                                .beta        = b.first > 0 || din[W].add,
                                .c           = din[W].data,
                                .ldc         = s->c});
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    sizes         s      = sizes_of(call);
    ls_real      *logits = call->scratch;
    const double *lse    = call->aux->data;

    for (int64_t i = 0; i < ls_block_count(s.n, s.rows); i++) {
        ls_block b = ls_block_at(s.n, s.rows, i);
        chunk_logits(call, &s, b, logits);
        ls_scored rows = scored_chunk(call, &s, b, logits);
        ls_k_cross_entropy_backward(logits, lse + b.first, &rows, dout[0], false);
        chunk_gradients(call, &s, b, logits, din);
    }
}

const ls_op ls_op_head_cross_entropy = {.name     = "head_cross_entropy",
                                        .n_in     = 3,
                                        .infer    = infer,
                                        .forward  = forward,
                                        .backward = backward,
                                        .saves    = LS_SAVE_IN0 | LS_SAVE_IN1 | LS_SAVE_IN2};

ls_tensor *ls_head_cross_entropy(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *targets,
                                 int32_t ignore)
{
    return ls_tape_apply(tape, &ls_op_head_cross_entropy, (ls_tensor *[]){x, w, targets}, 3,
                         &(ls_attr){.i = {ignore}});
}

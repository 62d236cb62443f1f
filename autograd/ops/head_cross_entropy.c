/*
 * head_cross_entropy.c - the head's product and the cross-entropy in one, in chunks of rows.
 *
 * N tokens, C channels, V vocabulary.  A chunk's logits exist only while the chunk is worked
 * on.  Where gradients are wanted, forward forms them from the same chunk, for dout = 1; so
 * nothing is computed twice and backward only hands them over (see ls_plan's early):
 *
 *     dlogits = softmax(x W^T) - onehot,   dx = dlogits W,   dW = sum of dlogits^T x
 *
 * Chunk sizes depend on the shapes alone, chunks follow each other in row order.
 *
 * With a BF16 W the operands of all three products are BF16; logits are ls_real, and dlogits
 * take their place as BF16, V of them at the start of each row.
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/gemm.h"
#include "core/kernels/gemm_bf16.h"
#include "core/kernels/softmax.h"
#include "core/thread.h"

enum { X, W, TARGETS };

enum {
    CHUNK_ELEMENTS = 1 << 24, /* logits at once, about */
    CHUNK_ROWS     = 64       /* at least; fewer, and a product wastes time on packing W */
};

typedef struct {
    int64_t n, c, v, rows; /* rows of a chunk */
} sizes;

/* Chunks of equal size, as far as that goes. */
int64_t ls_head_chunk_rows(int64_t tokens, int64_t classes)
{
    int64_t all;
    if (__builtin_mul_overflow(tokens, classes, &all))
        all = INT64_MAX - CHUNK_ELEMENTS;
    int64_t chunks = ls_block_count(all, CHUNK_ELEMENTS);
    int64_t rows   = chunks ? ls_block_count(tokens, chunks) : 1;

    rows = rows > CHUNK_ROWS ? rows : CHUNK_ROWS;
    return tokens > 0 && tokens < rows ? tokens : rows;
}

static sizes sizes_of(const ls_node *call)
{
    int64_t v = call->in[W]->shape.dim[0], n = ls_tensor_numel(call->in[TARGETS]);

    return (sizes){n, call->in[W]->shape.dim[1], v, ls_head_chunk_rows(n, v)};
}

/* Without rows there is one chunk without rows, which writes gradients of zero. */
static int64_t chunks_of(const sizes *s)
{
    return s->n ? ls_block_count(s->n, s->rows) : 1;
}

/* Rows of x and the targets' number must agree. */
static bool fits(const ls_node *call)
{
    const ls_shape *x = &call->in[X]->shape, *w = &call->in[W]->shape;

    return x->ndim > 0 && w->ndim == 2 && x->dim[x->ndim - 1] == w->dim[1] &&
           ls_tensor_numel(call->in[TARGETS]) == ls__rows(call->in[X]);
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    ls_shape_text x, w, t;

    if ((call->in[W]->dtype != LS_REAL && call->in[W]->dtype != LS_BF16) ||
        call->in[X]->dtype != call->in[W]->dtype || call->in[TARGETS]->dtype != LS_I32 ||
        !fits(call))
        return ls_fail(
            LS_ESHAPE, "head_cross_entropy: x %s %s, weight %s %s, targets %s %s",
            ls_dtype_name(call->in[X]->dtype), ls_shape_print(&call->in[X]->shape, &x),
            ls_dtype_name(call->in[W]->dtype), ls_shape_print(&call->in[W]->shape, &w),
            ls_dtype_name(call->in[TARGETS]->dtype),
            ls_shape_print(&call->in[TARGETS]->shape, &t));
    sizes  s   = sizes_of(call);
    size_t row = (size_t)s.v * sizeof(ls_real) + 2 * sizeof(double);

    plan->shape                 = LS_SHAPE0;
    plan->dtype                 = LS_REAL;
    plan->early                 = LS_SAVE_IN0 | LS_SAVE_IN1;
    plan->forward_scratch_bytes = (size_t)s.rows * row;
    return ls__check_targets(call, TARGETS, s.v, (int32_t)call->attr.i[0]);
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

static void chunk_gradients(const ls_node *call, const sizes *s, ls_block b,
                            const ls_real *dlogits)
{
    if (call->early[X])
        ls_gemm(&(ls_gemm_args){.m     = b.end - b.first,
                                .n     = s->c,
                                .k     = s->v,
                                .alpha = 1,
                                .a     = dlogits,
                                .lda   = s->v,
                                .b     = ls_reals(call->in[W]),
                                .ldb   = s->c,
                                .c     = (ls_real *)call->early[X]->data + b.first * s->c,
                                .ldc   = s->c});
    if (call->early[W])
        ls_gemm(&(ls_gemm_args){.transpose_a = true,
                                .m           = s->v,
                                .n           = s->c,
                                .k           = b.end - b.first,
                                .alpha       = 1,
                                .a           = dlogits,
                                .lda         = s->v,
                                .b           = ls_reals(call->in[X]) + b.first * s->c,
                                .ldb         = s->c,
                                .beta        = b.first > 0,
                                .c           = call->early[W]->data,
                                .ldc         = s->c});
}

static void chunk_logits_bf16(const ls_node *call, const sizes *s, ls_block b, ls_real *logits)
{
    ls_gemm_bf16(&(ls_gemm_bf16_args){.transpose_b = true,
                                      .m           = b.end - b.first,
                                      .n           = s->v,
                                      .k           = s->c,
                                      .a           = ls_halves(call->in[X]) + b.first * s->c,
                                      .lda         = s->c,
                                      .b           = ls_halves(call->in[W]),
                                      .ldb         = s->c,
                                      .c           = logits,
                                      .ldc         = s->v});
}

/* Rows of dlogits lie as far apart as the logits did. */
static void chunk_gradients_bf16(const ls_node *call, const sizes *s, ls_block b,
                                 const uint16_t *dlogits)
{
    int64_t row = s->v * (int64_t)(sizeof(ls_real) / sizeof(uint16_t));

    if (call->early[X])
        ls_gemm_bf16(&(ls_gemm_bf16_args){.m   = b.end - b.first,
                                          .n   = s->c,
                                          .k   = s->v,
                                          .a   = dlogits,
                                          .lda = row,
                                          .b   = ls_halves(call->in[W]),
                                          .ldb = s->c,
                                          .c = (ls_real *)call->early[X]->data + b.first * s->c,
                                          .ldc = s->c});
    if (call->early[W])
        ls_gemm_bf16(&(ls_gemm_bf16_args){.transpose_a = true,
                                          .m           = s->v,
                                          .n           = s->c,
                                          .k           = b.end - b.first,
                                          .a           = dlogits,
                                          .lda         = row,
                                          .b   = ls_halves(call->in[X]) + b.first * s->c,
                                          .ldb = s->c,
                                          .add = b.first > 0,
                                          .c   = call->early[W]->data,
                                          .ldc = s->c});
}

/* One chunk's losses, joined to the total in row order, and its share of the gradients. */
static double run_chunk(ls_node *call, const sizes *s, ls_block b, double total)
{
    double   *loss = call->scratch, *lse = loss + s->rows;
    ls_real  *logits = (ls_real *)(lse + s->rows);
    ls_scored rows   = {logits, ls_ints(call->in[TARGETS]) + b.first, (int32_t)call->attr.i[0],
                        b.end - b.first, s->v};

    if (ls__is_bf16(call->in[W]))
        chunk_logits_bf16(call, s, b, logits);
    else
        chunk_logits(call, s, b, logits);
    if (!call->early[X] && !call->early[W]) {
        ls_k_cross_entropy(loss, lse, &rows);
    } else if (ls__is_bf16(call->in[W])) {
        ls_k_cross_entropy_gradient_bf16(loss, logits, &rows);
        chunk_gradients_bf16(call, s, b, (const uint16_t *)logits);
    } else {
        ls_k_cross_entropy_gradient(loss, logits, &rows);
        chunk_gradients(call, s, b, logits);
    }
    return ls_k_add_losses(total, loss, rows.rows);
}

static void forward(ls_node *call)
{
    sizes  s     = sizes_of(call);
    double total = 0;

    for (int64_t i = 0; i < chunks_of(&s); i++)
        total = run_chunk(call, &s, ls_block_at(s.n, s.rows, i), total);
    ls__set_wide(call->out, total);
}

const ls_op ls_op_head_cross_entropy = {
    .name = "head_cross_entropy", .n_in = 3, .infer = infer, .forward = forward};

ls_tensor *ls_head_cross_entropy(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *targets,
                                 int32_t ignore)
{
    if (x && w && w->dtype == LS_BF16)
        x = ls_cast(tape, x, LS_BF16);
    return ls_tape_apply(tape, &ls_op_head_cross_entropy, (ls_tensor *[]){x, w, targets}, 3,
                         &(ls_attr){.i = {ignore}});
}

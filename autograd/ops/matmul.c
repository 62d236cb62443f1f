/*
 * matmul.c - (...,m,k) x (...,k,n) -> (...,m,n), either side stored transposed.
 *
 *     A, B    the matrices as stored: A (m,k), or (k,m) with transpose_a; B (k,n), or (n,k)
 *     C       op(A) op(B);  dC its gradient
 *
 *     dA = dC op(B)^T,  transposed as A is;   dB = op(A)^T dC,  transposed as B is
 *
 * A B that serves a whole batch of untransposed A's is one product of batch * m rows.  In the
 * other shared cases the gradient of the shared side is summed over the batch in index order.
 */
#include <string.h>

#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "core/kernels/gemm.h"

typedef struct {
    bool    ta, tb;
    int64_t m, n, k, batch;
    int64_t step_a, step_b, step_c; /* between the matrices of a batch; 0: the same one */
} product;

static int64_t matrix_dim(const ls_tensor *t, int from_end)
{
    return t->shape.dim[t->shape.ndim - from_end];
}

static int64_t at_least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

static product product_of(const ls_node *call)
{
    const ls_tensor *a = call->in[0], *b = call->in[1];
    product          p = {.ta = call->attr.i[0], .tb = call->attr.i[1], .batch = 1};

    p.m = matrix_dim(a, p.ta ? 1 : 2);
    p.k = matrix_dim(a, p.ta ? 2 : 1);
    p.n = matrix_dim(b, p.tb ? 2 : 1);

    const ls_shape *leading = a->shape.ndim > 2 ? &a->shape : &b->shape;
    for (int i = 0; i < leading->ndim - 2; i++)
        p.batch *= leading->dim[i];
    if (b->shape.ndim == 2 && !p.ta) {
        p.m *= p.batch;
        p.batch = 1;
    }
    p.step_a = a->shape.ndim > 2 ? p.m * p.k : 0;
    p.step_b = b->shape.ndim > 2 ? p.k * p.n : 0;
    p.step_c = p.m * p.n;
    return p;
}

static ls_status mismatch(const ls_node *call)
{
    ls_shape_text a, b;

    return ls_fail(LS_ESHAPE, "matmul: %s%s x %s%s", ls_shape_print(&call->in[0]->shape, &a),
                   call->attr.i[0] ? "^T" : "", ls_shape_print(&call->in[1]->shape, &b),
                   call->attr.i[1] ? "^T" : "");
}

static bool shapes_fit(const ls_node *call)
{
    const ls_tensor *a = call->in[0], *b = call->in[1];
    int              na = a->shape.ndim, nb = b->shape.ndim;

    if (na < 2 || nb < 2)
        return false;
    if (matrix_dim(a, call->attr.i[0] ? 2 : 1) != matrix_dim(b, call->attr.i[1] ? 1 : 2))
        return false;
    return na == 2 || nb == 2 ||
           (na == nb &&
            !memcmp(a->shape.dim, b->shape.dim, (size_t)(na - 2) * sizeof *a->shape.dim));
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    const ls_tensor *a = call->in[0], *b = call->in[1];
    ls_status        status = ls__infer_same(call, plan);

    if (!status)
        status = ls__want_real(call, 1);
    if (status)
        return status;
    if (!shapes_fit(call))
        return mismatch(call);
    plan->shape                           = a->shape.ndim > 2 ? a->shape : b->shape;
    plan->shape.dim[plan->shape.ndim - 2] = matrix_dim(a, call->attr.i[0] ? 1 : 2);
    plan->shape.dim[plan->shape.ndim - 1] = matrix_dim(b, call->attr.i[1] ? 2 : 1);
    plan->saves = (a->requires_grad ? LS_SAVE_IN1 : 0) | (b->requires_grad ? LS_SAVE_IN0 : 0);
    return LS_OK;
}

static void forward(ls_node *call)
{
    product p = product_of(call);

    ls_gemm_batch(&(ls_gemm_args){.transpose_a = p.ta,
                                  .transpose_b = p.tb,
                                  .m           = p.m,
                                  .n           = p.n,
                                  .k           = p.k,
                                  .alpha       = 1,
                                  .a           = ls_reals(call->in[0]),
                                  .lda         = at_least_one(p.ta ? p.m : p.k),
                                  .b           = ls_reals(call->in[1]),
                                  .ldb         = at_least_one(p.tb ? p.k : p.n),
                                  .c           = ls_reals(call->out),
                                  .ldc         = at_least_one(p.n)},
                  p.batch, p.step_a, p.step_b, p.step_c);
}

/* Over the batch at once, or one product after another where all go to the same place. */
static void run(ls_gemm_args g, int64_t batch, int64_t step_a, int64_t step_b, int64_t step_c)
{
    if (step_c != 0 || batch == 1) {
        ls_gemm_batch(&g, batch, step_a, step_b, step_c);
        return;
    }
    for (int64_t i = 0; i < batch; i++) {
        ls_gemm(&g);
        g.a += step_a;
        g.b += step_b;
        g.beta = 1;
    }
}

/* not transposed: dA (m,k) = dC op(B)^T;  transposed: dA (k,m) = op(B) dC^T */
static void backward_a(const product *p, const ls_real *b, const ls_real *dc, const ls_grad *da)
{
    ls_gemm_args g  = {.alpha = 1, .beta = da->add, .c = da->data};
    int64_t      ld = at_least_one(p->tb ? p->k : p->n), ldc = at_least_one(p->n);

    g.k   = p->n;
    g.ldc = at_least_one(p->ta ? p->m : p->k);
    if (p->ta) {
        g.m = p->k, g.n = p->m;
        g.a = b, g.lda = ld, g.transpose_a = p->tb;
        g.b = dc, g.ldb = ldc, g.transpose_b = true;
        run(g, p->batch, p->step_b, p->step_c, p->step_a);
    } else {
        g.m = p->m, g.n = p->k;
        g.a = dc, g.lda = ldc;
        g.b = b, g.ldb = ld, g.transpose_b = !p->tb;
        run(g, p->batch, p->step_c, p->step_b, p->step_a);
    }
}

/* not transposed: dB (k,n) = op(A)^T dC;  transposed: dB (n,k) = dC^T op(A) */
static void backward_b(const product *p, const ls_real *a, const ls_real *dc, const ls_grad *db)
{
    ls_gemm_args g  = {.alpha = 1, .beta = db->add, .c = db->data};
    int64_t      ld = at_least_one(p->ta ? p->m : p->k), ldc = at_least_one(p->n);

    g.k   = p->m;
    g.ldc = at_least_one(p->tb ? p->k : p->n);
    if (p->tb) {
        g.m = p->n, g.n = p->k;
        g.a = dc, g.lda = ldc, g.transpose_a = true;
        g.b = a, g.ldb = ld, g.transpose_b = p->ta;
        run(g, p->batch, p->step_c, p->step_a, p->step_b);
    } else {
        g.m = p->k, g.n = p->n;
        g.a = a, g.lda = ld, g.transpose_a = !p->ta;
        g.b = dc, g.ldb = ldc;
        run(g, p->batch, p->step_a, p->step_c, p->step_b);
    }
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    product p = product_of(call);

    if (din[0].data)
        backward_a(&p, ls_reals(call->in[1]), dout, &din[0]);
    if (din[1].data)
        backward_b(&p, ls_reals(call->in[0]), dout, &din[1]);
}

const ls_op ls_op_matmul = {.name     = "matmul",
                            .n_in     = 2,
                            .infer    = infer,
                            .forward  = forward,
                            .backward = backward,
                            .saves    = LS_SAVE_IN0 | LS_SAVE_IN1};

ls_tensor *ls_matmul(ls_tape *tape, ls_tensor *a, ls_tensor *b, bool transpose_a,
                     bool transpose_b)
{
    return ls_tape_apply(tape, &ls_op_matmul, (ls_tensor *[]){a, b}, 2,
                         &(ls_attr){.i = {transpose_a, transpose_b}});
}

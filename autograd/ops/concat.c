/*
 * concat.c - tensors joined along one dimension.
 *
 * With everything before that dimension as rows, each input is a strip of columns of the
 * result:
 *
 *     out (rows,width) = [ in 0 (rows,w0) | in 1 (rows,w1) | ... ]
 *     w = size along dim times what follows it
 */
#include "autograd/op_impl.h"
#include "autograd/ops.h"
#include "autograd/tape_impl.h"
#include "core/kernels/strided.h"

/* Input i agrees with the first in all but the joined dimension. */
static ls_status check_input(const ls_node *call, int i, int dim)
{
    const ls_shape *a = &call->in[0]->shape, *b = &call->in[i]->shape;
    ls_shape        like = *a;
    ls_shape_text   ta, tb;

    if (a->ndim == b->ndim)
        like.dim[dim] = b->dim[dim];
    if (!ls_shape_equal(&like, b))
        return ls_fail(LS_ESHAPE, "concat: input %d is %s, input 0 is %s, joined dimension %d",
                       i, ls_shape_print(b, &tb), ls_shape_print(a, &ta), dim);
    return ls__want_real(call, i);
}

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    int       dim    = ls__dim(&call->in[0]->shape, call->attr.i[0]);
    ls_status status = ls__infer_same(call, plan);

    if (dim < 0)
        return ls_fail(LS_EINVAL, "concat: dimension %lld of tensors with %d",
                       (long long)call->attr.i[0], call->in[0]->shape.ndim);
    for (int i = 1; i < call->n_in && !status; i++) {
        status = check_input(call, i, dim);
        plan->shape.dim[dim] += call->in[i]->shape.dim[dim];
    }
    return status;
}

/* Rows and width of a tensor of this shape. */
static void strip_of(const ls_shape *shape, int dim, int64_t *size)
{
    size[0] = size[1] = 1;
    for (int i = 0; i < shape->ndim; i++)
        size[i >= dim] *= shape->dim[i];
}

static void forward(ls_node *call)
{
    int      dim = ls__dim(&call->out->shape, call->attr.i[0]);
    int64_t  all[2], part[2];
    ls_real *y = ls_reals(call->out);

    strip_of(&call->out->shape, dim, all);
    for (int i = 0; i < call->n_in; i++) {
        strip_of(&call->in[i]->shape, dim, part);
        ls_k_scatter_strided(y, ls_reals(call->in[i]), 2, part, (int64_t[]){all[1], 1}, false);
        y += part[1];
    }
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    int     dim = ls__dim(&call->out->shape, call->attr.i[0]);
    int64_t all[2], part[2];

    strip_of(&call->out->shape, dim, all);
    for (int i = 0; i < call->n_in; i++) {
        strip_of(&call->in[i]->shape, dim, part);
        if (din[i].data)
            ls_k_gather_strided(din[i].data, dout, 2, part, (int64_t[]){all[1], 1}, din[i].add);
        dout += part[1];
    }
}

const ls_op ls_op_concat = {
    .name = "concat", .n_in = -1, .infer = infer, .forward = forward, .backward = backward};

ls_tensor *ls_concat(ls_tape *tape, ls_tensor *const *x, int n, int dim)
{
    if (!x)
        return ls__tape_null(tape, "concat: the list of inputs");
    return ls_tape_apply(tape, &ls_op_concat, x, n, &(ls_attr){.i = {dim}});
}

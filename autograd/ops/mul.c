/*
 * mul.c - a * b, b repeated over a's leading dimensions.
 *
 * As rows: a (rows,n), b (n), with one row where the shapes are equal.
 */
#include "autograd/ops.h"
#include "autograd/ops/broadcast_impl.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

static ls_status infer(const ls_node *call, ls_plan *plan)
{
    const ls_tensor *a = call->in[0], *b = call->in[1];
    int64_t          rows   = ls__broadcast_rows(call);
    ls_status        status = ls__infer_broadcast(call, plan);

    if (status)
        return status;
    plan->saves = (a->requires_grad ? LS_SAVE_IN1 : 0) | (b->requires_grad ? LS_SAVE_IN0 : 0);
    if (b->requires_grad && rows != 1)
        plan->backward_scratch_bytes = ls_k_columns_scratch(rows, ls_tensor_numel(b));
    return LS_OK;
}

static void product(ls_real *y, const ls_real *x, const ls_real *b, int64_t rows, int64_t n,
                    bool add)
{
    if (rows == 1)
        ls_k_mul(y, x, b, n, add);
    else
        ls_k_mul_rows(y, x, b, rows, n, add);
}

static void forward(ls_node *call)
{
    product(ls_reals(call->out), ls_reals(call->in[0]), ls_reals(call->in[1]),
            ls__broadcast_rows(call), ls_tensor_numel(call->in[1]), false);
}

static void backward_b(const ls_node *call, const ls_real *dout, const ls_grad *db)
{
    int64_t        rows = ls__broadcast_rows(call), n = ls_tensor_numel(call->in[1]);
    const ls_real *a = ls_reals(call->in[0]);

    if (rows == 1)
        ls_k_mul(db->data, dout, a, n, db->add);
    else
        ls_k_columns(&(ls_columns){.y       = db->data,
                                   .a       = dout,
                                   .b       = a,
                                   .rows    = rows,
                                   .n       = n,
                                   .add     = db->add,
                                   .scratch = call->scratch});
}

static void backward(const ls_node *call, const ls_real *dout, ls_grad *din)
{
    if (din[0].data)
        product(din[0].data, dout, ls_reals(call->in[1]), ls__broadcast_rows(call),
                ls_tensor_numel(call->in[1]), din[0].add);
    if (din[1].data)
        backward_b(call, dout, &din[1]);
}

const ls_op ls_op_mul = {.name     = "mul",
                         .n_in     = 2,
                         .infer    = infer,
                         .forward  = forward,
                         .backward = backward,
                         .saves    = LS_SAVE_IN0 | LS_SAVE_IN1};

ls_tensor *ls_mul(ls_tape *tape, ls_tensor *a, ls_tensor *b)
{
    return ls_tape_apply(tape, &ls_op_mul, (ls_tensor *[]){a, b}, 2, NULL);
}

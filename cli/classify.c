/*
 * classify.c - rows to logits, logits to a loss and a count.
 */
#include "cli/classify.h"

#include "autograd/ops.h"
#include "nn/layers.h"

static int64_t largest(const ls_real *x, int64_t n)
{
    int64_t at = 0;

    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[at])
            at = i;
    return at;
}

static int64_t count_correct(const ls_tensor *logits, const ls_tensor *targets)
{
    int64_t        n = logits->shape.dim[0], classes = logits->shape.dim[1], correct = 0;
    const ls_real *row = ls_reals(logits);

    for (int64_t i = 0; i < n; i++)
        correct += largest(row + i * classes, classes) == ls_ints(targets)[i];
    return correct;
}

ls_tensor *ls_rows_loss(ls_module *model, ls_tape *tape, const ls_sampler *sampler, int64_t q,
                        int64_t n, int64_t *correct)
{
    const ls_table *rows    = sampler->rows;
    ls_tensor      *inputs  = ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(n, rows->features));
    ls_tensor      *targets = ls_tape_tensor(tape, LS_I32, LS_SHAPE1(n));

    if (!inputs || !targets)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        ls_ints(targets)[i] = ls_table_read(rows, ls_sampler_place(sampler, q + i),
                                            ls_reals(inputs) + i * rows->features);
    if (!correct)
        return ls_module_call_with(model, tape, inputs, targets);
    ls_tensor *logits = ls_module_call(model, tape, inputs);
    if (logits)
        *correct += count_correct(logits, targets);
    return ls_cross_entropy(tape, logits, targets, LS_IGNORE);
}

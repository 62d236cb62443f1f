/*
 * grad_norm.c - squares by rows, then exact.
 */
#include "optim/grad_norm.h"

#include <math.h>

#include "core/kernels/row_squares.h"

static ls_status add_squares(const ls_tensor *p, ls_exact_sum *sum)
{
    int64_t rows = ls_tensor_rows(p), n = ls_tensor_row_elements(p);
    size_t  bytes   = (size_t)rows * sizeof(double);
    double *squares = ls_mem_alloc(bytes, LS_MEM_OTHER);

    if (!squares)
        return LS_ENOMEM;
    ls_k_row_squares(squares, ls_tensor_grad(p), rows, n);
    for (int64_t r = 0; r < rows; r++)
        ls_exact_sum_add(sum, squares[r]);
    ls_mem_free(squares, bytes, LS_MEM_OTHER);
    return LS_OK;
}

ls_status ls_grad_squares(const ls_named_tensor *parameters, int n, ls_exact_sum *sum)
{
    ls_status status = LS_OK;

    for (int i = 0; i < n && !status; i++) {
        const ls_tensor *t = ls_tensor_owned(parameters[i].tensor);
        if (t->grad)
            status = add_squares(t, sum);
    }
    return status;
}

double ls_grad_largest(const ls_named_tensor *parameters, int n)
{
    double largest = 0;

    for (int i = 0; i < n; i++) {
        const ls_tensor *t = ls_tensor_owned(parameters[i].tensor);
        for (int64_t k = 0; t->grad && k < ls_tensor_numel(t); k++) {
            double size = fabs((double)ls_tensor_grad(t)[k]);
            if (!(size <= largest)) /* a NaN stays */
                largest = size;
            if (isnan(largest))
                return largest;
        }
    }
    return largest;
}

double ls_grad_norm(const ls_exact_sum *squares, double count)
{
    return sqrt(ls_exact_sum_round(squares)) / count;
}

double ls_clip_coefficient(double norm, double clip)
{
    return clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1;
}

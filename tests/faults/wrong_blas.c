/*
 * wrong_blas.c - a cblas_sgemm to be preloaded: plain loops, wrong for one product.
 *
 * LS_WRONG_PRODUCT names it as "m,n,k,a transposed,b transposed": its last element comes out by
 * one too large.  Any other text: all products are right, which shows that the shim itself is
 * not what is refused.
 */
#include <cblas.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_wrong(blasint m, blasint n, blasint k, bool ta, bool tb)
{
    const char *text = getenv("LS_WRONG_PRODUCT");
    char this[96];

    snprintf(this, sizeof this, "%ld,%ld,%ld,%d,%d", (long)m, (long)n, (long)k, ta, tb);
    for (const char *t = this; text; t++, text++)
        if (*t != *text)
            return false;
        else if (!*t)
            return true;
    return false;
}

/* The prototype of cblas.h has these eighteen parameters. */
void cblas_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta,
                 const enum CBLAS_TRANSPOSE tb, const blasint m, const blasint n,
                 const blasint k, const float alpha, const float *a, const blasint lda,
                 const float *b, const blasint ldb, const float beta, float *c,
                 const blasint ldc)
{
    (void)order;
    for (blasint i = 0; i < m; i++)
        for (blasint j = 0; j < n; j++) {
            float sum = 0;
            for (blasint p = 0; p < k; p++)
                sum += a[ta == CblasTrans ? p * lda + i : i * lda + p] *
                       b[tb == CblasTrans ? j * ldb + p : p * ldb + j];
            float *out = c + i * ldc + j;
            *out       = alpha * sum + (beta == 0.0f ? 0.0f : beta * *out);
        }
    if (is_wrong(m, n, k, ta == CblasTrans, tb == CblasTrans))
        c[(m - 1) * ldc + n - 1] += 1;
}

/*
 * compute.c - BLAS first, then the pool.
 */
#include "core/compute.h"

#include "core/alloc.h"
#include "core/kernels/gemm.h"
#include "core/kernels/gemm_bf16.h"
#include "core/thread.h"

ls_status ls_compute_start(int threads)
{
    if (threads < 0)
        return ls_fail(LS_EINVAL, "compute: %d threads, want 0 or more", threads);
    ls_blas_init();
    threads          = threads > 0 ? threads : ls_cpu_count();
    ls_status status = ls_blas_room(threads);
    if (!status)
        status = ls_blas_self_test();
    if (status)
        return status;
    ls_pool *pool = ls_pool_new(threads);
    if (!pool)
        return LS_ENOMEM;
    ls_pool_free(ls_pool_use(pool));
    return LS_OK;
}

void ls_compute_stop(void)
{
    ls_pool_free(ls_pool_use(NULL));
    ls_gemm_bf16_forget();
    ls_mem_trim();
}

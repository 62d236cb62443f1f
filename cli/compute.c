/*
 * compute.c - BLAS, threads and the memory limit, as a command needs them.
 */
#include "cli/train.h"
#include "core/alloc.h"
#include "core/kernels/gemm.h"
#include "core/thread.h"

ls_status ls_start_compute(const ls_config *cfg)
{
    ls_blas_init();
    ls_status status = ls_blas_self_test();
    if (status)
        return status;
    ls_pool *pool = ls_pool_new((int)cfg->run.threads);
    if (!pool)
        return LS_ENOMEM;
    ls_pool_use(pool);
    ls_mem_set_limit(cfg->run.memory_mb << 20);
    return LS_OK;
}

void ls_stop_compute(void)
{
    ls_pool_free(ls_pool_use(NULL));
    ls_mem_set_limit(0);
    ls_mem_trim();
}

ls_status ls_blame_config(ls_status status)
{
    return status == LS_EIO || status == LS_EFORMAT || status == LS_ESHAPE ||
                   status == LS_EINVAL
               ? LS_ECONFIG
               : status;
}

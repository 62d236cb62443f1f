/*
 * compute.c - BLAS, threads and the memory limit, as a command needs them.
 */
#include "core/compute.h"

#include <stdio.h>

#include "cli/train.h"
#include "core/alloc.h"
#include "core/kernels/gemm.h"
#include "core/kernels/gemm_bf16.h"

const char *ls_describe_kernels(const ls_config *cfg, char text[LS_KERNELS_TEXT])
{
    bool half = cfg->parallel.param_dtype == LS_CFG_DTYPE_BF16;

    snprintf(text, LS_KERNELS_TEXT, "%s%s%s", ls_blas_describe(), half ? "; bf16: " : "",
             half ? ls_gemm_bf16_describe() : "");
    return text;
}

ls_status ls_start_compute(const ls_config *cfg)
{
    ls_status status = ls_compute_start((int)cfg->run.threads);

    if (!status)
        ls_mem_set_limit(cfg->run.memory_mb << 20);
    return status;
}

void ls_stop_compute(void)
{
    ls_compute_stop();
    ls_mem_set_limit(0);
}

ls_status ls_blame_config(ls_status status)
{
    return status == LS_EIO || status == LS_EFORMAT || status == LS_ESHAPE ||
                   status == LS_EINVAL
               ? LS_ECONFIG
               : status;
}

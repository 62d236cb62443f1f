/*
 * strided.h - copies between strided and row-major arrays.
 *
 * dim holds the ndim sizes of both sides; strides count elements and may be 0 on the side that
 * is read.  One side is always row-major; the other's first element is where its pointer
 * points.
 */
#ifndef LS_CORE_KERNELS_STRIDED_H
#define LS_CORE_KERNELS_STRIDED_H

#include "core/dtype.h"

/* Row-major dst from strided src, elements of any dtype. */
void ls_k_copy_strided(void *dst, const void *src, size_t elem_bytes, int ndim,
                       const int64_t *dim, const int64_t *src_stride);

/* Row-major dst = (or +=, with add) strided src. */
void ls_k_gather_strided(ls_real *dst, const ls_real *src, int ndim, const int64_t *dim,
                         const int64_t *src_stride, bool add);

/* Strided dst = (or +=, with add) row-major src; other elements of dst stay as they are. */
void ls_k_scatter_strided(ls_real *dst, const ls_real *src, int ndim, const int64_t *dim,
                          const int64_t *dst_stride, bool add);

#endif

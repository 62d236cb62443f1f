/*
 * compare.h - two tensors of two open files, element by element.
 */
#ifndef LS_CLI_COMPARE_H
#define LS_CLI_COMPARE_H

#include "checkpoint/safetensors.h"

typedef struct {
    uint64_t count; /* elements whose bits differ */
    uint64_t first; /* the first of them, row-major; 0 when there is none */
    bool     has_distance;
    double   max_abs; /* largest |a - b|; NaN when one of them is; for dtypes of Lockstep */
    bool     has_ulps;
    uint64_t max_ulps; /* F32: values of the format between a and b, 2^32 when one is a NaN */
    char     a[32], b[32]; /* the first differing elements, printed; "" for other dtypes */
} ls_difference;

/* The tensors must have the same dtype and shape.  Reads through two buffers of 1 MiB. */
LS_MUST_CHECK ls_status ls_compare(const ls_safetensors *file_a, const ls_st_entry *a,
                                   const ls_safetensors *file_b, const ls_st_entry *b,
                                   ls_difference *difference);

#endif

/*
 * safetensors_write_impl.h - a file of tensors for who puts its checksums elsewhere.
 */
#ifndef LS_CHECKPOINT_SAFETENSORS_WRITE_IMPL_H
#define LS_CHECKPOINT_SAFETENSORS_WRITE_IMPL_H

#include <stdatomic.h>

#include "checkpoint/safetensors.h"

/* What else a writer may want to know, and to say. */
typedef struct {
    uint64_t          file_bytes, header_bytes;
    uint32_t          header_crc;
    uint64_t         *offset; /* [n] in the file, of each source as given */
    uint32_t         *crc;    /* [n] of its values */
    const atomic_int *stop;   /* LS_EINTERRUPTED soon after it becomes non-zero */
} ls_st_written;

/* ls_safetensors_write(), with the checksums of what was written, formed on the way. */
LS_MUST_CHECK ls_status ls__safetensors_write_checked(const char         *path,
                                                      const ls_st_source *tensors, size_t n,
                                                      const ls_st_metadata *pairs,
                                                      size_t n_pairs, ls_st_written *written);

#endif

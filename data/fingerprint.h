/*
 * fingerprint.h - is this the data file that it was?
 *
 * Size, and the CRC-32 of the whole file up to 64 MiB; of a larger one that of 64 blocks of
 * 64 KiB, spread evenly from its first byte to its last, in their order.  So it costs a
 * fraction of a second for any size, and catches another file, one that was cut or that grew,
 * and most edits; a small edit in the middle of a large file of the same size may be missed.
 */
#ifndef LS_DATA_FINGERPRINT_H
#define LS_DATA_FINGERPRINT_H

#include <stdint.h>

#include "core/error.h"

typedef struct {
    int64_t  bytes;
    uint32_t crc;
} ls_fingerprint;

/* Of the bytes as they lie in the file, compressed or not; zeros for what is no regular file.
 * LS_EIO. */
LS_MUST_CHECK ls_status ls_fingerprint_file(const char *path, ls_fingerprint *print);

#endif

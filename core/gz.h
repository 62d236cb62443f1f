/*
 * gz.h - whole files in memory, plain or gzip, blocks as zlib streams, and their checksum.
 *
 * Which of the two a file is, its first bytes say (1f 8b), not its name; but a file named
 * *.gz that does not start so is refused, because it has been cut or mistaken for another.
 */
#ifndef LS_CORE_GZ_H
#define LS_CORE_GZ_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Bytes that grow; {0} is an empty one.  The memory is ls_mem_alloc's (category other). */
typedef struct {
    unsigned char *data; /* NULL while capacity is 0 */
    size_t         size;
    size_t         capacity;
} ls_bytes;

/* Room for at least extra bytes behind the present ones, which stay as they are. */
LS_MUST_CHECK ls_status ls_bytes_reserve(ls_bytes *bytes, size_t extra);
void                    ls_bytes_free(ls_bytes *bytes); /* leaves {0} */

/*
 * Appends the content of a file to bytes, uncompressed; gzip may consist of several members.
 * LS_EIO: missing, unreadable or a directory.  LS_EFORMAT: gzip that is cut off, damaged
 * (checksum, length) or followed by anything else.  On failure bytes->size is unchanged.
 */
LS_MUST_CHECK ls_status ls_gz_read_file(const char *path, ls_bytes *bytes);

/* CRC-32 (gzip's) of data that goes on after data of checksum crc; 0 to begin with. */
uint32_t ls_crc32(uint32_t crc, const void *data, size_t bytes);

/* The CRC-32 of data of checksum a with `bytes_b` bytes of checksum b behind it. */
uint32_t ls_crc32_combine(uint32_t a, uint32_t b, uint64_t bytes_b);

/* The most bytes that ls_zlib_deflate() asks room for; 0: ENOMEM. */
size_t ls_zlib_bound(size_t bytes);

/* Appends data as one zlib stream (RFC 1950). */
LS_MUST_CHECK ls_status ls_zlib_deflate(const void *data, size_t bytes, ls_bytes *out);

/*
 * The other way, into exactly `size` bytes of the caller's: LS_EFORMAT, with the reason alone,
 * where the stream is damaged or holds another number of bytes; never writes beyond them.
 */
LS_MUST_CHECK ls_status ls_zlib_inflate(const void *data, size_t bytes, void *out, size_t size);

#endif

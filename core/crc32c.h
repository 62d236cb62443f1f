/*
 * crc32c.h - the checksum of Castagnoli's polynomial (RFC 3720, appendix B.4); zlib's is
 * another.
 */
#ifndef LS_CORE_CRC32C_H
#define LS_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of n bytes. */
uint32_t ls_crc32c(const void *data, size_t n);

#endif

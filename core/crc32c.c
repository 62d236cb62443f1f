/*
 * crc32c.c - bit by bit: it covers records of a few hundred bytes.
 */
#include "core/crc32c.h"

uint32_t ls_crc32c(const void *data, size_t n)
{
    const uint32_t       polynomial = 0x82f63b78; /* 0x1edc6f41, reflected */
    const unsigned char *byte       = data;
    uint32_t             crc        = ~UINT32_C(0);

    for (size_t i = 0; i < n; i++) {
        crc ^= byte[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    }
    return ~crc;
}

/*
 * sha256.h - SHA-256 (FIPS 180-4) over a stream of bytes.
 *
 *     ls_sha256 sha;
 *     ls_sha256_init(&sha);  ls_sha256_update(&sha, data, bytes);  ls_sha256_final(&sha, hex);
 *
 * The object is the caller's.  It is closed by ls_sha256_final(), or by ls_sha256_close() on
 * the way out of an error; closing twice is allowed.
 */
#ifndef LS_CORE_SHA256_H
#define LS_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { LS_SHA256_HEX = 65 }; /* 64 lower-case hex digits and a NUL */

typedef struct {
    void *context; /* libcrypto's; NULL while closed */
} ls_sha256;

LS_MUST_CHECK ls_status ls_sha256_init(ls_sha256 *sha);
LS_MUST_CHECK ls_status ls_sha256_update(ls_sha256 *sha, const void *data, size_t bytes);

/* Writes the digest and closes. */
LS_MUST_CHECK ls_status ls_sha256_final(ls_sha256 *sha, char hex[LS_SHA256_HEX]);
void                    ls_sha256_close(ls_sha256 *sha);

#endif

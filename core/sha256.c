/*
 * sha256.c - SHA-256 by libcrypto, which uses the processor's SHA instructions where it has
 * them.
 */
#include "core/sha256.h"

#include <openssl/evp.h>

ls_status ls_sha256_init(ls_sha256 *sha)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    sha->context = context;
    if (context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1)
        return LS_OK;
    ls_sha256_close(sha);
    return ls_fail(LS_ENOMEM, "libcrypto gives no SHA-256");
}

ls_status ls_sha256_update(ls_sha256 *sha, const void *data, size_t bytes)
{
    if (!bytes || EVP_DigestUpdate(sha->context, data, bytes) == 1)
        return LS_OK;
    return ls_fail(LS_ESTATE, "SHA-256 of %zu bytes failed in libcrypto", bytes);
}

ls_status ls_sha256_final(ls_sha256 *sha, char hex[LS_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char     digest[EVP_MAX_MD_SIZE];
    unsigned          bytes = 0;
    int               done  = EVP_DigestFinal_ex(sha->context, digest, &bytes);

    ls_sha256_close(sha);
    if (done != 1 || bytes != (LS_SHA256_HEX - 1) / 2)
        return ls_fail(LS_ESTATE, "SHA-256 could not be finished in libcrypto");
    for (unsigned i = 0; i < bytes; i++) {
        hex[2 * i]     = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[LS_SHA256_HEX - 1] = '\0';
    return LS_OK;
}

void ls_sha256_close(ls_sha256 *sha)
{
    EVP_MD_CTX_free(sha->context);
    sha->context = NULL;
}

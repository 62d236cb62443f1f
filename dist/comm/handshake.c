#define _DEFAULT_SOURCE /* getentropy */
/*
 * handshake.c - proofs between ranks that meet: HMAC-SHA-256 by libcrypto.
 */
#include "dist/comm/handshake_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "core/alloc.h"

enum { LABEL = 16 };

static const char labels[][LABEL] = {"guest: proof", "host: welcome", "host: go",
                                     "host: table",  "guest: tried",  "host: ways"};

ls_status ls__random(void *bytes, size_t n)
{
    if (getentropy(bytes, n))
        return ls_fail(LS_EIO, "no random numbers from the system: %s", strerror(errno));
    return LS_OK;
}

ls_status ls__seal(const ls__session *s, ls__mac_of what, const void *data, size_t n,
                   unsigned char mac[LS__MAC])
{
    size_t         front = LABEL + sizeof s->host + sizeof s->guest;
    unsigned char *all   = ls_calloc(1, front + n);
    unsigned       bytes = 0;

    if (!all)
        return LS_ENOMEM;
    memcpy(all, labels[what], LABEL);
    memcpy(all + LABEL, s->host, sizeof s->host);
    memcpy(all + LABEL + sizeof s->host, s->guest, sizeof s->guest);
    memcpy(all + front, data, n);
    bool done = HMAC(EVP_sha256(), s->secret, (int)strlen(s->secret), all, front + n, mac,
                     &bytes) != NULL;
    free(all);
    return done && bytes == LS__MAC ? LS_OK
                                    : ls_fail(LS_ENOMEM, "libcrypto gives no HMAC-SHA-256");
}

bool ls__same_secret(const void *a, const void *b, size_t n)
{
    return !CRYPTO_memcmp(a, b, n);
}

bool ls__sealed(const ls__session *s, ls__mac_of what, const void *data, size_t n,
                const unsigned char mac[LS__MAC])
{
    unsigned char due[LS__MAC];

    return !ls__seal(s, what, data, n, due) && ls__same_secret(due, mac, LS__MAC);
}

ls_status ls__verdict_make(const ls__session *s, ls__mac_of what, ls__verdict_code code,
                           ls_status status, const char *text, ls__verdict *verdict)
{
    *verdict = (ls__verdict){
        .magic = LS__HANDSHAKE_MAGIC, .code = (uint32_t)code, .status = (uint32_t)status};
    snprintf(verdict->text, sizeof verdict->text, "%s", text);
    return ls__seal(s, what, verdict, offsetof(ls__verdict, mac), verdict->mac);
}

bool ls__verdict_holds(const ls__session *s, ls__mac_of what, const ls__verdict *verdict)
{
    return verdict->magic == LS__HANDSHAKE_MAGIC && verdict->status < LS_STATUS_COUNT &&
           ls__sealed(s, what, verdict, offsetof(ls__verdict, mac), verdict->mac) &&
           verdict->text[LS__VERDICT_TEXT - 1] == '\0';
}

/*
 * test_handshake.c - proofs: HMAC-SHA-256 against its definition (RFC 2104), written here once
 * more over SHA-256; and every change of a message, a role, a nonce or the secret is seen.
 */
#include <stdlib.h>

#include "core/alloc.h"
#include "core/sha256.h"
#include "dist/comm/handshake_impl.h"
#include "test.h"

static void unhex(const char *hex, unsigned char *bytes)
{
    for (int i = 0; i < 32; i++) {
        char byte[3] = {hex[2 * i], hex[2 * i + 1], 0};
        bytes[i]     = (unsigned char)strtoul(byte, NULL, 16);
    }
}

static void hash(const void *a, size_t n, const void *b, size_t m, unsigned char out[32])
{
    ls_sha256 sha;
    char      hex[LS_SHA256_HEX] = "";

    CHECK_OK(ls_sha256_init(&sha));
    CHECK_OK(ls_sha256_update(&sha, a, n));
    CHECK_OK(ls_sha256_update(&sha, b, m));
    CHECK_OK(ls_sha256_final(&sha, hex));
    unhex(hex, out);
}

static void hmac(const char *key, const void *data, size_t n, unsigned char out[32])
{
    unsigned char block[64] = {0}, inner[64], outer[64], middle[32];

    if (strlen(key) > sizeof block)
        hash(key, strlen(key), "", 0, block);
    else
        memcpy(block, key, strlen(key));
    for (int i = 0; i < 64; i++) {
        inner[i] = block[i] ^ 0x36;
        outer[i] = block[i] ^ 0x5c;
    }
    hash(inner, 64, data, n, middle);
    hash(outer, 64, middle, 32, out);
}

static ls__session session_of(const char *secret)
{
    ls__session s = {.secret = secret};

    for (int i = 0; i < LS__NONCE; i++) {
        s.host[i]  = (unsigned char)i;
        s.guest[i] = (unsigned char)(100 + i);
    }
    return s;
}

static void check_definition(void)
{
    static const char *const secrets[] = {
        "", "abc",
        "a key that is longer than one block of SHA-256, which is sixty-four bytes, is hashed"};
    char                data[200];
    const unsigned char label[16] = "guest: tried";

    memset(data, 'd', sizeof data);
    for (int i = 0; i < 3; i++) {
        ls__session   s = session_of(secrets[i]);
        unsigned char all[16 + 64 + sizeof data], due[32], got[32];
        TEST_ROW(secrets[i]);
        memcpy(all, label, 16);
        memcpy(all + 16, s.host, 32);
        memcpy(all + 48, s.guest, 32);
        memcpy(all + 80, data, sizeof data);
        hmac(secrets[i], all, sizeof all, due);
        CHECK_OK(ls__seal(&s, LS__OF_TRIED, data, sizeof data, got));
        CHECK_BITS(due, got, 32);
        CHECK(ls__sealed(&s, LS__OF_TRIED, data, sizeof data, due));
    }
}

static void check_changes(void)
{
    ls__session   s        = session_of("secret"), other;
    unsigned char data[40] = "what is said", mac[LS__MAC];

    CHECK_OK(ls__seal(&s, LS__OF_PROOF, data, sizeof data, mac));
    TEST_ROW("as it was");
    CHECK(ls__sealed(&s, LS__OF_PROOF, data, sizeof data, mac));
    TEST_ROW("another role");
    for (int w = LS__OF_WELCOME; w <= LS__OF_WAYS; w++)
        CHECK(!ls__sealed(&s, (ls__mac_of)w, data, sizeof data, mac));
    TEST_ROW("a bit of the message");
    for (size_t i = 0; i < 8 * sizeof data; i++) {
        data[i / 8] ^= (unsigned char)(1 << i % 8);
        CHECK(!ls__sealed(&s, LS__OF_PROOF, data, sizeof data, mac));
        data[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    TEST_ROW("a bit of the mac");
    for (int i = 0; i < 8 * LS__MAC; i++) {
        mac[i / 8] ^= (unsigned char)(1 << i % 8);
        CHECK(!ls__sealed(&s, LS__OF_PROOF, data, sizeof data, mac));
        mac[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    TEST_ROW("a byte less");
    CHECK(!ls__sealed(&s, LS__OF_PROOF, data, sizeof data - 1, mac));
    TEST_ROW("a nonce");
    other = s;
    other.host[31] ^= 1;
    CHECK(!ls__sealed(&other, LS__OF_PROOF, data, sizeof data, mac));
    other = s;
    other.guest[0] ^= 1;
    CHECK(!ls__sealed(&other, LS__OF_PROOF, data, sizeof data, mac));
    TEST_ROW("nonces changed over");
    memcpy(other.host, s.guest, LS__NONCE);
    memcpy(other.guest, s.host, LS__NONCE);
    CHECK(!ls__sealed(&other, LS__OF_PROOF, data, sizeof data, mac));
    TEST_ROW("the secret");
    other        = s;
    other.secret = "secres";
    CHECK(!ls__sealed(&other, LS__OF_PROOF, data, sizeof data, mac));
}

static void check_verdicts(void)
{
    ls__session s = session_of("secret");
    ls__verdict v;
    char        text[2 * LS__VERDICT_TEXT];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    TEST_ROW("verdict");
    CHECK_OK(ls__verdict_make(&s, LS__OF_GO, LS__FAILED, LS_ETIMEOUT, text, &v));
    CHECK(ls__verdict_holds(&s, LS__OF_GO, &v));
    CHECK(strlen(v.text) == LS__VERDICT_TEXT - 1 && v.code == LS__FAILED);
    CHECK(!ls__verdict_holds(&s, LS__OF_WELCOME, &v));
    v.code = LS__GO;
    CHECK(!ls__verdict_holds(&s, LS__OF_GO, &v));
    TEST_ROW("verdict whose text does not end");
    CHECK_OK(ls__verdict_make(&s, LS__OF_GO, LS__FAILED, LS_ETIMEOUT, text, &v));
    v.text[LS__VERDICT_TEXT - 1] = 'x';
    CHECK_OK(ls__seal(&s, LS__OF_GO, &v, offsetof(ls__verdict, mac), v.mac));
    CHECK(!ls__verdict_holds(&s, LS__OF_GO, &v));
}

static void check_memory(void)
{
    ls__session   s = session_of("secret");
    unsigned char mac[LS__MAC], data[8] = "";

    TEST_ROW("no memory");
    CHECK_OK(ls__seal(&s, LS__OF_PROOF, data, sizeof data, mac));
    ls_alloc_fail_after(0);
    CHECK(ls__seal(&s, LS__OF_PROOF, data, sizeof data, mac) == LS_ENOMEM);
    ls_alloc_fail_after(0);
    CHECK(!ls__sealed(&s, LS__OF_PROOF, data, sizeof data, mac));
    ls_alloc_fail_after(-1);
}

static void check_random(void)
{
    unsigned char a[32], b[32];

    TEST_ROW("random");
    CHECK_OK(ls__random(a, sizeof a));
    CHECK_OK(ls__random(b, sizeof b));
    CHECK(memcmp(a, b, sizeof a) != 0);
}

int main(void)
{
    check_definition();
    check_changes();
    check_verdicts();
    check_memory();
    check_random();
    return test_summary("handshake");
}

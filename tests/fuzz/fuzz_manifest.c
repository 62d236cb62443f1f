/*
 * fuzz_manifest.c - manifests that nobody vouches for.
 *
 * An input is a manifest's text without its own CRC-32, which is put behind it here: a mutation
 * would hardly ever get it right.  Whatever is accepted must be what manifest.h promises, and
 * print to a text that is read back as the same.  With libFuzzer:
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -D_POSIX_C_SOURCE=200809L -I. -Itests \
 *         tests/fuzz/fuzz_manifest.c checkpoint/manifest.c checkpoint/manifest_parse.c \
 *         checkpoint/json_scan.c checkpoint/safetensors_dtype.c core/dtype.c core/utf8.c \
 *         core/alloc.c core/error.c core/gz.c core/strbuf.c -o fuzz -pthread -lz
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"
#include "core/alloc.h"
#include "core/gz.h"
#include "fuzz/fuzz.h"

#define HEAD                                                                                 \
    "{\"lockstep_checkpoint\":1,\"step\":7,\"world_size\":2,\"strategy\":\"ddp\",\"codec\":" \
    "\"none\",\"state\":\"{}\",\"config\":\"{}\",\"tokenizer\":\"{}\","
#define FILES                                                                         \
    "\"files\":[{\"name\":\"a.st\",\"bytes\":32,\"header_bytes\":8,\"header_crc32\":" \
    "\"00000001\"}],"
#define CHUNK \
    "{\"file\":0,\"first\":0,\"rows\":3,\"offset\":8,\"bytes\":24,\"crc32\":\"0000000a\"}"
#define TENSOR \
    "{\"name\":\"w\",\"kind\":\"parameter\",\"dtype\":\"F32\",\"shape\":[3,2],\"chunks\":["

const char *const fuzz_seeds[] = {
    HEAD FILES "\"tensors\":[" TENSOR CHUNK "]}]",
    HEAD
    "\"files\":[{\"name\":\"a\",\"bytes\":16,\"header_bytes\":8,\"header_crc32\":"
    "\"00000001\"},{\"name\":\"b\",\"bytes\":16,\"header_bytes\":0,\"header_crc32\":"
    "\"00000000\"}],\"tensors\":[" TENSOR
    "{\"file\":1,\"first\":1,\"rows\":2,\"offset\":0,\"bytes\":16,\"crc32\":\"00000000\"},"
    "{\"file\":0,\"first\":0,\"rows\":1,\"offset\":8,\"bytes\":8,\"crc32\":\"00000000\"}]},"
    "{\"name\":\"e\",\"kind\":\"optimizer\",\"dtype\":\"I64\",\"shape\":[0],\"chunks\":[]}]",
    "{\"codec\":\"zlib\",\"lockstep_checkpoint\":1,\"step\":0,\"world_size\":1,\"strategy\":"
    "\"\",\"state\":\"\",\"config\":\"\\u00e9\",\"tokenizer\":\"\\\\\",\"x\":[{}],"
    "\"files\":[{\"name\":\"z\",\"bytes\":9,\"header_bytes\":0,\"header_crc32\":\"0000ffff\"}],"
    "\"tensors\":[{\"chunks\":[{\"file\":0,\"first\":0,\"rows\":1,\"offset\":0,\"stored\":9,"
    "\"bytes\":8,\"crc32\":\"00000000\"}],\"name\":\"s\",\"kind\":\"buffer\",\"dtype\":\"F64\","
    "\"shape\":[]}]",
    NULL,
};

const char *const fuzz_words[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\u0077",
    "0",
    "1",
    "2",
    "3",
    "8",
    "-1",
    "1.0",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "4294967296",
    "\"../a\"",
    "\"/a\"",
    "\"name\":\"w\"",
    "\"BF16\"",
    "\"F64\"",
    "\"zlib\"",
    "\"stored\":8,",
    "\"shape\":[4294967296,4294967296],",
    "null",
    "\xc3",
    CHUNK ",",
    TENSOR CHUNK "]},",
    FILES,
    NULL,
};

static void expect(bool holds)
{
    if (!holds)
        abort();
}

/* Tensors are unique and sorted, their chunks tile them and name files that are there. */
static void check(const ls_manifest *m)
{
    uint64_t stored = 0, held = 0;

    for (size_t i = 0; i < m->n_tensors; i++) {
        const ls_manifest_tensor *t    = &m->tensor[i];
        uint64_t                  rows = 0;
        expect(*t->name && (!i || strcmp(t[-1].name, t->name) < 0));
        for (size_t k = t->first_chunk; k < t->first_chunk + t->n_chunks; k++) {
            const ls_manifest_chunk *c = &m->chunk[k];
            expect(c->tensor == i && c->file < m->n_files && c->first == rows && c->rows);
            expect(c->bytes == c->rows * t->row_bytes);
            expect(c->offset >= m->file[c->file].header_bytes);
            expect(c->offset + c->stored <= m->file[c->file].bytes);
            rows += c->rows;
            stored += c->stored;
        }
        expect(rows == (t->row_bytes ? t->rows : 0));
        expect(ls_manifest_find(m, t->name) == t);
    }
    for (size_t i = 0; i < m->n_files; i++) {
        expect(!strchr(m->file[i].name, '/') && m->file[i].name[0] != '.');
        held += m->file[i].bytes - m->file[i].header_bytes;
    }
    expect(stored == held);
}

static void check_print(ls_manifest *m)
{
    ls_manifest again;
    char       *text = ls_manifest_print(m);

    expect(text && ls_manifest_parse(text, strlen(text), "again", &again) == LS_OK);
    expect(again.crc == m->crc && again.n_chunks == m->n_chunks && again.step == m->step);
    ls_manifest_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_manifest m;
    char       *text = ls_calloc(size + 32, 1), *own;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    size_t n =
        size + (size_t)sprintf(text + size, ",\"crc32\":\"%08x\"}\n", ls_crc32(0, data, size));
    own = ls_calloc(n, 1); /* of its own size, so that a read beyond it shows */
    if (own) {
        memcpy(own, text, n);
        ls_status status = ls_manifest_parse(own, n, "f", &m);
        expect(status == LS_OK || status == LS_EFORMAT);
        if (!status) {
            check(&m);
            check_print(&m);
            ls_manifest_free(&m);
        }
    }
    free(own);
    free(text);
    return 0;
}

/*
 * fuzz_safetensors.c - headers of safetensors files that nobody vouches for.
 *
 * An input is one byte, the data's size in the file, and the header's text.  (The 8 bytes of
 * the header's length are left out: a mutation would hardly ever get them right.)  Whatever is
 * accepted must tile the data.  With libFuzzer:
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -D_POSIX_C_SOURCE=200809L -I. -Itests \
 *         tests/fuzz/fuzz_safetensors.c checkpoint/json_scan.c checkpoint/safetensors_dtype.c \
 *         checkpoint/safetensors_header.c core/alloc.c core/error.c -o fuzz -pthread
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "core/alloc.h"
#include "fuzz/fuzz.h"

#define TENSOR "{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]"

const char *const fuzz_seeds[] = {
    "\x18{\"t\":" TENSOR "}}",
    "\x18{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\\u00e9\"},\"t\":" TENSOR "}}   ",
    "\x1c{\"t\":" TENSOR
    "},\"\\ud83d\\ude00\":{\"shape\":[],\"dtype\":\"F32\",\"data_offsets\":[24,28]}}",
    "\x18{\"z\":{\"dtype\":\"F4\",\"shape\":[0,7],\"data_offsets\":[0,0]},\"t\":" TENSOR
    ",\"x\":[1.5e-3,{\"y\":null}]}}",
    "\x02{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},\"a\":{\"dtype\":"
    "\"BOOL\","
    "\"shape\":[1,1],\"data_offsets\":[0,1]}}",
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
    "\\ud800",
    "\\udc00",
    "\\n",
    "\"t\"",
    "\"dtype\"",
    "0",
    "1",
    "-1",
    "1.0",
    "1e9",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "\"shape\"",
    "\"data_offsets\"",
    "\"__metadata__\"",
    "null",
    "true",
    "\xc3",
    "\xa9",
    "\xef\xbb\xbf",
    "[0,0]",
    "[0,24]",
    "[24,28]",
    "\"F64\"",
    "\"F6_E2M3\"",
    " ",
    TENSOR "}",
    NULL,
};

static void expect(bool holds)
{
    if (!holds)
        abort();
}

/* Entries have sizes that fit and unique names, and together they are all of the data. */
static void check_header(const ls_st_header *h)
{
    uint64_t total = 0;

    for (size_t i = 0; i < h->n_entries; i++) {
        const ls_st_entry *e = &h->entry[i];
        uint64_t           bytes;
        expect(e->begin <= e->end && e->end <= h->data_bytes);
        expect(ls_st_bytes(e->dtype, e->dim, e->ndim, &bytes) == LS_OK);
        expect(bytes == e->end - e->begin && *e->name && strlen(e->name) <= LS_ST_MAX_NAME);
        expect(!i || strcmp(h->entry[i - 1].name, e->name) < 0);
        total += bytes;
    }
    expect(total == h->data_bytes);
    for (size_t i = 0; i < h->n_pairs; i++)
        expect(h->pair[i].value[h->pair[i].value_bytes] == '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_st_header h;
    size_t       length = size ? size - 1 : 0;
    char        *text   = ls_calloc(length, 1);

    if (!text)
        return 0;
    if (length)
        memcpy(text, data + 1, length);
    ls_status status =
        ls_st_header_parse("f", text, length, 8 + length + (size ? data[0] : 0u), &h);
    expect(status == LS_OK || status == LS_EFORMAT);
    if (status)
        return 0;
    check_header(&h);
    ls_st_header_free(&h);
    return 0;
}

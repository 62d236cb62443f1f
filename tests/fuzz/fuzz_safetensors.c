/*
 * fuzz_safetensors.c - headers of safetensors files that nobody vouches for.
 *
 * An input is one byte, the data's size in the file, and the header's text.  (The 8 bytes of
 * the header's length are left out: a mutation would hardly ever get them right.)  Whatever is
 * accepted must tile the data.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "core/alloc.h"
#include "fuzz/fuzz.h"

/* Entries have sizes that fit and unique names, and together they are all of the data. */
static void check_header(const ls_st_header *h)
{
    uint64_t total = 0;

    for (size_t i = 0; i < h->n_entries; i++) {
        const ls_st_entry *e = &h->entry[i];
        uint64_t           bytes;
        fuzz_expect(e->begin <= e->end && e->end <= h->data_bytes);
        fuzz_expect(ls_st_bytes(e->dtype, e->dim, e->ndim, &bytes) == LS_OK);
        fuzz_expect(bytes == e->end - e->begin && *e->name &&
                    strlen(e->name) <= LS_ST_MAX_NAME);
        fuzz_expect(!i || strcmp(h->entry[i - 1].name, e->name) < 0);
        total += bytes;
    }
    fuzz_expect(total == h->data_bytes);
    for (size_t i = 0; i < h->n_pairs; i++)
        fuzz_expect(h->pair[i].value[h->pair[i].value_bytes] == '\0');
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
    fuzz_expect(status == LS_OK || status == LS_EFORMAT);
    if (status)
        return 0;
    check_header(&h);
    ls_st_header_free(&h);
    return 0;
}

/*
 * fuzz_zlib.c - compressed chunks that nobody vouches for.
 *
 * An input is a zlib stream, taken for one of 0 to 64 bytes (a byte of the input says how
 * many). Nothing is ever written beyond them, and a stream that is accepted has all of them.
 * The seeds are streams of stored blocks, so that a mutation of their text is seen by the
 * format.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/gz.h"
#include "fuzz/fuzz.h"

enum { MOST = 64 };

/* There and back, of the input itself. */
static void round_trip(const uint8_t *data, size_t size)
{
    ls_bytes packed = {0};
    char    *out    = ls_calloc(size + 1, 1);

    fuzz_expect(out && ls_zlib_deflate(data, size, &packed) == LS_OK);
    fuzz_expect(ls_zlib_inflate(packed.data, packed.size, out, size) == LS_OK);
    fuzz_expect(!size || !memcmp(out, data, size));
    fuzz_expect(ls_zlib_inflate(packed.data, packed.size, out, size + 1) == LS_EFORMAT);
    fuzz_expect(!size ||
                ls_zlib_inflate(packed.data, packed.size, out, size - 1) == LS_EFORMAT);
    ls_bytes_free(&packed);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t wanted = size ? data[0] % (MOST + 1) : 0;
    char  *out    = ls_calloc(wanted ? wanted : 1, 1);

    fuzz_expect(out != NULL);
    ls_status status = ls_zlib_inflate(data + (size > 0), size ? size - 1 : 0, out, wanted);
    fuzz_expect(status == LS_OK || status == LS_EFORMAT);
    free(out);
    round_trip(data, size);
    return 0;
}

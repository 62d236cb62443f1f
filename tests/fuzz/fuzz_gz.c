/*
 * fuzz_gz.c - files that may be gzip and that nobody vouches for.
 *
 * An input is a file.  A plain one is read as it is; what is accepted of a gzip one is what its
 * members hold, no more than deflate can make of so many bytes (1032 of each).
 */
#include <string.h>

#include "core/gz.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path  = fuzz_file(0, data, size);
    ls_bytes    bytes = {0};
    bool        gzip  = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;

    if (fuzz_accepted(ls_gz_read_file(path, &bytes))) {
        fuzz_expect(gzip ? bytes.size <= 1032 * size : bytes.size == size);
        fuzz_expect(gzip || !size || !memcmp(bytes.data, data, size));
    } else {
        fuzz_expect(gzip && !bytes.size);
    }
    ls_bytes_free(&bytes);
    return 0;
}

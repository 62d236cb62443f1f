/*
 * fuzz.h - a fuzz target: one function that tries one input.
 *
 *     fuzz_<target>.c           the target; its header says what an input is and what must hold
 *     seeds/<target>/           valid inputs to start from, and those that once found a fault
 *     seeds/<target>.dict       words that inputs are made of, in libFuzzer's format
 *     corpus/<target>.tar.gz    what libFuzzer has found from there: an input for each new path
 *
 * CMakeLists.txt in this folder builds the targets by clang with libFuzzer, run.py runs them
 * so. In every other build a target links with fuzz_driver.c and is an ordinary program that
 * tries its seeds and a fixed sequence of mutations of them.
 *
 * Blocks are of exactly the size that was asked for (fuzz_alloc.c), so that AddressSanitizer
 * sees the first byte beyond one.
 */
#ifndef LS_TESTS_FUZZ_H
#define LS_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/error.h"

/* Tries one input; returns 0.  A wrong result ends the program by abort(). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_expect(bool holds)
{
    if (!holds)
        abort();
}

/* Accepted, or refused for what the bytes say, in words; true when accepted. */
static inline bool fuzz_accepted(ls_status status)
{
    if (status)
        fuzz_expect(status != LS_ENOMEM && status != LS_EIO && *ls_error_message());
    return !status;
}

/*
 * The path of a file in memory of those bytes; it is the same for the same slot (0 to 3), whose
 * former bytes are gone.
 */
const char *fuzz_file(int slot, const void *data, size_t size);

/*
 * A directory in which names[slot] is the file of that slot, NULL behind the last; made at the
 * first call, removed when the program ends.
 */
const char *fuzz_directory(const char *const *names);

/* A part of an input, which ends with it or at a NUL. */
typedef struct {
    const uint8_t *text;
    size_t         bytes;
} fuzz_part;

/* Takes the first part and the NUL behind it. */
fuzz_part fuzz_next_part(fuzz_part *rest);

/* The bytes and a NUL, in memory of its own size; freed with free(). */
char *fuzz_text(const uint8_t *data, size_t size);

#endif

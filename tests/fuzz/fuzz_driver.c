/*
 * fuzz_driver.c - mutates the seeds of a target, the same way every time.
 *
 *     fuzz_<target> [INPUTS [SEED]]
 *
 * Each input is a seed after one to eight edits.  It has memory of its own size, so that
 * AddressSanitizer and valgrind see any read beyond it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum { CAPACITY = 4096 };

static uint64_t state;

/* xorshift64*, below n. */
static size_t draw(size_t n)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (size_t)((state * 0x2545f4914f6cdd1dULL) >> 32) % n;
}

static size_t count(const char *const *list)
{
    size_t n = 0;

    while (list[n])
        n++;
    return n;
}

/* Puts n bytes in at a place, as far as there is room. */
static size_t insert(uint8_t *input, size_t size, size_t at, const void *bytes, size_t n)
{
    if (size + n > CAPACITY)
        return size;
    memmove(input + at + n, input + at, size - at);
    memcpy(input + at, bytes, n);
    return size + n;
}

static size_t cut(uint8_t *input, size_t size, size_t at, size_t n)
{
    n = n < size - at ? n : size - at;
    memmove(input + at, input + at + n, size - at - n);
    return size - n;
}

/* One edit: change a bit or a byte, cut, double a run, put a word in or over. */
static size_t edit(uint8_t *input, size_t size)
{
    uint8_t     run[16];
    size_t      at   = draw(size + 1);
    const char *word = fuzz_words[draw(count(fuzz_words))];
    size_t      n    = draw(sizeof run) + 1;

    switch (size ? draw(6) : 4) {
    case 0:
        input[at % size] ^= (uint8_t)(1u << draw(7));
        return size;
    case 1:
        input[at % size] = (uint8_t)draw(128);
        return size;
    case 2:
        return cut(input, size, at % size, n);
    case 3:
        at %= size;
        n = n < size - at ? n : size - at;
        memcpy(run, input + at, n);
        return insert(input, size, draw(size + 1), run, n);
    case 4:
        return insert(input, size, at, word, strlen(word));
    default:
        size = cut(input, size, at % size, strlen(word));
        return insert(input, size, at < size ? at : size, word, strlen(word));
    }
}

static void try_copy(const uint8_t *input, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);

    if (!exact)
        abort();
    memcpy(exact, input, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv)
{
    long   inputs = argc > 1 ? strtol(argv[1], NULL, 10) : 200000;
    size_t seeds  = count(fuzz_seeds);

    state = argc > 2 ? strtoull(argv[2], NULL, 10) | 1 : 1;
    for (long i = 0; i < inputs; i++) {
        uint8_t     input[CAPACITY];
        const char *seed = fuzz_seeds[draw(seeds)];
        size_t      size = strlen(seed), edits = (size_t)i < seeds ? 0 : draw(8) + 1;
        memcpy(input, seed, size);
        while (edits--)
            size = edit(input, size);
        try_copy(input, size);
    }
    printf("%ld inputs\n", inputs);
    return 0;
}

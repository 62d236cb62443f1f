/*
 * fuzz_driver.c - a target as an ordinary program: its seeds, and mutations of them, the same
 * ones every time.
 *
 *     fuzz_<target> SEEDS DICTIONARY [INPUTS [NUMBER]]
 *     fuzz_<target> FILE
 *
 * Tries every file of the folder SEEDS and then INPUTS (100,000) mutated ones, or one FILE.  A
 * mutation is one to eight edits, with words out of the DICTIONARY (libFuzzer's format: a
 * quoted word a line); NUMBER chooses another sequence.  An input has memory of its own size,
 * so that AddressSanitizer and valgrind see any read beyond it.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum { CAPACITY = 16384, MOST_SEEDS = 64, MOST_WORDS = 128, LONGEST_WORD = 128 };

typedef struct {
    uint8_t *bytes;
    size_t   size;
} input;

static struct {
    uint64_t state;
    input    seed[MOST_SEEDS], word[MOST_WORDS];
    size_t   seeds, words;
} driver;

/* xorshift64*, below n. */
static size_t draw(size_t n)
{
    driver.state ^= driver.state >> 12;
    driver.state ^= driver.state << 25;
    driver.state ^= driver.state >> 27;
    return (size_t)((driver.state * 0x2545f4914f6cdd1dULL) >> 32) % n;
}

/* ---- reading ---- */

static input read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    input x    = {malloc(CAPACITY), 0};

    if (!file || !x.bytes) {
        perror(path);
        exit(1);
    }
    x.size = fread(x.bytes, 1, CAPACITY, file);
    fclose(file);
    return x;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void read_seeds(const char *folder)
{
    struct dirent **entry;
    char            path[1024];
    int             n = scandir(folder, &entry, NULL, by_name);

    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (entry[i]->d_name[0] != '.' && driver.seeds < MOST_SEEDS)
            driver.seed[driver.seeds++] = read_file(path);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
}

/* The word of a line "...", with \", \\ and \xNN inside; false where it has none. */
static bool parse_word(const char *line, input *word)
{
    unsigned byte;
    int      taken;

    if (*line++ != '"')
        return false;
    *word = (input){malloc(LONGEST_WORD), 0};
    fuzz_expect(word->bytes != NULL);
    for (; *line && *line != '"' && word->size < LONGEST_WORD; line += taken) {
        byte  = (unsigned char)line[*line == '\\'];
        taken = 1 + (*line == '\\');
        if (!strncmp(line, "\\x", 2) && sscanf(line + 2, "%2x", &byte) == 1)
            taken = 4;
        word->bytes[word->size++] = (uint8_t)byte;
    }
    return true;
}

static void read_words(const char *path)
{
    char  line[4 * LONGEST_WORD];
    FILE *file = fopen(path, "r");

    if (!file) {
        perror(path);
        exit(1);
    }
    while (driver.words < MOST_WORDS && fgets(line, sizeof line, file))
        driver.words += parse_word(line, &driver.word[driver.words]);
    fclose(file);
}

/* ---- mutations ---- */

/* Puts n bytes in at a place, as far as there is room. */
static void insert(input *x, size_t at, const void *bytes, size_t n)
{
    if (x->size + n > CAPACITY)
        return;
    memmove(x->bytes + at + n, x->bytes + at, x->size - at);
    memcpy(x->bytes + at, bytes, n);
    x->size += n;
}

static void cut(input *x, size_t at, size_t n)
{
    n = n < x->size - at ? n : x->size - at;
    memmove(x->bytes + at, x->bytes + at + n, x->size - at - n);
    x->size -= n;
}

/* One edit: change a bit or a byte, cut, double a run, put a word in or over. */
static void edit(input *x)
{
    uint8_t      run[16];
    size_t       at   = draw(x->size + 1);
    const input *word = &driver.word[draw(driver.words)];
    size_t       n    = draw(sizeof run) + 1;

    switch (x->size ? draw(6) : 4) {
    case 0:
        x->bytes[at % x->size] ^= (uint8_t)(1u << draw(8));
        return;
    case 1:
        x->bytes[at % x->size] = (uint8_t)draw(256);
        return;
    case 2:
        cut(x, at % x->size, n);
        return;
    case 3:
        at %= x->size;
        n = n < x->size - at ? n : x->size - at;
        memcpy(run, x->bytes + at, n);
        insert(x, draw(x->size + 1), run, n);
        return;
    case 4:
        insert(x, at, word->bytes, word->size);
        return;
    default:
        cut(x, at % x->size, word->size);
        insert(x, at < x->size ? at : x->size, word->bytes, word->size);
    }
}

/* ---- the whole ---- */

static void try_copy(const input *x)
{
    uint8_t *exact = malloc(x->size ? x->size : 1);

    fuzz_expect(exact != NULL);
    memcpy(exact, x->bytes, x->size);
    LLVMFuzzerTestOneInput(exact, x->size);
    free(exact);
}

static void try_mutations(long inputs)
{
    uint8_t bytes[CAPACITY];

    for (long i = 0; i < inputs; i++) {
        const input *seed = &driver.seed[draw(driver.seeds)];
        input        x    = {bytes, seed->size};
        memcpy(bytes, seed->bytes, seed->size);
        for (size_t edits = draw(8) + 1; edits; edits--)
            edit(&x);
        try_copy(&x);
    }
}

int main(int argc, char **argv)
{
    long inputs = argc > 3 ? strtol(argv[3], NULL, 10) : 100000;

    driver.state = argc > 4 ? strtoull(argv[4], NULL, 10) | 1 : 1;
    if (argc == 2)
        driver.seed[driver.seeds++] = read_file(argv[1]);
    else if (argc > 2) {
        read_seeds(argv[1]);
        read_words(argv[2]);
    }
    for (size_t i = 0; i < driver.seeds; i++)
        try_copy(&driver.seed[i]);
    if (driver.words && driver.seeds)
        try_mutations(inputs);
    for (size_t i = 0; i < driver.seeds; i++)
        free(driver.seed[i].bytes);
    for (size_t i = 0; i < driver.words; i++)
        free(driver.word[i].bytes);
    printf("%zu seeds, %zu words, %ld inputs\n", driver.seeds, driver.words, inputs);
    return driver.seeds == 0 || (argc > 2 && driver.words == 0);
}

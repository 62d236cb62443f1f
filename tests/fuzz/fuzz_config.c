/*
 * fuzz_config.c - mutated configs: nothing crashes, what loads prints a config that loads.
 *
 * LLVMFuzzerTestOneInput is libFuzzer's entry (compile with -fsanitize=fuzzer and
 * -DLS_LIBFUZZER).  Without it this is a driver of its own: it mutates the files named as
 * arguments by a fixed generator, so that every run tries the same texts.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What loads must print as a config that loads and prints the same. */
static void check_again(const ls_config *cfg)
{
    ls_config again;
    char     *first = ls_config_json(cfg), *second = NULL;

    if (!first || ls_config_parse(&again, first, "again", NULL, 0)) {
        fprintf(stderr, "%s\n%s\n", ls_error_message(), first ? first : "");
        abort();
    }
    second = ls_config_json(&again);
    if (!second || strcmp(first, second) != 0)
        abort();
    free(first);
    free(second);
    ls_config_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_config cfg;
    char     *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size]      = 0;
    const char *set = text + strlen(text) / 2; /* its second half as a --set, too */
    if (ls_config_parse(&cfg, text, "fuzz", NULL, 0) == LS_OK) {
        check_again(&cfg);
        ls_config_free(&cfg);
    } else if (!*ls_error_message()) {
        abort();
    }
    if (ls_config_parse(&cfg, "{}", "fuzz", &set, 1) == LS_OK)
        abort();
    free(text);
    return 0;
}

#ifndef LS_LIBFUZZER

enum { ROUNDS = 6000, LARGEST = 8192 };

static uint64_t state = 0x9E3779B97F4A7C15u;

static size_t below(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return n ? (size_t)(state % n) : 0;
}

/* Replaces n bytes at `at` by the text, where it fits. */
static size_t splice(char *text, size_t size, size_t at, size_t n, const char *by)
{
    size_t extra = strlen(by);

    if (at + n > size || size - n + extra > LARGEST)
        return size;
    memmove(text + at + extra, text + at + n, size - at - n);
    memcpy(text + at, by, extra);
    return size - n + extra;
}

static size_t mutate(char *text, size_t size)
{
    static const char *const words[] = {"\"",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "0",
                                        "-",
                                        "1e5",
                                        "1.0",
                                        "null",
                                        "true",
                                        "\"auto\"",
                                        "\\u",
                                        "\\ud800",
                                        "\xff",
                                        "\xC3",
                                        "//",
                                        "\n",
                                        "e",
                                        "\"gpt\"",
                                        "\"mlp\"",
                                        "1e999",
                                        "\"a\":",
                                        "[1, 2]",
                                        "0.5",
                                        "\"rope\"",
                                        " ",
                                        "\"n_layer\"",
                                        "999999999999999999999",
                                        "3",
                                        "16",
                                        "false"};

    size_t at = below(size + 1);
    switch (below(4)) {
    case 0:
        return splice(text, size, at, 0, words[below(sizeof words / sizeof *words)]);
    case 1:
        return splice(text, size, at, below(12), "");
    case 2:
        return splice(text, size, at, below(6), words[below(sizeof words / sizeof *words)]);
    default:
        if (at < size)
            text[at] = (char)(text[at] ^ (1 << below(8)));
        return size;
    }
}

static int fuzz_file(const char *path)
{
    static char seed[LARGEST], text[LARGEST];
    FILE       *file = fopen(path, "rb");

    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(seed, 1, sizeof seed, file);
    fclose(file);
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = size;
        memcpy(text, seed, size);
        for (size_t edits = 1 + below(3); edits; edits--)
            n = mutate(text, n);
        LLVMFuzzerTestOneInput((const uint8_t *)text, n);
    }
    printf("fuzz_config: %d texts from %s\n", ROUNDS, path);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = argc < 2;

    for (int i = 1; i < argc; i++)
        failed |= fuzz_file(argv[i]);
    return failed;
}

#endif

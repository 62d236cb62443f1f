/*
 * pieces.c - where GPT-2's pattern cuts a text.
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * (Radford et al. 2019, encoder.py.)  The alternatives are tried in this order at the place
 * where the last piece ended; every character is in some piece.
 */
#include <string.h>

#include "core/utf8.h"
#include "data/bpe_impl.h"
#include "data/unicode_impl.h"

ls__unicode_class ls__unicode_class_of(uint32_t point)
{
    int low = 0, high = ls__unicode_n_ranges - 1;

    while (low <= high) {
        int                      middle = (low + high) / 2;
        const ls__unicode_range *r      = &ls__unicode_ranges[middle];
        if (point < r->first)
            high = middle - 1;
        else if (point > r->last)
            low = middle + 1;
        else
            return r->kind;
    }
    return LS__OTHER;
}

/* Class of the character at the start, and its bytes; size is at least 1. */
static ls__unicode_class next_class(const unsigned char *text, size_t size, size_t *bytes)
{
    uint32_t      point;
    unsigned char c = text[0], letter = c | 0x20;

    *bytes = 1;
    if (letter >= 'a' && letter <= 'z')
        return LS__LETTER;
    if (c < 0x80)
        return c >= '0' && c <= '9'                   ? LS__NUMBER
               : c == ' ' || (c >= '\t' && c <= '\r') ? LS__SPACE
                                                      : LS__OTHER;
    *bytes = ls_utf8_next(text, size, &point);
    return ls__unicode_class_of(point);
}

/* Bytes of the characters of one class from the start on. */
static size_t run_length(const unsigned char *text, size_t size, ls__unicode_class kind)
{
    size_t n = 0, bytes;

    while (n < size && next_class(text + n, size - n, &bytes) == kind)
        n += bytes;
    return n;
}

static size_t contraction_length(const unsigned char *text, size_t size)
{
    static const char one[] = "stmd", two[][3] = {"re", "ve", "ll"};

    if (size < 2 || text[0] != '\'')
        return 0;
    if (text[1] && strchr(one, text[1]))
        return 2;
    for (size_t i = 0; i < sizeof two / sizeof *two && size > 2; i++)
        if (!memcmp(text + 1, two[i], 2))
            return 3;
    return 0;
}

/* White space leaves its last character to what follows, unless it is the only one. */
static size_t space_length(const unsigned char *text, size_t size)
{
    size_t n = 0, last = 0, bytes;

    while (n < size && next_class(text + n, size - n, &bytes) == LS__SPACE) {
        last = n;
        n += bytes;
    }
    return n < size && last ? last : n;
}

size_t ls__piece_length(const unsigned char *text, size_t size)
{
    size_t n = contraction_length(text, size), bytes, space = text[0] == ' ' && size > 1;

    if (n)
        return n;
    ls__unicode_class kind = next_class(text + space, size - space, &bytes);
    if (kind == LS__SPACE)
        return space_length(text, size);
    return space + run_length(text + space, size - space, kind);
}

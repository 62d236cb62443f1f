/*
 * pieces.c - where GPT-2's pattern and Llama 3's cut a text.
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
 *         | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * (Radford et al. 2019, encoder.py; Llama 3's tokenizer.json.)  The alternatives are tried in
 * this order at the place where the last piece ended; every character is in some piece.
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

/* Bytes of the last character of a text of at least one. */
static size_t last_bytes(const unsigned char *text, size_t size)
{
    size_t n = 1;

    while (n < size && (text[size - n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* White space leaves its last character to what follows, unless it is the only one. */
static size_t space_length(const unsigned char *text, size_t size)
{
    size_t n = run_length(text, size, LS__SPACE), last = n - last_bytes(text, n);

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

size_t ls__piece_length_spaced(const unsigned char *text, size_t size)
{
    size_t            bytes;
    ls__unicode_class kind = next_class(text, size, &bytes);

    if (kind != LS__SPACE)
        return run_length(text, size, kind);
    size_t n = run_length(text, size, kind);
    return n < size ? n - last_bytes(text, n) : n;
}

/* ---- Llama 3 ---- */

static bool is_line_end(unsigned char c)
{
    return c == '\r' || c == '\n';
}

/*
 * Contractions in either case; in the pattern's simple folding of case U+017F, the long s, is
 * an s too, and nothing else beyond ASCII is one of their letters.
 */
static size_t folded_contraction_length(const unsigned char *text, size_t size)
{
    unsigned char lower[3];

    if (size >= 3 && !memcmp(text, "'\xc5\xbf", 3))
        return 3;
    for (size_t i = 0; i < 3 && i < size; i++)
        lower[i] = text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i];
    return contraction_length(lower, size < 3 ? size : 3);
}

/* Up to three numbers. */
static size_t number_length(const unsigned char *text, size_t size)
{
    size_t n = 0, bytes;

    for (int i = 0; i < 3 && n < size && next_class(text + n, size - n, &bytes) == LS__NUMBER;
         i++)
        n += bytes;
    return n;
}

/* White space up to its last new line; without one as GPT-2's. */
static size_t line_length(const unsigned char *text, size_t size)
{
    size_t n = run_length(text, size, LS__SPACE);

    while (n && !is_line_end(text[n - 1]))
        n--;
    return n ? n : space_length(text, size);
}

/* What is neither letter, number nor space, and the new lines behind it. */
static size_t other_length(const unsigned char *text, size_t size)
{
    size_t n = run_length(text, size, LS__OTHER);

    while (n < size && is_line_end(text[n]))
        n++;
    return n;
}

size_t ls__piece_length_llama3(const unsigned char *text, size_t size)
{
    size_t            n = folded_contraction_length(text, size), first, bytes;
    ls__unicode_class kind, next = LS__SPACE;

    if (n)
        return n;
    kind = next_class(text, size, &first);
    if (first < size)
        next = next_class(text + first, size - first, &bytes);
    if (kind == LS__LETTER)
        return run_length(text, size, kind);
    if (kind == LS__NUMBER)
        return number_length(text, size);
    if (next == LS__LETTER && !is_line_end(text[0]))
        return first + run_length(text + first, size - first, next);
    if (kind == LS__OTHER)
        return other_length(text, size);
    if (next == LS__OTHER && text[0] == ' ')
        return 1 + other_length(text + 1, size - 1);
    return line_length(text, size);
}

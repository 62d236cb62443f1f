/*
 * json_print.c - doubles and strings as JSON.
 */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_impl.h"

/* The C locale for this thread alone, so that a host's setlocale() does not matter. */
static locale_t use_c_locale(locale_t *c_locale)
{
    *c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return uselocale(*c_locale);
}

static void leave_c_locale(locale_t c_locale, locale_t before)
{
    uselocale(before);
    if (c_locale)
        freelocale(c_locale);
}

void ls_json_print_double(char *buffer, size_t bytes, double x)
{
    locale_t c_locale, before;

    if (!isfinite(x)) {
        snprintf(buffer, bytes, "null");
        return;
    }
    before = use_c_locale(&c_locale);
    for (int digits = 15; digits <= 17; digits++) {
        char text[LS_JSON_DOUBLE_BYTES];
        snprintf(text, sizeof text, "%.*g", digits, x);
        snprintf(buffer, bytes, "%s", text);
        if (strtod(text, NULL) == x)
            break;
    }
    leave_c_locale(c_locale, before);
}

/* One character as JSON into out (at most 8 bytes); returns the bytes of text it took. */
static size_t escape_one(char out[8], const char *text, const char *end)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";

    size_t        n   = ls__utf8_length(text, end);
    unsigned char c   = (unsigned char)*text;
    const char   *two = strchr(plain, c);

    if (two)
        snprintf(out, 8, "\\%c", letters[two - plain]);
    else if (n == 0)
        snprintf(out, 8, "\\ufffd");
    else if (c < 0x20 || c == 0x7F)
        snprintf(out, 8, "\\u%04x", c);
    else
        snprintf(out, 8, "%.*s", (int)n, text);
    return n ? n : 1;
}

static void append(char *buffer, size_t bytes, size_t *used, const char *piece)
{
    size_t n = strlen(piece);
    if (*used < bytes)
        snprintf(buffer + *used, bytes - *used, "%s", piece);
    *used += n;
}

size_t ls_json_escape(char *buffer, size_t bytes, const char *text)
{
    const char *end  = text + strlen(text);
    size_t      used = 0;

    append(buffer, bytes, &used, "\"");
    while (text < end) {
        char piece[8];
        text += escape_one(piece, text, end);
        append(buffer, bytes, &used, piece);
    }
    append(buffer, bytes, &used, "\"");
    return used;
}

void ls_json_print_string(FILE *file, const char *text)
{
    const char *end = text + strlen(text);

    fputc('"', file);
    while (text < end) {
        char piece[8];
        text += escape_one(piece, text, end);
        fputs(piece, file);
    }
    fputc('"', file);
}

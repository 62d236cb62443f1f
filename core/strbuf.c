/*
 * strbuf.c - the growing text.
 */
#include "core/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

/* Room for n more bytes and a NUL, the capacity at least doubled. */
static bool reserve(ls_strbuf *t, size_t n)
{
    size_t wanted;

    if (t->failed)
        return false;
    if (t->data && n < t->capacity - t->used)
        return true;
    if (__builtin_add_overflow(t->used + 1, n, &wanted) || wanted > SIZE_MAX / 2)
        wanted = SIZE_MAX;
    size_t capacity = wanted < 128 ? 256 : wanted == SIZE_MAX ? wanted : 2 * wanted;
    char  *grown    = ls_calloc(capacity, 1);
    if (!grown) {
        t->failed = true;
        return false;
    }
    if (t->data)
        memcpy(grown, t->data, t->used);
    free(t->data);
    t->data     = grown;
    t->capacity = capacity;
    return true;
}

void ls_strbuf_add(ls_strbuf *t, const char *bytes, size_t n)
{
    if (!reserve(t, n))
        return;
    if (n)
        memcpy(t->data + t->used, bytes, n);
    t->used += n;
    t->data[t->used] = '\0';
}

void ls_strbuf_format(ls_strbuf *t, const char *fmt, ...)
{
    va_list args, again;

    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n < 0)
        t->failed = true;
    else if (reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->used, (size_t)n + 1, fmt, again);
        t->used += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

static void add_escaped(ls_strbuf *t, char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char       *found = c ? strchr(from, c) : NULL;

    if (found)
        ls_strbuf_format(t, "\\%c", to[found - from]);
    else
        ls_strbuf_format(t, "\\u%04x", (unsigned)(unsigned char)c);
}

void ls_strbuf_json(ls_strbuf *t, const char *bytes, size_t n)
{
    size_t start = 0; /* of the run that needs no escape */

    ls_strbuf_add(t, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '"' && bytes[i] != '\\' && (unsigned char)bytes[i] >= 0x20)
            continue;
        ls_strbuf_add(t, bytes + start, i - start);
        add_escaped(t, bytes[i]);
        start = i + 1;
    }
    ls_strbuf_add(t, bytes + start, n - start);
    ls_strbuf_add(t, "\"", 1);
}

ls_status ls_strbuf_status(const ls_strbuf *t)
{
    return t->failed ? ls_fail(LS_ENOMEM, "out of memory for %zu bytes of text", t->used)
                     : LS_OK;
}

void ls_strbuf_free(ls_strbuf *t)
{
    free(t->data);
    *t = (ls_strbuf){0};
}

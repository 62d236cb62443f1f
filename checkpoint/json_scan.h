/*
 * json_scan.h - a strict JSON scanner that works in place, for headers of untrusted files.
 *
 * The caller walks the value it expects; what does not fit stops the scan.  The first failure
 * sticks: every later call returns false, so a walk is checked once at its end.  Strings are
 * unescaped where they stand (they never grow) and get a NUL in the place of their closing
 * quote, so the text must be writable and outlive them.
 *
 *     ls_json_enter(&s, '{');
 *     for (bool first = true; ls_json_more(&s, '}', &first);) {
 *         ls_json_key(&s, &key);
 *         ...one value...
 *     }
 *
 * The grammar is RFC 8259's, with at most LS_JSON_DEPTH - 1 open brackets, and \u escapes that
 * form whole code points.  UTF-8 is checked by ls_json_utf8(), once for the whole text.
 */
#ifndef LS_CHECKPOINT_JSON_SCAN_H
#define LS_CHECKPOINT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_JSON_DEPTH = 128 };

typedef struct {
    char       *text;
    size_t      length;
    size_t      at;    /* next byte, or where the scan failed */
    int         depth; /* open brackets */
    const char *error; /* what was wanted; NULL while all is well */
} ls_json_scan;

/* A string after unescaping: it ends in a NUL, and may hold others. */
typedef struct {
    const char *text;
    size_t      bytes;
} ls_json_span;

/* Offset of the first byte that is not UTF-8, or length. */
size_t ls_json_utf8(const char *text, size_t length);

/* The next byte that is not white space, not taken; -1 at the end. */
int ls_json_peek(ls_json_scan *s);

bool ls_json_enter(ls_json_scan *s, char open);

/* True when another member follows; false after the closing bracket, or on failure. */
bool ls_json_more(ls_json_scan *s, char close, bool *first);

bool ls_json_string(ls_json_scan *s, ls_json_span *span);
bool ls_json_key(ls_json_scan *s, ls_json_span *span); /* a string and its colon */
bool ls_json_u64(ls_json_scan *s, uint64_t *value);    /* 0 or [1-9][0-9]*, at most 2^64 - 1 */
bool ls_json_null(ls_json_scan *s);
bool ls_json_skip(ls_json_scan *s); /* any value */
bool ls_json_end(ls_json_scan *s);  /* nothing but white space is left */

bool ls_json_is(const ls_json_span *span, const char *text);

#endif

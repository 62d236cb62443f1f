/*
 * utf8.h - one code point at a time, strictly by RFC 3629: no overlong forms, no surrogates,
 * nothing above U+10FFFF.
 */
#ifndef LS_CORE_UTF8_H
#define LS_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_UTF8_POINTS = 0x110000, LS_UTF8_LONGEST = 4 };

/* A code point that UTF-8 may encode. */
bool ls_utf8_valid(uint32_t point);

/* Bytes of the code point at the start of text (size bytes), or 0 if there is none. */
size_t ls_utf8_decode(const unsigned char *text, size_t size, uint32_t *point);

/*
 * The same of text that may be malformed, as browsers and Python's errors="replace" read it:
 * the longest beginning of a character that breaks off counts as one U+FFFD.  size is at least
 * 1, and so is the result.
 */
size_t ls_utf8_next(const unsigned char *text, size_t size, uint32_t *point);

/* Bytes written for a valid code point, 1 to 4. */
size_t ls_utf8_encode(uint32_t point, char out[LS_UTF8_LONGEST]);

#endif

/*
 * json_scan.c - the scanner.
 *
 * Every function takes the scan at any byte and leaves it behind what it took.  A byte is read
 * only behind a check of s->at against s->length.
 */
#include "checkpoint/json_scan.h"

#include <string.h>

#include "core/utf8.h"

static bool refuse(ls_json_scan *s, const char *wanted)
{
    if (!s->error)
        s->error = wanted;
    return false;
}

static int byte_at(const ls_json_scan *s, size_t at)
{
    return at < s->length ? (unsigned char)s->text[at] : -1;
}

size_t ls_json_utf8(const char *text, size_t length)
{
    size_t at = 0;

    while (at < length) {
        uint32_t point;
        size_t   bytes = ls_utf8_decode((const unsigned char *)text + at, length - at, &point);
        if (!bytes)
            return at;
        at += bytes;
    }
    return length;
}

int ls_json_peek(ls_json_scan *s)
{
    for (;; s->at++) {
        int c = byte_at(s, s->at);
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
    }
}

/* Takes the byte c, after white space. */
static bool take(ls_json_scan *s, int c, const char *wanted)
{
    if (s->error || ls_json_peek(s) != c)
        return refuse(s, wanted);
    s->at++;
    return true;
}

static bool take_word(ls_json_scan *s, const char *word)
{
    size_t bytes = strlen(word);

    if (bytes > s->length - s->at || memcmp(s->text + s->at, word, bytes) != 0)
        return refuse(s, "expected a JSON value");
    s->at += bytes;
    return true;
}

bool ls_json_enter(ls_json_scan *s, char open)
{
    if (!take(s, open, open == '{' ? "expected an object" : "expected an array"))
        return false;
    if (++s->depth >= LS_JSON_DEPTH)
        return refuse(s, "nested too deeply");
    return true;
}

bool ls_json_more(ls_json_scan *s, char close, bool *first)
{
    if (s->error)
        return false;
    if (ls_json_peek(s) == close) {
        s->at++;
        s->depth--;
        return false;
    }
    if (!*first && !take(s, ',', close == '}' ? "expected ',' or '}'" : "expected ',' or ']'"))
        return false;
    if (!*first && ls_json_peek(s) == close)
        return refuse(s, "expected a value after ','");
    *first = false;
    return true;
}

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits at s->at, or -1. */
static int32_t hex4(ls_json_scan *s)
{
    int32_t value = 0;

    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(byte_at(s, s->at));
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
        s->at++;
    }
    return value;
}

/* What follows "\u": a code point, the second half of a pair included, or -1. */
static int32_t unicode_escape(ls_json_scan *s)
{
    int32_t code = hex4(s);

    if (code < 0 || (code & 0xfc00) == 0xdc00)
        return -1;
    if ((code & 0xfc00) != 0xd800)
        return code;
    if (byte_at(s, s->at) != '\\' || byte_at(s, s->at + 1) != 'u')
        return -1;
    s->at += 2;
    int32_t low = hex4(s);
    if (low < 0 || (low & 0xfc00) != 0xdc00)
        return -1;
    return 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
}

/* What follows a backslash, to out; the bytes written, 0 on failure. */
static size_t take_escape(ls_json_scan *s, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int               c = byte_at(s, s->at);

    if (c == 'u') {
        s->at++;
        int32_t code = unicode_escape(s);
        if (code < 0)
            refuse(s, "wrong \\u escape in a string");
        return code < 0 ? 0 : ls_utf8_encode((uint32_t)code, out);
    }
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (!found) {
        refuse(s, "wrong escape in a string");
        return 0;
    }
    s->at++;
    *out = to[found - from];
    return 1;
}

bool ls_json_string(ls_json_scan *s, ls_json_span *span)
{
    if (!take(s, '"', "expected a string"))
        return false;
    char *start = s->text + s->at, *out = start;
    for (;;) {
        int c = byte_at(s, s->at);
        if (c < 0)
            return refuse(s, "string without an end");
        if (c < 0x20)
            return refuse(s, "control character in a string");
        s->at++;
        if (c == '"')
            break;
        if (c != '\\') {
            *out++ = (char)c;
            continue;
        }
        size_t bytes = take_escape(s, out);
        if (!bytes)
            return false;
        out += bytes;
    }
    *out  = '\0';
    *span = (ls_json_span){start, (size_t)(out - start)};
    return true;
}

bool ls_json_key(ls_json_scan *s, ls_json_span *span)
{
    return ls_json_string(s, span) && take(s, ':', "expected ':'");
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* A byte that would go on with a number: what follows an integer must not be one. */
static bool goes_on(int c)
{
    return is_digit(c) || c == '.' || c == 'e' || c == 'E';
}

bool ls_json_u64(ls_json_scan *s, uint64_t *value)
{
    static const char wanted[] = "expected an unsigned integer below 2^64";

    if (s->error || !is_digit(ls_json_peek(s)))
        return refuse(s, wanted);
    size_t   start = s->at;
    uint64_t sum   = 0;
    for (int c; is_digit(c = byte_at(s, s->at)); s->at++)
        if (__builtin_mul_overflow(sum, 10u, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(c - '0'), &sum))
            return refuse(s, wanted);
    if (goes_on(byte_at(s, s->at)) || (s->text[start] == '0' && s->at - start > 1))
        return refuse(s, wanted);
    *value = sum;
    return true;
}

bool ls_json_null(ls_json_scan *s)
{
    ls_json_peek(s);
    return !s->error && take_word(s, "null");
}

static size_t take_digits(ls_json_scan *s)
{
    size_t start = s->at;

    while (is_digit(byte_at(s, s->at)))
        s->at++;
    return s->at - start;
}

/* -? (0 | [1-9][0-9]*) ('.' [0-9]+)? ([eE] [+-]? [0-9]+)? */
static bool skip_number(ls_json_scan *s)
{
    if (byte_at(s, s->at) == '-')
        s->at++;
    bool   zero   = byte_at(s, s->at) == '0';
    size_t digits = take_digits(s);
    bool   good   = digits == 1 || (digits && !zero);

    if (byte_at(s, s->at) == '.') {
        s->at++;
        good = take_digits(s) && good;
    }
    if (byte_at(s, s->at) == 'e' || byte_at(s, s->at) == 'E') {
        s->at++;
        s->at += byte_at(s, s->at) == '+' || byte_at(s, s->at) == '-';
        good = take_digits(s) && good;
    }
    return good || refuse(s, "malformed number");
}

/* The recursion is bounded by LS_JSON_DEPTH. */
static bool skip_members(ls_json_scan *s, char open)
{
    char         close = open == '{' ? '}' : ']';
    ls_json_span key;

    if (!ls_json_enter(s, open))
        return false;
    for (bool first = true; ls_json_more(s, close, &first);)
        if ((open == '{' && !ls_json_key(s, &key)) || !ls_json_skip(s))
            return false;
    return !s->error;
}

bool ls_json_skip(ls_json_scan *s)
{
    ls_json_span ignored;
    int          c = ls_json_peek(s);

    if (s->error)
        return false;
    if (c == '"')
        return ls_json_string(s, &ignored);
    if (c == '{' || c == '[')
        return skip_members(s, (char)c);
    if (c == '-' || is_digit(c))
        return skip_number(s);
    return take_word(s, c == 't' ? "true" : c == 'f' ? "false" : "null");
}

bool ls_json_end(ls_json_scan *s)
{
    if (!s->error && ls_json_peek(s) >= 0)
        return refuse(s, "something follows the JSON value");
    return !s->error;
}

bool ls_json_is(const ls_json_span *span, const char *text)
{
    return span->bytes == strlen(text) && !memcmp(span->text, text, span->bytes);
}

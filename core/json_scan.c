/*
 * json_scan.c - the strict reader in front of cJSON.
 *
 * A recursive descent over RFC 8259's grammar, one function per rule.  Each returns the place
 * behind what it read, or NULL after it has recorded the failure.  The text ends in a NUL and
 * has none inside (checked first), so looking at the next character is always allowed.
 */
#include <stdarg.h>
#include <string.h>

#include "core/json_impl.h"
#include "core/utf8.h"

/* cJSON copies a number into 64 bytes. */
enum { LONGEST_NUMBER = 60 };

typedef struct {
    const char *text, *end, *name;
    ls_json    *nodes;
    size_t      n_nodes;
    int         depth;
} scanner;

static const char *scan_value(scanner *s, const char *at, ls_json **made);

size_t ls__utf8_length(const char *at, const char *end)
{
    uint32_t point;

    return ls_utf8_decode((const unsigned char *)at, (size_t)(end - at), &point);
}

void ls__json_place(const char *text, const char *at, int *line, int *column)
{
    *line = *column = 1;
    for (; text < at; text++) {
        if (*text == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)*text & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

size_t ls__json_count(const char *text, size_t n)
{
    size_t count = 1;
    for (size_t i = 0; i < n; i++)
        count += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return count;
}

LS_PRINTF(3, 4)
static const char *fail_at(const scanner *s, const char *at, const char *fmt, ...)
{
    char    what[256];
    int     line, column;
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    ls__json_place(s->text, at, &line, &column);
    (void)!ls_fail(LS_EFORMAT, "%s:%d:%d: %s", s->name, line, column, what);
    return NULL;
}

/* "found 'x'" for what stands where something else was wanted. */
static const char *fail_found(const scanner *s, const char *at, const char *wanted)
{
    size_t n = at < s->end ? ls__utf8_length(at, s->end) : 0;

    if (at == s->end)
        return fail_at(s, at, "the text ends here, wanted %s", wanted);
    if (*at == '#' || (*at == '/' && (at[1] == '/' || at[1] == '*')))
        return fail_at(s, at, "a comment; comments are not JSON");
    if (*at == '\'')
        return fail_at(s, at, "found ', wanted %s; strings take double quotes", wanted);
    if ((unsigned char)*at < 0x20)
        return fail_at(s, at, "found the control character 0x%02x, wanted %s",
                       (unsigned)(unsigned char)*at, wanted);
    return fail_at(s, at, "found '%.*s', wanted %s", (int)n, at, wanted);
}

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 0 to 15, or -1. */
static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The value of \uXXXX at `at`, or -1. */
static int unicode_escape(const char *at)
{
    int code = 0;

    if (at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

static const char *scan_escape(scanner *s, const char *at)
{
    if (at[1] != 'u') {
        if (at[1] && strchr("\"\\/bfnrt", at[1]))
            return at + 2;
        return fail_at(s, at, "a backslash before something that is no escape");
    }
    int code = unicode_escape(at);
    if (code < 0)
        return fail_at(s, at, "\\u without four hexadecimal digits");
    if (code == 0)
        return fail_at(s, at, "\\u0000 is not accepted in a string");
    if (code < 0xD800 || code > 0xDFFF)
        return at + 6;
    int low = code < 0xDC00 ? unicode_escape(at + 6) : -1;
    if (low < 0xDC00 || low > 0xDFFF)
        return fail_at(s, at, "\\u%04x is one half of a surrogate pair", (unsigned)code);
    return at + 12;
}

static const char *scan_string(scanner *s, const char *at)
{
    const char *quote = at++;

    while (at && *at != '"') {
        if (at == s->end)
            return fail_at(s, quote, "a string that does not end");
        if (*at == '\n' || *at == '\r')
            return fail_at(s, quote, "a string that does not end on its line");
        if ((unsigned char)*at < 0x20)
            return fail_at(s, at, "the control character 0x%02x in a string; write \\u%04x",
                           (unsigned)(unsigned char)*at, (unsigned)(unsigned char)*at);
        at = *at == '\\' ? scan_escape(s, at) : at + 1;
    }
    return at ? at + 1 : NULL;
}

/* A saturating int64 of an integer literal. */
static int64_t whole_number(const char *at, const char *end)
{
    bool     negative = *at == '-';
    uint64_t value    = 0;

    for (at += negative; at < end; at++) {
        if (value > (INT64_MAX - (uint64_t)(*at - '0')) / 10)
            return negative ? INT64_MIN : INT64_MAX;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    return negative ? -(int64_t)value : (int64_t)value;
}

static const char *scan_number(scanner *s, const char *at, ls_json *node)
{
    const char *start = at;

    at += *at == '-';
    if (!is_digit(*at))
        return fail_found(s, at, "a digit");
    if (*at == '0' && is_digit(at[1]))
        return fail_at(s, start, "a number with a leading zero");
    at += strspn(at, "0123456789");
    node->integer = *at != '.' && *at != 'e' && *at != 'E';
    if (node->integer)
        node->whole = whole_number(start, at);
    if (*at == '.') {
        if (!is_digit(*++at))
            return fail_found(s, at, "a digit behind the decimal point");
        at += strspn(at, "0123456789");
    }
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '+' || at[1] == '-');
        if (!is_digit(*at))
            return fail_found(s, at, "a digit of the exponent");
        at += strspn(at, "0123456789");
    }
    if (at - start > LONGEST_NUMBER)
        return fail_at(s, start, "a number of more than %d characters", LONGEST_NUMBER);
    return at;
}

static const char *scan_key(scanner *s, const char *at)
{
    if (*at != '"')
        return fail_found(s, at, "a key in double quotes");
    at = scan_string(s, at);
    if (!at)
        return NULL;
    at = skip_space(at);
    return *at == ':' ? skip_space(at + 1) : fail_found(s, at, "':' behind the key");
}

/* Objects and arrays differ in their brackets and in the keys. */
static const char *scan_members(scanner *s, const char *at, ls_json *node)
{
    bool            object = node->kind == LS_JSON_OBJECT;
    char            close  = object ? '}' : ']';
    const ls_json **link   = &node->child;

    if (++s->depth > LS_JSON_LEVELS)
        return fail_at(s, at, "nested deeper than %d levels", LS_JSON_LEVELS);
    at = skip_space(at + 1);
    while (*at != close || node->count) {
        const char *start = at;
        ls_json    *member;

        if (node->count && *at == close)
            return fail_at(s, at, "a comma before '%c'", close);
        if (object && !(at = scan_key(s, at)))
            return NULL;
        if (!(at = scan_value(s, at, &member)))
            return NULL;
        member->start = start;
        node->count++;
        *link = member;
        link  = &member->next;
        at    = skip_space(at);
        if (*at == close)
            break;
        if (*at != ',')
            return fail_found(s, at, object ? "',' or '}'" : "',' or ']'");
        at = skip_space(at + 1);
    }
    s->depth--;
    return at + 1;
}

static const char *scan_word(scanner *s, const char *at, ls_json *node)
{
    static const struct {
        const char  *word;
        ls_json_kind kind;
        bool         boolean;
    } words[] = {{"null", LS_JSON_NULL, false},
                 {"true", LS_JSON_BOOL, true},
                 {"false", LS_JSON_BOOL, false}};

    size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (n == strlen(words[i].word) && !memcmp(at, words[i].word, n)) {
            node->kind    = words[i].kind;
            node->boolean = words[i].boolean;
            return at + n;
        }
    }
    if (n == 0)
        return fail_found(s, at, "a value");
    return fail_at(s, at, "found %.*s, wanted a value; strings take double quotes",
                   n < 60 ? (int)n : 60, at);
}

static const char *scan_value(scanner *s, const char *at, ls_json **made)
{
    ls_json *node = *made = &s->nodes[s->n_nodes++];

    node->source = node->start = at;
    if (*at == '{' || *at == '[') {
        node->kind = *at == '{' ? LS_JSON_OBJECT : LS_JSON_ARRAY;
        at         = scan_members(s, at, node);
    } else if (*at == '"') {
        node->kind = LS_JSON_STRING;
        at         = scan_string(s, at);
    } else if (*at == '-' || is_digit(*at)) {
        node->kind = LS_JSON_NUMBER;
        at         = scan_number(s, at, node);
    } else {
        at = scan_word(s, at, node);
    }
    if (at)
        node->source_bytes = (size_t)(at - node->source);
    return at;
}

static const char *check_characters(const scanner *s)
{
    const char *at = s->text;

    if (!strncmp(at, "\xEF\xBB\xBF", 3))
        return fail_at(s, at, "a byte order mark; save the text as UTF-8 without one");
    while (at < s->end) {
        size_t n = ls__utf8_length(at, s->end);
        if (*at == 0)
            return fail_at(s, at, "a NUL byte");
        if (n == 0)
            return fail_at(s, at, "the byte 0x%02x is not UTF-8", (unsigned)(unsigned char)*at);
        at += n;
    }
    return at;
}

ls_status ls__json_scan(const char *text, size_t n, const char *name, ls_json *nodes,
                        size_t *n_nodes)
{
    scanner     s = {.text = text, .end = text + n, .name = name, .nodes = nodes};
    ls_json    *root;
    const char *at = check_characters(&s) ? scan_value(&s, skip_space(text), &root) : NULL;

    if (!at)
        return LS_EFORMAT;
    at = skip_space(at);
    if (at != s.end && !fail_found(&s, at, "the end of the text"))
        return LS_EFORMAT;
    *n_nodes = s.n_nodes;
    return LS_OK;
}

/*
 * utf8.c - RFC 3629.
 *
 *     0xxxxxxx   110xxxxx 10xxxxxx   1110xxxx 10xxxxxx 10xxxxxx   11110xxx 10xxxxxx ...
 */
#include "core/utf8.h"

static const struct {
    unsigned char mask, lead; /* of the first byte */
    uint32_t      least;      /* smaller code points have a shorter form */
} form[LS_UTF8_LONGEST] = {
    {0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

bool ls_utf8_valid(uint32_t point)
{
    return point < LS_UTF8_POINTS && (point < 0xd800 || point > 0xdfff);
}

size_t ls_utf8_decode(const unsigned char *text, size_t size, uint32_t *point)
{
    size_t n = 0;

    while (n < LS_UTF8_LONGEST && (size == 0 || (text[0] & form[n].mask) != form[n].lead))
        n++;
    if (n == LS_UTF8_LONGEST || n + 1 > size)
        return 0;
    uint32_t x = text[0] & (unsigned char)~form[n].mask;
    for (size_t i = 1; i <= n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        x = x << 6 | (text[i] & 0x3f);
    }
    *point = x;
    return x >= form[n].least && ls_utf8_valid(x) ? n + 1 : 0;
}

/* May the bytes be followed by others to become a character? (Unicode, table 3-7) */
static bool may_begin(const unsigned char *text, size_t n)
{
    unsigned char low = 0x80, high = 0xbf;

    if (text[0] < 0xc2 || text[0] > 0xf4)
        return false;
    if (n < 2)
        return true;
    if (text[0] == 0xe0)
        low = 0xa0;
    else if (text[0] == 0xed)
        high = 0x9f;
    else if (text[0] == 0xf0)
        low = 0x90;
    else if (text[0] == 0xf4)
        high = 0x8f;
    if (text[1] < low || text[1] > high)
        return false;
    return n < 3 || (text[2] & 0xc0) == 0x80;
}

size_t ls_utf8_next(const unsigned char *text, size_t size, uint32_t *point)
{
    size_t n = ls_utf8_decode(text, size, point), longest;

    if (n)
        return n;
    *point  = 0xfffd;
    longest = text[0] >= 0xf0 ? 3 : text[0] >= 0xe0 ? 2 : 1;
    n       = 1;
    while (n < longest && n < size && may_begin(text, n + 1))
        n++;
    return n;
}

size_t ls_utf8_encode(uint32_t point, char out[LS_UTF8_LONGEST])
{
    size_t n = LS_UTF8_LONGEST - 1;

    while (point < form[n].least)
        n--;
    for (size_t i = n; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)(form[n].lead | point);
    return n + 1;
}

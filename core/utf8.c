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

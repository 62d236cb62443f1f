/*
 * text_stream.c - characters, then the stop text, then the file.
 */
#include "cli/text_stream.h"

#include <errno.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Some bytes behind these n make them a character. */
static bool may_grow(const char *bytes, size_t n)
{
    for (int last = 0x80; last <= 0xBF; last += 0x3F) {
        unsigned char whole[LS_UTF8_LONGEST];
        uint32_t      point;
        memset(whole, last, sizeof whole);
        memcpy(whole, bytes, n);
        if (ls_utf8_decode(whole, sizeof whole, &point) > n)
            return true;
    }
    return false;
}

/* Moves what is decided from partial to held: characters, and bytes that fit nothing. */
static void decide(ls_text_stream *s, bool end)
{
    while (s->n_partial) {
        uint32_t point;
        size_t   n = ls_utf8_decode((const unsigned char *)s->partial, s->n_partial, &point);
        if (!n && !end && may_grow(s->partial, s->n_partial))
            return;
        ls_strbuf_add(&s->held, n ? s->partial : replacement, n ? n : strlen(replacement));
        n = n ? n : 1;
        memmove(s->partial, s->partial + n, s->n_partial - n);
        s->n_partial -= n;
    }
}

/* Where the stop text begins in held, or the end of held. */
static size_t find_stop(const ls_text_stream *s)
{
    size_t n = strlen(s->stop), at = 0;

    while (at + n <= s->held.used && memcmp(s->held.data + at, s->stop, n) != 0)
        at++;
    return at + n <= s->held.used ? at : s->held.used;
}

/* Bytes at the end of held that the stop text starts with. */
static size_t waiting(const ls_text_stream *s)
{
    size_t n = strlen(s->stop);

    n = n - 1 < s->held.used ? n - 1 : s->held.used;
    while (n && memcmp(s->held.data + s->held.used - n, s->stop, n))
        n--;
    return n;
}

static ls_status put(ls_text_stream *s, size_t n)
{
    if (n && (fwrite(s->held.data, 1, n, s->out) != n || fflush(s->out)))
        return ls_fail(LS_EIO, "writing the text: %s", strerror(errno));
    if (n) {
        memmove(s->held.data, s->held.data + n, s->held.used - n + 1);
        s->held.used -= n;
    }
    return LS_OK;
}

static ls_status flush(ls_text_stream *s, bool end)
{
    decide(s, end);
    if (ls_strbuf_status(&s->held))
        return LS_ENOMEM;
    if (!s->stop || !*s->stop || !s->held.used)
        return put(s, s->held.used);
    size_t at  = find_stop(s);
    s->stopped = at < s->held.used;
    if (s->stopped)
        return put(s, at);
    return put(s, s->held.used - (end ? 0 : waiting(s)));
}

ls_status ls_text_stream_add(ls_text_stream *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !s->stopped; i++) {
        s->partial[s->n_partial++] = bytes[i];
        if (s->n_partial < sizeof s->partial && i + 1 < n)
            continue;
        ls_status status = flush(s, false);
        if (status)
            return status;
    }
    return LS_OK;
}

ls_status ls_text_stream_end(ls_text_stream *s)
{
    return s->stopped ? LS_OK : flush(s, true);
}

void ls_text_stream_close(ls_text_stream *s)
{
    ls_strbuf_free(&s->held);
}

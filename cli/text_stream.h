/*
 * text_stream.h - bytes of generated text on their way out, in whole characters.
 *
 * What is not UTF-8 becomes U+FFFD, one for each byte that fits nothing.  Bytes that may be the
 * start of a character, or of the text that ends the stream, wait for what follows them.
 */
#ifndef LS_CLI_TEXT_STREAM_H
#define LS_CLI_TEXT_STREAM_H

#include <stdbool.h>
#include <stdio.h>

#include "core/strbuf.h"
#include "core/utf8.h"

typedef struct {
    FILE       *out;
    const char *stop; /* ends the stream and is not written; NULL or "": nothing does */
    bool        stopped;
    char        partial[LS_UTF8_LONGEST]; /* the start of a character */
    size_t      n_partial;
    ls_strbuf   held; /* whole characters that may belong to `stop` */
} ls_text_stream;

/* Adds bytes and writes what is complete.  EIO; ENOMEM.  After the stop text nothing happens.
 */
LS_MUST_CHECK ls_status ls_text_stream_add(ls_text_stream *s, const char *bytes, size_t n);

/* Writes what still waits. */
LS_MUST_CHECK ls_status ls_text_stream_end(ls_text_stream *s);

void ls_text_stream_close(ls_text_stream *s);

#endif

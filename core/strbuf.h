/*
 * strbuf.h - a growing text with the few verbs JSON needs.
 *
 * Out of memory sticks: later calls do nothing, and ls_strbuf_status() reports it once at the
 * end.
 */
#ifndef LS_CORE_STRBUF_H
#define LS_CORE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

typedef struct {
    char  *data; /* NUL-terminated once something was added, else NULL */
    size_t used; /* bytes without the NUL */
    size_t capacity;
    bool   failed;
} ls_strbuf;

void ls_strbuf_add(ls_strbuf *t, const char *bytes, size_t n);
void ls_strbuf_format(ls_strbuf *t, const char *fmt, ...) LS_PRINTF(2, 3);

/* The n bytes of UTF-8 as a JSON string, quotes and escapes included. */
void ls_strbuf_json(ls_strbuf *t, const char *bytes, size_t n);

/* LS_ENOMEM when anything could not be added. */
LS_MUST_CHECK ls_status ls_strbuf_status(const ls_strbuf *t);
void                    ls_strbuf_free(ls_strbuf *t);

#endif

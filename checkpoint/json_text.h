/*
 * json_text.h - a growing text with the few verbs JSON needs.
 *
 * Out of memory sticks: later calls do nothing, and ls_text_status() reports it once at the
 * end.
 */
#ifndef LS_CHECKPOINT_JSON_TEXT_H
#define LS_CHECKPOINT_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

typedef struct {
    char  *data; /* NUL-terminated once something was added, else NULL */
    size_t used; /* bytes without the NUL */
    size_t capacity;
    bool   failed;
} ls_text;

void ls_text_add(ls_text *t, const char *bytes, size_t n);
void ls_text_format(ls_text *t, const char *fmt, ...) LS_PRINTF(2, 3);

/* The n bytes of UTF-8 as a JSON string, quotes and escapes included. */
void ls_text_json(ls_text *t, const char *bytes, size_t n);

/* LS_ENOMEM when anything could not be added. */
LS_MUST_CHECK ls_status ls_text_status(const ls_text *t);
void                    ls_text_free(ls_text *t);

#endif

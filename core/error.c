/*
 * error.c - the thread's last error message.
 */
#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 2048 };

static _Thread_local char last_message[MESSAGE_BYTES];

const char *ls_status_text(ls_status status)
{
    static const char *const text[] = {
#define X(name, words) [LS_##name] = words,
        LS_STATUS_MAP(X)
#undef X
    };
    return (unsigned)status < LS_STATUS_COUNT ? text[status] : "unknown status";
}

const char *ls_error_message(void)
{
    return last_message;
}

ls_status ls_fail(ls_status status, const char *fmt, ...)
{
    char    text[MESSAGE_BYTES]; /* an argument may be the old message itself */
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    memcpy(last_message, text, sizeof text);
    return status;
}

ls_status ls_fail_in(ls_status status, const char *fmt, ...)
{
    char    text[MESSAGE_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t used = strlen(text), room = sizeof text - used;
    snprintf(text + used, room, ": %.*s", (int)room, last_message);
    memcpy(last_message, text, sizeof text);
    return status;
}

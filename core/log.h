/*
 * log.h - lines for people, to a stream and to a file.
 *
 * A log is an object of the command's; the library itself prints nothing.  A line goes out
 * whole, so that lines of several threads do not mix.  A file that cannot be written (disk
 * full) is given up and reported once by ls_log_check(); the stream goes on.
 */
#ifndef LS_CORE_LOG_H
#define LS_CORE_LOG_H

#include <stdio.h>

#include "core/error.h"

typedef struct ls_log ls_log;

typedef enum { LS_LOG_INFO, LS_LOG_WARNING, LS_LOG_ERROR } ls_log_level;

/* A log that writes lines of `least` and above to stream (borrowed, NULL: none); NULL: ENOMEM.
 */
ls_log *ls_log_new(FILE *stream, ls_log_level least);
void    ls_log_free(ls_log *log); /* closes the file; NULL is allowed */

/* Another stream, borrowed; NULL: none. */
void ls_log_set_stream(ls_log *log, FILE *stream);

/* From here on lines of every level go to the file at path too, at its end.  EIO. */
LS_MUST_CHECK ls_status ls_log_open(ls_log *log, const char *path);

/* One line, printf-like, without its newline; warnings and errors carry their level in front.
 */
void ls_log_info(ls_log *log, const char *fmt, ...) LS_PRINTF(2, 3);
void ls_log_warning(ls_log *log, const char *fmt, ...) LS_PRINTF(2, 3);
void ls_log_error(ls_log *log, const char *fmt, ...) LS_PRINTF(2, 3);

/* EIO, with the file's name and the system's reason, once after the file was lost; else LS_OK.
 */
LS_MUST_CHECK ls_status ls_log_check(ls_log *log);

#endif

/*
 * log.c - formats a line once and writes it in one piece to each place.
 */
#include "core/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum { LINE_BYTES = 4096 };

struct ls_log {
    pthread_mutex_t lock;
    FILE           *stream, *file;
    ls_log_level    least;
    char           *path;
    int             lost; /* errno of the write that failed, until it was reported */
};

ls_log *ls_log_new(FILE *stream, ls_log_level least)
{
    ls_log *log = ls_calloc(1, sizeof *log);
    if (!log)
        return NULL;
    pthread_mutex_init(&log->lock, NULL);
    log->stream = stream;
    log->least  = least;
    return log;
}

void ls_log_set_stream(ls_log *log, FILE *stream)
{
    pthread_mutex_lock(&log->lock);
    log->stream = stream;
    pthread_mutex_unlock(&log->lock);
}

static void close_file(ls_log *log)
{
    if (log->file && fclose(log->file) && !log->lost)
        log->lost = errno;
    log->file = NULL;
}

void ls_log_free(ls_log *log)
{
    if (!log)
        return;
    close_file(log);
    pthread_mutex_destroy(&log->lock);
    free(log->path);
    free(log);
}

ls_status ls_log_open(ls_log *log, const char *path)
{
    char *name = ls_strdup(path);
    if (!name)
        return LS_ENOMEM;
    FILE *file = fopen(path, "ae");
    if (!file) {
        free(name);
        return ls_fail(LS_EIO, "%s: cannot be opened for writing: %s", path, strerror(errno));
    }
    pthread_mutex_lock(&log->lock);
    close_file(log);
    free(log->path);
    log->file = file;
    log->path = name;
    log->lost = 0;
    pthread_mutex_unlock(&log->lock);
    return LS_OK;
}

/* Flushed at once: what was logged is to be found after a crash. */
static void write_line(ls_log *log, ls_log_level level, const char *line, size_t n)
{
    if (log->stream && level >= log->least) {
        fwrite(line, 1, n, log->stream);
        fflush(log->stream);
    }
    if (log->file && (fwrite(line, 1, n, log->file) != n || fflush(log->file))) {
        log->lost = errno ? errno : EIO;
        close_file(log);
    }
}

/* A line that is too long is cut; its newline stays. */
static void write_formatted(ls_log *log, ls_log_level level, const char *fmt, va_list args)
{
    static const char *const prefix[] = {"", "warning: ", "error: "};
    char                     line[LINE_BYTES];
    size_t                   used = strlen(prefix[level]);

    memcpy(line, prefix[level], used + 1);
    vsnprintf(line + used, sizeof line - 1 - used, fmt, args);
    used         = strlen(line);
    line[used++] = '\n';
    pthread_mutex_lock(&log->lock);
    write_line(log, level, line, used);
    pthread_mutex_unlock(&log->lock);
}

void ls_log_info(ls_log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    write_formatted(log, LS_LOG_INFO, fmt, args);
    va_end(args);
}

void ls_log_warning(ls_log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    write_formatted(log, LS_LOG_WARNING, fmt, args);
    va_end(args);
}

void ls_log_error(ls_log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    write_formatted(log, LS_LOG_ERROR, fmt, args);
    va_end(args);
}

ls_status ls_log_check(ls_log *log)
{
    pthread_mutex_lock(&log->lock);
    int lost  = log->lost;
    log->lost = 0;
    pthread_mutex_unlock(&log->lock);
    return lost ? ls_fail(LS_EIO, "%s: cannot be written: %s", log->path, strerror(lost))
                : LS_OK;
}

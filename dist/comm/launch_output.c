/*
 * launch_output.c - the ranks' lines, whole, to the launcher's stdout and stderr.
 *
 *     pipe of a rank -> held (a line that is not whole) -> pending of a sink -> write
 *
 * Nothing here waits: a sink is written only where poll() says that it takes something, in
 * pieces that a pipe takes whole then.  Where a sink has MOST_PENDING bytes waiting, the loop
 * reads no more for it, so that the ranks wait as they would for a slow reader without a
 * launcher.  Memory that is not there counts as an output that cannot be written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dist/comm/launch_impl.h"

enum {
    LONGEST_LINE = 4 << 20,
    MOST_PENDING = 4 << 20,
    KEPT         = 1 << 20, /* buffers above it are given back when they are empty */
    PIPE_PIECE   = 4096,    /* what a pipe that polls writable takes */
    FILE_PIECE   = 1 << 20,
};

static void give_up(ls__sink *s, int error)
{
    s->error = error;
    s->sent  = 0;
    ls_strbuf_free(&s->pending);
}

/* Empties a text but keeps its memory, if that is little. */
static void empty(ls_strbuf *t)
{
    if (t->capacity > KEPT)
        ls_strbuf_free(t);
    t->used = 0;
}

static void sink_add(ls__sink *s, const char *bytes, size_t n)
{
    if (s->error)
        return;
    if (s->sent > KEPT && s->sent >= s->pending.used / 2) {
        s->pending.used -= s->sent;
        memmove(s->pending.data, s->pending.data + s->sent, s->pending.used);
        s->sent = 0;
    }
    ls_strbuf_add(&s->pending, bytes, n);
    if (ls_strbuf_status(&s->pending))
        give_up(s, ENOMEM);
}

static bool sink_busy(const ls__sink *s)
{
    return !s->error && s->sent < s->pending.used;
}

bool ls__sink_full(const ls__sink *s)
{
    return !s->error && s->pending.used - s->sent > MOST_PENDING;
}

static size_t piece(int fd)
{
    struct stat about;

    return !fstat(fd, &about) && S_ISREG(about.st_mode) ? FILE_PIECE : PIPE_PIECE;
}

void ls__sink_flush(ls__sink *s)
{
    size_t most = piece(s->fd);

    while (sink_busy(s)) {
        struct pollfd ready = {.fd = s->fd, .events = POLLOUT};
        size_t        left  = s->pending.used - s->sent;
        if (poll(&ready, 1, 0) <= 0)
            return;
        ssize_t n = write(s->fd, s->pending.data + s->sent, left < most ? left : most);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0)
            give_up(s, errno);
        else
            s->sent += (size_t)n;
    }
    if (!s->error) {
        s->sent = 0;
        empty(&s->pending);
    }
}

struct pollfd ls__sink_poll(const ls__sink *s)
{
    return (struct pollfd){.fd = sink_busy(s) ? s->fd : -1, .events = POLLOUT};
}

void ls__sink_free(ls__sink *s)
{
    ls_strbuf_free(&s->pending);
}

/* What is held and these bytes, as a line or the end of one. */
static void put_line(ls__stream *s, const char *bytes, size_t n)
{
    sink_add(s->to, s->prefix, strlen(s->prefix));
    sink_add(s->to, s->held.data, s->held.used);
    sink_add(s->to, bytes, n);
    empty(&s->held);
}

static void hold(ls__stream *s, const char *bytes, size_t n)
{
    ls_strbuf_add(&s->held, bytes, n);
    if (ls_strbuf_status(&s->held)) {
        give_up(s->to, ENOMEM);
        ls_strbuf_free(&s->held);
    }
    if (s->held.used >= LONGEST_LINE)
        put_line(s, "\n", 1);
}

static void take(ls__stream *s, const char *bytes, size_t n)
{
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        if (!end) {
            hold(s, bytes, n);
            return;
        }
        size_t line = (size_t)(end - bytes) + 1;
        put_line(s, bytes, line);
        bytes += line;
        n -= line;
    }
}

bool ls__stream_read(ls__stream *s)
{
    char    chunk[1 << 16];
    ssize_t n = read(s->fd, chunk, sizeof chunk);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        take(s, chunk, (size_t)n);
    else
        ls__stream_close(s);
    return true;
}

void ls__stream_close(ls__stream *s)
{
    if (s->held.used)
        put_line(s, "\n", 1);
    ls_strbuf_free(&s->held);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

void ls__say(ls__sink *to, const char *fmt, ...)
{
    char    line[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    sink_add(to, line, strlen(line));
    sink_add(to, "\n", 1);
}

int ls__outputs_finish(ls__outputs *outputs, const ls__signals *signals)
{
    unsigned char number;

    while (true) {
        ls__sink_flush(&outputs->sinks[0]);
        ls__sink_flush(&outputs->sinks[1]);
        if (!sink_busy(&outputs->sinks[0]) && !sink_busy(&outputs->sinks[1]))
            return 0;
        struct pollfd p[] = {ls__sink_poll(&outputs->sinks[0]),
                             ls__sink_poll(&outputs->sinks[1]),
                             {.fd = signals->pipe[0], .events = POLLIN}};
        poll(p, 3, -1);
        while (read(signals->pipe[0], &number, 1) == 1) {
            if (number == SIGINT || number == SIGTERM || number == SIGHUP)
                return number;
            if (number == SIGTSTP)
                kill(getpid(), SIGSTOP);
        }
    }
}

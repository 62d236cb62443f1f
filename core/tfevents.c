/*
 * tfevents.c - protocol buffers by hand: tag bytes are (field << 3 | wire type).
 */
#include "core/tfevents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/crc32c.h"
#include "core/strbuf.h"

enum { MOST_FILES = 1000, SESSION_START = 1 };

/* Fields of Event, Summary, Summary.Value and SessionLog with their wire types. */
enum {
    EVENT_WALL_TIME    = 1 << 3 | 1,
    EVENT_STEP         = 2 << 3 | 0,
    EVENT_FILE_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY      = 5 << 3 | 2,
    EVENT_SESSION_LOG  = 7 << 3 | 2,
    SUMMARY_VALUE      = 1 << 3 | 2,
    VALUE_TAG          = 1 << 3 | 2,
    VALUE_SIMPLE       = 2 << 3 | 5,
    SESSION_STATUS     = 1 << 3 | 0
};

struct ls_tfevents {
    char *path;
    int   fd;
    off_t whole; /* bytes of whole records */
    int   error; /* errno of what failed */
};

/* ---- bytes ---- */

static void add_byte(ls_strbuf *b, int byte)
{
    ls_strbuf_add(b, &(char){(char)byte}, 1);
}

/* Little-endian, n bytes. */
static void add_fixed(ls_strbuf *b, uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        add_byte(b, (int)(x >> 8 * i & 0xff));
}

static void add_varint(ls_strbuf *b, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        add_byte(b, (int)(x & 0x7f) | 0x80);
    add_byte(b, (int)x);
}

static void add_bytes(ls_strbuf *b, int field, const char *bytes, size_t n)
{
    add_byte(b, field);
    add_varint(b, n);
    ls_strbuf_add(b, bytes, n);
}

static void add_wall_time(ls_strbuf *b, double seconds)
{
    uint64_t bits;

    memcpy(&bits, &seconds, sizeof bits);
    add_byte(b, EVENT_WALL_TIME);
    add_fixed(b, bits, 8);
}

static void add_step(ls_strbuf *b, int64_t step)
{
    add_byte(b, EVENT_STEP);
    add_varint(b, (uint64_t)step);
}

/* ---- records ---- */

/* A checksum of bytes that hold a checksum would be none: so it is rotated and moved. */
static uint32_t masked(const char *data, size_t n)
{
    uint32_t crc = ls_crc32c(data, n);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static ls_status write_whole(int fd, const ls_strbuf *record)
{
    for (size_t done = 0; done < record->used;) {
        ssize_t n = write(fd, record->data + done, record->used - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return LS_EIO;
        done += (size_t)n;
    }
    return LS_OK;
}

static void give_up(ls_tfevents *e, int error)
{
    e->error = error;
    if (ftruncate(e->fd, e->whole))
        e->error = errno;
    close(e->fd);
    e->fd = -1;
}

static void write_event(ls_tfevents *e, ls_strbuf *event)
{
    ls_strbuf record = {0};

    add_fixed(&record, event->used, 8);
    if (record.data)
        add_fixed(&record, masked(record.data, 8), 4);
    ls_strbuf_add(&record, event->data, event->used);
    add_fixed(&record, masked(event->data, event->used), 4);
    if (ls_strbuf_status(event) || ls_strbuf_status(&record))
        give_up(e, ENOMEM);
    else if (write_whole(e->fd, &record))
        give_up(e, errno ? errno : EIO);
    else
        e->whole += (off_t)record.used;
    ls_strbuf_free(&record);
}

/* ---- events ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void write_version(ls_tfevents *e)
{
    static const char version[] = "brain.Event:2";
    ls_strbuf         event     = {0};

    add_wall_time(&event, now());
    add_bytes(&event, EVENT_FILE_VERSION, version, sizeof version - 1);
    write_event(e, &event);
    ls_strbuf_free(&event);
}

/* What earlier files have of this step and later ones is no longer so. */
static void write_start(ls_tfevents *e, int64_t step)
{
    static const char start[] = {SESSION_STATUS, SESSION_START};
    ls_strbuf         event   = {0};

    add_wall_time(&event, now());
    add_step(&event, step);
    add_bytes(&event, EVENT_SESSION_LOG, start, sizeof start);
    write_event(e, &event);
    ls_strbuf_free(&event);
}

static void add_scalar(ls_strbuf *summary, const ls_tfscalar *s)
{
    ls_strbuf value  = {0};
    float     number = (float)s->value;
    uint32_t  bits;

    memcpy(&bits, &number, sizeof bits);
    add_bytes(&value, VALUE_TAG, s->tag, strlen(s->tag));
    add_byte(&value, VALUE_SIMPLE);
    add_fixed(&value, bits, 4);
    if (value.failed)
        summary->failed = true;
    else
        add_bytes(summary, SUMMARY_VALUE, value.data, value.used);
    ls_strbuf_free(&value);
}

void ls_tfevents_add_at(ls_tfevents *e, double wall_time, int64_t step,
                        const ls_tfscalar *scalars, int n)
{
    ls_strbuf summary = {0}, event = {0};

    if (!e || e->fd < 0)
        return;
    for (int i = 0; i < n; i++)
        add_scalar(&summary, &scalars[i]);
    add_wall_time(&event, wall_time);
    add_step(&event, step);
    event.failed = event.failed || summary.failed;
    if (summary.used)
        add_bytes(&event, EVENT_SUMMARY, summary.data, summary.used);
    write_event(e, &event);
    ls_strbuf_free(&summary);
    ls_strbuf_free(&event);
}

void ls_tfevents_add(ls_tfevents *e, int64_t step, const ls_tfscalar *scalars, int n)
{
    if (e)
        ls_tfevents_add_at(e, now(), step, scalars, n);
}

/* ---- the file ---- */

/* The first name that nobody has. */
static ls_status make_file(ls_tfevents *e, const char *dir)
{
    char host[256] = "";

    gethostname(host, sizeof host - 1);
    for (int i = 0; i < MOST_FILES; i++) {
        free(e->path);
        e->path =
            ls_sprintf("%s/" LS_TFEVENTS_PREFIX "%010lld.%s.%ld.%d", dir, (long long)time(NULL),
                       *host ? host : "localhost", (long)getpid(), i);
        if (!e->path)
            return LS_ENOMEM;
        e->fd = open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0666);
        if (e->fd >= 0 || errno != EEXIST)
            break;
    }
    return e->fd >= 0 ? LS_OK : ls_fail(LS_EIO, "%s: %s", e->path, strerror(errno));
}

ls_status ls_tfevents_open(const char *dir, int64_t from, ls_tfevents **events)
{
    ls_tfevents *e = ls_calloc(1, sizeof *e);

    *events = NULL;
    if (!e)
        return LS_ENOMEM;
    e->fd            = -1;
    ls_status status = make_file(e, dir);
    if (status) {
        ls_tfevents_close(e);
        return status;
    }
    write_version(e);
    if (from > 0 && e->fd >= 0)
        write_start(e, from + 1);
    *events = e;
    return LS_OK;
}

void ls_tfevents_close(ls_tfevents *e)
{
    if (!e)
        return;
    if (e->fd >= 0)
        close(e->fd);
    free(e->path);
    free(e);
}

ls_status ls_tfevents_check(ls_tfevents *e)
{
    int error = e ? e->error : 0;

    if (!error)
        return LS_OK;
    e->error = 0;
    return ls_fail(error == ENOMEM ? LS_ENOMEM : LS_EIO, "%s: %s; no more events are written",
                   e->path, strerror(error));
}

#define _GNU_SOURCE /* memfd_create */
/*
 * shared_parts.c - see shared_parts.h.
 *
 * Everything is written by pwrite(), which says so where memory is short; a store into a mapped
 * page that cannot be had would be a SIGBUS.
 */
#include "core/shared_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/host.h"

enum { HEADER = 4096, ALIGN = 64, EMPTY = 0, FILLED, FAILED };

typedef struct {
    _Atomic int32_t state;
    int32_t         status; /* FAILED: an ls_status */
    char            text[512];
    uint64_t        total; /* bytes of the file */
    uint64_t        at[LS_SHARED_PARTS], bytes[LS_SHARED_PARTS];
} header;

struct ls_shared {
    int     fd; /* -1: hidden, or mapped */
    int64_t maker;
    header *head;
    char   *data; /* the whole file, from its start; NULL: not filled */
    size_t  mapped;
    bool    charged;
};

static ls_status no_memory(const char *what, uint64_t bytes)
{
    return ls_fail(LS_ENOMEM, "%llu bytes to share: %s: %s", (unsigned long long)bytes, what,
                   strerror(errno));
}

static ls_status write_at(int fd, const void *data, size_t bytes, uint64_t at)
{
    const char *from = data;

    while (bytes) {
        ssize_t n = pwrite(fd, from, bytes, (off_t)at);
        if (n < 0 && errno != EINTR)
            return no_memory("pwrite", bytes);
        size_t wrote = n > 0 ? (size_t)n : 0;
        from += wrote;
        at += wrote;
        bytes -= wrote;
    }
    return LS_OK;
}

static ls_status map_header(ls_shared *s, int protection)
{
    void *head = mmap(NULL, HEADER, protection, MAP_SHARED, s->fd, 0);

    if (head == MAP_FAILED)
        return no_memory("mmap", HEADER);
    s->head = head;
    return LS_OK;
}

static ls_status map_all(ls_shared *s)
{
    void *data = mmap(NULL, s->head->total, PROT_READ, MAP_SHARED, s->fd, 0);

    if (data == MAP_FAILED)
        return no_memory("mmap", s->head->total);
    s->data   = data;
    s->mapped = s->head->total;
    return LS_OK;
}

static ls_shared *new_shared(int fd, int64_t maker)
{
    ls_shared *s = ls_calloc(1, sizeof *s);

    if (s)
        *s = (ls_shared){.fd = fd, .maker = maker};
    else
        close(fd);
    return s;
}

ls_status ls_shared_new(ls_shared **out, ls_shared_place *place)
{
    static const char zero[HEADER];
    struct stat       info;
    int               fd = memfd_create("lockstep data", MFD_CLOEXEC);

    *out   = NULL;
    *place = (ls_shared_place){.fd = -1};
    if (fd < 0)
        return ls_fail(LS_EUNSUPPORTED, "memory to share: memfd_create: %s", strerror(errno));
    ls_shared *s = new_shared(fd, getpid());
    if (!s)
        return LS_ENOMEM;
    ls_status status = write_at(fd, zero, HEADER, 0);
    if (!status)
        status = map_header(s, PROT_READ | PROT_WRITE);
    if (!status && fstat(fd, &info))
        status = no_memory("fstat", HEADER);
    if (status) {
        ls_shared_free(s);
        return status;
    }
    *place = (ls_shared_place){getpid(), fd, info.st_dev, info.st_ino};
    *out   = s;
    return LS_OK;
}

static bool is_place(const struct stat *info, const ls_shared_place *place)
{
    return info->st_dev == place->device && info->st_ino == place->inode &&
           info->st_size >= HEADER;
}

/* Looked at before it is opened, for in another space of process numbers it may be anything. */
static int open_place(const ls_shared_place *place)
{
    char        path[80];
    struct stat info;
    int         fd = -1;

    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place->pid,
             (long long)place->fd);
    if (place->fd >= 0 && !stat(path, &info) && is_place(&info, place))
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &info) || !is_place(&info, place))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

ls_status ls_shared_open(const ls_shared_place *place, ls_shared **out)
{
    int fd = open_place(place);

    *out = NULL;
    if (fd < 0)
        return ls_fail(LS_EUNSUPPORTED, "memory of process %lld cannot be reached from here",
                       (long long)place->pid);
    ls_shared *s = new_shared(fd, place->pid);
    if (!s)
        return LS_ENOMEM;
    ls_status status = map_header(s, PROT_READ);
    if (status)
        ls_shared_free(s);
    else
        *out = s;
    return status;
}

void ls_shared_free(ls_shared *s)
{
    if (!s)
        return;
    ls_shared_hide(s);
    if (s->data)
        munmap(s->data, s->mapped);
    if (s->charged)
        ls_mem_discharge(s->mapped, LS_MEM_OTHER);
    if (s->head)
        munmap(s->head, HEADER);
    free(s);
}

void ls_shared_fail(ls_shared *s, ls_status status)
{
    s->head->status = (int32_t)status;
    snprintf(s->head->text, sizeof s->head->text, "%s", ls_error_message());
    atomic_store(&s->head->state, FAILED);
}

static uint64_t lay_out(header *h, const ls_shared_array *parts, int n)
{
    uint64_t end = HEADER;

    for (int i = 0; i < n; i++) {
        h->at[i]    = end;
        h->bytes[i] = parts[i].bytes;
        end += (parts[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    return end;
}

static ls_status write_parts(ls_shared *s, const ls_shared_array *parts, int n)
{
    ls_status status = LS_OK;

    if (ftruncate(s->fd, (off_t)s->head->total))
        return no_memory("ftruncate", s->head->total);
    for (int i = 0; i < n && !status; i++)
        status = write_at(s->fd, parts[i].data, parts[i].bytes, s->head->at[i]);
    return status ? status : map_all(s);
}

ls_status ls_shared_fill(ls_shared *s, const ls_shared_array *parts, int n)
{
    s->head->total   = lay_out(s->head, parts, n);
    ls_status status = ls_mem_charge(s->head->total, LS_MEM_OTHER);

    if (!status) {
        status = write_parts(s, parts, n);
        if (status)
            ls_mem_discharge(s->head->total, LS_MEM_OTHER);
    }
    if (status) {
        ls_shared_fail(s, status);
        return status;
    }
    s->charged = true;
    atomic_store(&s->head->state, FILLED);
    return LS_OK;
}

void ls_shared_hide(ls_shared *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

bool ls_shared_is_filled(const ls_shared *s)
{
    return atomic_load(&s->head->state) != EMPTY;
}

bool ls_shared_is_stopped(const ls_shared *s)
{
    char state = ls_process_state((long)s->maker);

    return state == 'T' || state == 't';
}

static bool is_whole(const ls_shared *s)
{
    const header *h = s->head;
    struct stat   info;

    if (fstat(s->fd, &info) || (uint64_t)info.st_size < h->total)
        return false;
    for (int i = 0; i < LS_SHARED_PARTS; i++)
        if (h->at[i] > h->total || h->bytes[i] > h->total - h->at[i])
            return false;
    return true;
}

ls_status ls_shared_take(ls_shared *s)
{
    const header *h     = s->head;
    int           state = atomic_load(&h->state);

    if (state == FAILED)
        return ls_fail((ls_status)h->status, "%.511s", h->text);
    if (state != FILLED || !is_whole(s))
        return ls_fail(LS_ESTATE, "memory of process %lld: taken before it was filled",
                       (long long)s->maker);
    ls_status status = map_all(s);
    if (!status)
        ls_shared_hide(s);
    return status;
}

ls_shared_array ls_shared_part(const ls_shared *s, int i)
{
    if (i < 0 || i >= LS_SHARED_PARTS || !s->data)
        return (ls_shared_array){0};
    return (ls_shared_array){s->data + s->head->at[i], s->head->bytes[i]};
}

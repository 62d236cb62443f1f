#define _GNU_SOURCE /* memfd_create, fallocate, MADV_POPULATE_WRITE */
/*
 * space_shm.c - the symmetric heap of the processes of one host.
 *
 * Each rank owns a memfd and hands out ranges of it; a place is an offset in that file.
 *
 *     file:   [ index: which ranges are blocks | block | free | block | block ... grows ]
 *
 * The owner maps each block where it likes.  A peer that is given a place looks up the block
 * around it in the owner's index and maps that block, once; it keeps the mapping, because a
 * range of a file stays that range whatever the owner does with it.  So nobody asks anybody,
 * and a step in its steady state maps nothing.
 *
 * Memory is written when it is allocated (MADV_POPULATE_WRITE says ENOMEM where a later store
 * would be a SIGBUS), on huge pages where the system gives them to those who ask.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/alloc.h"
#include "dist/comm/space.h"

enum {
    PAGE        = 4096,
    HUGE_PAGE   = 2 << 20,
    INDEX_RANGE = 4095,
    /* a released block of at most this stays mapped for the next of its size */
    KEEP_UP_TO = 1 << 20,
    /* a peer's block of more is mapped without its pages: of a bucket a rank reads its slice */
    WINDOW_AT_ONCE = 4 << 20
};

typedef struct {
    _Atomic uint64_t offset, bytes; /* offset 0: empty */
} range;

typedef struct {
    _Atomic uint64_t ranges; /* used so far, with holes */
    uint64_t         unused;
    range            range[INDEX_RANGE];
} file_index;

typedef struct {
    uint64_t offset, bytes; /* in the file; whole pages */
    char    *address;
    size_t   asked;
    bool     free; /* kept for reuse */
    int      slot; /* in the index, -1: it was full */
} block;

typedef struct {
    uint64_t offset, bytes;
    char    *address;
} window;

typedef struct {
    int         fd;
    file_index *index;
    window     *windows;
    int         n, room;
} peer;

typedef struct {
    ls_space        base;
    pthread_mutex_t lock;
    int             rank, world;
    block          *blocks; /* sorted by offset */
    int             n, room;
    uint64_t        end;     /* of the file */
    peer            peers[]; /* [world]; the own one has the file and the index */
} shm_space;

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

ls_status ls_space_shm_file(int *fd)
{
    *fd = memfd_create("lockstep", MFD_CLOEXEC);
    if (*fd < 0)
        return ls_fail(LS_EUNSUPPORTED, "shared memory: memfd_create: %s", strerror(errno));
    if (ftruncate(*fd, (off_t)round_up(sizeof(file_index), PAGE)) == 0)
        return LS_OK;
    ls_status status = ls_fail(LS_ENOMEM, "shared memory: ftruncate: %s", strerror(errno));
    close(*fd);
    *fd = -1;
    return status;
}

/* Maps a range of a file; large ones at an address that huge pages can start at. */
static char *map_range(int fd, uint64_t offset, uint64_t bytes)
{
    if (bytes < HUGE_PAGE) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
        return p == MAP_FAILED ? NULL : p;
    }
    char *room = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    char *p    = (char *)round_up((uintptr_t)room, HUGE_PAGE);
    char *last = room + bytes + HUGE_PAGE;
    bool  ok =
        mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == p;
    if (p > room)
        munmap(room, (size_t)(p - room));
    if (last > p + bytes || !ok)
        munmap(ok ? p + bytes : p, (size_t)(last - (ok ? p + bytes : p)));
    if (ok)
        madvise(p, bytes, MADV_HUGEPAGE); /* a wish */
    return ok ? p : NULL;
}

/* Has every page of it in memory; false: there is not enough. */
static bool populate(char *p, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if (!madvise(p, bytes, MADV_POPULATE_WRITE))
        return true;
    if (errno != EINVAL) /* EINVAL: a kernel before 5.14 */
        return false;
#endif
    for (uint64_t i = 0; i < bytes; i += PAGE)
        atomic_fetch_add((_Atomic char *)(p + i), 0); /* a peer may be writing there */
    return true;
}

static int free_slot(file_index *index)
{
    uint64_t used = atomic_load(&index->ranges);

    for (uint64_t i = 0; i < used; i++)
        if (!atomic_load(&index->range[i].offset))
            return (int)i;
    if (used == INDEX_RANGE)
        return -1;
    atomic_store(&index->ranges, used + 1);
    return (int)used;
}

static int publish(file_index *index, uint64_t offset, uint64_t bytes)
{
    int slot = free_slot(index);

    if (slot >= 0) {
        atomic_store(&index->range[slot].bytes, bytes);
        atomic_store(&index->range[slot].offset, offset);
    }
    return slot;
}

/* A free range of the file, first fit; *at is where its block goes in the sorted list. */
static uint64_t find_range(const shm_space *s, uint64_t bytes, int *at)
{
    uint64_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
    uint64_t start = round_up(sizeof(file_index), align);

    for (int i = 0; i < s->n; i++) {
        if (start + bytes <= s->blocks[i].offset) {
            *at = i;
            return start;
        }
        start = round_up(s->blocks[i].offset + s->blocks[i].bytes, align);
    }
    *at = s->n;
    return start;
}

static bool grow(void *list, int n, int *room, size_t size)
{
    if (n < *room)
        return true;
    int   more = *room ? 2 * *room : 16;
    void *old, *fresh = ls_calloc((size_t)more, size);
    if (!fresh)
        return false;
    memcpy(&old, list, sizeof old);
    if (old)
        memcpy(fresh, old, (size_t)n * size);
    free(old);
    memcpy(list, &fresh, sizeof fresh);
    *room = more;
    return true;
}

static block *reuse(shm_space *s, uint64_t bytes)
{
    for (int i = 0; i < s->n; i++)
        if (s->blocks[i].free && s->blocks[i].bytes == bytes)
            return &s->blocks[i];
    return NULL;
}

static block *fresh_block(shm_space *s, uint64_t bytes)
{
    int at;

    if (!grow(&s->blocks, s->n, &s->room, sizeof *s->blocks))
        return NULL;
    int      fd     = s->peers[s->rank].fd;
    uint64_t offset = find_range(s, bytes, &at), end = offset + bytes;
    char    *p = NULL;
    if (end > s->end && ftruncate(fd, (off_t)end) == 0)
        s->end = end;
    if (end <= s->end)
        p = map_range(fd, offset, bytes);
    if (p && !populate(p, bytes)) {
        munmap(p, bytes);
        p = NULL;
    }
    if (!p) {
        ls_fail(LS_ENOMEM, "%llu bytes of shared memory asked for: %s",
                (unsigned long long)bytes, strerror(errno));
        return NULL;
    }
    memmove(&s->blocks[at + 1], &s->blocks[at], (size_t)(s->n - at) * sizeof *s->blocks);
    s->n++;
    s->blocks[at]      = (block){.offset = offset, .bytes = bytes, .address = p};
    s->blocks[at].slot = publish(s->peers[s->rank].index, offset, bytes);
    return &s->blocks[at];
}

static void *shm_alloc(ls_space *base, size_t asked)
{
    shm_space *s = (shm_space *)base;

    if (asked > (size_t)1 << 46) {
        ls_fail(LS_ENOMEM, "%zu bytes of shared memory asked for", asked);
        return NULL;
    }
    uint64_t bytes = round_up(asked ? asked : 1, PAGE);
    if (ls_mem_charge(bytes, LS_MEM_COMM))
        return NULL;
    pthread_mutex_lock(&s->lock);
    block *b       = reuse(s, bytes);
    bool   zeroed  = !b;
    char  *address = NULL;
    if (b || (b = fresh_block(s, bytes))) {
        b->free  = false;
        b->asked = asked;
        address  = b->address;
    }
    pthread_mutex_unlock(&s->lock);
    if (!address)
        ls_mem_discharge(bytes, LS_MEM_COMM);
    else if (!zeroed)
        memset(address, 0, asked);
    return address;
}

static void drop_block(shm_space *s, int i)
{
    block      *b    = &s->blocks[i];
    const peer *self = &s->peers[s->rank];

    munmap(b->address, b->bytes);
    if (b->slot >= 0)
        atomic_store(&self->index->range[b->slot].offset, 0);
    if (fallocate(self->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)b->offset,
                  (off_t)b->bytes))
        return; /* the range stays taken, and the memory with it */
    s->n--;
    memmove(b, b + 1, (size_t)(s->n - i) * sizeof *b);
}

static void shm_release(ls_space *base, void *p)
{
    shm_space *s = (shm_space *)base;

    pthread_mutex_lock(&s->lock);
    for (int i = 0; p && i < s->n; i++)
        if (s->blocks[i].address == p) {
            ls_mem_discharge(s->blocks[i].bytes, LS_MEM_COMM);
            s->blocks[i].free = true;
            if (s->blocks[i].bytes > KEEP_UP_TO)
                drop_block(s, i);
            break;
        }
    pthread_mutex_unlock(&s->lock);
}

static uint64_t shm_place(ls_space *base, const void *p, size_t bytes)
{
    shm_space *s     = (shm_space *)base;
    uintptr_t  at    = (uintptr_t)p;
    uint64_t   place = 0;

    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n && !place; i++) {
        const block *b     = &s->blocks[i];
        uintptr_t    first = (uintptr_t)b->address;
        if (at >= first && at - first <= b->bytes && bytes <= b->bytes - (at - first))
            place = b->offset + (at - first);
    }
    pthread_mutex_unlock(&s->lock);
    return place;
}

static char *in_window(const peer *p, uint64_t place, size_t bytes)
{
    for (int i = p->n - 1; i >= 0; i--) {
        const window *w = &p->windows[i];
        if (place >= w->offset && place - w->offset <= w->bytes &&
            bytes <= w->bytes - (place - w->offset))
            return w->address + (place - w->offset);
    }
    return NULL;
}

/* The block around a place in its owner's index, or (the index was full) the pages it needs. */
static window around(const peer *p, uint64_t place, size_t bytes)
{
    uint64_t used = atomic_load(&p->index->ranges);

    for (uint64_t i = 0; i < used && i < INDEX_RANGE; i++) {
        uint64_t offset = atomic_load(&p->index->range[i].offset);
        uint64_t size   = atomic_load(&p->index->range[i].bytes);
        if (offset && offset <= place && place - offset < size &&
            bytes <= size - (place - offset))
            return (window){offset, size, NULL};
    }
    uint64_t first = place / PAGE * PAGE;
    return (window){first, round_up(place + bytes, PAGE) - first, NULL};
}

static char *new_window(peer *p, uint64_t place, size_t bytes)
{
    window w = around(p, place, bytes);

    if (!grow(&p->windows, p->n, &p->room, sizeof *p->windows))
        return NULL;
    w.address = map_range(p->fd, w.offset, w.bytes);
    if (!w.address) {
        ls_fail(LS_ENOMEM, "mapping %llu bytes of a peer's memory: %s",
                (unsigned long long)w.bytes, strerror(errno));
        return NULL;
    }
    if (w.bytes <= WINDOW_AT_ONCE)
        (void)populate(w.address, w.bytes); /* now, not in a later step; the pages are there */
    p->windows[p->n++] = w;
    return w.address + (place - w.offset);
}

static void *shm_address(ls_space *base, int rank, uint64_t place, size_t bytes)
{
    shm_space *s = (shm_space *)base;
    peer      *p = &s->peers[rank];

    pthread_mutex_lock(&s->lock);
    char *address = in_window(p, place, bytes);
    if (!address)
        address = new_window(p, place, bytes);
    pthread_mutex_unlock(&s->lock);
    return address;
}

static void close_peer(peer *p)
{
    for (int i = 0; i < p->n; i++)
        munmap(p->windows[i].address, p->windows[i].bytes);
    free(p->windows);
    if (p->index)
        munmap(p->index, sizeof *p->index);
    if (p->fd >= 0)
        close(p->fd);
}

static void shm_close(ls_space *base)
{
    shm_space *s = (shm_space *)base;

    for (int i = 0; i < s->n; i++) {
        if (!s->blocks[i].free)
            ls_mem_discharge(s->blocks[i].bytes, LS_MEM_COMM);
        munmap(s->blocks[i].address, s->blocks[i].bytes);
    }
    for (int r = 0; r < s->world; r++)
        close_peer(&s->peers[r]);
    free(s->blocks);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->base.lock);
    free(s);
}

static const ls_space_ops shm_ops = {
    .name    = "shm",
    .alloc   = shm_alloc,
    .release = shm_release,
    .place   = shm_place,
    .address = shm_address,
    .close   = shm_close,
};

static ls_status map_index(peer *p, int rank)
{
    void *index = mmap(NULL, sizeof *p->index, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);

    if (index == MAP_FAILED)
        return ls_fail(LS_ENOMEM, "mapping the shared memory of rank %d: %s", rank,
                       strerror(errno));
    p->index = index;
    return LS_OK;
}

ls_status ls_space_shm(int rank, int world, int fd, const int *fds, ls_space **space)
{
    shm_space *s      = ls_calloc(1, sizeof *s + (size_t)world * sizeof s->peers[0]);
    ls_status  status = s ? LS_OK : LS_ENOMEM;

    for (int r = 0; r < world; r++)
        if (s)
            s->peers[r].fd = r == rank ? fd : fds[r];
        else if ((r == rank ? fd : fds[r]) >= 0)
            close(r == rank ? fd : fds[r]);
    if (!s)
        return status;
    s->base.ops = &shm_ops;
    pthread_mutex_init(&s->base.lock, NULL);
    s->rank  = rank;
    s->world = world;
    s->end   = round_up(sizeof(file_index), PAGE);
    pthread_mutex_init(&s->lock, NULL);
    for (int r = 0; r < world && !status; r++)
        if (s->peers[r].fd >= 0)
            status = map_index(&s->peers[r], r);
    if (status)
        shm_close(&s->base);
    else
        *space = &s->base;
    return status;
}

/*
 * space_threads.c - ranks that are threads of one process: all memory is shared already.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "dist/comm/space.h"

/* In front of a block, in a cache line of its own: its size. */
enum { FRONT = 64 };

static void *threads_alloc(ls_space *s, size_t bytes)
{
    (void)s;
    char *block = bytes > SIZE_MAX - FRONT ? NULL : ls_mem_alloc(bytes + FRONT, LS_MEM_COMM);

    if (!block)
        return NULL;
    memset(block, 0, bytes + FRONT);
    memcpy(block, &bytes, sizeof bytes);
    return block + FRONT;
}

static void threads_release(ls_space *s, void *block)
{
    (void)s;
    if (!block)
        return;
    char  *front = (char *)block - FRONT;
    size_t bytes;
    memcpy(&bytes, front, sizeof bytes);
    ls_mem_free(front, bytes + FRONT, LS_MEM_COMM);
}

static uint64_t threads_place(ls_space *s, const void *p, size_t bytes)
{
    (void)s;
    (void)bytes;
    return (uint64_t)(uintptr_t)p;
}

static void *threads_address(ls_space *s, int rank, uint64_t place, size_t bytes)
{
    (void)s;
    (void)rank;
    (void)bytes;
    return (void *)(uintptr_t)place;
}

static void threads_close(ls_space *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static const ls_space_ops threads_ops = {
    .name    = "threads",
    .alloc   = threads_alloc,
    .release = threads_release,
    .place   = threads_place,
    .address = threads_address,
    .close   = threads_close,
};

ls_status ls_space_threads(ls_space **space)
{
    *space = ls_calloc(1, sizeof **space);
    if (!*space)
        return LS_ENOMEM;
    (*space)->ops       = &threads_ops;
    (*space)->any_frees = true;
    pthread_mutex_init(&(*space)->lock, NULL);
    return LS_OK;
}

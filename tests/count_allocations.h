/*
 * count_allocations.h - every call of the allocator in a program, counted.
 *
 * The program's own objects come here by the linker's --wrap (tests/CMakeLists.txt); for one
 * source of a program.
 */
#ifndef LS_TESTS_COUNT_ALLOCATIONS_H
#define LS_TESTS_COUNT_ALLOCATIONS_H

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
int   __real_posix_memalign(void **p, size_t alignment, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
int   __wrap_posix_memalign(void **p, size_t alignment, size_t n);

static atomic_int allocations; /* of all threads of this process, so far */

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    allocations++;
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    allocations++;
    return __real_aligned_alloc(alignment, n);
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t n)
{
    allocations++;
    return __real_posix_memalign(p, alignment, n);
}

#endif

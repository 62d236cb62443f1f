/*
 * fuzz_alloc.c - what the linker puts in the place of ls_mem_alloc and ls_mem_free (--wrap).
 *
 * Blocks come from the system, of exactly their size: those of core/alloc.c are rounded up to
 * size classes and kept when they are freed, where AddressSanitizer cannot see into them.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

void *__wrap_ls_mem_alloc(size_t bytes, ls_mem_category category);
void  __wrap_ls_mem_free(void *block, size_t bytes, ls_mem_category category);

void *__wrap_ls_mem_alloc(size_t bytes, ls_mem_category category)
{
    void *block = NULL;

    (void)category;
    if (posix_memalign(&block, 64, bytes ? bytes : 1)) {
        (void)!ls_fail(LS_ENOMEM, "%zu bytes", bytes);
        return NULL;
    }
    return memset(block, 0xa5, bytes);
}

void __wrap_ls_mem_free(void *block, size_t bytes, ls_mem_category category)
{
    (void)bytes;
    (void)category;
    free(block);
}

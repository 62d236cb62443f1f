/*
 * dtype.c - the traits table, and bf16 one by one.
 */
#include "core/dtype.h"

#include <string.h>

#include "core/kernels/bf16.h"

typedef struct {
    const char *name;
    size_t      bytes;
} traits;

static const traits table[] = {
#define X(name, bytes, type) [LS_##name] = {#name, bytes},
    LS_DTYPE_MAP(X)
#undef X
};

#define X(name, bytes, type) _Static_assert(sizeof(type) == (bytes), "size of " #name);
LS_DTYPE_MAP(X)
#undef X

size_t ls_dtype_bytes(ls_dtype dtype)
{
    return table[dtype].bytes;
}

const char *ls_dtype_name(ls_dtype dtype)
{
    return table[dtype].name;
}

bool ls_dtype_parse(const char *name, ls_dtype *dtype)
{
    for (int i = 0; i < LS_DTYPE_COUNT; i++)
        if (!strcmp(table[i].name, name)) {
            *dtype = (ls_dtype)i;
            return true;
        }
    return false;
}

uint16_t ls_bf16_from_f32(float x)
{
    return ls_bf16_round(x);
}

float ls_bf16_to_f32(uint16_t x)
{
    return ls_bf16_widen(x);
}

/*
 * safetensors_dtype.c - the format's dtypes, sizes of tensors, and names for messages.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/safetensors.h"

/* In the order by which the reference sorts tensors, smallest first. */
static const struct {
    const char *name;
    int         bits;
} dtypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

int ls_st_dtype_rank(const char *dtype)
{
    for (int i = 0; i < (int)(sizeof dtypes / sizeof *dtypes); i++)
        if (!strcmp(dtypes[i].name, dtype))
            return i;
    return -1;
}

int ls_st_dtype_bits(const char *dtype)
{
    int rank = ls_st_dtype_rank(dtype);

    return rank < 0 ? 0 : dtypes[rank].bits;
}

bool ls_st_numel(const uint64_t *dim, int ndim, uint64_t *numel)
{
    *numel = 1;
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(*numel, dim[i], numel))
            return false;
    return true;
}

ls_status ls_st_bytes(const char *dtype, const uint64_t *dim, int ndim, uint64_t *bytes)
{
    uint64_t         bits;
    ls_st_shape_text shape;

    if (!ls_st_numel(dim, ndim, &bits) ||
        __builtin_mul_overflow(bits, (uint64_t)ls_st_dtype_bits(dtype), &bits))
        return ls_fail(LS_EFORMAT, "%s %s has more than 2^64 bits", dtype,
                       ls_st_print_shape(dim, ndim, &shape));
    if (bits % 8)
        return ls_fail(LS_EFORMAT, "%s %s is no whole number of bytes", dtype,
                       ls_st_print_shape(dim, ndim, &shape));
    *bytes = bits / 8;
    return LS_OK;
}

const char *ls_st_print_name(const char *name, ls_st_name_text *buffer)
{
    size_t used = 0;

    for (; *name && used < 80; name++)
        if ((unsigned char)*name < 0x20 || *name == 0x7f)
            used += (size_t)snprintf(buffer->text + used, 5, "\\x%02x", (unsigned char)*name);
        else
            buffer->text[used++] = *name;
    while (*name && ((unsigned char)*name & 0xc0) == 0x80) /* finish the UTF-8 sequence */
        buffer->text[used++] = *name++;
    snprintf(buffer->text + used, sizeof buffer->text - used, "%s", *name ? "..." : "");
    return buffer->text;
}

const char *ls_st_print_shape(const uint64_t *dim, int ndim, ls_st_shape_text *buffer)
{
    size_t used = 0;

    for (int i = 0; i < ndim; i++)
        used += (size_t)snprintf(buffer->text + used, sizeof buffer->text - used, "%s%llu",
                                 i ? "," : "(", (unsigned long long)dim[i]);
    snprintf(buffer->text + used, sizeof buffer->text - used, "%s", ndim ? ")" : "()");
    return buffer->text;
}

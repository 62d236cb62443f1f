/*
 * compare.c - streaming comparison by bits, and distances where bits differ.
 *
 * Equal bits are equal: two NaNs of the same bits do not differ, 0 and -0 do (by 0 ulps).
 */
#include "cli/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/dtype.h"

enum { BUFFER_BYTES = 1 << 20 };

static double f32_value(const char *p)
{
    float x;

    memcpy(&x, p, sizeof x);
    return (double)x;
}

static double bf16_value(const char *p)
{
    uint16_t x;

    memcpy(&x, p, sizeof x);
    return (double)ls_bf16_to_f32(x);
}

static double f64_value(const char *p)
{
    double x;

    memcpy(&x, p, sizeof x);
    return x;
}

static int64_t i32_value(const char *p)
{
    int32_t x;

    memcpy(&x, p, sizeof x);
    return x;
}

static int64_t i64_value(const char *p)
{
    int64_t x;

    memcpy(&x, p, sizeof x);
    return x;
}

static int64_t u8_value(const char *p)
{
    return (unsigned char)*p;
}

/* One of the two functions reads an element; digits print a real one so that it reads back. */
static const struct {
    double (*real)(const char *);
    int64_t (*integer)(const char *);
    int digits;
} readers[LS_DTYPE_COUNT] = {
    [LS_F32] = {f32_value, NULL, 9},  [LS_BF16] = {bf16_value, NULL, 5},
    [LS_F64] = {f64_value, NULL, 17}, [LS_I32] = {NULL, i32_value, 0},
    [LS_I64] = {NULL, i64_value, 0},  [LS_U8] = {NULL, u8_value, 0},
};

static double distance(ls_dtype dtype, const char *a, const char *b)
{
    if (readers[dtype].real)
        return fabs(readers[dtype].real(a) - readers[dtype].real(b));
    int64_t x = readers[dtype].integer(a), y = readers[dtype].integer(b);
    return (double)(x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x);
}

static void print_value(ls_dtype dtype, const char *p, char out[32])
{
    if (readers[dtype].real)
        snprintf(out, 32, "%.*g", readers[dtype].digits, readers[dtype].real(p));
    else
        snprintf(out, 32, "%" PRId64, readers[dtype].integer(p));
}

/* Floats in their order as integers, 0 and -0 as one. */
static int64_t f32_place(const char *p)
{
    uint32_t bits;

    memcpy(&bits, p, sizeof bits);
    int64_t size = bits & 0x7fffffffu;
    return bits >> 31 ? -size : size;
}

static uint64_t f32_ulps(const char *a, const char *b)
{
    if (isnan(f32_value(a)) || isnan(f32_value(b)))
        return (uint64_t)1 << 32;
    int64_t d = f32_place(a) - f32_place(b);
    return (uint64_t)(d < 0 ? -d : d);
}

static void add_element(ls_difference *d, ls_dtype dtype, const char *a, const char *b)
{
    double far = distance(dtype, a, b);

    if (!*d->a) {
        print_value(dtype, a, d->a);
        print_value(dtype, b, d->b);
    }
    if (isnan(far) || far > d->max_abs)
        d->max_abs = far; /* a NaN stays: nothing is greater */
    if (!d->has_ulps)
        return;
    uint64_t ulps = f32_ulps(a, b);
    d->max_ulps   = ulps > d->max_ulps ? ulps : d->max_ulps;
}

/* Elements of whole bytes; `at` is the chunk's first element. */
static void compare_chunk(ls_difference *d, ls_dtype dtype, size_t size, uint64_t at,
                          const char *a, const char *b, size_t bytes)
{
    for (size_t i = 0; i + size <= bytes; i += size) {
        if (!memcmp(a + i, b + i, size))
            continue;
        if (!d->count++)
            d->first = at + i / size;
        if (d->has_distance)
            add_element(d, dtype, a + i, b + i);
    }
}

/* Several elements may share a byte (F4, F6): the bits tell which differ.  `last` is the
 * latest. */
static void compare_bits(ls_difference *d, uint64_t *last, int bits, uint64_t bit,
                         unsigned differ)
{
    for (; differ; differ >>= 1, bit++) {
        uint64_t element = bit / (uint64_t)bits;
        if (!(differ & 1u) || (d->count && element == *last))
            continue;
        if (!d->count++)
            d->first = element;
        *last = element;
    }
}

static ls_status compare_buffers(const ls_safetensors *file_a, const ls_st_entry *a,
                                 const ls_safetensors *file_b, const ls_st_entry *b,
                                 ls_difference *d, char *buffer)
{
    char    *other = buffer + BUFFER_BYTES;
    int      bits  = ls_st_dtype_bits(a->dtype);
    uint64_t bytes = a->end - a->begin;
    uint64_t last  = 0;
    ls_dtype dtype = LS_F32;

    d->has_distance = ls_dtype_parse(a->dtype, &dtype);
    d->has_ulps     = d->has_distance && dtype == LS_F32;
    for (uint64_t at = 0; at < bytes; at += BUFFER_BYTES) {
        size_t    step   = bytes - at < BUFFER_BYTES ? (size_t)(bytes - at) : BUFFER_BYTES;
        ls_status status = ls_safetensors_read(file_a, a, at, buffer, step);
        if (!status)
            status = ls_safetensors_read(file_b, b, at, other, step);
        if (status)
            return status;
        if (!memcmp(buffer, other, step))
            continue;
        for (size_t i = 0; i < step && bits % 8; i++)
            compare_bits(d, &last, bits, (at + i) * 8, (unsigned char)(buffer[i] ^ other[i]));
        if (bits % 8 == 0)
            compare_chunk(d, dtype, (size_t)bits / 8, at * 8 / (uint64_t)bits, buffer, other,
                          step);
    }
    return LS_OK;
}

ls_status ls_compare(const ls_safetensors *file_a, const ls_st_entry *a,
                     const ls_safetensors *file_b, const ls_st_entry *b,
                     ls_difference *difference)
{
    char *buffer = ls_mem_alloc((size_t)2 * BUFFER_BYTES, LS_MEM_OTHER);

    *difference = (ls_difference){0};
    if (!buffer)
        return LS_ENOMEM;
    ls_status status = compare_buffers(file_a, a, file_b, b, difference, buffer);
    ls_mem_free(buffer, (size_t)2 * BUFFER_BYTES, LS_MEM_OTHER);
    return status;
}

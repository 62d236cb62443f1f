/*
 * dtype.h - element types of storages, of checkpoints and of the wire, as one traits table.
 *
 * ls_real is the compute type: float.  A second library, for tests only, is compiled with
 * LS_REAL_F64 so that gradient checks hold at 1e-7; F64 exists for that library.
 */
#ifndef LS_CORE_DTYPE_H
#define LS_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name as in safetensors, bytes, C type it is stored as) */
#define LS_DTYPE_MAP(X)  \
    X(F32, 4, float)     \
    X(BF16, 2, uint16_t) \
    X(I32, 4, int32_t)   \
    X(I64, 8, int64_t)   \
    X(U8, 1, uint8_t)    \
    X(F64, 8, double)

typedef enum {
#define X(name, bytes, type) LS_##name,
    LS_DTYPE_MAP(X)
#undef X
        LS_DTYPE_COUNT
} ls_dtype;

#ifdef LS_REAL_F64
typedef double ls_real;
#define LS_REAL LS_F64
#else
typedef float ls_real;
#define LS_REAL LS_F32
#endif

/* Bytes of one element. */
size_t ls_dtype_bytes(ls_dtype dtype);

/* "F32", "BF16", "I32", "I64", "U8", "F64": the names of safetensors. */
const char *ls_dtype_name(ls_dtype dtype);

/* The dtype of that name; false when there is none. */
bool ls_dtype_parse(const char *name, ls_dtype *dtype);

/* Round to nearest even; a NaN stays a (quiet) NaN. */
uint16_t ls_bf16_from_f32(float x);
float    ls_bf16_to_f32(uint16_t x);

#endif

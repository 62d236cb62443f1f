/*
 * safetensors.h - reading and writing files of the safetensors format.
 *
 *     8 bytes   N, u64 little-endian, at most 100,000,000
 *     N bytes   {"__metadata__": {"k": "v"}, "wte.weight": {"dtype": "F32", "shape": [65, 64],
 *                "data_offsets": [0, 16640]}, ...}   JSON, padded with spaces
 *     the rest  the tensors, row-major, little-endian, tiling it without gap, overlap or rest
 *
 * The reader takes any valid file, also with dtypes that Lockstep does not compute with, and is
 * meant for files that nobody vouches for: every length is checked before it is used, and data
 * is read with pread, so that a file cut while it is open is an error and not a signal.  It
 * accepts what the format's reference reader accepts, except for the following, which would
 * have two meanings or do not fit here: duplicate names of tensors or of metadata, names that
 * are empty, hold a NUL or exceed 1024 bytes, more than 2^20 tensors, more than 8 dimensions,
 * a tensor written as a JSON array, a dtype written as a JSON object.  (It passes over numbers
 * in unknown keys without their value, so one beyond the range of a double is not refused.)
 *
 * The writer sorts as the reference does (larger dtypes first, then by name), aligns the data
 * to 8 bytes, and replaces the old file only when the new one is whole and on the disk.
 *
 * Source: https://github.com/huggingface/safetensors, README "Format".
 */
#ifndef LS_CHECKPOINT_SAFETENSORS_H
#define LS_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { LS_ST_MAX_DIMS = 8, LS_ST_MAX_NAME = 1024, LS_ST_MAX_TENSORS = 1 << 20 };

/* One tensor of a file: its bytes are [begin, end) of the data. */
typedef struct {
    const char *name;
    const char *dtype; /* as in the file: "F32", "BF16", "F8_E4M3", ... */
    int         ndim;
    uint64_t    dim[LS_ST_MAX_DIMS];
    uint64_t    begin, end;
} ls_st_entry;

/* A key and its value in __metadata__; both end in a NUL, a value may hold others. */
typedef struct {
    const char *key, *value;
    size_t      key_bytes, value_bytes;
} ls_st_pair;

typedef struct {
    ls_st_entry *entry; /* sorted by name, bytewise */
    size_t       n_entries;
    ls_st_pair  *pair; /* sorted by key, bytewise */
    size_t       n_pairs;
    uint64_t     data_bytes;
    char        *text; /* what names, keys and values point into */
} ls_st_header;

/* Where the tensors of a file that is put together out of others are (view.h). */
typedef struct {
    ls_status (*read)(void *context, const ls_st_entry *entry, uint64_t offset, void *buffer,
                      size_t bytes);
    void (*close)(void *context);
} ls_st_backing;

/* An open file. */
typedef struct {
    char                *path;
    int                  fd;
    uint64_t             file_bytes;
    uint64_t             data_offset; /* of the first tensor, in the file */
    ls_st_header         header;
    const ls_st_backing *backing; /* NULL: the tensors are in fd */
    void                *context; /* the backing's, closed with the file */
} ls_safetensors;

/* A name fit for a message: control characters made visible, cut at about 80 bytes. */
typedef struct {
    char text[112];
} ls_st_name_text;
const char *ls_st_print_name(const char *name, ls_st_name_text *buffer);

/* "(2,3)" */
typedef struct {
    char text[LS_ST_MAX_DIMS * 21 + 3];
} ls_st_shape_text;
const char *ls_st_print_shape(const uint64_t *dim, int ndim, ls_st_shape_text *buffer);

/* Bits of one element of that dtype; 0 when the format has none of that name. */
int ls_st_dtype_bits(const char *dtype);

/* Place of that dtype in the format's order, from small to large; -1 when there is none. */
int ls_st_dtype_rank(const char *dtype);

/* Elements; false when they exceed 2^64 - 1. */
bool ls_st_numel(const uint64_t *dim, int ndim, uint64_t *numel);

/* Bytes of a tensor; LS_EFORMAT, with the reason alone, when they are no whole number or
 * overflow. */
LS_MUST_CHECK ls_status ls_st_bytes(const char *dtype, const uint64_t *dim, int ndim,
                                    uint64_t *bytes);

/* The header's length out of the first bytes of a file (as many of 8 as it has). */
LS_MUST_CHECK ls_status ls_st_header_length(const char *path, const unsigned char prefix[8],
                                            uint64_t file_bytes, uint64_t *length);

/*
 * Reads the header's text, for a file of file_bytes in all; path is for messages.  Takes text
 * (from ls_calloc), also on failure; it is changed in place.
 */
LS_MUST_CHECK ls_status ls_st_header_parse(const char *path, char *text, uint64_t length,
                                           uint64_t file_bytes, ls_st_header *header);
void                    ls_st_header_free(ls_st_header *header);

/* Opens a file and checks all of it but the values. */
LS_MUST_CHECK ls_status ls_safetensors_open(const char *path, ls_safetensors **file);
void                    ls_safetensors_close(ls_safetensors *file); /* NULL is allowed */

/* By binary search; NULL when there is none.  Borrowed from the file. */
const ls_st_entry *ls_safetensors_find(const ls_safetensors *file, const char *name);
const char        *ls_safetensors_metadata(const ls_safetensors *file, const char *key);

/* bytes of a tensor's data from its byte `offset` on, into the caller's buffer. */
LS_MUST_CHECK ls_status ls_safetensors_read(const ls_safetensors *file,
                                            const ls_st_entry *entry, uint64_t offset,
                                            void *buffer, size_t bytes);

/* A tensor to be written; nothing is owned. */
typedef struct {
    const char *name;
    const char *dtype; /* any of the format's */
    int         ndim;
    uint64_t    dim[LS_ST_MAX_DIMS];
    const void *data; /* row-major, little-endian */
} ls_st_source;

/* Metadata to be written: NUL-terminated UTF-8.  "format" is the writer's own key. */
typedef struct {
    const char *key, *value;
} ls_st_metadata;

/*
 * Writes a file, with {"format": "pt"} and the pairs as its metadata.  On failure the old file
 * is unchanged and nothing is left beside it (see atomic_file.h for the one exception).
 */
LS_MUST_CHECK ls_status ls_safetensors_write(const char *path, const ls_st_source *tensors,
                                             size_t n, const ls_st_metadata *pairs,
                                             size_t n_pairs);

/*
 * Who has the values of tensors whose data is NULL: hands those of tensors[i] to take(to, ...),
 * in order and in as many pieces as it likes.  Asked once for each, in the order of the file,
 * also after a failure of take: others may be giving.
 */
typedef struct {
    ls_status (*give)(void *context, size_t                                              i,
                      ls_status (*take)(void *to, const void *data, size_t bytes), void *to);
    void *context;
} ls_st_giver;

/* The same, with values from a giver. */
LS_MUST_CHECK ls_status ls_safetensors_write_given(const char         *path,
                                                   const ls_st_source *tensors, size_t n,
                                                   const ls_st_metadata *pairs, size_t n_pairs,
                                                   const ls_st_giver *giver);

#endif

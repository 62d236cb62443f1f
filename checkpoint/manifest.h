/*
 * manifest.h - manifest.json of a checkpoint: which bytes of which file are which rows.
 *
 *     tensor   a logical tensor: name, dtype, shape, kind; says nothing of who held it
 *     chunk    some rows (dimension 0) of one tensor: file, offset, bytes, CRC-32
 *     file     name, size, size and CRC-32 of what stands in front of its chunks
 *
 * A manifest that was read, or is to be printed, holds these invariants: the chunks of a tensor
 * tile its rows, the chunks of a file tile it from its header to its end, every size follows
 * from the shapes, names are unique, and names of files are plain ones in the same directory.
 * So whoever reads all chunks has read every byte of every file once and filled every tensor.
 *
 * The text ends in its own CRC-32, which is checked before anything of it is believed:
 *
 *     {"lockstep_checkpoint":1, ... ,"crc32":"0123abcd"}     of the bytes in front of
 * `,"crc32"`
 */
#ifndef LS_CHECKPOINT_MANIFEST_H
#define LS_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/error.h"

enum {
    LS_MANIFEST_VERSION     = 1,
    LS_MANIFEST_MOST_BYTES  = 64 << 20,
    LS_MANIFEST_MOST_RANKS  = 4096,
    LS_MANIFEST_MOST_CHUNKS = 1 << 22,
    LS_MANIFEST_MOST_NAME   = 200 /* bytes of a file's name */
};

/* X(kind, its name in the manifest) */
#define LS_TENSOR_KIND_MAP(X) \
    X(PARAMETER, "parameter") \
    X(BUFFER, "buffer")       \
    X(OPTIMIZER, "optimizer")

typedef enum {
#define X(kind, name) LS_KIND_##kind,
    LS_TENSOR_KIND_MAP(X)
#undef X
        LS_KIND_COUNT
} ls_tensor_kind;

typedef struct {
    char          *name; /* owned */
    ls_tensor_kind kind;
    ls_dtype       dtype;
    int            ndim;
    uint64_t       dim[8];
    uint64_t       rows, row_bytes; /* follow from dtype and shape; a scalar is one row */
    size_t         first_chunk, n_chunks;
} ls_manifest_tensor;

typedef struct {
    char    *name; /* owned */
    uint64_t bytes, header_bytes;
    uint32_t header_crc;
} ls_manifest_file;

typedef struct {
    uint32_t tensor, file; /* places in the lists */
    uint64_t first, rows;
    uint64_t offset, stored; /* bytes in the file; fewer than bytes where compressed */
    uint64_t bytes;          /* rows * row_bytes */
    uint32_t crc;            /* of the rows' values */
} ls_manifest_chunk;

typedef struct {
    int64_t step, world;
    char   *strategy;
    bool    compressed;                 /* chunks are zlib streams (RFC 1950) */
    char   *state, *config, *tokenizer; /* JSON texts, whose meaning is the writer's */
    ls_manifest_tensor *tensor;         /* sorted by name, bytewise */
    size_t              n_tensors;
    ls_manifest_file   *file;
    size_t              n_files;
    ls_manifest_chunk  *chunk; /* sorted by tensor, then row */
    size_t              n_chunks;
    uint32_t            crc; /* of the text: equal for equal manifests */
} ls_manifest;

/*
 * Sorts tensors and chunks and proves the invariants; chunk->tensor counts the tensors as they
 * stood.  path stands in messages.  EFORMAT names tensor, file and rows.
 */
LS_MUST_CHECK ls_status ls_manifest_check(ls_manifest *m, const char *path);

/* The text, of a manifest that was checked; freed with free(), NULL: ENOMEM.  Sets m->crc. */
char *ls_manifest_print(ls_manifest *m);

/*
 * Reads a text (n bytes, and room for one more; changed in place) and checks it.  On failure
 * the manifest holds nothing.  EFORMAT, ENOMEM.
 */
LS_MUST_CHECK ls_status ls_manifest_parse(char *text, size_t n, const char *path,
                                          ls_manifest *m);

/* The same of a file: EIO where it is not there or no regular file. */
LS_MUST_CHECK ls_status ls_manifest_read(const char *path, ls_manifest *m);
void                    ls_manifest_free(ls_manifest *m); /* {0} is allowed */

/* By binary search; NULL when there is none. */
const ls_manifest_tensor *ls_manifest_find(const ls_manifest *m, const char *name);

#endif

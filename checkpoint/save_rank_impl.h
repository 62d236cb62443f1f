/*
 * save_rank_impl.h - what one rank writes of a checkpoint: its share of the rows, in one file.
 *
 *     plan       which rows of which tensors
 *     snapshot   their values into memory of its own, so that training may go on
 *     write      the file, synced; fills in places and checksums
 */
#ifndef LS_CHECKPOINT_SAVE_RANK_IMPL_H
#define LS_CHECKPOINT_SAVE_RANK_IMPL_H

#include <stdatomic.h>

#include "checkpoint/rows.h"

typedef struct {
    const ls_stored_tensor *list;
    size_t                  n;
    int                     rank, size;
    int64_t                 step;
    bool                    compressed;
    ls_manifest_chunk      *piece; /* file is not set; offset, stored and crc by the write */
    const char            **data;  /* [n_pieces] */
    size_t                  n_pieces;
    uint64_t                bytes;    /* of all pieces */
    char                   *snapshot; /* NULL: none; of the pieces, then of a packed one */
    size_t                  packed;   /* bytes for that; 0: not compressed */
    uint64_t                file_bytes, header_bytes;
    uint32_t                header_crc;
} ls__part;

/* "rank-00001-of-00004.safetensors" (".zlib" where compressed) */
typedef struct {
    char text[48];
} ls__part_text;
const char *ls__part_name(int rank, int size, bool compressed, ls__part_text *text);

/* list, n, rank, size, step and compressed are set.  To be closed, in failure too. */
LS_MUST_CHECK ls_status ls__part_plan(ls__part *p);

/*
 * With all memory that the write then needs.  ENOMEM, and nothing is changed, where there is no
 * room for it beside what later steps need (core/alloc.h).
 */
LS_MUST_CHECK ls_status ls__part_snapshot(ls__part *p);

/* From any thread.  A rank without rows writes no file. */
LS_MUST_CHECK ls_status ls__part_write(ls__part *p, const char *folder, const atomic_int *stop);
void                    ls__part_close(ls__part *p);

#endif

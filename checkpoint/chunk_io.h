/*
 * chunk_io.h - an open checkpoint: its manifest, and reads of parts of its chunks.
 *
 * Files are opened as they are needed, beside the manifest, never through a symbolic link, and
 * read with pread(): one that is cut meanwhile is an error and not a signal.
 */
#ifndef LS_CHECKPOINT_CHUNK_IO_H
#define LS_CHECKPOINT_CHUNK_IO_H

#include "checkpoint/manifest.h"

typedef struct {
    char       *path; /* of the folder */
    int         folder;
    int        *fd; /* [manifest.n_files]; -1: not opened yet */
    ls_manifest manifest;
    char  *stored, *raw; /* room for a compressed chunk and what it holds; NULL: none yet */
    size_t stored_room, raw_room;
} ls_checkpoint;

/* Reads the manifest; opens no other file.  EIO, EFORMAT, ENOMEM. */
LS_MUST_CHECK ls_status ls_checkpoint_open_folder(const char *path, ls_checkpoint **checkpoint);
void                    ls_checkpoint_close(ls_checkpoint *c); /* NULL is allowed */

/*
 * `bytes` of the chunk's values from byte `from` on, into the caller's buffer; adds them to
 * *crc.  A compressed chunk is inflated as a whole, and its CRC-32 compared, whatever part is
 * asked for.  EIO, EFORMAT name tensor, file and byte.
 */
LS_MUST_CHECK ls_status ls_chunk_read(ls_checkpoint *c, const ls_manifest_chunk *chunk,
                                      uint64_t from, void *buffer, uint64_t bytes,
                                      uint32_t *crc);

/* EFORMAT, with all that helps to find the damage, unless crc is the chunk's. */
LS_MUST_CHECK ls_status ls_chunk_check(const ls_checkpoint *c, const ls_manifest_chunk *chunk,
                                       uint32_t crc);

/* Size and header of a file against the manifest. */
LS_MUST_CHECK ls_status ls_checkpoint_check_file(ls_checkpoint *c, size_t file);

/* Everything: all files, headers and chunks, through a buffer of 1 MiB. */
LS_MUST_CHECK ls_status ls_checkpoint_verify(ls_checkpoint *c);

#endif

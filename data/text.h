/*
 * text.h - the bytes of one file or of several, one after another, plain or gzip.
 *
 * A text knows which file each of its bytes came from, so that whoever finds fault with a
 * byte can name the file and the offset in it (of the uncompressed content).
 */
#ifndef LS_DATA_TEXT_H
#define LS_DATA_TEXT_H

#include <stddef.h>

#include "core/error.h"
#include "core/gz.h"

/* A list of paths, borrowed. */
typedef struct {
    const char *const *path;
    int                count;
} ls_paths;

typedef struct {
    const unsigned char *data;
    size_t               size;
    ls_paths             paths; /* of the files, or the one name of a view */
    size_t              *first; /* position of each file's first byte; NULL: one file, 0 */
    ls_bytes             owned; /* {0} for a view */
} ls_text;

/*
 * Reads the files in order.  The paths stay the caller's and must outlive the text.
 * LS_EIO, LS_EFORMAT as ls_gz_read_file; an empty file is LS_EFORMAT, no file LS_ECONFIG.
 * On failure there is nothing to close.
 */
LS_MUST_CHECK ls_status ls_text_load(ls_paths paths, ls_text *text);
void                    ls_text_close(ls_text *text); /* {0} is allowed */

/* A text over size bytes of the caller's, which messages call *name. */
ls_text ls_text_view(const char *const *name, const void *data, size_t size);

/* The file that holds the byte at position, and the offset in it. */
typedef struct {
    const char *path;
    size_t      offset;
} ls_text_place;

ls_text_place ls_text_locate(const ls_text *text, size_t position);

#endif

/*
 * files.h - what the commands that read checkpoints share: arguments, opening, output.
 */
#ifndef LS_CLI_FILES_H
#define LS_CLI_FILES_H

#include <stdbool.h>

#include "checkpoint/safetensors.h"
#include "core/strbuf.h"

enum { LS_MAX_FILES = 2 };

typedef struct {
    const char *path[LS_MAX_FILES];
    bool        json, help;
} ls_file_args;

/* argv[1..]: exactly n_files paths and the options --json, --help; LS_ECONFIG for anything
 * else. */
LS_MUST_CHECK ls_status ls_file_args_parse(int argc, char **argv, int n_files,
                                           ls_file_args *args);

/*
 * CHECKPOINT of the command line: a checkpoint's directory, a run directory (its newest valid
 * checkpoint; a warning on stderr for each newer one that is not), or one safetensors file.
 * Checkpoints are verified, and seen as one file (checkpoint/view.h) of their parameters, or of
 * the whole state.
 */
LS_MUST_CHECK ls_status ls_checkpoint_open(const char *path, ls_safetensors **file);
LS_MUST_CHECK ls_status ls_checkpoint_open_state(const char *path, ls_safetensors **file);

/* Writes text to stdout and flushes; LS_EIO when it did not get there. */
LS_MUST_CHECK ls_status ls_strbuf_put(const ls_strbuf *text);

/* "[1,2,3]" */
void ls_strbuf_dims(ls_strbuf *text, const uint64_t *dim, int ndim);

#endif

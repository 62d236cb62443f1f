/*
 * open_checkpoint.h - a model out of a checkpoint, with what its metadata says of it.
 */
#ifndef LS_CLI_OPEN_CHECKPOINT_H
#define LS_CLI_OPEN_CHECKPOINT_H

#include "cli/config.h"
#include "data/tokenizer.h"
#include "nn/module.h"

typedef struct {
    char         *path; /* of the file, or of the checkpoint's directory */
    ls_config     cfg;
    char         *tokenizer_json;
    ls_tokenizer *tokenizer;  /* NULL for an mlp */
    int64_t       vocab_size; /* rows of the embedding */
    ls_ends       ends;       /* tokens at which it ends a text */
    ls_module    *model;
} ls_opened_model;

/*
 * CHECKPOINT as in cli/files.h.  Starts compute (cli/train.h) by the stored config.
 * EFORMAT for a file without Lockstep's metadata.  To be closed in failure too.
 */
LS_MUST_CHECK ls_status ls_opened_model_load(const char *checkpoint, ls_opened_model *m);
void                    ls_opened_model_close(ls_opened_model *m);

#endif

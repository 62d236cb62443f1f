/*
 * dataset.h - from the data section of a config to token sequences, or to examples.
 *
 *     train files -> text -> tokenizer -> tokens [ train ............ | val ]
 *                                                      the last floor(n * val_fraction)
 *     val files   -> text --------------> tokens [ val ]
 *
 * Token files (format tokens_u16, llmc) come without text; tables (csv, idx) are rows instead
 * of tokens.  Training data and a validation set cut from it share one block of memory.
 */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "data/table.h"
#include "data/text.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

/*
 * Where tokens of a text are kept between runs.  find: may leave *tokens as it is when it has
 * none.  keep: what cannot be kept is nobody's failure.
 */
typedef struct {
    const void *context;
    void (*find)(const void *context, const char *key, ls_tokens *tokens);
    void (*keep)(const void *context, const char *key, const ls_tokens *tokens);
} ls_token_store;

typedef struct {
    ls_data_format    format;
    ls_paths          train;
    ls_paths          val;            /* count 0: none */
    double            val_fraction;   /* [0, 1); 0: none; excludes val */
    ls_tokenizer_kind kind;           /* made from the whole training text, or */
    const char       *tokenizer_json; /* this one, of a parameter file; NULL: by path or kind */
    const char       *tokenizer_path; /* of a tokenizer.json; NULL: by kind */
    int32_t           vocab_size;     /* model.vocab_size; 0: the tokenizer's */
    int64_t           context;        /* model.context, for the checks; 0: none made */
    ls_table_shape    shape;          /* of tables */
    const ls_token_store *store;      /* of tokens that take long to make; NULL: none */
} ls_dataset_opts;

typedef struct {
    ls_tokenizer *tokenizer;
    int32_t       vocab_size; /* as asked for, or the tokenizer's */
    ls_tokens     train;
    ls_tokens     val;                  /* count 0: none */
    ls_table      train_rows, val_rows; /* tables instead: rows 0: none; tokenizer is NULL */
} ls_dataset;

/*
 * Loads everything; on failure there is nothing to close.  LS_EIO, LS_EFORMAT as
 * ls_text_load and ls_tokenizer_encode.  LS_ECONFIG: a token that does not fit vocab_size, a
 * character of val that train does not have, train or val shorter than context + 1 tokens.
 */
LS_MUST_CHECK ls_status ls_dataset_load(const ls_dataset_opts *opts, ls_dataset *dataset);
void                    ls_dataset_close(ls_dataset *dataset); /* {0} is allowed */

/*
 * Tokens of other files, as opts->format has them and by a given tokenizer (which only text
 * needs); vocab_size (0: any) limits them.
 */
LS_MUST_CHECK ls_status ls_dataset_load_tokens(const ls_dataset_opts *opts, ls_paths paths,
                                               const ls_tokenizer *tokenizer,
                                               int32_t vocab_size, ls_tokens *tokens);

#endif

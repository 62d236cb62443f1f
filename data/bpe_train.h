/*
 * bpe_train.h - a byte-level BPE out of a text.
 *
 * The vocabulary is the 256 bytes, then what each merge makes, then the special tokens.  The
 * next merge is the most frequent pair of neighbours inside the pieces of the text; of equally
 * frequent ones that of the smaller tokens.  So it is the result of the Python package's
 * BpeTrainer with an initial alphabet of all bytes, whatever the order of the words.
 */
#ifndef LS_DATA_BPE_TRAIN_H
#define LS_DATA_BPE_TRAIN_H

#include <stdint.h>

#include "data/text.h"

typedef struct {
    int32_t vocab_size;         /* at least 256 + n_special; fewer where the text has no more */
    const char *const *special; /* tokens found in a text as they stand, "<|endoftext|>" */
    int                n_special;
} ls_bpe_train_opts;

/*
 * *json is a tokenizer.json (freed with free()), *size its number of tokens.  LS_ECONFIG for a
 * vocabulary that is too small or a special token that is empty, twice there or one that merges
 * make; LS_ENOMEM.
 */
LS_MUST_CHECK ls_status ls_bpe_train(const ls_text *text, const ls_bpe_train_opts *opts,
                                     char **json, int32_t *size);

#endif

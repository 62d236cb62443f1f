/*
 * tokenizer_impl.h - what the tokenizers say of a token that cannot be used.
 */
#ifndef LS_DATA_TOKENIZER_IMPL_H
#define LS_DATA_TOKENIZER_IMPL_H

#include "data/text.h"

/* LS_ECONFIG: token number i of a text, at that byte, is not below limit. */
ls_status ls__token_too_large(const ls_text *text, size_t at, int32_t token, int64_t i,
                              int32_t limit);

/* LS_ECONFIG: the vocabulary has no token for a byte. */
ls_status ls__token_unknown(const ls_text *text, size_t at, int byte);

#endif

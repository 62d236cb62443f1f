/*
 * token_file.h - a sequence of tokens in memory.
 *
 * Tokens are stored in the smallest of 1, 2 and 4 bytes that holds the vocabulary, and
 * handed out as int32.  The sequence is made once and then only read; a slice views a part.
 */
#ifndef LS_DATA_TOKEN_FILE_H
#define LS_DATA_TOKEN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

typedef struct {
    void   *data;
    int64_t count;
    int     width; /* bytes a token: 1 (vocabulary <= 256), 2 (<= 65536) or 4 */
    size_t  owned; /* bytes to give back; 0 for a slice */
} ls_tokens;

/* Bytes a token of a vocabulary. */
int ls_tokens_width(int32_t vocab);

/* count tokens, contents undefined, of a vocabulary of vocab; memory category other. */
LS_MUST_CHECK ls_status ls_tokens_init(ls_tokens *tokens, int64_t count, int32_t vocab);
void                    ls_tokens_close(ls_tokens *tokens); /* {0} is allowed */

/* A view of tokens [first, first + count); valid as long as they are. */
ls_tokens ls_tokens_slice(const ls_tokens *tokens, int64_t first, int64_t count);

/* Copies tokens [first, first + count) to out. */
void ls_tokens_read(const ls_tokens *tokens, int64_t first, int64_t count, int32_t *out);

static inline int32_t ls_tokens_at(const ls_tokens *tokens, int64_t i)
{
    return tokens->width == 1   ? ((const uint8_t *)tokens->data)[i]
           : tokens->width == 2 ? ((const uint16_t *)tokens->data)[i]
                                : ((const int32_t *)tokens->data)[i];
}

static inline void ls_tokens_set(ls_tokens *tokens, int64_t i, int32_t token)
{
    if (tokens->width == 1)
        ((uint8_t *)tokens->data)[i] = (uint8_t)token;
    else if (tokens->width == 2)
        ((uint16_t *)tokens->data)[i] = (uint16_t)token;
    else
        ((int32_t *)tokens->data)[i] = token;
}

#endif

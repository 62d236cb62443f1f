/*
 * token_file.c - memory and bulk access of token sequences.
 */
#include "data/token_file.h"

#include "core/alloc.h"

int ls_tokens_width(int32_t vocab)
{
    return vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
}

ls_status ls_tokens_init(ls_tokens *tokens, int64_t count, int32_t vocab)
{
    int    width = ls_tokens_width(vocab);
    size_t bytes = (size_t)count * (size_t)width;
    void  *data  = ls_mem_alloc(bytes ? bytes : 1, LS_MEM_OTHER);

    *tokens = (ls_tokens){0};
    if (!data)
        return ls_fail_in(LS_ENOMEM, "%lld tokens", (long long)count);
    *tokens = (ls_tokens){data, count, width, bytes ? bytes : 1};
    return LS_OK;
}

void ls_tokens_close(ls_tokens *tokens)
{
    if (tokens->owned)
        ls_mem_free(tokens->data, tokens->owned, LS_MEM_OTHER);
    *tokens = (ls_tokens){0};
}

ls_tokens ls_tokens_slice(const ls_tokens *tokens, int64_t first, int64_t count)
{
    char *data = tokens->data;
    return (ls_tokens){data + first * tokens->width, count, tokens->width, 0};
}

void ls_tokens_read(const ls_tokens *tokens, int64_t first, int64_t count, int32_t *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = ls_tokens_at(tokens, first + i);
}

/*
 * token_format.c - token files read in place, checked and turned to this machine's byte order.
 */
#include "data/token_format.h"

#include <inttypes.h>
#include <string.h>

enum { MAGIC = 20240520, VERSION = 1, U16 = 2 };

static int32_t load_i32(const unsigned char *p)
{
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                     (uint32_t)p[3] << 24);
}

static void store_i32(unsigned char *p, int64_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)((uint32_t)x >> 8 * i);
}

static ls_status check_llmc(const char *path, const unsigned char *file, size_t bytes)
{
    if (bytes < LS_LLMC_HEADER_BYTES)
        return ls_fail(LS_EFORMAT, "%s: %zu bytes, an llm.c token file has a header of %d",
                       path, bytes, (int)LS_LLMC_HEADER_BYTES);
    int32_t magic = load_i32(file), version = load_i32(file + 4);
    int64_t count = load_i32(file + 8), found = (int64_t)(bytes - LS_LLMC_HEADER_BYTES);
    if (magic != MAGIC || version != VERSION)
        return ls_fail(LS_EFORMAT,
                       "%s: magic number %" PRId32 " and version %" PRId32
                       ", llm.c's files of 16-bit tokens have %d and %d",
                       path, magic, version, (int)MAGIC, (int)VERSION);
    if (count < 0 || found != count * U16)
        return ls_fail(LS_EFORMAT,
                       "%s: %" PRId64 " bytes of tokens, its header says %" PRId64
                       " tokens of 2 bytes",
                       path, found, count);
    return LS_OK;
}

/* Checks a file and moves its tokens down to *end of the same memory. */
static ls_status take_file(ls_data_format format, const char *path, unsigned char *file,
                           size_t bytes, unsigned char **end)
{
    size_t    head   = format == LS_FORMAT_LLMC ? LS_LLMC_HEADER_BYTES : 0;
    ls_status status = head ? check_llmc(path, file, bytes) : LS_OK;

    if (!status && bytes % U16)
        status = ls_fail(LS_EFORMAT, "%s: %zu bytes, 16-bit tokens make an even number", path,
                         bytes);
    if (status)
        return status;
    memmove(*end, file + head, bytes - head);
    *end += bytes - head;
    return LS_OK;
}

static ls_status check_limit(const ls_text *text, const ls_tokens *tokens, size_t head,
                             int32_t limit)
{
    const size_t *first = text->first;
    int64_t       i = 0, before = 0;
    int           file = 0;

    while (i < tokens->count && (!limit || ls_tokens_at(tokens, i) < limit))
        i++;
    if (i == tokens->count)
        return LS_OK;
    for (; file + 1 < text->paths.count; file++) {
        int64_t n = (int64_t)((first[file + 1] - first[file] - head) / U16);
        if (i - before < n)
            break;
        before += n;
    }
    return ls_fail(LS_ECONFIG,
                   "%s: token %" PRId32 " (token number %" PRId64
                   ", from 0) does not fit a vocabulary of %" PRId32
                   " (model.vocab_size, or that of data.tokenizer)",
                   text->paths.path[file], ls_tokens_at(tokens, i), i - before, limit);
}

/* From the files' byte order to the machine's. */
static void turn(ls_tokens *tokens)
{
    const unsigned char *bytes = tokens->data;

    for (int64_t i = 0; i < tokens->count; i++)
        ls_tokens_set(tokens, i, bytes[2 * i] | bytes[2 * i + 1] << 8);
}

ls_status ls_tokens_load(ls_data_format format, ls_paths paths, int32_t limit,
                         ls_tokens *tokens)
{
    ls_text   text;
    ls_status status = ls_text_load(paths, &text);

    *tokens = (ls_tokens){0};
    if (status)
        return status;
    unsigned char *end = text.owned.data;
    for (int i = 0; i < paths.count && !status; i++) {
        size_t next = i + 1 < paths.count ? text.first[i + 1] : text.size;
        status      = take_file(format, paths.path[i], text.owned.data + text.first[i],
                                next - text.first[i], &end);
    }
    *tokens =
        (ls_tokens){text.owned.data, (end - text.owned.data) / U16, U16, text.owned.capacity};
    turn(tokens);
    if (!status)
        status = check_limit(&text, tokens, format == LS_FORMAT_LLMC ? LS_LLMC_HEADER_BYTES : 0,
                             limit);
    if (status)
        *tokens = (ls_tokens){0};
    else
        text.owned = (ls_bytes){0}; /* it is the tokens' now */
    ls_text_close(&text);
    return status;
}

void ls_tokens_write_u16(const ls_tokens *tokens, unsigned char *out)
{
    for (int64_t i = 0; i < tokens->count; i++) {
        int32_t token  = ls_tokens_at(tokens, i);
        out[2 * i]     = (unsigned char)token;
        out[2 * i + 1] = (unsigned char)(token >> 8);
    }
}

void ls_llmc_header(int64_t count, unsigned char head[LS_LLMC_HEADER_BYTES])
{
    memset(head, 0, LS_LLMC_HEADER_BYTES);
    store_i32(head, MAGIC);
    store_i32(head + 4, VERSION);
    store_i32(head + 8, count);
}

/*
 * fuzz_tokens.c - token files of other programs that nobody vouches for.
 *
 * An input is the vocabulary's size (0: any) and, of llm.c's, the first 12 bytes of the header
 * and the tokens, the zeros between them being left out; where the first byte is odd the same
 * bytes are nanoGPT's tokens, in two files.  What is accepted has tokens below the vocabulary,
 * and prints to the same file.
 */
#include <string.h>

#include "data/token_format.h"
#include "fuzz/fuzz.h"

enum { KEPT = 12, MOST = 1 << 16 };

static void check_llmc(const ls_tokens *tokens, const unsigned char *file, size_t size)
{
    unsigned char head[LS_LLMC_HEADER_BYTES], token[2];

    ls_llmc_header(tokens->count, head);
    fuzz_expect(!memcmp(head, file, KEPT));
    fuzz_expect(size == sizeof head + 2 * (size_t)tokens->count);
    for (int64_t i = 0; i < tokens->count; i++) {
        ls_tokens one = ls_tokens_slice(tokens, i, 1);
        ls_tokens_write_u16(&one, token);
        fuzz_expect(!memcmp(token, file + sizeof head + 2 * i, 2));
    }
}

static bool load(ls_data_format format, ls_paths paths, int32_t limit, ls_tokens *tokens)
{
    if (!fuzz_accepted(ls_tokens_load(format, paths, limit, tokens)))
        return false;
    for (int64_t i = 0; i < tokens->count; i++)
        fuzz_expect(!limit || ls_tokens_at(tokens, i) < limit);
    return true;
}

static void try_llmc(const uint8_t *data, size_t size, int32_t limit)
{
    static unsigned char file[LS_LLMC_HEADER_BYTES + MOST];
    size_t               kept = size < KEPT ? size : KEPT, rest = size - kept;
    ls_tokens            tokens;

    rest = rest < MOST ? rest : MOST;
    memset(file, 0, LS_LLMC_HEADER_BYTES);
    memcpy(file, data, kept);
    memcpy(file + LS_LLMC_HEADER_BYTES, data + kept, rest);
    size_t      n    = size < KEPT ? size : LS_LLMC_HEADER_BYTES + rest;
    const char *path = fuzz_file(0, file, n);
    if (load(LS_FORMAT_LLMC, (ls_paths){&path, 1}, limit, &tokens))
        check_llmc(&tokens, file, n);
    ls_tokens_close(&tokens);
}

static void try_u16(const uint8_t *data, size_t size, int32_t limit)
{
    size_t      half   = size / 2;
    const char *path[] = {fuzz_file(0, data, half), fuzz_file(1, data + half, size - half)};
    ls_tokens   tokens;

    if (load(LS_FORMAT_TOKENS_U16, (ls_paths){path, 2}, limit, &tokens))
        fuzz_expect(2 * (size_t)tokens.count == size && !memcmp(tokens.data, data, size));
    ls_tokens_close(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int32_t limit = data[1] * 256;

    if (data[0] & 1)
        try_u16(data + 2, size - 2, limit);
    else
        try_llmc(data + 2, size - 2, limit);
    return 0;
}

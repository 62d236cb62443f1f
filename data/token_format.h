/*
 * token_format.h - files of tokens that other programs made.
 *
 *     tokens_u16   nanoGPT's: nothing but little-endian 16-bit tokens
 *     llmc         llm.c's: 256 little-endian 32-bit numbers (20240520, version 1, the number
 * of tokens, zeros), then the same
 */
#ifndef LS_DATA_TOKEN_FORMAT_H
#define LS_DATA_TOKEN_FORMAT_H

#include "data/text.h"
#include "data/token_file.h"

/* What the files of a dataset are; the last two are tables (data/table.h). */
typedef enum {
    LS_FORMAT_TEXT,
    LS_FORMAT_TOKENS_U16,
    LS_FORMAT_LLMC,
    LS_FORMAT_CSV,
    LS_FORMAT_IDX
} ls_data_format;

enum { LS_LLMC_HEADER_BYTES = 1024 };

/*
 * The tokens of one or several files, in order.  LS_EIO; LS_EFORMAT: an odd length, another
 * magic number or version, a length that is not what the header says; LS_ECONFIG: a token that
 * is not below limit.  All name the file.
 */
LS_MUST_CHECK ls_status ls_tokens_load(ls_data_format format, ls_paths paths, int32_t limit,
                                       ls_tokens *tokens);

/* Writes 2 bytes a token to out, all of them below 65536. */
void ls_tokens_write_u16(const ls_tokens *tokens, unsigned char *out);

/* The header of a file of count tokens. */
void ls_llmc_header(int64_t count, unsigned char head[LS_LLMC_HEADER_BYTES]);

#endif

/*
 * cmd_tokenize.c - lockstep tokenize: a tokenizer out of a text, and token files by one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/atomic_file.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/train.h"
#include "core/alloc.h"
#include "data/bpe_train.h"
#include "data/token_format.h"
#include "data/tokenizer.h"

static const char help[] =
    "usage: lockstep tokenize TEXT... --vocab-size N -o TOKENIZER.json [--special TOKEN]...\n"
    "       lockstep tokenize TEXT... --tokenizer byte|char|TOKENIZER.json --tokens FILE\n"
    "\n"
    "Trains a byte-level BPE on TEXT, as GPT-2's, and writes it as tokenizer.json, which the\n"
    "Python package tokenizers loads too; or takes one that is there.  Writes the tokens of\n"
    "TEXT where --tokens asks for them.  TEXT is plain or .gz; several are one text.\n"
    "\n"
    "  --vocab-size N       tokens of the vocabulary: 256 bytes, merges, special tokens\n"
    "  --special TOKEN      a token that a text holds as it stands, \"<|endoftext|>\"\n"
    "  -o, --output FILE    where the tokenizer goes\n"
    "  --tokenizer NAME     take this one instead: byte, char, or a tokenizer.json\n"
    "  --tokens FILE        write the tokens of TEXT\n"
    "  --format FORMAT      of FILE: tokens_u16 (nanoGPT's, the default) or llmc (llm.c's)\n"
    "  -h, --help           this text\n";

typedef struct {
    ls_arg_list    texts, special;
    const char    *vocab_size, *output, *tokenizer, *tokens, *format_name;
    bool           help;
    /* of these */
    int32_t        size;
    ls_data_format format;
} arguments;

static ls_status check_tokens(arguments *a)
{
    a->format = LS_FORMAT_TOKENS_U16;
    if (a->format_name && !a->tokens)
        return ls_fail(LS_ECONFIG, "tokenize: --format needs --tokens FILE");
    if (!a->format_name || !strcmp(a->format_name, "tokens_u16"))
        return LS_OK;
    a->format = LS_FORMAT_LLMC;
    return strcmp(a->format_name, "llmc") == 0
               ? LS_OK
               : ls_fail(LS_ECONFIG, "tokenize: --format is '%s', wanted tokens_u16 or llmc",
                         a->format_name);
}

static ls_status check_training(arguments *a)
{
    char *end;

    if (a->tokenizer)
        return a->vocab_size || a->output || a->special.n
                   ? ls_fail(LS_ECONFIG, "tokenize: --tokenizer takes one that is there; "
                                         "--vocab-size, --special and -o train a new one")
               : a->tokens ? LS_OK
                           : ls_fail(LS_ECONFIG, "tokenize: --tokens FILE is missing");
    if (!a->vocab_size || !a->output)
        return ls_fail(LS_ECONFIG, "tokenize: %s is missing; see lockstep tokenize --help",
                       a->vocab_size ? "-o TOKENIZER.json" : "--vocab-size N");
    errno       = 0;
    long number = strtol(a->vocab_size, &end, 10);
    if (end == a->vocab_size || *end || errno || number < 1 || number > 1 << 24)
        return ls_fail(LS_ECONFIG,
                       "tokenize: --vocab-size is '%s', wanted a number from 256 on",
                       a->vocab_size);
    a->size = (int32_t)number;
    return LS_OK;
}

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--vocab-size", 0, LS_ARG_VALUE, &a->vocab_size},
                           {"--special", 0, LS_ARG_LIST, &a->special},
                           {"--output", 'o', LS_ARG_VALUE, &a->output},
                           {"--tokenizer", 0, LS_ARG_VALUE, &a->tokenizer},
                           {"--tokens", 0, LS_ARG_VALUE, &a->tokens},
                           {"--format", 0, LS_ARG_VALUE, &a->format_name}};
    ls_status    status = ls_args_parse(&(ls_arg_table){.command  = "tokenize",
                                                        .arg      = args,
                                                        .n_args   = sizeof args / sizeof *args,
                                                        .operand  = "TEXT",
                                                        .operands = &a->texts,
                                                        .help     = &a->help},
                                        argc, argv);

    if (status || a->help)
        return status;
    status = check_training(a);
    return status ? status : check_tokens(a);
}

static ls_status write_file(const char *path, const void *head, size_t head_bytes,
                            const void *data, size_t bytes)
{
    ls_atomic_file f;
    ls_status      status = ls_atomic_begin(&f, path);

    if (!status && head_bytes)
        status = ls_atomic_write(&f, head, head_bytes);
    if (!status)
        status = ls_atomic_write(&f, data, bytes);
    if (!status)
        status = ls_atomic_commit(&f);
    ls_atomic_abandon(&f);
    return status;
}

/* *json is the new tokenizer's file. */
static ls_status train(const arguments *a, const ls_text *text, ls_tokenizer **tokenizer,
                       char **json)
{
    ls_bpe_train_opts opts = {a->size, a->special.item, a->special.n};
    int32_t           size;
    ls_status         status = ls_bpe_train(text, &opts, json, &size);

    if (!status)
        status = ls_tokenizer_from_json(*json, tokenizer);
    if (!status && size < a->size)
        fprintf(stderr,
                "lockstep: the text has no more than %" PRId32 " tokens, %" PRId32
                " were asked for\n",
                size, a->size);
    return status;
}

static ls_status take(const arguments *a, const ls_text *text, ls_tokenizer **tokenizer)
{
    if (!strcmp(a->tokenizer, "byte") || !strcmp(a->tokenizer, "char"))
        return ls_tokenizer_new(a->tokenizer[0] == 'b' ? LS_TOKENIZER_BYTE : LS_TOKENIZER_CHAR,
                                text, tokenizer);
    return ls_tokenizer_load(a->tokenizer, tokenizer);
}

/* As the file has them: little-endian, two bytes each. */
static ls_status write_tokens(const arguments *a, const ls_text *text,
                              const ls_tokenizer *tokenizer, int64_t *count)
{
    unsigned char head[LS_LLMC_HEADER_BYTES];
    ls_tokens     tokens = {0};
    void         *data   = NULL;
    ls_status     status = LS_OK;

    if (ls_tokenizer_vocab_size(tokenizer) > 65536)
        return ls_fail(LS_ECONFIG, "%s: tokens of 16 bits do not hold a vocabulary of %" PRId32,
                       a->tokens, ls_tokenizer_vocab_size(tokenizer));
    status       = ls_tokenizer_encode(tokenizer, text, 0, &tokens);
    size_t bytes = (size_t)tokens.count * 2;
    if (!status && !(data = ls_mem_alloc(bytes, LS_MEM_OTHER)))
        status = LS_ENOMEM;
    if (!status) {
        ls_tokens_write_u16(&tokens, data);
        ls_llmc_header(tokens.count, head);
        status = write_file(a->tokens, head, a->format == LS_FORMAT_LLMC ? sizeof head : 0,
                            data, bytes);
    }
    *count = tokens.count;
    ls_mem_free(data, bytes, LS_MEM_OTHER);
    ls_tokens_close(&tokens);
    return status;
}

static void print_result(const arguments *a, const ls_tokenizer *t, size_t bytes, int64_t count)
{
    printf("{\"vocab_size\":%" PRId32 ",\"bytes\":%zu", ls_tokenizer_vocab_size(t), bytes);
    if (a->tokens)
        printf(",\"tokens\":%" PRId64, count);
    printf("}\n");
}

static int run(const arguments *a)
{
    ls_text       text;
    ls_tokenizer *tokenizer = NULL;
    char         *json      = NULL;
    int64_t       count     = 0;
    ls_status     status    = ls_text_load((ls_paths){a->texts.item, a->texts.n}, &text);

    if (status)
        return ls_report(ls_blame_config(status));
    status = ls_blame_config(a->tokenizer ? take(a, &text, &tokenizer)
                                          : train(a, &text, &tokenizer, &json));
    if (!status && json)
        status = write_file(a->output, NULL, 0, json, strlen(json));
    if (!status && a->tokens)
        status = write_tokens(a, &text, tokenizer, &count);
    if (!status)
        print_result(a, tokenizer, text.size, count);
    free(json);
    ls_tokenizer_free(tokenizer);
    ls_text_close(&text);
    return ls_report(status);
}

int ls_cmd_tokenize(int argc, char **argv)
{
    arguments a      = {0};
    ls_status status = parse(&a, argc, argv);
    int       code   = status || a.help ? ls_report_help(status, help) : run(&a);

    free(a.texts.item);
    free(a.special.item);
    return code;
}

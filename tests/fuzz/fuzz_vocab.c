/*
 * fuzz_vocab.c - GPT-2's tokenizer files that nobody vouches for.
 *
 * An input is vocab.json, merges.txt, tokenizer_config.json and added_tokens.json, with NULs
 * between; where one of the last two is missing it is {}.  What is accepted prints to what is
 * read back, and makes tokens of its vocabulary.
 */
#include <string.h>

#include "checkpoint/hf.h"
#include "fuzz/fuzz.h"

static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json",
                                    "added_tokens.json", NULL};

static void check(const ls_tokenizer *t)
{
    static const char *const name = "text";
    ls_text       text  = ls_text_view(&name, "lo lost  the\nloss'll<|endoftext|>", 32);
    char         *json  = ls_tokenizer_to_json(t);
    ls_tokenizer *again = NULL;
    ls_tokens     tokens;

    fuzz_expect(json && ls_tokenizer_from_json(json, &again) == LS_OK);
    fuzz_expect(ls_tokenizer_vocab_size(t) == ls_tokenizer_vocab_size(again));
    if (fuzz_accepted(ls_tokenizer_encode(t, &text, 0, &tokens)))
        for (int64_t i = 0; i < tokens.count; i++)
            fuzz_expect(ls_tokens_at(&tokens, i) < ls_tokenizer_vocab_size(t));
    ls_tokens_close(&tokens);
    ls_tokenizer_free(again);
    free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char   *directory = fuzz_directory(names);
    fuzz_part     rest      = {data, size};
    ls_tokenizer *t         = NULL;

    for (int slot = 0; names[slot]; slot++) {
        fuzz_part part = fuzz_next_part(&rest);
        if (part.bytes || slot < 2)
            fuzz_file(slot, part.text, part.bytes);
        else
            fuzz_file(slot, "{}", 2);
    }
    if (!fuzz_accepted(ls_hf_read_tokenizer(directory, &t)))
        return 0;
    check(t);
    ls_tokenizer_free(t);
    return 0;
}

/*
 * fuzz_tokenizer.c - tokenizers that nobody vouches for.
 *
 * An input is a tokenizer's JSON (the strings of checkpoints, or a tokenizer.json) and, behind
 * a NUL, a text for it.  What is accepted prints to what is read back as the same, makes tokens
 * of its vocabulary, and these are the text again.  The JSON is also read as the tokenizer.json
 * of a Hugging Face directory.
 */
#include <string.h>

#include "checkpoint/hf.h"
#include "core/utf8.h"
#include "data/tokenizer.h"
#include "fuzz/fuzz.h"

static const char *const name = "text";

static void check_print(const ls_tokenizer *t)
{
    ls_tokenizer *again = NULL;
    char         *first = ls_tokenizer_to_json(t), *second;

    fuzz_expect(first && ls_tokenizer_from_json(first, &again) == LS_OK);
    second = ls_tokenizer_to_json(again);
    fuzz_expect(second && !strcmp(first, second));
    fuzz_expect(ls_tokenizer_vocab_size(t) == ls_tokenizer_vocab_size(again));
    free(first);
    free(second);
    ls_tokenizer_free(again);
}

static bool is_utf8(const ls_text *text)
{
    uint32_t point;

    for (size_t at = 0, n; at < text->size; at += n)
        if (!(n = ls_utf8_decode(text->data + at, text->size - at, &point)))
            return false;
    return true;
}

/* The tokens' bytes; whole: they are the text. */
static void check_decode(const ls_tokenizer *t, const ls_tokens *tokens, const ls_text *text,
                         bool whole)
{
    char   out[LS_TOKEN_LONGEST];
    size_t at = 0;

    for (int64_t i = 0; i < tokens->count; i++) {
        int32_t token = ls_tokens_at(tokens, i);
        fuzz_expect(token >= 0 && token < ls_tokenizer_vocab_size(t));
        size_t n = ls_tokenizer_decode(t, token, out);
        fuzz_expect(n <= sizeof out);
        fuzz_expect(!whole || (at + n <= text->size && !memcmp(out, text->data + at, n)));
        at += n;
    }
    fuzz_expect(!whole || at == text->size);
}

/*
 * The tokens' bytes need not be the text's where a file has added tokens, which may stand for
 * other bytes than the same token of the vocabulary, a template, a switch that is on, or one of
 * these behind an escape.
 */
static bool may_differ(const char *json)
{
    return strstr(json, "added_tokens") || strstr(json, "Template") || strstr(json, "true") ||
           strchr(json, '\\');
}

static void check_encode(const ls_tokenizer *t, const char *json, const ls_text *text)
{
    ls_tokens tokens;
    bool      bytes = ls_tokenizer_get_kind(t) == LS_TOKENIZER_BYTE;

    if (!fuzz_accepted(ls_tokenizer_encode(t, text, 0, &tokens)))
        return;
    check_decode(t, &tokens, text, bytes || (!may_differ(json) && is_utf8(text)));
    ls_tokens_close(&tokens);
}

static void check(const char *json, const ls_text *text)
{
    ls_tokenizer *t = NULL;

    if (!fuzz_accepted(ls_tokenizer_from_json(json, &t)))
        return;
    check_print(t);
    check_encode(t, json, text);
    ls_tokenizer_free(t);
}

static void check_directory(const uint8_t *json, size_t size, const ls_text *text)
{
    static const char *const names[]   = {"tokenizer.json", NULL};
    const char              *directory = fuzz_directory(names);
    ls_tokenizer            *t         = NULL;
    ls_tokens                tokens;

    fuzz_file(0, json, size);
    if (!fuzz_accepted(ls_hf_read_tokenizer(directory, &t)))
        return;
    check_print(t);
    if (fuzz_accepted(ls_tokenizer_encode(t, text, 0, &tokens)))
        check_decode(t, &tokens, text, false);
    ls_tokens_close(&tokens);
    ls_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char   *json = fuzz_text(data, size);
    size_t  n    = strlen(json);
    ls_text text = n < size ? ls_text_view(&name, data + n + 1, size - n - 1)
                            : ls_text_view(&name, "the lock's  step\n", 17);

    check(json, &text);
    check_directory(data, n, &text);
    free(json);
    return 0;
}

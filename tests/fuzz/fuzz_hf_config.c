/*
 * fuzz_hf_config.c - config.json of Hugging Face directories that nobody vouches for.
 *
 * An input is the file.  What is accepted is a model that Hugging Face knows, and prints to a
 * file that is read back as the same model, with the same tokens that end a text.
 */
#include <string.h>

#include "checkpoint/hf_impl.h"
#include "fuzz/fuzz.h"

static const char *const names[] = {"config.json", NULL};

static bool same(const ls_gpt_opts *a, const ls_gpt_opts *b)
{
    return a->vocab_size == b->vocab_size && a->n_layer == b->n_layer &&
           a->n_head == b->n_head && a->n_kv_head == b->n_kv_head && a->d_model == b->d_model &&
           a->d_ff == b->d_ff && a->context == b->context && a->dropout == b->dropout &&
           a->bias == b->bias && a->tie_embeddings == b->tie_embeddings && a->norm == b->norm &&
           a->norm_eps == b->norm_eps && a->mlp == b->mlp && a->rope == b->rope &&
           a->rope_base == b->rope_base;
}

/* The tokens that end a text; false where the file is refused for them. */
static bool read_ends(const char *directory, int64_t vocab, ls_ends *ends)
{
    ls_tokenizer *bytes;

    fuzz_expect(ls_tokenizer_new(LS_TOKENIZER_BYTE, NULL, &bytes) == LS_OK);
    bool accepted = fuzz_accepted(ls_hf_read_end_of_text(directory, bytes, vocab, ends));
    ls_tokenizer_free(bytes);
    for (int i = 0; i < ends->n && accepted; i++)
        fuzz_expect(ends->token[i] >= 0 && ends->token[i] < vocab);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char  *directory = fuzz_directory(names);
    ls_gpt_opts  opts, again;
    ls_ends      ends, same_ends;
    ls__hf_style style;
    ls_strbuf    text = {0};

    fuzz_file(0, data, size);
    if (!fuzz_accepted(ls_hf_read_config(directory, &opts)))
        return 0;
    fuzz_expect(opts.n_head > 0 && opts.d_model % opts.n_head == 0);
    fuzz_expect(ls__hf_style_of(&opts, &style) == LS_OK);
    if (!read_ends(directory, opts.vocab_size, &ends))
        return 0;
    ls_hf_model model = {.opts = &opts, .ends = &ends};
    ls__hf_print_config(&text, &model, style);
    fuzz_expect(ls_strbuf_status(&text) == LS_OK);
    fuzz_file(0, text.data, text.used);
    fuzz_expect(ls_hf_read_config(directory, &again) == LS_OK && same(&opts, &again));
    fuzz_expect(read_ends(directory, opts.vocab_size, &same_ends) && ends.n == same_ends.n);
    ls_strbuf_free(&text);
    return 0;
}

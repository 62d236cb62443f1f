/*
 * dataset.c - loads, encodes, splits and checks the data of a run.
 *
 * Texts and the outgrown buffers of reading go back to the system before training starts.
 */
#include "data/dataset.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/sha256.h"

/* SHA-256 of tokenizer, limit and text: what the tokens follow from. */
static ls_status fingerprint(const ls_tokenizer *tokenizer, int32_t limit, const ls_text *text,
                             char hex[LS_SHA256_HEX])
{
    char     *json = ls_tokenizer_to_json(tokenizer);
    ls_sha256 sha;

    if (!json)
        return LS_ENOMEM;
    ls_status status = ls_sha256_init(&sha);
    if (!status)
        status = ls_sha256_update(&sha, json, strlen(json) + 1);
    if (!status)
        status = ls_sha256_update(&sha, &limit, sizeof limit);
    if (!status)
        status = ls_sha256_update(&sha, text->data, text->size);
    free(json);
    if (!status)
        return ls_sha256_final(&sha, hex);
    ls_sha256_close(&sha);
    return status;
}

static ls_status encode(const ls_dataset_opts *opts, const ls_tokenizer *tokenizer,
                        const ls_text *text, int32_t limit, ls_tokens *tokens)
{
    const ls_token_store *store = opts->store;
    char                  key[LS_SHA256_HEX];

    *tokens = (ls_tokens){0};
    if (!store || ls_tokenizer_get_kind(tokenizer) != LS_TOKENIZER_BPE)
        return ls_tokenizer_encode(tokenizer, text, limit, tokens);
    ls_status status = fingerprint(tokenizer, limit, text, key);
    if (status)
        return status;
    store->find(store->context, key, tokens);
    if (tokens->count)
        return LS_OK;
    status = ls_tokenizer_encode(tokenizer, text, limit, tokens);
    if (!status)
        store->keep(store->context, key, tokens);
    return status;
}

ls_status ls_dataset_load_tokens(const ls_dataset_opts *opts, ls_paths paths,
                                 const ls_tokenizer *tokenizer, int32_t vocab_size,
                                 ls_tokens *tokens)
{
    ls_text text;

    if (opts->format != LS_FORMAT_TEXT)
        return ls_tokens_load(opts->format, paths, vocab_size, tokens);
    ls_status status = ls_text_load(paths, &text);
    *tokens          = (ls_tokens){0};
    if (status)
        return status;
    status = encode(opts, tokenizer, &text, vocab_size, tokens);
    ls_text_close(&text);
    ls_mem_trim();
    return status;
}

static ls_status new_tokenizer(const ls_dataset_opts *opts, const ls_text *text,
                               ls_tokenizer **tokenizer)
{
    if (opts->tokenizer_json)
        return ls_tokenizer_from_json(opts->tokenizer_json, tokenizer);
    if (!opts->tokenizer_path)
        return ls_tokenizer_new(opts->kind, text, tokenizer);
    ls_status status = ls_tokenizer_load(opts->tokenizer_path, tokenizer);
    return status ? ls_fail_in(status, "data.tokenizer") : LS_OK;
}

static ls_status make_tokenizer(const ls_dataset_opts *opts, const ls_text *text,
                                ls_dataset *dataset)
{
    ls_status status = new_tokenizer(opts, text, &dataset->tokenizer);

    if (status)
        return status;
    dataset->vocab_size =
        opts->vocab_size ? opts->vocab_size : ls_tokenizer_vocab_size(dataset->tokenizer);
    return LS_OK;
}

/* A char tokenizer is made of the text, so that text and tokenizer come first. */
static ls_status load_text(const ls_dataset_opts *opts, ls_dataset *dataset)
{
    ls_text   text;
    ls_status status = ls_text_load(opts->train, &text);

    if (status)
        return status;
    status = make_tokenizer(opts, &text, dataset);
    if (!status)
        status = encode(opts, dataset->tokenizer, &text, dataset->vocab_size, &dataset->train);
    ls_text_close(&text);
    return status;
}

static bool is_table(const ls_dataset_opts *opts)
{
    return opts->format == LS_FORMAT_CSV || opts->format == LS_FORMAT_IDX;
}

static ls_status load_train(const ls_dataset_opts *opts, ls_dataset *dataset)
{
    ls_status status;

    if (is_table(opts)) {
        dataset->vocab_size = opts->shape.classes;
        status = ls_table_load(opts->format, opts->train, opts->shape, &dataset->train_rows);
    } else if (opts->format == LS_FORMAT_TEXT) {
        status = load_text(opts, dataset);
    } else {
        status = make_tokenizer(opts, NULL, dataset);
        if (!status)
            status =
                ls_tokens_load(opts->format, opts->train, dataset->vocab_size, &dataset->train);
    }
    return status ? ls_fail_in(status, "data.train") : LS_OK;
}

/* Cuts the last part off train; train keeps the memory of both. */
static void split(double fraction, ls_dataset *dataset)
{
    int64_t n_val  = (int64_t)((double)dataset->train.count * fraction);
    int64_t n_rows = (int64_t)((double)dataset->train_rows.rows * fraction);

    dataset->train.count -= n_val;
    dataset->train_rows.rows -= n_rows;
    dataset->val = ls_tokens_slice(&dataset->train, dataset->train.count, n_val);
    if (n_rows)
        dataset->val_rows =
            ls_table_slice(&dataset->train_rows, dataset->train_rows.rows, n_rows);
}

static ls_status load_val(const ls_dataset_opts *opts, ls_dataset *dataset)
{
    if (!opts->val.count) {
        if (opts->val_fraction > 0)
            split(opts->val_fraction, dataset);
        return LS_OK;
    }
    ls_status status =
        is_table(opts) ? ls_table_load(opts->format, opts->val, opts->shape, &dataset->val_rows)
                       : ls_dataset_load_tokens(opts, opts->val, dataset->tokenizer,
                                                dataset->vocab_size, &dataset->val);
    return status ? ls_fail_in(status, "data.val") : LS_OK;
}

static ls_status check_length(const char *what, const ls_tokens *tokens, int64_t context)
{
    if (tokens->count > context)
        return LS_OK;
    return ls_fail(LS_ECONFIG, "%s has %lld tokens, model.context %lld needs at least %lld",
                   what, (long long)tokens->count, (long long)context, (long long)context + 1);
}

static ls_status check_lengths(const ls_dataset_opts *opts, const ls_dataset *dataset)
{
    if (is_table(opts))
        return opts->val_fraction > 0 && !dataset->val_rows.rows
                   ? ls_fail(LS_ECONFIG,
                             "the part of data.train that data.val_fraction takes has no row")
                   : LS_OK;
    ls_status status = check_length(opts->val_fraction > 0 ? "data.train less data.val_fraction"
                                                           : "data.train",
                                    &dataset->train, opts->context);

    if (!status && opts->val.count)
        status = check_length("data.val", &dataset->val, opts->context);
    if (!status && opts->val_fraction > 0)
        status = check_length("the part of data.train that data.val_fraction takes",
                              &dataset->val, opts->context);
    return status;
}

static ls_status check_opts(const ls_dataset_opts *opts)
{
    if (!(opts->val_fraction >= 0 && opts->val_fraction < 1))
        return ls_fail(LS_ECONFIG, "data.val_fraction is %g, wanted 0 or more and less than 1",
                       opts->val_fraction);
    if (opts->val_fraction > 0 && opts->val.count)
        return ls_fail(LS_ECONFIG,
                       "data.val and data.val_fraction exclude each other, found both");
    if (opts->vocab_size < 0 || opts->context < 0)
        return ls_fail(LS_ECONFIG, "model.vocab_size %ld, model.context %lld: negative",
                       (long)opts->vocab_size, (long long)opts->context);
    return LS_OK;
}

ls_status ls_dataset_load(const ls_dataset_opts *opts, ls_dataset *dataset)
{
    *dataset         = (ls_dataset){0};
    ls_status status = check_opts(opts);

    if (!status)
        status = load_train(opts, dataset);
    if (!status)
        status = load_val(opts, dataset);
    if (!status)
        status = check_lengths(opts, dataset);
    if (status)
        ls_dataset_close(dataset);
    ls_mem_trim();
    return status;
}

void ls_dataset_close(ls_dataset *dataset)
{
    ls_table_close(&dataset->val_rows);
    ls_table_close(&dataset->train_rows);
    ls_tokens_close(&dataset->val);
    ls_tokens_close(&dataset->train);
    ls_tokenizer_free(dataset->tokenizer);
    *dataset = (ls_dataset){0};
}

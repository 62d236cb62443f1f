/*
 * dataset.c - loads, encodes, splits and checks the data of a run.
 *
 * Texts and the outgrown buffers of reading go back to the system before training starts.
 */
#include "data/dataset.h"

#include "core/alloc.h"

ls_status ls_dataset_load_tokens(ls_paths paths, const ls_tokenizer *tokenizer,
                                 int32_t vocab_size, ls_tokens *tokens)
{
    ls_text   text;
    ls_status status = ls_text_load(paths, &text);

    *tokens = (ls_tokens){0};
    if (status)
        return status;
    status = ls_tokenizer_encode(tokenizer, &text, vocab_size, tokens);
    ls_text_close(&text);
    ls_mem_trim();
    return status;
}

static ls_status make_tokenizer(const ls_dataset_opts *opts, const ls_text *text,
                                ls_dataset *dataset)
{
    ls_status status = opts->tokenizer_json
                           ? ls_tokenizer_from_json(opts->tokenizer_json, &dataset->tokenizer)
                           : ls_tokenizer_new(opts->kind, text, &dataset->tokenizer);
    if (status)
        return status;
    dataset->vocab_size =
        opts->vocab_size ? opts->vocab_size : ls_tokenizer_vocab_size(dataset->tokenizer);
    return LS_OK;
}

static ls_status load_train(const ls_dataset_opts *opts, ls_dataset *dataset)
{
    ls_text   text;
    ls_status status = ls_text_load(opts->train, &text);

    if (status)
        return ls_fail_in(status, "data.train");
    status = make_tokenizer(opts, &text, dataset);
    if (!status)
        status = ls_tokenizer_encode(dataset->tokenizer, &text, dataset->vocab_size,
                                     &dataset->train);
    ls_text_close(&text);
    return status ? ls_fail_in(status, "data.train") : LS_OK;
}

/* Cuts the last part off train; train keeps the memory of both. */
static void split(double fraction, ls_dataset *dataset)
{
    int64_t n_val = (int64_t)((double)dataset->train.count * fraction);

    dataset->train.count -= n_val;
    dataset->val = ls_tokens_slice(&dataset->train, dataset->train.count, n_val);
}

static ls_status load_val(const ls_dataset_opts *opts, ls_dataset *dataset)
{
    if (!opts->val.count) {
        if (opts->val_fraction > 0)
            split(opts->val_fraction, dataset);
        return LS_OK;
    }
    ls_status status = ls_dataset_load_tokens(opts->val, dataset->tokenizer,
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
    ls_tokens_close(&dataset->val);
    ls_tokens_close(&dataset->train);
    ls_tokenizer_free(dataset->tokenizer);
    *dataset = (ls_dataset){0};
}

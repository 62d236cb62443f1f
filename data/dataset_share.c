/*
 * dataset_share.c - see dataset_share.h.
 */
#include "data/dataset_share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"

enum { TABLE, TRAIN, VAL, TRAIN_LABELS, VAL_LABELS, TOKENIZER, PARTS };

typedef struct {
    int32_t   vocab_size;
    ls_tokens train, val; /* without their memory */
    ls_table  train_rows, val_rows;
    char      fingerprint[LS_FINGERPRINT_BYTES];
} table;

/* ---- who would load the same ---- */

typedef struct {
    int64_t  file; /* 0: the options; no hole in it, for it is hashed */
    uint64_t words[8];
} identity_row;

/* false: not to be read twice. */
static bool row_of_file(const char *path, int64_t i, identity_row *row)
{
    struct stat info;

    if (stat(path, &info) || !S_ISREG(info.st_mode))
        return false;
    *row = (identity_row){i + 1,
                          {info.st_dev, info.st_ino, (uint64_t)info.st_size,
                           (uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec}};
    return true;
}

static identity_row row_of_opts(const ls_dataset_opts *o)
{
    identity_row row = {0,
                        {(uint64_t)o->kind, (uint64_t)o->vocab_size, (uint64_t)o->context,
                         (uint64_t)o->train.count, 0, (uint64_t)o->format,
                         (uint64_t)o->shape.features, (uint64_t)o->shape.classes}};

    memcpy(&row.words[4], &o->val_fraction, sizeof o->val_fraction);
    return row;
}

/* *whole: all files are there. */
static ls_status hash_files(ls_sha256 *sha, ls_paths paths, int64_t first, bool *whole)
{
    ls_status status = LS_OK;

    for (int i = 0; i < paths.count && *whole && !status; i++) {
        identity_row row;
        *whole = row_of_file(paths.path[i], first + i, &row);
        if (*whole)
            status = ls_sha256_update(sha, &row, sizeof row);
    }
    return status;
}

ls_status ls_dataset_identity(const ls_dataset_opts *o, char hex[LS_SHA256_HEX])
{
    identity_row opts  = row_of_opts(o);
    const char  *json  = o->tokenizer_json ? o->tokenizer_json : "";
    bool         whole = true;
    ls_sha256    sha;
    ls_status    status = ls_sha256_init(&sha);

    hex[0] = '\0';
    if (status)
        return status;
    status = ls_sha256_update(&sha, &opts, sizeof opts);
    if (!status)
        status = ls_sha256_update(&sha, json, strlen(json));
    if (!status)
        status = hash_files(&sha, o->train, 0, &whole);
    if (!status)
        status = hash_files(&sha, o->val, o->train.count, &whole);
    if (!status && o->tokenizer_path)
        status = hash_files(&sha, (ls_paths){&o->tokenizer_path, 1},
                            o->train.count + o->val.count, &whole);
    if (!status && whole)
        return ls_sha256_final(&sha, hex);
    ls_sha256_close(&sha);
    return status;
}

/* ---- what is in it ---- */

static size_t bytes_of(const ls_tokens *tokens)
{
    return (size_t)tokens->count * (size_t)tokens->width;
}

static ls_status hash_tokens(const ls_tokens *tokens, char hex[LS_SHA256_HEX])
{
    ls_sha256 sha;
    ls_status status = ls_sha256_init(&sha);

    if (status)
        return status;
    status = ls_sha256_update(&sha, tokens->data, bytes_of(tokens));
    if (!status)
        return ls_sha256_final(&sha, hex);
    ls_sha256_close(&sha);
    return status;
}

static ls_status rows_fingerprint(const ls_dataset *d, char text[LS_FINGERPRINT_BYTES])
{
    char      train[LS_SHA256_HEX], val[LS_SHA256_HEX];
    ls_status status = ls_table_sha256(&d->train_rows, train);

    text[0] = '\0';
    if (!status)
        status = ls_table_sha256(&d->val_rows, val);
    if (status)
        return status;
    snprintf(text, LS_FINGERPRINT_BYTES,
             "data.train %lld rows (sha256 %.16s)\n"
             "data.val %lld rows (sha256 %.16s)\n",
             (long long)d->train_rows.rows, train, (long long)d->val_rows.rows, val);
    return LS_OK;
}

ls_status ls_dataset_fingerprint(const ls_dataset *d, char text[LS_FINGERPRINT_BYTES])
{
    if (d->train_rows.rows)
        return rows_fingerprint(d, text);
    char      train[LS_SHA256_HEX], val[LS_SHA256_HEX];
    ls_status status = hash_tokens(&d->train, train);

    text[0] = '\0';
    if (!status)
        status = hash_tokens(&d->val, val);
    if (status)
        return status;
    snprintf(text, LS_FINGERPRINT_BYTES,
             "vocabulary %d tokens\n"
             "data.train %lld tokens (sha256 %.16s)\n"
             "data.val %lld tokens (sha256 %.16s)\n",
             d->vocab_size, (long long)d->train.count, train, (long long)d->val.count, val);
    return LS_OK;
}

/* ---- publish and take ---- */

static ls_tokens shape_of(const ls_tokens *tokens)
{
    return (ls_tokens){.count = tokens->count, .width = tokens->width};
}

/* A table, but for its memory: the pointers only say which of the two kinds it is. */
static ls_table shape_of_rows(const ls_table *t)
{
    ls_table shape = *t;

    memset(shape.memory, 0, sizeof shape.memory);
    memset(shape.owned, 0, sizeof shape.owned);
    return shape;
}

static ls_shared_array values_of(const ls_tokens *tokens, const ls_table *rows)
{
    size_t n = (size_t)(rows->rows * rows->features);

    if (rows->byte)
        return (ls_shared_array){rows->byte, n};
    return rows->value ? (ls_shared_array){rows->value, n * sizeof *rows->value}
                       : (ls_shared_array){tokens->data, bytes_of(tokens)};
}

static void view_rows(const ls_shared *s, int values, int labels, ls_table *rows)
{
    if (rows->byte)
        rows->byte = ls_shared_part(s, values).data;
    if (rows->value)
        rows->value = ls_shared_part(s, values).data;
    if (rows->label)
        rows->label = ls_shared_part(s, labels).data;
}

static void view(const ls_shared *s, const table *t, ls_dataset *d)
{
    d->vocab_size = t->vocab_size;
    d->train      = t->train;
    d->val        = t->val;
    /* read only: nobody writes into tokens once they are made */
    d->train.data = (void *)(uintptr_t)ls_shared_part(s, TRAIN).data;
    d->val.data   = (void *)(uintptr_t)ls_shared_part(s, VAL).data;
    d->train_rows = t->train_rows;
    d->val_rows   = t->val_rows;
    view_rows(s, TRAIN, TRAIN_LABELS, &d->train_rows);
    view_rows(s, VAL, VAL_LABELS, &d->val_rows);
}

static ls_shared_array labels_of(const ls_table *rows)
{
    return (ls_shared_array){rows->label, (size_t)rows->rows * sizeof *rows->label};
}

ls_status ls_dataset_publish(ls_dataset *d, const char *fingerprint, ls_shared *s)
{
    char *json = ls_tokenizer_to_json(d->tokenizer);
    table t    = {.vocab_size = d->vocab_size,
                  .train      = shape_of(&d->train),
                  .val        = shape_of(&d->val),
                  .train_rows = shape_of_rows(&d->train_rows),
                  .val_rows   = shape_of_rows(&d->val_rows)};

    if (!json) {
        ls_shared_fail(s, LS_ENOMEM);
        return LS_ENOMEM;
    }
    snprintf(t.fingerprint, sizeof t.fingerprint, "%s", fingerprint);
    ls_shared_array parts[PARTS] = {[TABLE]        = {&t, sizeof t},
                                    [TRAIN]        = values_of(&d->train, &d->train_rows),
                                    [VAL]          = values_of(&d->val, &d->val_rows),
                                    [TRAIN_LABELS] = labels_of(&d->train_rows),
                                    [VAL_LABELS]   = labels_of(&d->val_rows),
                                    [TOKENIZER]    = {json, strlen(json) + 1}};
    ls_status       status       = ls_shared_fill(s, parts, PARTS);
    free(json);
    if (status)
        return status;
    ls_table_close(&d->val_rows);
    ls_table_close(&d->train_rows);
    ls_tokens_close(&d->val);
    ls_tokens_close(&d->train);
    ls_mem_trim();
    view(s, &t, d);
    return LS_OK;
}

ls_status ls_dataset_take(ls_shared *s, ls_dataset *d, char fingerprint[LS_FINGERPRINT_BYTES])
{
    ls_status status = ls_shared_take(s);

    *d = (ls_dataset){0};
    if (status)
        return status;
    table t;
    memcpy(&t, ls_shared_part(s, TABLE).data, sizeof t);
    if (!t.train_rows.rows)
        status = ls_tokenizer_from_json(ls_shared_part(s, TOKENIZER).data, &d->tokenizer);
    if (status)
        return status;
    view(s, &t, d);
    snprintf(fingerprint, LS_FINGERPRINT_BYTES, "%s", t.fingerprint);
    return LS_OK;
}

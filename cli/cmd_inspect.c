/*
 * cmd_inspect.c - `lockstep inspect`: what a checkpoint holds.
 *
 * Opening a file proves its structure (safetensors.h); its values are proved here where the
 * file carries their hash.  Both outputs are built from the one `facts`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/json_scan.h"
#include "checkpoint/params.h"
#include "checkpoint/view.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "core/alloc.h"

static const char help[] =
    "usage: lockstep inspect CHECKPOINT [--json]\n"
    "\n"
    "Lists what a checkpoint holds and verifies it.  CHECKPOINT is a checkpoint's directory, "
    "a\n"
    "run directory (its newest valid checkpoint), or a .safetensors file, of Lockstep or of "
    "any\n"
    "other program.\n"
    "\n"
    "Verified are, of a checkpoint: manifest, sizes, headers and every byte of every file, by\n"
    "their CRC-32; of a file: the header, names, dtypes, shapes and offsets of all tensors, "
    "the\n"
    "size, and the SHA-256 of all values where the file carries it as params_sha256.\n"
    "\n"
    "  --json       one JSON object on one line\n"
    "  -h, --help   this text\n"
    "\n"
    "Exit status: 0 valid, 1 not valid or not readable, 2 wrong usage.\n";

enum { DTYPES = 32 };

typedef struct {
    const ls_safetensors *file;
    uint64_t              parameters;
    uint64_t              of_dtype[DTYPES]; /* tensors, by ls_st_dtype_rank() */
    bool                  ours;             /* all dtypes are Lockstep's */
    bool                  has_hash;         /* the file carries params_sha256 */
    char                  sha256[LS_SHA256_HEX];
    char                  state_sha256[LS_SHA256_HEX]; /* of a checkpoint */
    ls_status             check;                       /* of the values against that hash */
    char                 *strategy;
} facts;

/* Goes to the value of a key of an object; false when it is not there. */
static bool find_key(ls_json_scan *s, const char *wanted)
{
    ls_json_span key;

    ls_json_enter(s, '{');
    for (bool first = true; ls_json_more(s, '}', &first);) {
        if (!ls_json_key(s, &key))
            return false;
        if (ls_json_is(&key, wanted))
            return true;
        ls_json_skip(s);
    }
    return false;
}

/* The file's "strategy", else parallel.strategy of its "config"; NULL where neither is. */
static ls_status find_strategy(facts *f)
{
    const char  *strategy = ls_safetensors_metadata(f->file, "strategy");
    const char  *config   = ls_safetensors_metadata(f->file, "config");
    char        *copy     = config && !strategy ? ls_strdup(config) : NULL;
    ls_json_span span;

    if (config && !strategy && !copy)
        return LS_ENOMEM;
    if (copy) {
        ls_json_scan s = {.text = copy, .length = strlen(copy)};
        if (find_key(&s, "parallel") && find_key(&s, "strategy") && ls_json_string(&s, &span))
            strategy = span.text;
    }
    f->strategy      = strategy ? ls_strdup(strategy) : NULL;
    ls_status status = strategy && !f->strategy ? LS_ENOMEM : LS_OK;
    free(copy);
    return status;
}

/* The hash is worked out where it has a meaning for us, or is claimed. */
static ls_status find_hash(facts *f)
{
    if (ls_view_checkpoint(f->file))
        return ls_view_hashes(f->file, f->sha256, f->state_sha256);
    f->has_hash = ls_safetensors_metadata(f->file, LS_PARAMS_SHA256_KEY) != NULL;
    if (!f->ours && !f->has_hash)
        return LS_OK;
    ls_status status = ls_params_file_sha256(f->file, f->sha256);
    if (!status)
        f->check = ls_params_file_check(f->file, f->sha256);
    return status;
}

static ls_status find_facts(const ls_safetensors *file, facts *f)
{
    *f = (facts){.file = file, .ours = true};
    for (size_t i = 0; i < file->header.n_entries; i++) {
        const ls_st_entry *e = &file->header.entry[i];
        ls_dtype           dtype;
        uint64_t           numel;
        if (ls_view_is(file, e, LS_KIND_PARAMETER) && ls_st_numel(e->dim, e->ndim, &numel))
            f->parameters += numel;
        f->of_dtype[ls_st_dtype_rank(e->dtype)]++;
        f->ours = f->ours && ls_dtype_parse(e->dtype, &dtype);
    }
    ls_status status = find_strategy(f);
    return status ? status : find_hash(f);
}

/* The name of the dtype of that rank, from a tensor that has it. */
static const char *dtype_of_rank(const ls_st_header *h, int rank)
{
    for (size_t i = 0; i < h->n_entries; i++)
        if (ls_st_dtype_rank(h->entry[i].dtype) == rank)
            return h->entry[i].dtype;
    return "";
}

static void json_string(ls_strbuf *t, const char *key, const char *value)
{
    ls_strbuf_format(t, ",\"%s\":", key);
    if (value)
        ls_strbuf_json(t, value, strlen(value));
    else
        ls_strbuf_format(t, "null");
}

/* A number of the metadata is one in the JSON too. */
static void json_number(ls_strbuf *t, const char *key, const char *value)
{
    bool digits = value && *value && strspn(value, "0123456789") == strlen(value) &&
                  (*value != '0' || !value[1]);

    if (digits)
        ls_strbuf_format(t, ",\"%s\":%s", key, value);
    else
        json_string(t, key, value);
}

static void json_metadata(ls_strbuf *t, const ls_st_header *h)
{
    ls_strbuf_format(t, ",\"metadata\":{");
    for (size_t i = 0; i < h->n_pairs; i++) {
        if (i)
            ls_strbuf_add(t, ",", 1);
        ls_strbuf_json(t, h->pair[i].key, h->pair[i].key_bytes);
        ls_strbuf_add(t, ":", 1);
        ls_strbuf_json(t, h->pair[i].value, h->pair[i].value_bytes);
    }
    ls_strbuf_add(t, "}", 1);
}

static void json_dtypes(ls_strbuf *t, const facts *f)
{
    const char *comma = "";

    ls_strbuf_format(t, ",\"dtypes\":{");
    for (int rank = 0; rank < DTYPES; rank++)
        if (f->of_dtype[rank]) {
            ls_strbuf_format(t, "%s\"%s\":%llu", comma, dtype_of_rank(&f->file->header, rank),
                             (unsigned long long)f->of_dtype[rank]);
            comma = ",";
        }
    ls_strbuf_add(t, "}", 1);
}

static void json_tensors(ls_strbuf *t, const ls_st_header *h)
{
    ls_strbuf_format(t, ",\"tensors\":[");
    for (size_t i = 0; i < h->n_entries; i++) {
        const ls_st_entry *e = &h->entry[i];
        ls_strbuf_format(t, "%s{\"name\":", i ? "," : "");
        ls_strbuf_json(t, e->name, strlen(e->name));
        ls_strbuf_format(t, ",\"dtype\":\"%s\",\"shape\":", e->dtype);
        ls_strbuf_dims(t, e->dim, e->ndim);
        ls_strbuf_format(t, ",\"bytes\":%llu,\"data_offsets\":[%llu,%llu]}",
                         (unsigned long long)(e->end - e->begin), (unsigned long long)e->begin,
                         (unsigned long long)e->end);
    }
    ls_strbuf_add(t, "]", 1);
}

static void add_json(ls_strbuf *t, const facts *f)
{
    const ls_safetensors *file = f->file;

    ls_strbuf_format(t, "{\"file\":");
    ls_strbuf_json(t, file->path, ls_json_utf8(file->path, strlen(file->path)));
    json_number(t, "step", ls_safetensors_metadata(file, "step"));
    json_string(t, "strategy", f->strategy);
    json_number(t, "world_size", ls_safetensors_metadata(file, "world_size"));
    ls_strbuf_format(
        t, ",\"parameters\":%llu,\"n_tensors\":%zu,\"bytes\":%llu,\"file_bytes\":%llu",
        (unsigned long long)f->parameters, file->header.n_entries,
        (unsigned long long)file->header.data_bytes, (unsigned long long)file->file_bytes);
    json_string(t, "params_sha256", f->ours ? f->sha256 : NULL);
    if (*f->state_sha256)
        json_string(t, "state_sha256", f->state_sha256);
    ls_strbuf_format(t, ",\"verified\":%s",
                     ls_view_checkpoint(file) ? "true"
                     : !f->has_hash           ? "null"
                     : f->check               ? "false"
                                              : "true");
    json_dtypes(t, f);
    json_metadata(t, &file->header);
    json_tensors(t, &file->header);
    ls_strbuf_add(t, "}\n", 2);
}

static void text_line(ls_strbuf *t, const char *key, const char *value)
{
    ls_st_name_text shown;

    if (value)
        ls_strbuf_format(t, "  %-14s %s\n", key, ls_st_print_name(value, &shown));
}

static void text_dtypes(ls_strbuf *t, const facts *f)
{
    ls_strbuf_format(t, "  %-14s", "dtypes");
    for (int rank = 0; rank < DTYPES; rank++)
        if (f->of_dtype[rank])
            ls_strbuf_format(t, " %s (%llu)", dtype_of_rank(&f->file->header, rank),
                             (unsigned long long)f->of_dtype[rank]);
    ls_strbuf_add(t, "\n", 1);
}

static void text_hash(ls_strbuf *t, const facts *f)
{
    if (*f->sha256)
        ls_strbuf_format(t, "  %-14s %s (%s)\n", LS_PARAMS_SHA256_KEY, f->sha256,
                         *f->state_sha256 ? "every byte is as the manifest says"
                         : !f->has_hash   ? "the file carries none to compare"
                         : f->check       ? "the file says another"
                                          : "as the file says");
}

static void text_state_hash(ls_strbuf *t, const facts *f)
{
    if (*f->state_sha256)
        ls_strbuf_format(t, "  %-14s %s\n", "state_sha256", f->state_sha256);
}

static void text_tensors(ls_strbuf *t, const ls_st_header *h)
{
    for (size_t i = 0; i < h->n_entries; i++) {
        const ls_st_entry *e = &h->entry[i];
        ls_st_name_text    name;
        ls_st_shape_text   shape;
        ls_strbuf_format(t, "  %-32s %-5s %-16s %12llu bytes\n",
                         ls_st_print_name(e->name, &name), e->dtype,
                         ls_st_print_shape(e->dim, e->ndim, &shape),
                         (unsigned long long)(e->end - e->begin));
    }
}

static bool has_line(const char *key)
{
    static const char *const keys[] = {"step", "strategy", "world_size", LS_PARAMS_SHA256_KEY};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i], key))
            return true;
    return false;
}

static void add_text(ls_strbuf *t, const facts *f)
{
    const ls_safetensors *file = f->file;
    const ls_st_header   *h    = &file->header;

    ls_strbuf_format(t, "%s\n", file->path);
    text_line(t, "step", ls_safetensors_metadata(file, "step"));
    text_line(t, "strategy", f->strategy);
    text_line(t, "world", ls_safetensors_metadata(file, "world_size"));
    for (size_t i = 0; i < h->n_pairs; i++)
        if (!has_line(h->pair[i].key))
            text_line(t, h->pair[i].key, h->pair[i].value);
    ls_strbuf_format(t, "  %-14s %llu in %zu tensors\n", "parameters",
                     (unsigned long long)f->parameters, h->n_entries);
    ls_strbuf_format(t, "  %-14s %llu (%.1f MiB), %llu with the header\n", "bytes",
                     (unsigned long long)h->data_bytes, (double)h->data_bytes / (1 << 20),
                     (unsigned long long)file->file_bytes);
    text_dtypes(t, f);
    text_hash(t, f);
    text_state_hash(t, f);
    ls_strbuf_add(t, "\n", 1);
    text_tensors(t, h);
}

static ls_status inspect(const ls_file_args *args)
{
    ls_safetensors *file;
    facts           f;
    ls_strbuf       text   = {0};
    ls_status       status = ls_checkpoint_open_state(args->path[0], &file);

    if (status)
        return status;
    status = find_facts(file, &f);
    if (!status) {
        (args->json ? add_json : add_text)(&text, &f);
        status = ls_strbuf_put(&text);
    }
    if (!status && f.check)
        status = ls_params_file_check(file, f.sha256); /* its message, after the output's */
    ls_strbuf_free(&text);
    free(f.strategy);
    ls_safetensors_close(file);
    return status;
}

int ls_cmd_inspect(int argc, char **argv)
{
    ls_file_args args;
    ls_status    status = ls_file_args_parse(argc, argv, 1, &args);

    if (!status && args.help) {
        fputs(help, stdout);
        return 0;
    }
    return ls_report(status ? status : inspect(&args));
}

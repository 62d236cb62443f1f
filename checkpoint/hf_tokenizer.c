/*
 * hf_tokenizer.c - our tokenizers as tokenizer.json, and those that we know again out of one.
 *
 * A tokenizer that came out of a tokenizer.json goes back as it is.  The others are byte-pair
 * encodings without merges, so a text falls into the smallest pieces of the vocabulary.  byte:
 * the pieces are bytes, which the ByteLevel pre-tokenizer writes as printable characters: those
 * of Latin-1 that print as themselves, the other 68 as U+0100 and on, in order (GPT-2's
 * encoder.py).  char: the pieces are the characters themselves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/hf_impl.h"
#include "core/utf8.h"

enum { BYTES = 256 };

static bool prints(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* The character that stands for a byte. */
static uint32_t byte_point(int byte)
{
    uint32_t point = 256;

    if (prints(byte))
        return (uint32_t)byte;
    for (int b = 0; b < byte; b++)
        point += !prints(b);
    return point;
}

static void add_entry(ls_strbuf *t, const char *text, size_t n, int32_t id)
{
    ls_strbuf_add(t, ", ", id ? 2 : 0);
    ls_strbuf_json(t, text, n);
    ls_strbuf_format(t, ": %d", (int)id);
}

static void add_vocabulary(ls_strbuf *t, const ls_tokenizer *tokenizer, bool bytes)
{
    char    text[LS_TOKEN_LONGEST];
    int32_t n = ls_tokenizer_vocab_size(tokenizer);

    for (int32_t id = 0; id < n; id++) {
        size_t length = bytes ? ls_utf8_encode(byte_point(id), text)
                              : ls_tokenizer_decode(tokenizer, id, text);
        add_entry(t, text, length, id);
    }
}

static void print_pieces(ls_strbuf *t, const ls_tokenizer *tokenizer)
{
    static const char level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": false, \"use_regex\": false}";
    bool              bytes   = ls_tokenizer_get_kind(tokenizer) == LS_TOKENIZER_BYTE;

    ls_strbuf_format(
        t,
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
        "  \"added_tokens\": [],\n  \"normalizer\": null,\n"
        "  \"pre_tokenizer\": %s,\n  \"post_processor\": null,\n"
        "  \"decoder\": %s,\n",
        bytes ? level : "null", bytes ? level : "{\"type\": \"Fuse\"}");
    ls_strbuf_format(t,
                     "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                     "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                     "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false, "
                     "\"vocab\": {");
    add_vocabulary(t, tokenizer, bytes);
    ls_strbuf_format(t, "}, \"merges\": []}\n}\n");
}

void ls__hf_print_tokenizer(ls_strbuf *t, const ls_tokenizer *tokenizer)
{
    ls_tokenizer_kind kind = ls_tokenizer_get_kind(tokenizer);

    if (kind == LS_TOKENIZER_BYTE || kind == LS_TOKENIZER_CHAR) {
        print_pieces(t, tokenizer);
        return;
    }
    char *json = ls_tokenizer_to_json(tokenizer); /* a tokenizer.json as it was read */
    if (json)
        ls_strbuf_add(t, json, strlen(json));
    t->failed = t->failed || !json;
    free(json);
}

void ls__hf_print_tokenizer_config(ls_strbuf *t, const ls_gpt_opts *o)
{
    ls_strbuf_format(t,
                     "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                     "  \"clean_up_tokenization_spaces\": false,\n"
                     "  \"model_max_length\": %lld\n}\n",
                     (long long)o->context);
}

/* ---- reading ---- */

/* One character, given as text; LS_UTF8_POINTS where it is none. */
static uint32_t only_point(const char *text)
{
    uint32_t point;
    size_t   n = strlen(text), used = ls_utf8_decode((const unsigned char *)text, n, &point);

    return used && used == n ? point : LS_UTF8_POINTS;
}

/* The vocabulary is that of our byte tokenizer. */
static bool is_bytes(const ls_json *vocab)
{
    if (vocab->count != BYTES)
        return false;
    for (const ls_json *v = vocab->child; v; v = v->next)
        if (!v->integer || v->whole < 0 || v->whole >= BYTES ||
            only_point(v->key) != byte_point((int)v->whole))
            return false;
    return true;
}

/* The tokens are characters, each once, from 0 on. */
static bool is_chars(const ls_json *vocab)
{
    for (const ls_json *v = vocab->child; v; v = v->next)
        if (!v->integer || v->whole < 0 || (uint64_t)v->whole >= vocab->count ||
            only_point(v->key) == LS_UTF8_POINTS)
            return false;
    return vocab->count > 0;
}

static ls_status read_chars(const ls_json *vocab, ls_tokenizer **tokenizer)
{
    uint32_t *point = ls_calloc(vocab->count, sizeof *point);
    ls_strbuf text  = {0};

    if (!point)
        return LS_ENOMEM;
    for (const ls_json *v = vocab->child; v; v = v->next)
        point[v->whole] = only_point(v->key);
    bool each = true; /* id is there: no key holds a NUL */
    ls_strbuf_format(&text, "{\"kind\":\"char\",\"code_points\":[");
    for (size_t i = 0; i < vocab->count; i++) {
        ls_strbuf_format(&text, "%s%u", i ? "," : "", (unsigned)point[i]);
        each = each && point[i];
    }
    ls_strbuf_format(&text, "]}");
    ls_status status = ls_strbuf_status(&text);
    if (!status && !each)
        status = ls_fail(LS_EFORMAT, "model.vocab gives an id twice");
    if (!status)
        status = ls_tokenizer_from_json(text.data, tokenizer);
    ls_strbuf_free(&text);
    free(point);
    return status;
}

/* What our tokenizers do not have and what would change the tokens. */
static bool has_more(const ls_json *root)
{
    const ls_json *normalizer = ls_json_find(root, "normalizer");
    const ls_json *added      = ls_json_find(root, "added_tokens");

    return (normalizer && normalizer->kind != LS_JSON_NULL) || (added && added->count);
}

/* As the reader of tokenizers takes it. */
static ls_status read_whole(const ls_json *root, ls_tokenizer **tokenizer)
{
    char *text = ls_sprintf("%.*s", (int)root->source_bytes, root->source);
    if (!text)
        return LS_ENOMEM;
    ls_status status = ls_tokenizer_from_json(text, tokenizer);
    free(text);
    return status;
}

static ls_status read_tokenizer(const ls_json *root, ls_tokenizer **tokenizer)
{
    const ls_json *merges = ls_json_find(root, "model.merges");
    const ls_json *vocab  = ls_json_find(root, "model.vocab");
    const ls_json *pre    = ls_json_find(root, "pre_tokenizer");
    const ls_json *regex  = ls_json_find(root, "pre_tokenizer.use_regex");
    const char    *type;
    ls_status      status = ls_json_get_string(root, "model.type", &type);

    if (status)
        return status;
    if (strcmp(type, "BPE") != 0)
        return ls_fail(LS_EUNSUPPORTED, "a tokenizer of type %s is not in Lockstep; want BPE",
                       type);
    if (!vocab || vocab->kind != LS_JSON_OBJECT)
        return ls_fail(LS_EFORMAT, "model.vocab is %s, wanted an object",
                       vocab ? ls_json_kind_name(vocab) : "missing");
    if (!merges || merges->kind != LS_JSON_ARRAY || merges->count || has_more(root))
        return read_whole(root, tokenizer);
    if (regex && regex->kind == LS_JSON_BOOL && !regex->boolean && is_bytes(vocab))
        return ls_tokenizer_new(LS_TOKENIZER_BYTE, NULL, tokenizer);
    if ((!pre || pre->kind == LS_JSON_NULL) && is_chars(vocab))
        return read_chars(vocab, tokenizer);
    return read_whole(root, tokenizer);
}

/* The file's path where it is there, NULL where not; ENOMEM. */
static ls_status find_file(const char *directory, const char *name, char **path)
{
    struct stat info;

    *path = ls_sprintf("%s/%s", directory, name);
    if (!*path)
        return LS_ENOMEM;
    if (stat(*path, &info)) {
        free(*path);
        *path = NULL;
    }
    return LS_OK;
}

ls_status ls_hf_find_tokenizer(const char *directory, char **path)
{
    ls_status status = find_file(directory, "tokenizer.json", path);
    return status || *path ? status : find_file(directory, "vocab.json", path);
}

static ls_status read_file(const char *directory, ls_tokenizer **tokenizer)
{
    ls_json_doc *doc;
    char        *path;
    ls_status    status = ls__hf_read_json(directory, "tokenizer.json", &path, &doc);

    if (!status)
        status = read_tokenizer(ls_json_root(doc), tokenizer);
    if (status && doc)
        status = ls_fail_in(status, "%s", path);
    ls_json_free(doc);
    free(path);
    return status;
}

ls_status ls_hf_read_tokenizer(const char *directory, ls_tokenizer **tokenizer)
{
    char     *path;
    ls_status status = ls_hf_find_tokenizer(directory, &path);

    *tokenizer = NULL;
    if (!path)
        return status;
    size_t n = strlen(path), m = strlen("vocab.json");
    if (n > m && !strcmp(path + n - m, "vocab.json"))
        status = ls_tokenizer_load(path, tokenizer);
    else
        status = read_file(directory, tokenizer);
    free(path);
    return status;
}

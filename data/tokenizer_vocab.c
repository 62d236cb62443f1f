/*
 * tokenizer_vocab.c - GPT-2's vocab.json and merges.txt as a tokenizer.json.
 *
 *     vocab.json               token -> id
 *     merges.txt               "#version: ..", then two tokens a line, by rank
 *     tokenizer_config.json    may be: add_prefix_space, add_bos_token, added_tokens_decoder
 *                              and the names of special tokens
 *     special_tokens_map.json  may be: names of special tokens
 *     added_tokens.json        may be: token -> id, of tokens beyond the vocabulary
 *
 * What is found in a text as it stands: the tokens of added_tokens_decoder and
 * added_tokens.json and the special ones, among them "<|endoftext|>" unless bos, eos and unk
 * are all called otherwise.  That is how transformers reads such a directory (its
 * GPT2Tokenizer).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/gz.h"
#include "core/strbuf.h"
#include "core/utf8.h"
#include "data/bpe_impl.h"

enum { VOCAB, CONFIG, MAP, ADDED, FILES, MOST_ADDED = 4096, NO_ID = -2 };

static const char *const file_name[FILES] = {"vocab.json", "tokenizer_config.json",
                                             "special_tokens_map.json", "added_tokens.json"};
static const char        end_of_text[]    = "<|endoftext|>";

typedef struct {
    const char *content;
    int64_t     id; /* -1: the next one that is free */
    bool        special;
} added_token;

typedef struct {
    char          *path[FILES], *merges_path;
    ls_json_doc   *doc[FILES];
    const ls_json *root[FILES]; /* NULL: there is no such file */
    ls_bytes       merges;
    added_token   *added;
    size_t         n_added;
    ls__bytes_map  id_of; /* of the vocabulary's tokens; NO_ID where it is none */
    ls_strbuf      out;
} reader;

/* ---- files ---- */

static ls_status open_file(reader *r, int i)
{
    ls_bytes    text = {0};
    struct stat info;

    if (i != VOCAB && stat(r->path[i], &info))
        return LS_OK;
    ls_status status = ls_gz_read_file(r->path[i], &text);
    if (!status)
        status = ls_json_parse(text.data ? (const char *)text.data : "", text.size, r->path[i],
                               &r->doc[i]);
    ls_bytes_free(&text);
    if (status)
        return status;
    r->root[i] = ls_json_root(r->doc[i]);
    if (r->root[i]->kind != LS_JSON_OBJECT)
        return ls_fail(LS_EFORMAT, "%s: found %s, wanted an object", r->path[i],
                       ls_json_kind_name(r->root[i]));
    return LS_OK;
}

static ls_status open_all(reader *r, const char *path)
{
    int       folder = (int)(strlen(path) - strlen(file_name[VOCAB]));
    ls_status status = LS_OK;

    for (int i = 0; i < FILES && !status; i++) {
        r->path[i] = ls_sprintf("%.*s%s", folder, path, file_name[i]);
        status     = r->path[i] ? open_file(r, i) : LS_ENOMEM;
    }
    r->merges_path = ls_sprintf("%.*smerges.txt", folder, path);
    if (!status)
        status = r->merges_path ? ls_gz_read_file(r->merges_path, &r->merges) : LS_ENOMEM;
    return status;
}

static void close_all(reader *r)
{
    for (int i = 0; i < FILES; i++) {
        ls_json_free(r->doc[i]);
        free(r->path[i]);
    }
    free(r->merges_path);
    ls_bytes_free(&r->merges);
    ls_strbuf_free(&r->out);
    ls__bytes_map_free(&r->id_of);
    free(r->added);
}

/* ---- added tokens ---- */

/* A member by its name, which may have dots. */
static const ls_json *member(const ls_json *object, const char *name)
{
    const ls_json *m = object ? object->child : NULL;

    while (m && strcmp(m->key, name) != 0)
        m = m->next;
    return m;
}

static ls_status add(reader *r, const char *path, const char *content, int64_t id, bool special)
{
    for (size_t i = 0; i < r->n_added; i++)
        if (!strcmp(r->added[i].content, content)) {
            added_token *a = &r->added[i];
            if (a->id >= 0 && id >= 0 && a->id != id)
                return ls_fail(LS_EFORMAT, "%s: token \"%.60s\" has the ids %lld and %lld",
                               path, content, (long long)a->id, (long long)id);
            a->id      = a->id >= 0 ? a->id : id;
            a->special = a->special || special;
            return LS_OK;
        }
    if (r->n_added == MOST_ADDED)
        return ls_fail(LS_EUNSUPPORTED, "%s: more than %d added tokens", path, MOST_ADDED);
    r->added[r->n_added++] = (added_token){content, id, special};
    return LS_OK;
}

/* A token is a string, or an object that must not ask for white space or whole words. */
static ls_status token_text(const char *path, const ls_json *value, const char **text)
{
    static const char *const off[]  = {"single_word", "lstrip", "rstrip"};
    ls_status                status = LS_OK;

    *text = value->kind == LS_JSON_STRING ? value->text : "";
    if (value->kind == LS_JSON_OBJECT)
        status = ls_json_get_string(value, "content", text);
    for (size_t i = 0; i < 3 && value->kind == LS_JSON_OBJECT && !status; i++)
        status = ls__bpe_check_off(path, value, value->key ? value->key : "a token", off[i]);
    if (!status && !**text)
        status = ls_fail(LS_EFORMAT, "%s: %s is %s, wanted a token", path,
                         value->key ? value->key : "a special token", ls_json_kind_name(value));
    return status;
}

static ls_status add_special(reader *r, const char *path, const ls_json *value)
{
    const char *text;
    ls_status   status = token_text(path, value, &text);

    return status ? status : add(r, path, text, -1, true);
}

/* added_tokens_decoder: id -> token. */
static ls_status add_decoder(reader *r)
{
    const char    *path   = r->path[CONFIG], *text;
    const ls_json *all    = member(r->root[CONFIG], "added_tokens_decoder");
    ls_status      status = LS_OK;

    for (const ls_json *a = all ? all->child : NULL; a && !status; a = a->next) {
        char *end     = NULL;
        bool  special = true;
        long  id      = a->key ? strtol(a->key, &end, 10) : -1;
        if (id < 0 || !end || *end || a->kind != LS_JSON_OBJECT)
            return ls_fail(LS_EFORMAT, "%s: added_tokens_decoder: wanted ids and tokens", path);
        status = token_text(path, a, &text);
        if (!status && ls_json_find(a, "special"))
            status = ls_json_get_bool(a, "special", &special);
        if (!status)
            status = add(r, path, text, id, special);
    }
    return status;
}

static ls_status add_listed(reader *r)
{
    const ls_json *all    = r->root[ADDED];
    ls_status      status = LS_OK;

    for (const ls_json *a = all ? all->child : NULL; a && !status; a = a->next)
        status = a->integer && a->whole >= 0
                     ? add(r, r->path[ADDED], a->key, a->whole, false)
                     : ls_fail(LS_EFORMAT, "%s: token \"%.60s\" is %s, wanted its id",
                               r->path[ADDED], a->key, ls_json_kind_name(a));
    return status;
}

/* Special tokens that a file names, and which of bos, eos and unk it names. */
static ls_status add_named(reader *r, int file, bool named[3])
{
    static const char *const key[]  = {"bos_token", "eos_token", "unk_token", "pad_token",
                                       "sep_token", "cls_token", "mask_token"};
    ls_status                status = LS_OK;

    for (int i = 0; i < 7 && !status; i++) {
        const ls_json *value = member(r->root[file], key[i]);
        if (value && i < 3)
            named[i] = true;
        if (value && value->kind != LS_JSON_NULL)
            status = add_special(r, r->path[file], value);
    }
    const ls_json *more = member(r->root[file], "additional_special_tokens");
    for (const ls_json *a = more ? more->child : NULL; a && !status; a = a->next)
        status = add_special(r, r->path[file], a);
    return status;
}

static ls_status collect(reader *r)
{
    bool named[3] = {false, false, false};

    r->added = ls_calloc(MOST_ADDED, sizeof *r->added);
    if (!r->added)
        return LS_ENOMEM;
    ls_status status = add_decoder(r);
    if (!status)
        status = add_listed(r);
    for (int file = CONFIG; file <= MAP && !status; file++)
        status = add_named(r, file, named);
    if (!status && !(named[0] && named[1] && named[2]))
        status = add(r, r->path[VOCAB], end_of_text, -1, true);
    return status;
}

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const added_token *)a)->id, y = ((const added_token *)b)->id;
    return (x > y) - (x < y);
}

static ls_status list_vocabulary(reader *r)
{
    for (const ls_json *t = r->root[VOCAB]->child; t; t = t->next) {
        bool     is_id = t->integer && t->whole >= 0 && t->whole <= INT32_MAX;
        int32_t *place =
            ls__bytes_map_at(&r->id_of, (const unsigned char *)t->key, strlen(t->key));
        if (!place)
            return LS_ENOMEM;
        *place = is_id ? (int32_t)t->whole : NO_ID;
    }
    return LS_OK;
}

/*
 * Ids: that of the vocabulary, or the next ones behind it.  A special token that has no place
 * anywhere gets one only where it is the end of text.
 */
static ls_status number(reader *r)
{
    int64_t next = (int64_t)r->root[VOCAB]->count, last = next;

    for (size_t i = 0; i < r->n_added; i++) {
        added_token         *a     = &r->added[i];
        const unsigned char *text  = (const unsigned char *)a->content;
        int32_t              id    = ls__bytes_map_find(&r->id_of, text, strlen(a->content));
        bool                 known = id >= 0 || id == NO_ID;
        if (id >= 0 && (a->id < 0 || a->id == id))
            a->id = id;
        else if (known || (a->id < 0 && strcmp(a->content, end_of_text) != 0))
            return ls_fail(LS_EUNSUPPORTED,
                           "%s: special token \"%.60s\" is %s, which is not in this version",
                           r->path[VOCAB], a->content,
                           known ? "there with another id" : "in no vocabulary");
        last += !known && a->id >= 0;
        a->id = a->id < 0 ? INT64_MAX : a->id;
    }
    qsort(r->added, r->n_added, sizeof *r->added, by_id);
    for (size_t i = 0; i < r->n_added; i++) {
        added_token *a = &r->added[i];
        a->id          = a->id == INT64_MAX ? last : a->id;
        if (a->id >= (int64_t)r->root[VOCAB]->count && a->id != next++)
            return ls_fail(LS_EUNSUPPORTED,
                           "%s: added token \"%.60s\" has the id %lld, wanted %lld, the next",
                           r->path[VOCAB], a->content, (long long)a->id, (long long)next - 1);
    }
    return LS_OK;
}

/* ---- writing ---- */

static void put_text(ls_strbuf *t, const char *text)
{
    ls_strbuf_json(t, text, strlen(text));
}

static void put_added(reader *r)
{
    for (size_t i = 0; i < r->n_added; i++) {
        const added_token *a = &r->added[i];
        ls_strbuf_format(&r->out, "%s{\"id\": %lld, \"content\": ", i ? ", " : "",
                         (long long)a->id);
        put_text(&r->out, a->content);
        ls_strbuf_format(&r->out,
                         ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                         "\"normalized\": %s, \"special\": %s}",
                         a->special ? "false" : "true", a->special ? "true" : "false");
    }
}

/* Two tokens of UTF-8 with one space between. */
static bool is_merge(const char *line, size_t n)
{
    const char *space = memchr(line, ' ', n);
    uint32_t    point;

    for (size_t at = 0, bytes; at < n; at += bytes)
        if (!line[at] ||
            !(bytes = ls_utf8_decode((const unsigned char *)line + at, n - at, &point)))
            return false;
    return space && space > line && space + 1 < line + n &&
           !memchr(space + 1, ' ', (size_t)(line + n - space - 1));
}

static ls_status put_merges(reader *r)
{
    static const char version[] = "#version";
    const char       *at        = (const char *)r->merges.data, *next; /* NULL: an empty file */
    const char       *end = at ? at + r->merges.size : at, *comma = "";

    for (int line = 1; at < end; line++, at = next) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        next             = stop ? stop + 1 : end;
        stop             = stop ? stop : end;
        size_t n         = (size_t)(stop - at);
        n -= n && at[n - 1] == '\r';
        if (!n || (n >= strlen(version) && !memcmp(at, version, strlen(version))))
            continue;
        if (!is_merge(at, n))
            return ls_fail(LS_EFORMAT, "%s:%d: wanted two tokens with a space between",
                           r->merges_path, line);
        ls_strbuf_format(&r->out, "%s", comma);
        ls_strbuf_json(&r->out, at, n);
        comma = ", ";
    }
    return LS_OK;
}

/* The name of the token that stands before each text; NULL without one. */
static ls_status find_before(const reader *r, const char **before)
{
    const ls_json *config = r->root[CONFIG], *bos = member(config, "bos_token");
    bool           wanted = false;
    ls_status      status = LS_OK;

    *before = NULL;
    if (member(config, "add_bos_token"))
        status = ls_json_get_bool(config, "add_bos_token", &wanted);
    if (status || !wanted)
        return status ? ls_fail_in(status, "%s", r->path[CONFIG]) : LS_OK;
    bos     = bos ? bos : member(r->root[MAP], "bos_token");
    *before = end_of_text;
    return bos ? token_text(r->path[CONFIG], bos, before) : LS_OK;
}

static void put_before(reader *r, const char *before)
{
    int64_t id = 0;

    for (size_t i = 0; i < r->n_added; i++)
        id = strcmp(r->added[i].content, before) ? id : r->added[i].id;
    ls_strbuf_format(&r->out, "{\"type\": \"TemplateProcessing\", \"single\": "
                              "[{\"SpecialToken\": {\"id\": ");
    put_text(&r->out, before);
    ls_strbuf_format(&r->out,
                     ", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": "
                     "0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                     "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
                     "\"special_tokens\": {");
    put_text(&r->out, before);
    ls_strbuf_format(&r->out, ": {\"id\": ");
    put_text(&r->out, before);
    ls_strbuf_format(&r->out, ", \"ids\": [%lld], \"tokens\": [", (long long)id);
    put_text(&r->out, before);
    ls_strbuf_format(&r->out, "]}}}");
}

static ls_status put_all(reader *r)
{
    static const char level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, "
                                "\"trim_offsets\": true, \"use_regex\": true}";
    const ls_json    *vocab   = r->root[VOCAB];
    const char       *before;
    bool              spaced = false;
    ls_status         status = find_before(r, &before);

    if (!status && member(r->root[CONFIG], "add_prefix_space"))
        status = ls_json_get_bool(r->root[CONFIG], "add_prefix_space", &spaced);
    if (status)
        return ls_fail_in(status, "%s", r->path[CONFIG]);
    ls_strbuf_format(&r->out, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
                              "\"added_tokens\": [");
    put_added(r);
    ls_strbuf_format(&r->out, "], \"normalizer\": null, \"pre_tokenizer\": ");
    ls_strbuf_format(&r->out, level, spaced ? "true" : "false");
    ls_strbuf_format(&r->out, ", \"post_processor\": ");
    if (before)
        put_before(r, before);
    else
        ls_strbuf_format(&r->out, "null");
    ls_strbuf_format(&r->out, ", \"decoder\": ");
    ls_strbuf_format(&r->out, level, "true");
    ls_strbuf_format(&r->out,
                     ", \"model\": {\"type\": \"BPE\", \"dropout\": null, "
                     "\"unk_token\": null, \"continuing_subword_prefix\": \"\", "
                     "\"end_of_word_suffix\": \"\", \"fuse_unk\": false, "
                     "\"byte_fallback\": false, \"ignore_merges\": false, \"vocab\": ");
    ls_strbuf_add(&r->out, vocab->source, vocab->source_bytes);
    ls_strbuf_format(&r->out, ", \"merges\": [");
    status = put_merges(r);
    ls_strbuf_format(&r->out, "]}}\n");
    return status ? status : ls_strbuf_status(&r->out);
}

/* ---- the whole ---- */

/* Other classes read files of these names in ways of their own. */
static ls_status check_class(const reader *r)
{
    const ls_json *class = member(r->root[CONFIG], "tokenizer_class");

    if (!class || class->kind != LS_JSON_STRING || !strncmp(class->text, "GPT2Tokenizer", 13))
        return LS_OK;
    return ls_fail(LS_EUNSUPPORTED,
                   "%s: tokenizer_class \"%.60s\" without a tokenizer.json, which is not in "
                   "this version; wanted GPT2Tokenizer",
                   r->path[CONFIG], class->text);
}

bool ls__is_vocab_json(const char *path)
{
    size_t n = strlen(path), m = strlen(file_name[VOCAB]);
    return n >= m && !strcmp(path + n - m, file_name[VOCAB]) &&
           (n == m || path[n - m - 1] == '/');
}

ls_status ls__vocab_to_json(const char *path, char **json)
{
    reader    r      = {0};
    ls_status status = open_all(&r, path);

    *json = NULL;
    if (!status)
        status = check_class(&r);
    if (!status)
        status = collect(&r);
    if (!status)
        status = list_vocabulary(&r);
    if (!status)
        status = number(&r);
    if (!status)
        status = put_all(&r);
    if (!status) {
        *json = r.out.data;
        r.out = (ls_strbuf){0};
    }
    close_all(&r);
    return status;
}

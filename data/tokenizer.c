/*
 * tokenizer.c - the byte and the char tokenizer, and the door to the BPE of bpe.c.
 *
 * A char tokenizer is the sorted list of its code points: a token is an index into it, found
 * by a table for ASCII and by halving for the rest.
 */
#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/gz.h"
#include "core/json.h"
#include "core/utf8.h"
#include "data/bpe_impl.h"
#include "data/tokenizer_impl.h"

enum { BYTES = 256, ASCII = 128 };

struct ls_tokenizer {
    ls_tokenizer_kind kind;
    int32_t           size;         /* vocabulary */
    ls__bpe          *bpe;          /* bpe: all else */
    int32_t           ascii[ASCII]; /* char: token of a code point, -1 for none */
    uint32_t          point[];      /* char: code point of a token, ascending */
};

const char *ls_tokenizer_kind_name(ls_tokenizer_kind kind)
{
    static const char *const names[] = {
#define X(id, name) [LS_TOKENIZER_##id] = name,
        LS_TOKENIZER_MAP(X)
#undef X
    };
    return names[kind];
}

/* A tokenizer with room for the code points of a char vocabulary of that size. */
static ls_tokenizer *allocate(ls_tokenizer_kind kind, int32_t size)
{
    size_t        points = kind == LS_TOKENIZER_CHAR ? (size_t)size : 0;
    ls_tokenizer *t      = ls_calloc(1, sizeof *t + points * sizeof t->point[0]);

    if (t) {
        t->kind = kind;
        t->size = size;
    }
    return t;
}

static void fill_ascii(ls_tokenizer *t)
{
    for (int i = 0; i < ASCII; i++)
        t->ascii[i] = -1;
    for (int32_t i = 0; i < t->size && t->point[i] < ASCII; i++)
        t->ascii[t->point[i]] = i;
}

static ls_status invalid_utf8(const ls_text *text, size_t at)
{
    ls_text_place place = ls_text_locate(text, at);
    return ls_fail(LS_EFORMAT, "%s: invalid UTF-8 at byte %zu: found 0x%02x", place.path,
                   place.offset, text->data[at]);
}

/* Marks the code points of a text, a bit each, and counts those that are new. */
static ls_status mark_points(const ls_text *text, unsigned char *seen, int32_t *distinct)
{
    uint32_t point;

    *distinct = 0;
    for (size_t at = 0, n; at < text->size; at += n) {
        n = ls_utf8_decode(text->data + at, text->size - at, &point);
        if (!n)
            return invalid_utf8(text, at);
        *distinct += !(seen[point / 8] >> point % 8 & 1);
        seen[point / 8] |= (unsigned char)(1 << point % 8);
    }
    return LS_OK;
}

static ls_status new_char(const ls_text *text, ls_tokenizer **tokenizer)
{
    int32_t        distinct;
    unsigned char *seen = ls_calloc(LS_UTF8_POINTS / 8, 1);

    if (!seen)
        return LS_ENOMEM;
    ls_status status = mark_points(text, seen, &distinct);
    if (status)
        goto out_seen;
    if (!distinct) {
        status =
            ls_fail(LS_EFORMAT, "a char tokenizer needs a text with characters, found none");
        goto out_seen;
    }
    ls_tokenizer *t = allocate(LS_TOKENIZER_CHAR, distinct);
    status          = t ? LS_OK : LS_ENOMEM;
    if (!t)
        goto out_seen;
    for (uint32_t point = 0, n = 0; point < LS_UTF8_POINTS; point++)
        if (seen[point / 8] >> point % 8 & 1)
            t->point[n++] = point;
    fill_ascii(t);
    *tokenizer = t;
out_seen:
    free(seen);
    return status;
}

ls_status ls_tokenizer_new(ls_tokenizer_kind kind, const ls_text *text,
                           ls_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    if (kind == LS_TOKENIZER_CHAR)
        return new_char(text, tokenizer);
    if (kind == LS_TOKENIZER_BPE)
        return ls_fail(LS_EINVAL, "a bpe tokenizer is made of a tokenizer.json");
    *tokenizer = allocate(kind, BYTES);
    return *tokenizer ? LS_OK : LS_ENOMEM;
}

void ls_tokenizer_free(ls_tokenizer *tokenizer)
{
    if (tokenizer)
        ls__bpe_free(tokenizer->bpe);
    free(tokenizer);
}

ls_tokenizer_kind ls_tokenizer_get_kind(const ls_tokenizer *tokenizer)
{
    return tokenizer->kind;
}

int32_t ls_tokenizer_vocab_size(const ls_tokenizer *tokenizer)
{
    return tokenizer->size;
}

/* ---- encoding ---- */

static int32_t token_of(const ls_tokenizer *t, uint32_t point)
{
    if (point < ASCII)
        return t->ascii[point];
    int32_t low = 0, high = t->size;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (t->point[middle] < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->size && t->point[low] == point ? low : -1;
}

/* The token at a position and the bytes it takes; characters are checked beforehand. */
static size_t next_token(const ls_tokenizer *t, const ls_text *text, size_t at, int32_t *token)
{
    if (t->kind == LS_TOKENIZER_BYTE) {
        *token = text->data[at];
        return 1;
    }
    uint32_t point = 0;
    size_t   n     = ls_utf8_decode(text->data + at, text->size - at, &point);
    *token         = n ? token_of(t, point) : -1;
    return n;
}

/* Why the character at a position has no token. */
static ls_status reject(const ls_tokenizer *t, const ls_text *text, size_t at, size_t n)
{
    uint32_t point = 0;

    if (!n)
        return invalid_utf8(text, at);
    ls_utf8_decode(text->data + at, n, &point);
    ls_text_place place = ls_text_locate(text, at);
    return ls_fail(LS_ECONFIG,
                   "%s: unknown character '%.*s' (U+%04" PRIX32
                   ") at byte %zu: it is none of the %" PRId32
                   " characters that the tokenizer was made of",
                   place.path, point < ' ' ? 0 : (int)n, (const char *)text->data + at, point,
                   place.offset, t->size);
}

ls_status ls__token_unknown(const ls_text *text, size_t at, int byte)
{
    ls_text_place place = ls_text_locate(text, at);
    return ls_fail(LS_ECONFIG, "%s: byte 0x%02x at byte %zu has no token in the vocabulary",
                   place.path, (unsigned)byte, place.offset);
}

ls_status ls__token_too_large(const ls_text *text, size_t at, int32_t token, int64_t i,
                              int32_t limit)
{
    ls_text_place place = ls_text_locate(text, at);
    return ls_fail(LS_ECONFIG,
                   "%s: token %" PRId32 " at byte %zu (token number %" PRId64
                   ", from 0) does not fit a vocabulary of %" PRId32 " (model.vocab_size)",
                   place.path, token, place.offset, i, limit);
}

/* Counts the tokens of a text and finds every fault that it may have. */
static ls_status check(const ls_tokenizer *t, const ls_text *text, int32_t limit,
                       int64_t *count)
{
    int64_t i = 0;
    int32_t token;

    for (size_t at = 0, n; at < text->size; at += n, i++) {
        n = next_token(t, text, at, &token);
        if (!n || token < 0)
            return reject(t, text, at, n);
        if (limit && token >= limit)
            return ls__token_too_large(text, at, token, i, limit);
    }
    *count = i;
    return LS_OK;
}

ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, const ls_text *text, int32_t limit,
                              ls_tokens *tokens)
{
    int64_t count = 0, i = 0;
    int32_t token;

    *tokens = (ls_tokens){0};
    if (tokenizer->bpe)
        return ls__bpe_encode(tokenizer->bpe, text, limit, tokens);
    ls_status status = check(tokenizer, text, limit, &count);
    if (!status)
        status = ls_tokens_init(tokens, count, tokenizer->size);
    if (status)
        return status;
    for (size_t at = 0; at < text->size;) {
        at += next_token(tokenizer, text, at, &token);
        ls_tokens_set(tokens, i++, token);
    }
    return LS_OK;
}

size_t ls_tokenizer_decode(const ls_tokenizer *tokenizer, int32_t token,
                           char out[LS_TOKEN_LONGEST])
{
    if (token < 0 || token >= tokenizer->size)
        return 0;
    if (tokenizer->kind == LS_TOKENIZER_CHAR)
        return ls_utf8_encode(tokenizer->point[token], out);
    if (tokenizer->bpe) {
        size_t first = tokenizer->bpe->first[token];
        size_t n     = tokenizer->bpe->first[token + 1] - first;
        memcpy(out, tokenizer->bpe->bytes + first, n);
        return n;
    }
    out[0] = (char)token;
    return 1;
}

int32_t ls_tokenizer_find_added(const ls_tokenizer *tokenizer, const char *text)
{
    const ls__bpe *bpe = tokenizer->bpe;

    for (int i = 0; bpe && i < bpe->n_added; i++)
        if (bpe->added[i].bytes == strlen(text) &&
            !memcmp(bpe->added[i].text, text, bpe->added[i].bytes))
            return bpe->added[i].id;
    return -1;
}

bool ls_ends_has(const ls_ends *ends, int32_t token)
{
    for (int i = 0; i < ends->n; i++)
        if (ends->token[i] == token)
            return true;
    return false;
}

bool ls_ends_add(ls_ends *ends, int32_t token)
{
    if (ls_ends_has(ends, token))
        return true;
    if (ends->n == LS_MOST_ENDS)
        return false;
    ends->token[ends->n++] = token;
    return true;
}

ls_ends ls_tokenizer_ends(const ls_tokenizer *tokenizer)
{
    static const char *const names[] = {"<|endoftext|>", "</s>", "<|end_of_text|>",
                                        "<|eot_id|>", "<eos>"};
    ls_ends                  ends    = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t token = ls_tokenizer_find_added(tokenizer, names[i]);
        if (token >= 0)
            ls_ends_add(&ends, token);
    }
    return ends;
}

/* ---- JSON ---- */

char *ls_tokenizer_to_json(const ls_tokenizer *tokenizer)
{
    enum { FRAME = 64, NUMBER = 8 }; /* bytes: all but the numbers; a number and its comma */
    if (!tokenizer)
        return ls_strdup("null");
    if (tokenizer->bpe)
        return ls_strdup(tokenizer->bpe->json);
    size_t points = tokenizer->kind == LS_TOKENIZER_CHAR ? (size_t)tokenizer->size : 0;
    size_t size   = FRAME + points * NUMBER, used;
    char  *json   = ls_calloc(size, 1);

    if (!json)
        return NULL;
    used = (size_t)snprintf(json, size, "{\"kind\":\"%s\"",
                            ls_tokenizer_kind_name(tokenizer->kind));
    for (size_t i = 0; i < points; i++)
        used += (size_t)snprintf(json + used, size - used, "%s%" PRIu32,
                                 i ? "," : ",\"code_points\":[", tokenizer->point[i]);
    snprintf(json + used, size - used, "%s}", points ? "]" : "");
    return json;
}

/* Code points in ascending order: each above the one before it. */
static ls_status parse_points(const ls_json *list, ls_tokenizer *t)
{
    int64_t  before = -1;
    uint32_t i      = 0;

    for (const ls_json *p = list->child; p; p = p->next) {
        bool valid = p->integer && p->whole > before && p->whole < LS_UTF8_POINTS &&
                     ls_utf8_valid((uint32_t)p->whole);
        if (!valid)
            return ls_fail(LS_EFORMAT,
                           "tokenizer: code_points[%" PRIu32 "] is %.*s, wanted code points of "
                           "Unicode in ascending order",
                           i, p->source_bytes < 24 ? (int)p->source_bytes : 24, p->source);
        before        = p->whole;
        t->point[i++] = (uint32_t)p->whole;
    }
    return LS_OK;
}

static ls_status parse_char(const ls_json *root, ls_tokenizer **tokenizer)
{
    const ls_json *list = ls_json_find(root, "code_points");

    const char *found = !list                          ? "missing"
                        : list->kind != LS_JSON_ARRAY  ? ls_json_kind_name(list)
                        : list->count > LS_UTF8_POINTS ? "too long"
                        : list->count == 0             ? "empty"
                                                       : NULL;
    if (found)
        return ls_fail(LS_EFORMAT, "tokenizer: code_points is %s, wanted a list of numbers",
                       found);
    ls_tokenizer *t = allocate(LS_TOKENIZER_CHAR, (int32_t)list->count);
    if (!t)
        return LS_ENOMEM;
    ls_status status = parse_points(list, t);
    if (status) {
        ls_tokenizer_free(t);
        return status;
    }
    fill_ascii(t);
    *tokenizer = t;
    return LS_OK;
}

static ls_status parse(const ls_json *root, ls_tokenizer **tokenizer)
{
    const char *kind;

    if (root->kind != LS_JSON_OBJECT)
        return ls_fail(LS_EFORMAT, "tokenizer: found %s, wanted an object",
                       ls_json_kind_name(root));
    ls_status status = ls_json_get_string(root, "kind", &kind);
    if (status)
        return ls_fail_in(status, "tokenizer");
    bool is_char = !strcmp(kind, ls_tokenizer_kind_name(LS_TOKENIZER_CHAR));
    if (!is_char && strcmp(kind, ls_tokenizer_kind_name(LS_TOKENIZER_BYTE)) != 0)
        return ls_fail(LS_EFORMAT, "tokenizer: kind is \"%s\", wanted \"byte\" or \"char\"",
                       kind);
    if (root->count != (is_char ? 2 : 1))
        return ls_fail(LS_EFORMAT, "tokenizer: found %zu keys, a %s tokenizer has %d",
                       root->count, kind, is_char ? 2 : 1);
    return is_char ? parse_char(root, tokenizer)
                   : ls_tokenizer_new(LS_TOKENIZER_BYTE, NULL, tokenizer);
}

static ls_status parse_bpe(const char *json, const char *name, ls_tokenizer **tokenizer)
{
    ls_tokenizer *t = allocate(LS_TOKENIZER_BPE, 0);

    if (!t)
        return LS_ENOMEM;
    ls_status status = ls__bpe_parse(json, name, &t->bpe);
    if (status) {
        ls_tokenizer_free(t);
        return status;
    }
    t->size    = t->bpe->size;
    *tokenizer = t;
    return LS_OK;
}

ls_status ls_tokenizer_from_json(const char *json, ls_tokenizer **tokenizer)
{
    ls_json_doc *doc;

    *tokenizer       = NULL;
    ls_status status = ls_json_parse(json, strlen(json), "tokenizer", &doc);
    if (status)
        return status;
    const ls_json *root   = ls_json_root(doc);
    bool           is_bpe = root->kind == LS_JSON_OBJECT && ls_json_find(root, "model");
    status                = is_bpe ? LS_OK : parse(root, tokenizer);
    ls_json_free(doc);
    return is_bpe ? parse_bpe(json, "tokenizer", tokenizer) : status;
}

static ls_status load_vocab(const char *path, ls_tokenizer **tokenizer)
{
    char     *json;
    ls_status status = ls__vocab_to_json(path, &json);

    if (!status)
        status = parse_bpe(json, path, tokenizer);
    free(json);
    return status;
}

ls_status ls_tokenizer_load(const char *path, ls_tokenizer **tokenizer)
{
    ls_bytes text = {0};

    *tokenizer = NULL;
    if (ls__is_vocab_json(path))
        return load_vocab(path, tokenizer);
    ls_status status = ls_gz_read_file(path, &text);
    if (!status)
        status = ls_bytes_reserve(&text, 1);
    if (!status) {
        text.data[text.size] = 0;
        status               = strlen((char *)text.data) < text.size
                                   ? ls_fail(LS_EFORMAT, "%s: a NUL byte, wanted JSON", path)
                                   : parse_bpe((const char *)text.data, path, tokenizer);
    }
    ls_bytes_free(&text);
    return status;
}

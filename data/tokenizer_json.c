/*
 * tokenizer_json.c - a byte-level BPE out of Hugging Face's tokenizer.json.
 *
 * What changes the tokens of a text is either understood or refused by its name; what only
 * tells about them (offsets, kinds of added tokens, the version) is passed over.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/json.h"
#include "core/utf8.h"
#include "data/bpe_impl.h"
#include "data/tokenizer.h"

enum { BYTE_CHARS = 256 + 68 }; /* the characters that stand for bytes end below */

/* A token's text in the file, borrowed from the document. */
typedef struct {
    const char *text;  /* NULL: no such token */
    bool        plain; /* the text itself, not characters that stand for bytes */
} entry;

typedef struct {
    const char    *name;                                  /* of the file */
    const ls_json *root, *model, *vocab, *merges, *added; /* added: NULL for none */
    ls__bytes_map  id_of;
    entry         *entry; /* by id */
    int32_t        size;
    int16_t        byte_of[BYTE_CHARS]; /* -1: none */
    ls__bpe       *bpe;
} parser;

static ls_status check_model(parser *p)
{
    const char *type = "null";

    p->model = ls_json_find(p->root, "model");
    if (!p->model || p->model->kind != LS_JSON_OBJECT)
        return ls_fail(LS_EFORMAT, "%s: no \"model\"; it is not a tokenizer.json", p->name);
    if (ls_json_find(p->model, "type"))
        type = ls__type_of(p->model);
    p->vocab  = ls_json_find(p->model, "vocab");
    p->merges = ls_json_find(p->model, "merges");
    if (!strcmp(type, "null") && p->merges) /* old files do not say it */
        type = "BPE";
    if (strcmp(type, "BPE") != 0)
        return ls_fail(
            LS_EUNSUPPORTED,
            "%s: a tokenizer of type \"%.60s\", which is not in this version; wanted "
            "\"BPE\" (byte-level, as GPT-2's)",
            p->name, type);
    if (!p->vocab || p->vocab->kind != LS_JSON_OBJECT || !p->vocab->count)
        return ls_fail(LS_EFORMAT, "%s: model.vocab is %s, wanted an object of tokens", p->name,
                       p->vocab ? p->vocab->count ? ls_json_kind_name(p->vocab) : "empty"
                                : "missing");
    if (!p->merges || p->merges->kind != LS_JSON_ARRAY)
        return ls_fail(LS_EFORMAT, "%s: model.merges is %s, wanted a list", p->name,
                       p->merges ? ls_json_kind_name(p->merges) : "missing");
    return LS_OK;
}

/* ---- vocabulary ---- */

static ls_status bad_id(const parser *p, const char *token, const ls_json *id)
{
    return ls_fail(LS_EFORMAT,
                   "%s: token \"%.60s\" has the id %.*s, wanted one of its own, from 0, with "
                   "few left out",
                   p->name, token, id ? id->source_bytes < 24 ? (int)id->source_bytes : 24 : 4,
                   id ? id->source : "none");
}

static ls_status put(parser *p, const char *token, const ls_json *id, bool plain)
{
    if (!id || !id->integer || id->whole < 0 || id->whole >= p->size ||
        p->entry[id->whole].text)
        return bad_id(p, token, id);
    int32_t *place = ls__bytes_map_at(&p->id_of, (const unsigned char *)token, strlen(token));
    if (!place)
        return LS_ENOMEM;
    if (*place >= 0)
        return bad_id(p, token, id);
    *place              = (int32_t)id->whole;
    p->entry[id->whole] = (entry){token, plain};
    return LS_OK;
}

static int32_t find(const parser *p, const char *text, size_t bytes)
{
    return ls__bytes_map_find(&p->id_of, (const unsigned char *)text, bytes);
}

/* One of added_tokens; it may stand in the vocabulary already, under the same id. */
static ls_status take_added(parser *p, const ls_json *a)
{
    static const char *const off[]   = {"single_word", "lstrip", "rstrip"};
    const char              *content = "";
    bool                     late    = true;
    ls_status                status  = a->kind == LS_JSON_OBJECT
                                           ? ls_json_get_string(a, "content", &content)
                                           : ls_fail(LS_EFORMAT, "found %s", ls_json_kind_name(a));

    if (!status && ls_json_find(a, "normalized"))
        status = ls_json_get_bool(a, "normalized", &late);
    if (!status && !*content)
        status = ls_fail(LS_EFORMAT, "its content is empty");
    if (status)
        return ls_fail_in(status, "%s: added_tokens", p->name);
    for (size_t i = 0; i < sizeof off / sizeof *off && !status; i++)
        status = ls__bpe_check_off(p->name, a, "added_tokens", off[i]);
    const ls_json *id    = ls_json_find(a, "id");
    int32_t        known = find(p, content, strlen(content));
    if (!status && known < 0)
        status = put(p, content, id, true);
    else if (!status && (!id || !id->integer || id->whole != known))
        status = bad_id(p, content, id);
    if (status)
        return status;
    known                            = find(p, content, strlen(content));
    p->entry[known].plain            = true;
    p->bpe->added[p->bpe->n_added++] = (ls__added_token){NULL, 0, known, late};
    return LS_OK;
}

static ls_status read_tokens(parser *p)
{
    size_t    n_added = p->added ? p->added->count : 0, count = p->vocab->count + n_added;
    ls_status status = LS_OK;

    if (count > INT32_MAX / 4)
        return ls_fail(LS_EFORMAT, "%s: %zu tokens are too many", p->name, count);
    p->size       = (int32_t)(2 * count + 256);
    p->entry      = ls_calloc((size_t)p->size, sizeof *p->entry);
    p->bpe->added = ls_calloc(n_added + 1, sizeof *p->bpe->added);
    if (!p->entry || !p->bpe->added)
        return LS_ENOMEM;
    for (const ls_json *t = p->vocab->child; t && !status; t = t->next)
        status = put(p, t->key, t, false);
    for (const ls_json *a = p->added ? p->added->child : NULL; a && !status; a = a->next)
        status = take_added(p, a);
    while (p->size && !p->entry[p->size - 1].text)
        p->size--;
    p->bpe->size = p->size;
    return status;
}

/* The bytes of a token, at most as many as its text has; their number. */
static size_t bytes_of(const parser *p, entry *e, unsigned char *out)
{
    if (!e->text)
        return 0;
    size_t   size = strlen(e->text), n = 0;
    uint32_t point;

    for (size_t at = 0; at < size && !e->plain; n++) {
        at += ls_utf8_next((const unsigned char *)e->text + at, size - at, &point);
        if (point >= BYTE_CHARS || p->byte_of[point] < 0)
            break; /* no byte: it stands for itself */
        out[n] = (unsigned char)p->byte_of[point];
        if (at == size)
            return n + 1;
    }
    e->plain = true;
    memcpy(out, e->text, size);
    return size;
}

static int compare_added(const void *x, const void *y)
{
    const ls__added_token *a = x, *b = y;
    size_t                 n     = a->bytes < b->bytes ? a->bytes : b->bytes;
    int                    order = a->late - b->late;

    order = order ? order : memcmp(a->text, b->text, n);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static void lay_out_added(ls__bpe *bpe)
{
    for (int i = 0; i < bpe->n_added; i++) {
        ls__added_token *a = &bpe->added[i];
        a->text            = bpe->bytes + bpe->first[a->id];
        a->bytes           = bpe->first[a->id + 1] - bpe->first[a->id];
        bpe->n_early += !a->late;
        bpe->starts[a->text[0]] |= (unsigned char)(1 << a->late);
    }
    qsort(bpe->added, (size_t)bpe->n_added, sizeof *bpe->added, compare_added);
}

/* Tokens that a whole piece may be: those of bytes. */
static ls_status list_whole(const parser *p)
{
    ls__bpe *bpe = p->bpe;

    for (int32_t i = 0; i < p->size && bpe->whole_first; i++) {
        size_t   n     = bpe->first[i + 1] - bpe->first[i];
        int32_t *place = NULL;
        if (!n || p->entry[i].plain)
            continue;
        place = ls__bytes_map_at(&bpe->whole, bpe->bytes + bpe->first[i], n);
        if (!place)
            return LS_ENOMEM;
        *place = i;
    }
    return LS_OK;
}

/* The tokens around a text are tokens. */
static ls_status check_around(const parser *p)
{
    const ls__around *around[] = {&p->bpe->before, &p->bpe->behind};

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < around[k]->n; i++) {
            int32_t token = around[k]->token[i];
            if (token >= p->size || !p->entry[token].text)
                return ls_fail(LS_EFORMAT,
                               "%s: post_processor: token %" PRId32 " is not in the vocabulary",
                               p->name, token);
        }
    return LS_OK;
}

static ls_status lay_out(parser *p)
{
    ls__bpe *bpe   = p->bpe;
    size_t   total = 0;

    for (int32_t i = 0; i < p->size; i++)
        total += p->entry[i].text ? strlen(p->entry[i].text) : 0;
    bpe->bytes = ls_calloc(total + 1, 1);
    bpe->first = ls_calloc((size_t)p->size + 1, sizeof *bpe->first);
    if (!bpe->bytes || !bpe->first)
        return LS_ENOMEM;
    for (int32_t i = 0; i < p->size; i++) {
        size_t n = bytes_of(p, &p->entry[i], bpe->bytes + bpe->first[i]);
        if (n > LS_TOKEN_LONGEST)
            return ls_fail(LS_EUNSUPPORTED,
                           "%s: token %" PRId32 " stands for %zu bytes, at most %d are in this "
                           "version",
                           p->name, i, n, (int)LS_TOKEN_LONGEST);
        bpe->first[i + 1] = bpe->first[i] + n;
    }
    lay_out_added(bpe);
    return LS_OK;
}

/* Tokens of single bytes; without all of them an unknown one would be written instead. */
static ls_status find_bytes(const parser *p)
{
    const ls_json *unknown = ls_json_find(p->model, "unk_token");
    int            missing = 0;

    for (int byte = 0; byte < 256; byte++) {
        char    text[LS_UTF8_LONGEST];
        size_t  n                = ls_utf8_encode(ls__byte_char(byte), text);
        int32_t id               = find(p, text, n);
        p->bpe->byte_token[byte] = id;
        missing += id < 0;
    }
    if (!missing || !unknown || unknown->kind == LS_JSON_NULL)
        return LS_OK;
    return ls_fail(
        LS_EUNSUPPORTED,
        "%s: model.unk_token with a vocabulary that lacks %d of the 256 bytes is not "
        "in this version",
        p->name, missing);
}

/* ---- merges ---- */

typedef struct {
    const char *text[2];
    size_t      bytes[2];
} halves;

/* "a b" or ["a", "b"] */
static bool split(const ls_json *merge, halves *h)
{
    const char *space;

    if (merge->kind == LS_JSON_ARRAY) {
        const ls_json *a = merge->child, *b = a ? a->next : NULL;
        if (!b || b->next || a->kind != LS_JSON_STRING || b->kind != LS_JSON_STRING)
            return false;
        *h = (halves){{a->text, b->text}, {strlen(a->text), strlen(b->text)}};
        return true;
    }
    if (merge->kind != LS_JSON_STRING || !(space = strchr(merge->text, ' ')) ||
        strchr(space + 1, ' '))
        return false;
    *h = (halves){{merge->text, space + 1}, {(size_t)(space - merge->text), strlen(space + 1)}};
    return true;
}

static ls_status bad_merge(const parser *p, int32_t rank, const ls_json *merge,
                           const char *what)
{
    return ls_fail(LS_EFORMAT, "%s: model.merges[%" PRId32 "], %.*s: %s", p->name, rank,
                   merge->source_bytes < 60 ? (int)merge->source_bytes : 60, merge->source,
                   what);
}

static ls_status take_merge(parser *p, const ls_json *merge, int32_t rank)
{
    halves  h;
    char    joined[2 * LS_TOKEN_LONGEST * 2];
    int32_t id[3];

    if (!split(merge, &h))
        return bad_merge(p, rank, merge, "wanted two tokens");
    if (h.bytes[0] + h.bytes[1] > sizeof joined)
        return bad_merge(p, rank, merge, "too long");
    memcpy(joined, h.text[0], h.bytes[0]);
    memcpy(joined + h.bytes[0], h.text[1], h.bytes[1]);
    id[0] = find(p, h.text[0], h.bytes[0]);
    id[1] = find(p, h.text[1], h.bytes[1]);
    id[2] = find(p, joined, h.bytes[0] + h.bytes[1]);
    if (id[0] < 0 || id[1] < 0 || id[2] < 0)
        return bad_merge(p, rank, merge,
                         id[0] < 0   ? "the first is not in the vocabulary"
                         : id[1] < 0 ? "the second is not in the vocabulary"
                                     : "what they make is not in the vocabulary");
    int32_t *place = ls__pair_map_at(&p->bpe->rank, id[0], id[1]);
    if (!place)
        return LS_ENOMEM;
    *place               = rank; /* given twice: the later one counts, as in tokenizers */
    p->bpe->merged[rank] = id[2];
    return LS_OK;
}

static ls_status read_merges(parser *p)
{
    int32_t   rank   = 0;
    ls_status status = LS_OK;

    p->bpe->merged = ls_calloc(p->merges->count + 1, sizeof *p->bpe->merged);
    if (!p->bpe->merged)
        return LS_ENOMEM;
    for (const ls_json *m = p->merges->child; m && !status; m = m->next)
        status = take_merge(p, m, rank++);
    return status;
}

/* ---- the whole ---- */

static void prepare_chars(parser *p)
{
    for (int i = 0; i < BYTE_CHARS; i++)
        p->byte_of[i] = -1;
    for (int byte = 0; byte < 256; byte++)
        p->byte_of[ls__byte_char(byte)] = (int16_t)byte;
}

static ls_status parse(parser *p)
{
    if (p->root->kind != LS_JSON_OBJECT)
        return ls_fail(LS_EFORMAT, "%s: found %s, wanted an object", p->name,
                       ls_json_kind_name(p->root));
    p->added = ls_json_find(p->root, "added_tokens");
    if (p->added && p->added->kind == LS_JSON_NULL)
        p->added = NULL;
    if (p->added && p->added->kind != LS_JSON_ARRAY)
        return ls_fail(LS_EFORMAT, "%s: added_tokens is %s, wanted a list", p->name,
                       ls_json_kind_name(p->added));
    ls_status status = check_model(p);
    if (status || !p->vocab) /* it is there */
        return status;
    status = ls__bpe_read_sections(p->root, p->name, p->bpe);
    if (!status)
        status = read_tokens(p);
    prepare_chars(p);
    if (!status)
        status = lay_out(p);
    if (!status)
        status = list_whole(p);
    if (!status)
        status = check_around(p);
    if (!status)
        status = find_bytes(p);
    return status ? status : read_merges(p);
}

ls_status ls__bpe_parse(const char *json, const char *name, ls__bpe **bpe)
{
    ls_json_doc *doc    = NULL;
    parser       p      = {.name = name};
    ls_status    status = ls_json_parse(json, strlen(json), name, &doc);

    *bpe = NULL;
    if (status)
        return status;
    p.root = ls_json_root(doc);
    p.bpe  = ls_calloc(1, sizeof *p.bpe);
    status = p.bpe ? LS_OK : LS_ENOMEM;
    if (!status)
        status = (p.bpe->json = ls_strdup(json)) ? parse(&p) : LS_ENOMEM;
    ls__bytes_map_free(&p.id_of);
    free(p.entry);
    ls_json_free(doc);
    if (status)
        ls__bpe_free(p.bpe);
    else
        *bpe = p.bpe;
    return status;
}

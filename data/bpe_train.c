/*
 * bpe_train.c - counts pairs, merges the most frequent one, and again.
 *
 *     words   distinct pieces of the text with their counts, as tokens
 *     pairs   count and the words that hold it (or did), found by the two tokens
 *     heap    (count, pair) as of when it was pushed; one that is out of date is pushed again
 *
 * A merge touches only the words of its pair, so the cost is that of the text's distinct words.
 */
#include "data/bpe_train.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/gz.h"
#include "core/strbuf.h"
#include "core/utf8.h"
#include "data/bpe_impl.h"
#include "data/tokenizer.h"

typedef struct {
    int64_t first; /* in symbols */
    int32_t n;
    int64_t count;
} word;

typedef struct {
    int32_t *item;
    int32_t  n, room;
} places;

typedef struct {
    int32_t a, b;
    int64_t count;
    places  words; /* where it was made, some more than once */
} pair;

typedef struct {
    int64_t count;
    int32_t pair;
} candidate;

typedef struct {
    int32_t a, b, token; /* token: its number, that of an older one of the same bytes too */
} merge;

typedef struct {
    unsigned char *text; /* its own, so that the map may borrow it */
    size_t         bytes;
} token;

typedef struct {
    ls_bytes      words, symbols, pairs, heap, tokens, merges; /* arrays of the above */
    ls__bytes_map word_of, token_of;
    ls__pair_map  pair_of;
} trainer;

/* Item i of an array, and how many there are. */
#define AT(array, type, i) (&((type *)(void *)(array).data)[i])
#define N(array, type) ((int64_t)((array).size / sizeof(type)))

static ls_status add(ls_bytes *array, const void *item, size_t bytes)
{
    ls_status status = ls_bytes_reserve(array, bytes);

    if (status)
        return status;
    memcpy(array->data + array->size, item, bytes);
    array->size += bytes;
    return LS_OK;
}

/* A list of its own, as most are short. */
static ls_status add_place(places *p, int32_t w)
{
    if (p->n && p->item[p->n - 1] == w)
        return LS_OK;
    if (p->n == p->room) {
        int32_t *item = ls_calloc(p->room ? 2 * (size_t)p->room : 4, sizeof *item);
        if (!item)
            return LS_ENOMEM;
        if (p->n)
            memcpy(item, p->item, (size_t)p->n * sizeof *item);
        free(p->item);
        p->item = item;
        p->room = p->room ? 2 * p->room : 4;
    }
    p->item[p->n++] = w;
    return LS_OK;
}

/* ---- tokens ---- */

static ls_status add_token(trainer *t, const void *text, size_t bytes)
{
    token          made = {ls_calloc(bytes ? bytes : 1, 1), bytes};
    unsigned char *copy = made.text;

    if (!copy)
        return LS_ENOMEM;
    memcpy(copy, text, bytes);
    int32_t   number = (int32_t)N(t->tokens, token);
    ls_status status = add(&t->tokens, &made, sizeof made);
    if (status) {
        free(copy);
        return status;
    }
    int32_t *place = ls__bytes_map_at(&t->token_of, copy, bytes);
    if (!place)
        return LS_ENOMEM;
    *place = number;
    return LS_OK;
}

/* The token of a pair's bytes, -1 for none yet; buffer holds them, *bytes their number. */
static int32_t joined(const trainer *t, const pair *p, unsigned char *buffer, size_t *bytes)
{
    const token *a = AT(t->tokens, token, p->a), *b = AT(t->tokens, token, p->b);

    *bytes = a->bytes + b->bytes;
    if (*bytes > LS_TOKEN_LONGEST)
        return -1;
    memcpy(buffer, a->text, a->bytes);
    memcpy(buffer + a->bytes, b->text, b->bytes);
    return ls__bytes_map_find(&t->token_of, buffer, *bytes);
}

/* ---- pairs and the heap ---- */

/* The most frequent first, then the smaller tokens. */
static bool is_before(const trainer *t, candidate x, candidate y)
{
    const pair *p = AT(t->pairs, pair, x.pair), *q = AT(t->pairs, pair, y.pair);

    if (x.count != y.count)
        return x.count > y.count;
    return p->a != q->a ? p->a < q->a : p->b < q->b;
}

static ls_status push(trainer *t, candidate c)
{
    ls_status  status = add(&t->heap, &c, sizeof c);
    candidate *heap   = AT(t->heap, candidate, 0);
    int64_t    i      = N(t->heap, candidate) - 1;

    if (status)
        return status;
    for (; i > 0 && is_before(t, c, heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
    return LS_OK;
}

static candidate pop(trainer *t)
{
    candidate *heap = AT(t->heap, candidate, 0);
    int64_t    n = N(t->heap, candidate) - 1, i = 0, child;
    candidate  first = heap[0], c = heap[n];

    t->heap.size -= sizeof c;
    for (; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && is_before(t, heap[child + 1], heap[child]);
        if (!is_before(t, heap[child], c))
            break;
        heap[i] = heap[child];
    }
    heap[i] = c;
    return first;
}

/* Adds to a pair's count what word w has more (or less) of it now. */
static ls_status count_pair(trainer *t, int32_t a, int32_t b, int64_t change, int32_t w)
{
    int32_t  *place  = ls__pair_map_at(&t->pair_of, a, b);
    ls_status status = LS_OK;

    if (!place)
        return LS_ENOMEM;
    if (*place < 0) {
        pair made = {.a = a, .b = b};
        status    = add(&t->pairs, &made, sizeof made);
        if (status)
            return status;
        *place = (int32_t)(N(t->pairs, pair) - 1);
    }
    pair *p = AT(t->pairs, pair, *place);
    p->count += change;
    return change > 0 ? add_place(&p->words, w) : LS_OK;
}

/* ---- words ---- */

static ls_status new_word(trainer *t, const unsigned char *text, size_t size)
{
    word      made   = {N(t->symbols, int32_t), 0, 1};
    ls_status status = LS_OK;

    for (size_t at = 0, n, bytes; at < size && !status; at += n) {
        uint32_t point;
        char     out[LS_UTF8_LONGEST];
        n     = ls_utf8_next(text + at, size - at, &point);
        bytes = ls_utf8_encode(point, out);
        for (size_t i = 0; i < bytes && !status; i++) {
            int32_t number =
                ls__bytes_map_find(&t->token_of, (const unsigned char *)out + i, 1);
            status = add(&t->symbols, &number, sizeof number);
            made.n++;
        }
    }
    return status ? status : add(&t->words, &made, sizeof made);
}

static ls_status read_words(trainer *t, const ls_text *text)
{
    ls_status status = LS_OK;

    for (size_t at = 0, n; at < text->size && !status; at += n) {
        n = ls__piece_length(text->data + at, text->size - at);
        int32_t *place =
            n > UINT32_MAX ? NULL : ls__bytes_map_at(&t->word_of, text->data + at, n);
        if (!place)
            return LS_ENOMEM;
        if (*place >= 0) {
            AT(t->words, word, *place)->count++;
            continue;
        }
        *place = (int32_t)N(t->words, word);
        status = new_word(t, text->data + at, n);
    }
    return status;
}

static ls_status count_pairs(trainer *t)
{
    ls_status status = LS_OK;

    for (int32_t w = 0; w < N(t->words, word) && !status; w++) {
        const word    *own    = AT(t->words, word, w);
        const int32_t *symbol = AT(t->symbols, int32_t, own->first);
        for (int32_t i = 0; i + 1 < own->n && !status; i++)
            status = count_pair(t, symbol[i], symbol[i + 1], own->count, w);
    }
    for (int32_t i = 0; i < N(t->pairs, pair) && !status; i++)
        status = push(t, (candidate){AT(t->pairs, pair, i)->count, i});
    return status;
}

/* Joins every a b of a word, and counts what its neighbours lose and gain. */
static ls_status merge_word(trainer *t, int32_t w, merge m)
{
    word     *own = AT(t->words, word, w);
    int32_t  *s = AT(t->symbols, int32_t, own->first), n = 0;
    int64_t   count  = own->count;
    ls_status status = LS_OK;

    for (int32_t i = 0; i < own->n; i++) {
        if (i + 1 == own->n || s[i] != m.a || s[i + 1] != m.b) {
            s[n++] = s[i];
            continue;
        }
        if (n > 0 && !status)
            status = count_pair(t, s[n - 1], m.a, -count, w);
        if (n > 0 && !status)
            status = count_pair(t, s[n - 1], m.token, count, w);
        if (i + 2 < own->n && !status)
            status = count_pair(t, m.b, s[i + 2], -count, w);
        if (i + 2 < own->n && !status)
            status = count_pair(t, m.token, s[i + 2], count, w);
        s[n++] = m.token;
        i++;
    }
    own->n = n;
    return status;
}

/* Pairs of the new token, and others that became more, are candidates again. */
static ls_status push_changed(trainer *t, int64_t known, const int32_t *grown, int64_t n)
{
    ls_status status = LS_OK;

    for (int64_t i = known; i < N(t->pairs, pair) && !status; i++)
        status = push(t, (candidate){AT(t->pairs, pair, i)->count, (int32_t)i});
    for (int64_t i = 0; i < n && !status; i++)
        status = push(t, (candidate){AT(t->pairs, pair, grown[i])->count, grown[i]});
    return status;
}

/*
 * Applies a merge.  Where its token is an older one, made by another pair of the same bytes,
 * known pairs may grow: the words say which.
 */
static ls_status apply(trainer *t, int32_t which, merge m, bool is_new)
{
    places    words  = AT(t->pairs, pair, which)->words;
    ls_bytes  grown  = {0};
    int64_t   known  = N(t->pairs, pair);
    ls_status status = LS_OK;

    AT(t->pairs, pair, which)->words = (places){0};
    for (int32_t i = 0; i < words.n && !status; i++)
        status = merge_word(t, words.item[i], m);
    for (int32_t i = 0; i < known && !status && !is_new; i++)
        if (AT(t->pairs, pair, i)->a == m.token || AT(t->pairs, pair, i)->b == m.token)
            status = add(&grown, &i, sizeof i);
    if (!status)
        status = push_changed(t, known, AT(grown, int32_t, 0), N(grown, int32_t));
    ls_bytes_free(&grown);
    free(words.item);
    return status;
}

/* Takes the next pair off the heap, if it is up to date. */
static ls_status merge_next(trainer *t, bool *done)
{
    unsigned char buffer[LS_TOKEN_LONGEST];
    size_t        bytes;
    candidate     c = pop(t);
    pair         *p = AT(t->pairs, pair, c.pair);
    ls_status     status;

    *done = false;
    if (p->count != c.count)
        return p->count > 0 ? push(t, (candidate){p->count, c.pair}) : LS_OK;
    if (c.count < 1) {
        *done = true;
        return LS_OK;
    }
    merge m = {p->a, p->b, joined(t, p, buffer, &bytes)};
    if (bytes > sizeof buffer)
        return LS_OK; /* stays apart */
    bool is_new = m.token < 0;
    if (is_new) {
        m.token = (int32_t)N(t->tokens, token);
        status  = add_token(t, buffer, bytes);
        if (status)
            return status;
    }
    status   = add(&t->merges, &m, sizeof m);
    p->count = 0;
    return status ? status : apply(t, c.pair, m, is_new);
}

/* ---- what is written ---- */

static void print_token(ls_strbuf *json, const token *t)
{
    char   text[2 * LS_TOKEN_LONGEST];
    size_t n = 0;

    for (size_t i = 0; i < t->bytes; i++)
        n += ls_utf8_encode(ls__byte_char(t->text[i]), text + n);
    ls_strbuf_json(json, text, n);
}

static void print_added(ls_strbuf *json, const ls_bpe_train_opts *o, int32_t first)
{
    for (int32_t i = 0; i < o->n_special; i++) {
        ls_strbuf_format(json, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", first + i);
        ls_strbuf_json(json, o->special[i], strlen(o->special[i]));
        ls_strbuf_format(json,
                         ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                         "\"normalized\": false, \"special\": true}");
    }
}

static void print_json(ls_strbuf *json, const trainer *t, const ls_bpe_train_opts *o)
{
    static const char byte_level[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": true}";
    int32_t n = (int32_t)N(t->tokens, token);

    ls_strbuf_format(json, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  "
                           "\"padding\": null,\n  \"added_tokens\": [");
    print_added(json, o, n);
    ls_strbuf_format(
        json,
        "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n  "
        "\"post_processor\": null,\n  \"decoder\": %s,\n  \"model\": {\n    "
        "\"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n    "
        "\"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n "
        "   \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    "
        "\"ignore_merges\": false,\n    \"vocab\": {",
        byte_level, byte_level);
    for (int32_t i = 0; i < n; i++) {
        ls_strbuf_format(json, "%s\n      ", i ? "," : "");
        print_token(json, AT(t->tokens, token, i));
        ls_strbuf_format(json, ": %d", i);
    }
    for (int32_t i = 0; i < o->n_special; i++) {
        ls_strbuf_format(json, ",\n      ");
        ls_strbuf_json(json, o->special[i], strlen(o->special[i]));
        ls_strbuf_format(json, ": %d", n + i);
    }
    ls_strbuf_format(json, "\n    },\n    \"merges\": [");
    for (int64_t i = 0; i < N(t->merges, merge); i++) {
        const merge *m = AT(t->merges, merge, i);
        ls_strbuf_format(json, "%s\n      [", i ? "," : "");
        print_token(json, AT(t->tokens, token, m->a));
        ls_strbuf_format(json, ", ");
        print_token(json, AT(t->tokens, token, m->b));
        ls_strbuf_format(json, "]");
    }
    ls_strbuf_format(json, "\n    ]\n  }\n}\n");
}

static ls_status check_opts(const ls_bpe_train_opts *o)
{
    if (o->vocab_size < 256 + o->n_special)
        return ls_fail(
            LS_ECONFIG,
            "a vocabulary of %d tokens is too small: 256 bytes and %d special tokens "
            "need %d",
            o->vocab_size, o->n_special, 256 + o->n_special);
    for (int i = 0; i < o->n_special; i++) {
        bool twice = false;
        for (int k = 0; k < i; k++)
            twice = twice || !strcmp(o->special[i], o->special[k]);
        if (!*o->special[i] || twice)
            return ls_fail(LS_ECONFIG, "the special token \"%s\" is %s", o->special[i],
                           twice ? "given twice" : "empty");
    }
    return LS_OK;
}

/* In the file a special token's text must not be that of another token. */
static ls_status check_special(const trainer *t, const ls_bpe_train_opts *o)
{
    for (int i = 0; i < o->n_special; i++) {
        const unsigned char *text = (const unsigned char *)o->special[i];
        if (ls__bytes_map_find(&t->token_of, text, strlen(o->special[i])) >= 0)
            return ls_fail(LS_ECONFIG,
                           "the special token \"%s\" is an ordinary one of this text",
                           o->special[i]);
    }
    return LS_OK;
}

static ls_status add_bytes(trainer *t)
{
    ls_status status = LS_OK;

    for (int i = 0; i < 256 && !status; i++) {
        unsigned char byte = (unsigned char)ls__byte_of_rank(i);
        status             = add_token(t, &byte, 1);
    }
    return status;
}

static void close_trainer(trainer *t)
{
    for (int64_t i = 0; i < N(t->pairs, pair); i++)
        free(AT(t->pairs, pair, i)->words.item);
    for (int64_t i = 0; i < N(t->tokens, token); i++)
        free(AT(t->tokens, token, i)->text);
    ls_bytes *arrays[] = {&t->words, &t->symbols, &t->pairs, &t->heap, &t->tokens, &t->merges};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        ls_bytes_free(arrays[i]);
    ls__bytes_map_free(&t->word_of);
    ls__bytes_map_free(&t->token_of);
    ls__pair_map_free(&t->pair_of);
}

ls_status ls_bpe_train(const ls_text *text, const ls_bpe_train_opts *opts, char **json,
                       int32_t *size)
{
    trainer   t      = {0};
    ls_strbuf out    = {0};
    bool      done   = false;
    ls_status status = check_opts(opts);

    *json = NULL;
    if (!status)
        status = add_bytes(&t);
    if (!status)
        status = read_words(&t, text);
    if (!status)
        status = count_pairs(&t);
    while (!status && !done && t.heap.size &&
           N(t.tokens, token) < opts->vocab_size - opts->n_special)
        status = merge_next(&t, &done);
    if (!status)
        status = check_special(&t, opts);
    if (!status) {
        print_json(&out, &t, opts);
        status = ls_strbuf_status(&out);
    }
    *size = (int32_t)N(t.tokens, token) + opts->n_special;
    close_trainer(&t);
    if (status)
        ls_strbuf_free(&out);
    else
        *json = out.data;
    return status;
}

/*
 * bpe.c - encoding by merges.
 *
 * Of a piece's candidates a heap gives the next one, so a piece of n bytes costs n log n.
 * Pieces repeat: those of up to CACHED bytes are encoded once a text.
 */
#include "data/bpe_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/gz.h"
#include "core/utf8.h"
#include "data/tokenizer.h"
#include "data/tokenizer_impl.h"

enum { CACHED = 48, CACHE_ENTRIES = 1 << 20, LONGEST_PIECE = 1 << 28 };

void ls__bpe_free(ls__bpe *bpe)
{
    if (!bpe)
        return;
    free(bpe->json);
    free(bpe->bytes);
    free(bpe->first);
    free(bpe->merged);
    free(bpe->added);
    ls__pair_map_free(&bpe->rank);
    ls__bytes_map_free(&bpe->whole);
    free(bpe);
}

static bool stands_for_itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
}

uint32_t ls__byte_char(int byte)
{
    uint32_t others = 0;

    if (stands_for_itself(byte))
        return (uint32_t)byte;
    for (int i = 0; i < byte; i++)
        others += !stands_for_itself(i);
    return 256 + others;
}

int ls__byte_of_rank(int rank)
{
    for (int own = 1; own >= 0; own--)
        for (int byte = 0; byte < 256; byte++)
            if (stands_for_itself(byte) == own && rank-- == 0)
                return byte;
    return -1;
}

/* ---- one piece ---- */

typedef struct {
    int32_t rank, at;
} candidate;

typedef struct {
    int32_t   *token;         /* of the bytes; -1 once joined to the one before */
    int32_t   *before, *next; /* neighbours, -1: none */
    candidate *heap;          /* lowest (rank, at) first */
    int32_t    n_heap;
    size_t     room; /* bytes of the longest piece so far */
    void      *memory;
} merger;

enum { BYTES_EACH = 3 * sizeof(int32_t) + 2 * sizeof(candidate) };

static ls_status reserve(merger *m, size_t n)
{
    if (n <= m->room)
        return LS_OK;
    size_t room   = n < 256 ? 256 : 2 * n;
    void  *memory = ls_mem_alloc(room * BYTES_EACH, LS_MEM_OTHER);
    if (!memory)
        return LS_ENOMEM;
    ls_mem_free(m->memory, m->room * BYTES_EACH, LS_MEM_OTHER);
    m->memory = m->heap = memory;
    m->token            = (int32_t *)(m->heap + 2 * room);
    m->before           = m->token + room;
    m->next             = m->before + room;
    m->room             = room;
    return LS_OK;
}

static bool is_before(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void push(merger *m, candidate c)
{
    int32_t i = m->n_heap++;

    for (; i > 0 && is_before(c, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = c;
}

static candidate pop(merger *m)
{
    candidate first = m->heap[0], c = m->heap[--m->n_heap];
    int32_t   i = 0, child;

    for (; (child = 2 * i + 1) < m->n_heap; i = child) {
        child += child + 1 < m->n_heap && is_before(m->heap[child + 1], m->heap[child]);
        if (!is_before(m->heap[child], c))
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = c;
    return first;
}

/* The rank of the token at a place and the one behind it, -1 for none. */
static int32_t rank_at(const ls__bpe *bpe, const merger *m, int32_t at)
{
    if (at < 0 || m->token[at] < 0 || m->next[at] < 0)
        return -1;
    return ls__pair_map_find(&bpe->rank, m->token[at], m->token[m->next[at]]);
}

static void propose(const ls__bpe *bpe, merger *m, int32_t at)
{
    int32_t rank = rank_at(bpe, m, at);

    if (rank >= 0)
        push(m, (candidate){rank, at});
}

static void join(const ls__bpe *bpe, merger *m, int32_t at, int32_t token)
{
    int32_t gone = m->next[at], next = m->next[gone];

    m->token[at]   = token;
    m->token[gone] = -1;
    m->next[at]    = next;
    if (next >= 0)
        m->before[next] = at;
    propose(bpe, m, m->before[at]);
    propose(bpe, m, at);
}

/* Joins until nothing is left to join; a candidate may have been overtaken by others. */
static void merge_all(const ls__bpe *bpe, merger *m, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        m->before[i] = i - 1;
        m->next[i]   = i + 1 < n ? i + 1 : -1;
    }
    m->n_heap = 0;
    for (int32_t i = 0; i < n; i++)
        propose(bpe, m, i);
    while (m->n_heap) {
        candidate c    = pop(m);
        int32_t   rank = rank_at(bpe, m, c.at);
        if (rank >= 0 && bpe->merged[rank] == bpe->merged[c.rank])
            join(bpe, m, c.at, bpe->merged[c.rank]);
    }
}

/* ---- a text ---- */

typedef struct {
    const ls__bpe *bpe;
    const ls_text *text;
    int32_t        limit;
    ls_bytes       out; /* tokens of `width` bytes */
    int            width;
    int64_t        count;
    merger         merger;
    ls__bytes_map  cache; /* piece -> place in kept */
    ls_bytes       kept;  /* int32: number of tokens, then these */
} encoder;

static ls_status append(encoder *e, int32_t token, size_t at)
{
    if (e->limit && token >= e->limit)
        return ls__token_too_large(e->text, at, token, e->count, e->limit);
    ls_status status = ls_bytes_reserve(&e->out, (size_t)e->width);
    if (status)
        return status;
    ls_tokens_set(&(ls_tokens){.data = e->out.data, .width = e->width}, e->count++, token);
    e->out.size += (size_t)e->width;
    return LS_OK;
}

/* `space`: their first byte is not in the text. */
static ls_status append_all(encoder *e, const int32_t *token, int32_t n, size_t at, bool space)
{
    const size_t *first  = e->bpe->first;
    ls_status     status = LS_OK;

    for (int32_t i = 0; i < n && !status; i++) {
        status = append(e, token[i], at);
        at += first[token[i] + 1] - first[token[i]] - (space && !i);
    }
    return status;
}

/* Tokens of one character's bytes, those of U+FFFD where it is none. */
static ls_status start_char(encoder *e, size_t at, size_t size, size_t *bytes, int32_t *n)
{
    static const unsigned char replacement[] = {0xef, 0xbf, 0xbd};
    const unsigned char       *from          = e->text->data + at;
    uint32_t                   point;
    size_t                     taken = ls_utf8_decode(from, size, &point);

    *bytes = taken ? taken : ls_utf8_next(from, size, &point);
    if (!taken) {
        from  = replacement;
        taken = sizeof replacement;
    }
    for (size_t i = 0; i < taken; i++) {
        int32_t token = e->bpe->byte_token[from[i]];
        if (token < 0)
            return ls__token_unknown(e->text, at + (i < *bytes ? i : 0), from[i]);
        e->merger.token[(*n)++] = token;
    }
    return LS_OK;
}

/* The space in front of a text that has none there. */
static ls_status start_space(encoder *e, size_t at, int32_t *n)
{
    e->merger.token[(*n)++] = e->bpe->byte_token[' '];
    return e->merger.token[0] < 0 ? ls__token_unknown(e->text, at, ' ') : LS_OK;
}

static ls_status start_piece(encoder *e, size_t at, size_t size, bool space, int32_t *n)
{
    ls_status status = size > LONGEST_PIECE
                           ? ls_fail(LS_EFORMAT, "%s: a word of %zu bytes at byte %zu",
                                     ls_text_locate(e->text, at).path, size,
                                     ls_text_locate(e->text, at).offset)
                           : reserve(&e->merger, 3 * size + space);

    *n = 0;
    if (!status && space)
        status = start_space(e, at, n);
    for (size_t i = 0, bytes; i < size && !status; i += bytes)
        status = start_char(e, at + i, size - i, &bytes, n);
    return status;
}

/* Moves the tokens that are left to the front. */
static int32_t gather(merger *m, int32_t n)
{
    int32_t left = 0;

    for (int32_t i = 0; i >= 0 && i < n; i = m->next[i])
        m->token[left++] = m->token[i];
    return left;
}

static ls_status keep(encoder *e, size_t at, size_t size, int32_t n)
{
    if (size > CACHED || e->cache.count >= CACHE_ENTRIES)
        return LS_OK;
    size_t    bytes  = ((size_t)n + 1) * sizeof n;
    ls_status status = ls_bytes_reserve(&e->kept, bytes);
    int32_t  *place  = status ? NULL : ls__bytes_map_at(&e->cache, e->text->data + at, size);
    if (!place)
        return LS_ENOMEM;
    *place = (int32_t)(e->kept.size / sizeof n);
    memcpy(e->kept.data + e->kept.size, &n, sizeof n);
    memcpy(e->kept.data + e->kept.size + sizeof n, e->merger.token, bytes - sizeof n);
    e->kept.size += bytes;
    return LS_OK;
}

/* The token that a piece of n bytes is as a whole, -1 for none. */
static int32_t whole_piece(const encoder *e, int32_t n)
{
    const ls__bpe *bpe = e->bpe;
    unsigned char  bytes[LS_TOKEN_LONGEST];

    if (!bpe->whole_first || n > LS_TOKEN_LONGEST)
        return -1;
    for (int32_t i = 0; i < n; i++)
        bytes[i] = bpe->bytes[bpe->first[e->merger.token[i]]];
    return ls__bytes_map_find(&bpe->whole, bytes, (size_t)n);
}

/* From the tokens of n bytes to those of the piece, whose number it returns. */
static int32_t merge_piece(encoder *e, int32_t n)
{
    int32_t whole = whole_piece(e, n);

    if (whole >= 0) {
        e->merger.token[0] = whole;
        return 1;
    }
    merge_all(e->bpe, &e->merger, n);
    return gather(&e->merger, n);
}

static ls_status encode_spaced(encoder *e, size_t at, size_t size)
{
    int32_t   n;
    ls_status status = start_piece(e, at, size, true, &n);

    if (status)
        return status;
    n = merge_piece(e, n);
    return append_all(e, e->merger.token, n, at, true);
}

static ls_status encode_piece(encoder *e, size_t at, size_t size)
{
    int32_t n, known = -1;

    if (size <= CACHED)
        known = ls__bytes_map_find(&e->cache, e->text->data + at, size);
    if (known >= 0 && e->kept.data) {
        const int32_t *kept = (const int32_t *)(const void *)e->kept.data + known;
        return append_all(e, kept + 1, kept[0], at, false);
    }
    ls_status status = start_piece(e, at, size, false, &n);
    if (status)
        return status;
    n      = merge_piece(e, n);
    status = keep(e, at, size, n);
    return status ? status : append_all(e, e->merger.token, n, at, false);
}

/* A part of the text in which no added token stands. */
static ls_status encode_pieces(encoder *e, size_t from, size_t end)
{
    const unsigned char *text   = e->text->data;
    ls_status            status = LS_OK;

    if (e->bpe->prefix_space && from < end && text[from] != ' ') {
        size_t n = ls__piece_length_spaced(text + from, end - from);
        status   = encode_spaced(e, from, n);
        from += n;
    }
    for (size_t n; from < end && !status; from += n) {
        n      = e->bpe->cut(text + from, end - from);
        status = encode_piece(e, from, n);
    }
    return status;
}

/* The first of the added tokens low to high - 1, equal up to byte n, whose byte n is not less.
 */
static int first_with(const ls__added_token *added, int low, int high, size_t n, int byte)
{
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (added[middle].text[n] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * The longest added token at a place, of those that are looked for early or late.  Of those
 * that begin like the text each further byte leaves a part, so their number hardly matters.
 */
static const ls__added_token *added_at(const encoder *e, bool late, size_t at, size_t end)
{
    const ls__added_token *added = e->bpe->added, *longest = NULL;
    const unsigned char   *text = e->text->data;
    int                    low  = late ? e->bpe->n_early : 0;
    int                    high = late ? e->bpe->n_added : e->bpe->n_early;

    if (!(e->bpe->starts[text[at]] >> late & 1))
        return NULL;
    for (size_t n = 0; low < high; n++) {
        while (low < high && added[low].bytes == n)
            longest = &added[low++];
        if (at + n == end)
            break;
        low  = first_with(added, low, high, n, text[at + n]);
        high = first_with(added, low, high, n, text[at + n] + 1);
    }
    return longest;
}

static ls_status encode_part(encoder *e, bool late, size_t from, size_t end)
{
    ls_status status = LS_OK;

    for (size_t at = from; at <= end && !status;) {
        const ls__added_token *added = at < end ? added_at(e, late, at, end) : NULL;
        if (!added && at < end) {
            at++;
            continue;
        }
        status = late ? encode_pieces(e, from, at) : encode_part(e, true, from, at);
        if (!status && added)
            status = append(e, added->id, at);
        at += added ? added->bytes : 1;
        from = at;
    }
    return status;
}

static ls_status append_around(encoder *e, const ls__around *around, size_t at)
{
    ls_status status = LS_OK;

    for (int i = 0; i < around->n && !status; i++)
        status = append(e, around->token[i], at);
    return status;
}

static ls_status encode_text(encoder *e)
{
    size_t    end    = e->text->size;
    ls_status status = append_around(e, &e->bpe->before, 0);

    if (!status)
        status = e->bpe->n_added ? encode_part(e, false, 0, end) : encode_pieces(e, 0, end);
    return status ? status : append_around(e, &e->bpe->behind, end);
}

ls_status ls__bpe_encode(const ls__bpe *bpe, const ls_text *text, int32_t limit,
                         ls_tokens *tokens)
{
    encoder e = {.bpe = bpe, .text = text, .limit = limit, .width = ls_tokens_width(bpe->size)};
    ls_status status = encode_text(&e);

    ls_mem_free(e.merger.memory, e.merger.room * BYTES_EACH, LS_MEM_OTHER);
    ls__bytes_map_free(&e.cache);
    ls_bytes_free(&e.kept);
    *tokens = (ls_tokens){0};
    if (status)
        ls_bytes_free(&e.out);
    else
        *tokens = (ls_tokens){e.out.data, e.count, e.width, e.out.capacity};
    return status;
}

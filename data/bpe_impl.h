/*
 * bpe_impl.h - byte-level byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909; GPT-2's).
 *
 *     text -> added tokens, found as they are -> pieces -> bytes -> merges of neighbours
 *
 * A piece starts as the tokens of its bytes.  The neighbours whose merge has the lowest rank
 * are joined, the leftmost of equals first, until no pair is left that has one.
 *
 * A file may ask for more: a space in front of each part of a text that has none there
 * (add_prefix_space), pieces that are tokens as they are without a merge (ignore_merges),
 * tokens before and behind the whole text (its post-processor's template).
 */
#ifndef LS_DATA_BPE_IMPL_H
#define LS_DATA_BPE_IMPL_H

#include <stdbool.h>

#include "core/json.h"
#include "data/maps_impl.h"
#include "data/text.h"
#include "data/token_file.h"

/* A token that is found in a text as it stands, before everything else. */
typedef struct {
    const unsigned char *text;
    size_t               bytes;
    int32_t              id;
    bool                 late; /* looked for after those that are not (normalized in JSON) */
} ls__added_token;

/* Bytes of the first piece of a text of at least one byte. */
typedef size_t ls__cut(const unsigned char *text, size_t size);

enum { LS__MOST_AROUND = 8 };

/* Tokens that stand before or behind each text. */
typedef struct {
    int32_t token[LS__MOST_AROUND];
    int     n;
} ls__around;

typedef struct {
    char            *json; /* tokenizer.json, as it was read */
    int32_t          size; /* tokens are 0 .. size - 1, of which some may be missing */
    unsigned char   *bytes;
    size_t          *first; /* size + 1: token t is bytes first[t] .. first[t + 1] - 1 */
    int32_t          byte_token[256]; /* -1: none */
    ls__pair_map     rank;            /* of the merge of two tokens */
    int32_t         *merged;          /* by rank: what becomes of them */
    ls__added_token *added;           /* those that are late last, then bytewise */
    int              n_added, n_early;
    unsigned char    starts[256]; /* by first byte: bit 0 an early one, bit 1 a late one */
    ls__cut         *cut;
    bool             prefix_space;
    bool             whole_first; /* a piece that is a token as a whole is that token */
    ls__bytes_map    whole;       /* then: tokens by their bytes */
    ls__around       before, behind;
} ls__bpe;

/* A copy of a tokenizer.json's text, parsed; name stands in messages.  LS_EFORMAT: not JSON or
 * not consistent; LS_EUNSUPPORTED: another kind of tokenizer, by name.  LS_ENOMEM. */
LS_MUST_CHECK ls_status ls__bpe_parse(const char *json, const char *name, ls__bpe **bpe);
void                    ls__bpe_free(ls__bpe *bpe); /* NULL is allowed */

/* As ls_tokenizer_encode(); what is not UTF-8 is read as U+FFFD. */
LS_MUST_CHECK ls_status ls__bpe_encode(const ls__bpe *bpe, const ls_text *text, int32_t limit,
                                       ls_tokens *tokens);

/* GPT-2's pattern; Llama 3's, which takes numbers by threes and new lines to what is before. */
ls__cut ls__piece_length, ls__piece_length_llama3;

/*
 * The bytes of the text in the first piece of GPT-2's pattern when a space is put in front of
 * it; 0: the space stands alone.
 */
ls__cut ls__piece_length_spaced;

/*
 * What a tokenizer.json says beside its vocabulary and merges: how text is cut and what stands
 * around it.  LS_EUNSUPPORTED for what is not ours, by name; LS_EFORMAT.
 */
LS_MUST_CHECK ls_status ls__bpe_read_sections(const ls_json *root, const char *name,
                                              ls__bpe *bpe);

/* LS_EUNSUPPORTED unless a value is absent, null, or what it is by default: false, "" or 0. */
LS_MUST_CHECK ls_status ls__bpe_check_off(const char *name, const ls_json *part,
                                          const char *where, const char *key);

/* A path whose last name is vocab.json. */
bool ls__is_vocab_json(const char *path);

/*
 * The tokenizer.json, freed with free(), of a vocab.json with merges.txt beside it.  LS_EIO;
 * LS_EFORMAT; LS_EUNSUPPORTED for what GPT-2's are not; each names the file.
 */
LS_MUST_CHECK ls_status ls__vocab_to_json(const char *path, char **json);

/* "type" of an object, "null" for none, "" where it has none. */
const char *ls__type_of(const ls_json *part);

/*
 * The characters that stand for bytes in tokenizer.json: printable ones of Latin-1 for
 * themselves, U+0100 and up for the others, in their order.
 */
uint32_t ls__byte_char(int byte);

/* The byte of that rank in the order of these characters: 33, 34, ... */
int ls__byte_of_rank(int rank);

#endif

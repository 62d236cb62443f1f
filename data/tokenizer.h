/*
 * tokenizer.h - text to tokens and back.
 *
 *     byte   token = byte, vocabulary 256
 *     char   one token for each distinct Unicode code point of the training text, in the
 *            order of the code points; text must be UTF-8
 *     bpe    byte-level byte pair encoding out of a tokenizer.json, as GPT-2's: equal to the
 *            Python package tokenizers; what is not UTF-8 is read as U+FFFD
 */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H

#include <stdbool.h>

#include "data/text.h"
#include "data/token_file.h"

/* X(kind, name in configs and JSON) */
#define LS_TOKENIZER_MAP(X) \
    X(BYTE, "byte")         \
    X(CHAR, "char")         \
    X(BPE, "bpe")

typedef enum {
#define X(kind, name) LS_TOKENIZER_##kind,
    LS_TOKENIZER_MAP(X)
#undef X
        LS_TOKENIZER_COUNT
} ls_tokenizer_kind;

typedef struct ls_tokenizer ls_tokenizer;

enum { LS_TOKEN_LONGEST = 1024 }; /* bytes that a token may stand for */

const char *ls_tokenizer_kind_name(ls_tokenizer_kind kind);

/*
 * A byte or char tokenizer for a training text (byte: not looked at, may be NULL).
 * LS_EFORMAT, with file and offset, for invalid UTF-8; LS_EINVAL for bpe; LS_ENOMEM.
 */
LS_MUST_CHECK ls_status ls_tokenizer_new(ls_tokenizer_kind kind, const ls_text *text,
                                         ls_tokenizer **tokenizer);
void                    ls_tokenizer_free(ls_tokenizer *tokenizer); /* NULL is allowed */

ls_tokenizer_kind ls_tokenizer_get_kind(const ls_tokenizer *tokenizer);
int32_t           ls_tokenizer_vocab_size(const ls_tokenizer *tokenizer);

/*
 * The tokenizer of a tokenizer.json, or of GPT-2's vocab.json with merges.txt beside it.
 * LS_EIO; LS_EFORMAT for one that is malformed; LS_EUNSUPPORTED for another kind (WordPiece,
 * Unigram, ...) or part, which it names.
 */
LS_MUST_CHECK ls_status ls_tokenizer_load(const char *path, ls_tokenizer **tokenizer);

/*
 * The tokens of a whole text, to be closed by the caller.  limit: model.vocab_size, 0 for
 * none.  LS_EFORMAT for invalid UTF-8 (char); LS_ECONFIG for a character that the tokenizer
 * does not know and for a token that is not below limit: each names file, offset and what was
 * found.
 */
LS_MUST_CHECK ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, const ls_text *text,
                                            int32_t limit, ls_tokens *tokens);

/* Writes the bytes of a token and returns their number; 0 for one beyond the vocabulary. */
size_t ls_tokenizer_decode(const ls_tokenizer *tokenizer, int32_t token,
                           char out[LS_TOKEN_LONGEST]);

enum { LS_MOST_ENDS = 16 };

/* Tokens at which a text ends; {0}: none. */
typedef struct {
    int32_t token[LS_MOST_ENDS];
    int     n;
} ls_ends;

bool ls_ends_has(const ls_ends *ends, int32_t token);
bool ls_ends_add(ls_ends *ends, int32_t token); /* false: there are LS_MOST_ENDS already */

/* The added tokens by the name of an end of text: "<|endoftext|>", "</s>", and the like. */
ls_ends ls_tokenizer_ends(const ls_tokenizer *tokenizer);

/* The token that an added token's text is, -1 for none. */
int32_t ls_tokenizer_find_added(const ls_tokenizer *tokenizer, const char *text);

/*
 * {"kind":"byte"}, {"kind":"char","code_points":[10,32,...]} or the tokenizer.json as it was
 * read; null for NULL, a model without one; NULL (ENOMEM) on failure.  Freed with free().
 */
char *ls_tokenizer_to_json(const ls_tokenizer *tokenizer);

/* The tokenizer of such a string; white space is allowed.  Errors as ls_tokenizer_load(). */
LS_MUST_CHECK ls_status ls_tokenizer_from_json(const char *json, ls_tokenizer **tokenizer);

#endif

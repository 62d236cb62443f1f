/*
 * json.h - strict JSON: a thin layer over cJSON.
 *
 * cJSON alone accepts more than JSON (`01`, raw control characters, a byte order mark, bytes
 * that are not UTF-8), keeps duplicate keys and forgets how a number was written.  So a
 * scanner of our own reads the text first: it knows line and column, refuses what RFC 8259
 * does not allow, and notes for every number whether it is an integer literal.  cJSON then
 * decodes strings and numbers.  A document also has no duplicate keys, no NUL (raw or
 * escaped), at most LS_JSON_LEVELS levels, and no number beyond the range of double.
 *
 * The tree is open and read-only; it belongs to its document.  Nothing depends on the locale.
 */
#ifndef LS_CORE_JSON_H
#define LS_CORE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"

enum { LS_JSON_LEVELS = 64, LS_JSON_DOUBLE_BYTES = 32 };

typedef enum {
    LS_JSON_NULL,
    LS_JSON_BOOL,
    LS_JSON_NUMBER,
    LS_JSON_STRING,
    LS_JSON_ARRAY,
    LS_JSON_OBJECT
} ls_json_kind;

typedef struct ls_json ls_json;

struct ls_json {
    ls_json_kind   kind;
    bool           boolean; /* of a bool */
    bool           integer; /* of a number: written without fraction and exponent */
    int64_t        whole; /* of such an integer; INT64_MIN or INT64_MAX where it does not fit */
    double         number; /* of a number */
    const char    *text;   /* of a string: decoded, UTF-8, no NUL inside */
    const char    *key;    /* of a member of an object, else NULL */
    const char    *source; /* the value as it was written, source_bytes long */
    size_t         source_bytes;
    const char    *start; /* where it starts in the text: the key's quote for members */
    size_t         count; /* children of an array or object */
    const ls_json *child; /* the first of them; go on with next */
    const ls_json *next;
};

typedef struct ls_json_doc ls_json_doc;

/*
 * Parses the n bytes at text; name stands in messages, as in "name:3:14: duplicate key "x"".
 * EFORMAT for what is not JSON, ENOMEM.  On failure *doc is NULL.
 */
LS_MUST_CHECK ls_status ls_json_parse(const char *text, size_t n, const char *name,
                                      ls_json_doc **doc);
void                    ls_json_free(ls_json_doc *doc); /* NULL is allowed */

const ls_json *ls_json_root(const ls_json_doc *doc);

/* Line and column of a node, from 1; columns count characters.  Costs a pass over the text. */
void ls_json_where(const ls_json_doc *doc, const ls_json *node, int *line, int *column);

/* "a string", "an object", ...: the kind with its article, for messages. */
const char *ls_json_kind_name(const ls_json *node);

/*
 * The node at a path of keys with dots between, from an object on; NULL when there is none.
 * Each level costs a walk over its members: for many members walk child and next instead.
 */
const ls_json *ls_json_find(const ls_json *object, const char *path);

/*
 * Typed access: the value at a path.  EFORMAT with the path, what was found and what was
 * wanted when it is missing, of another kind or out of range.  Strings are borrowed.
 * On failure *value is unchanged.
 */
LS_MUST_CHECK ls_status ls_json_get_int(const ls_json *object, const char *path, int64_t min,
                                        int64_t max, int64_t *value);
LS_MUST_CHECK ls_status ls_json_get_double(const ls_json *object, const char *path,
                                           double *value);
LS_MUST_CHECK ls_status ls_json_get_bool(const ls_json *object, const char *path, bool *value);
LS_MUST_CHECK ls_status ls_json_get_string(const ls_json *object, const char *path,
                                           const char **value);

/*
 * Prints x so that it reads back to the same bits: the shortest of %.15g, %.16g, %.17g that
 * does.  Always valid JSON: what is not finite becomes null.  LS_JSON_DOUBLE_BYTES are
 * always enough.
 */
void ls_json_print_double(char *buffer, size_t bytes, double x);

/*
 * Prints text as a JSON string, quotes included, as snprintf does: at most bytes - 1
 * characters and a NUL; returns the length of the whole.  What is not UTF-8 becomes U+FFFD.
 */
size_t ls_json_escape(char *buffer, size_t bytes, const char *text);

/* The same into a file. */
void ls_json_print_string(FILE *file, const char *text);

#endif

/*
 * tokenizer_sections.c - what a tokenizer.json says beside its vocabulary and merges.
 *
 * Three ways of cutting text are known: ByteLevel by itself (GPT-2's pattern), and a Split by a
 * pattern with a ByteLevel behind it that cuts no more, for GPT-2's pattern and Llama 3's.  A
 * pattern is known by its text; pieces.c has it as code.
 */
#include <stdbool.h>
#include <string.h>

#include "data/bpe_impl.h"

typedef struct {
    const char    *name; /* of the file */
    const ls_json *root;
    ls__bpe       *bpe;
} reader;

/* ---- refusals ---- */

const char *ls__type_of(const ls_json *part)
{
    const char *type;

    if (!part || part->kind == LS_JSON_NULL)
        return "null";
    if (part->kind != LS_JSON_OBJECT || ls_json_get_string(part, "type", &type))
        return "";
    return type;
}

static bool is_type(const ls_json *part, const char *type)
{
    return !strcmp(ls__type_of(part), type);
}

static ls_status refuse(const reader *r, const char *key, const ls_json *part,
                        const char *wanted)
{
    const char *type = ls__type_of(part);

    return ls_fail(LS_EUNSUPPORTED, "%s: its %s is %.60s, not in this version; wanted %s",
                   r->name, key, *type ? type : "set", wanted);
}

static ls_status refuse_value(const char *name, const char *where, const char *key,
                              const ls_json *v)
{
    return ls_fail(LS_EUNSUPPORTED, "%s: %s.%s is %.*s, which is not in this version", name,
                   where, key, v->source_bytes < 40 ? (int)v->source_bytes : 40, v->source);
}

ls_status ls__bpe_check_off(const char *name, const ls_json *part, const char *where,
                            const char *key)
{
    const ls_json *v = ls_json_find(part, key);
    bool           off;

    if (!v)
        return LS_OK;
    off = v->kind == LS_JSON_NULL || (v->kind == LS_JSON_BOOL && !v->boolean) ||
          (v->kind == LS_JSON_STRING && !*v->text) ||
          (v->kind == LS_JSON_NUMBER && v->number == 0);
    return off ? LS_OK : refuse_value(name, where, key, v);
}

/* A bool that may be absent. */
static ls_status read_flag(const reader *r, const ls_json *part, const char *key, bool *flag)
{
    ls_status status = ls_json_find(part, key) ? ls_json_get_bool(part, key, flag) : LS_OK;
    return status ? ls_fail_in(status, "%s", r->name) : LS_OK;
}

/* ---- how text is cut ---- */

static const struct {
    const char *regex;
    ls__cut    *cut;
} patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     ls__piece_length},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     ls__piece_length_llama3},
};

/*
 * Split: each match of the pattern is a piece.  As the patterns match everywhere, to remove
 * what lies between the matches ("Removed" with invert) is the same.
 */
static ls_status read_split(const reader *r, const ls_json *split)
{
    const char *regex = "", *behavior = "";
    bool        invert = false;
    ls_status   status = read_flag(r, split, "invert", &invert);

    if (!status && (ls_json_get_string(split, "behavior", &behavior) ||
                    strcmp(behavior, invert ? "Removed" : "Isolated") != 0))
        status = ls_fail(LS_EUNSUPPORTED,
                         "%s: a Split with behavior \"%.40s\"%s, which is not in this version; "
                         "wanted \"Isolated\"",
                         r->name, behavior, invert ? " and invert" : "");
    if (!status && ls_json_get_string(split, "pattern.Regex", &regex))
        status =
            ls_fail(LS_EUNSUPPORTED,
                    "%s: a Split without pattern.Regex, which is not in this version", r->name);
    if (status)
        return status;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (!strcmp(regex, patterns[i].regex)) {
            r->bpe->cut = patterns[i].cut;
            return LS_OK;
        }
    return ls_fail(LS_EUNSUPPORTED,
                   "%s: a Split by \"%.200s\", which is not in this version; wanted GPT-2's "
                   "pattern or Llama 3's",
                   r->name, regex);
}

/* Split, then ByteLevel, which cuts no more and puts no space before a piece. */
static ls_status read_sequence(const reader *r, const ls_json *cut)
{
    const ls_json *list = ls_json_find(cut, "pretokenizers"), *split, *level;
    bool           cuts = true, spaced = false;

    split = list && list->kind == LS_JSON_ARRAY ? list->child : NULL;
    level = split ? split->next : NULL;
    if (!level || level->next || !is_type(split, "Split") || !is_type(level, "ByteLevel"))
        return ls_fail(LS_EUNSUPPORTED,
                       "%s: its pre_tokenizer is Sequence of others than Split and ByteLevel, "
                       "which is not in this version",
                       r->name);
    ls_status status = read_flag(r, level, "use_regex", &cuts);
    if (!status)
        status = read_flag(r, level, "add_prefix_space", &spaced);
    if (!status && (cuts || spaced))
        status = ls_fail(LS_EUNSUPPORTED,
                         "%s: pre_tokenizer.%s is true behind a Split, which is not in this "
                         "version",
                         r->name, cuts ? "use_regex" : "add_prefix_space");
    return status ? status : read_split(r, split);
}

static ls_status read_level(const reader *r, const ls_json *cut)
{
    bool cuts = true;

    r->bpe->cut      = ls__piece_length;
    ls_status status = read_flag(r, cut, "use_regex", &cuts);
    if (!status && !cuts)
        status =
            refuse_value(r->name, "pre_tokenizer", "use_regex", ls_json_find(cut, "use_regex"));
    return status ? status : read_flag(r, cut, "add_prefix_space", &r->bpe->prefix_space);
}

static ls_status read_cut(const reader *r)
{
    const ls_json *cut = ls_json_find(r->root, "pre_tokenizer");

    if (is_type(cut, "Sequence"))
        return read_sequence(r, cut);
    return is_type(cut, "ByteLevel") ? read_level(r, cut)
                                     : refuse(r, "pre_tokenizer", cut, "ByteLevel");
}

/* ---- what stands around a text ---- */

static ls_status bad_template(const reader *r, const char *what)
{
    return ls_fail(LS_EFORMAT, "%s: post_processor: %s", r->name, what);
}

/* A special token's ids, at the place that the text has not yet passed or has. */
static ls_status add_around(const reader *r, const ls_json *all, const char *token,
                            ls__around *around)
{
    const ls_json *known = all && all->kind == LS_JSON_OBJECT ? all->child : NULL;

    while (known && strcmp(known->key, token) != 0)
        known = known->next;
    const ls_json *ids = known ? ls_json_find(known, "ids") : NULL;
    if (!ids || ids->kind != LS_JSON_ARRAY)
        return bad_template(r, "a token of its template has no ids");
    for (const ls_json *id = ids->child; id; id = id->next) {
        if (!id->integer || id->whole < 0 || id->whole > INT32_MAX)
            return bad_template(r, "an id of a token is no token");
        if (around->n == LS__MOST_AROUND)
            return bad_template(r, "too many tokens around a text");
        around->token[around->n++] = (int32_t)id->whole;
    }
    return LS_OK;
}

/* TemplateProcessing: some special tokens, the text once, some more. */
static ls_status read_template(const reader *r, const ls_json *post)
{
    const ls_json *single = ls_json_find(post, "single");
    const char    *token;
    ls_status      status = LS_OK;
    int            texts  = 0;

    if (!single || single->kind != LS_JSON_ARRAY)
        return bad_template(r, "single is no list");
    if (r->bpe->before.n || r->bpe->behind.n)
        return refuse(r, "post_processor", post, "one that puts tokens around the text");
    for (const ls_json *part = single->child; part && !status; part = part->next) {
        bool is_object = part->kind == LS_JSON_OBJECT;
        if (is_object && ls_json_find(part, "Sequence"))
            texts++;
        else if (is_object && !ls_json_get_string(part, "SpecialToken.id", &token))
            status = add_around(r, ls_json_find(post, "special_tokens"), token,
                                texts ? &r->bpe->behind : &r->bpe->before);
        else
            status = bad_template(r, "a part of its template is neither text nor token");
    }
    if (!status && texts != 1)
        status = bad_template(r, "its template does not hold the text once");
    return status;
}

static ls_status read_post_processor(const reader *r, const ls_json *post)
{
    const ls_json *all    = ls_json_find(post, "processors");
    ls_status      status = LS_OK;

    if (is_type(post, "TemplateProcessing"))
        return read_template(r, post);
    if (!is_type(post, "Sequence") || !all || all->kind != LS_JSON_ARRAY)
        return is_type(post, "ByteLevel") || is_type(post, "null")
                   ? LS_OK
                   : refuse(r, "post_processor", post, "ByteLevel, TemplateProcessing or null");
    for (const ls_json *part = all->child; part && !status; part = part->next)
        status = is_type(part, "Sequence")
                     ? refuse(r, "post_processor", part, "no Sequence inside of one")
                     : read_post_processor(r, part);
    return status;
}

/* ---- all ---- */

/* Sections that change tokens and are not ours, or may be one thing only. */
static ls_status check_others(const reader *r)
{
    static const char *const none[]  = {"normalizer", "truncation", "padding"};
    static const char *const off[]   = {"dropout", "continuing_subword_prefix",
                                        "end_of_word_suffix", "byte_fallback"};
    const ls_json           *decoder = ls_json_find(r->root, "decoder");
    ls_status                status  = LS_OK;

    for (size_t i = 0; i < sizeof none / sizeof *none && !status; i++)
        if (!is_type(ls_json_find(r->root, none[i]), "null"))
            status = refuse(r, none[i], ls_json_find(r->root, none[i]), "null");
    if (!status && !is_type(decoder, "null") && !is_type(decoder, "ByteLevel"))
        status = refuse(r, "decoder", decoder, "ByteLevel or null");
    for (size_t i = 0; i < sizeof off / sizeof *off && !status; i++)
        status = ls__bpe_check_off(r->name, ls_json_find(r->root, "model"), "model", off[i]);
    return status;
}

ls_status ls__bpe_read_sections(const ls_json *root, const char *name, ls__bpe *bpe)
{
    reader    r      = {.name = name, .root = root, .bpe = bpe};
    ls_status status = check_others(&r);

    if (!status)
        status = read_flag(&r, ls_json_find(root, "model"), "ignore_merges", &bpe->whole_first);
    if (!status)
        status = read_cut(&r);
    return status ? status : read_post_processor(&r, ls_json_find(root, "post_processor"));
}

/*
 * hf_end_of_text.c - at which tokens a Hugging Face model ends a text.
 *
 * eos_token_id of generation_config.json, else of config.json: a token or a list.  Where both
 * say nothing the name in tokenizer_config.json, as a token of the tokenizer.  Tokens that the
 * model does not have are passed over: config.json names GPT-2's for any vocabulary.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "checkpoint/hf_impl.h"

typedef struct {
    const char *directory;
    int64_t     vocab_size;
    ls_ends    *ends;
    bool        found;
} reader;

/* One file's document; NULL where there is no such file. */
static ls_status open_file(const reader *r, const char *name, char **path, ls_json_doc **doc)
{
    struct stat info;

    *doc  = NULL;
    *path = ls_sprintf("%s/%s", r->directory, name);
    if (!*path)
        return LS_ENOMEM;
    if (stat(*path, &info))
        return LS_OK;
    free(*path);
    return ls__hf_read_json(r->directory, name, path, doc);
}

static ls_status add(reader *r, const char *path, const ls_json *id)
{
    if (!id->integer || id->whole < 0)
        return ls_fail(LS_EFORMAT, "%s: eos_token_id is %s, wanted a token or a list of them",
                       path, ls_json_kind_name(id));
    if (id->whole < r->vocab_size && !ls_ends_add(r->ends, (int32_t)id->whole))
        return ls_fail(LS_EUNSUPPORTED, "%s: eos_token_id has more than %d tokens", path,
                       (int)LS_MOST_ENDS);
    return LS_OK;
}

static ls_status read_ids(reader *r, const char *name)
{
    ls_json_doc *doc;
    char        *path;
    ls_status    status = open_file(r, name, &path, &doc);

    if (!status && doc) {
        const ls_json *id = ls_json_find(ls_json_root(doc), "eos_token_id");
        r->found          = id && id->kind != LS_JSON_NULL;
        if (r->found && id->kind == LS_JSON_ARRAY)
            for (const ls_json *one = id->child; one && !status; one = one->next)
                status = add(r, path, one);
        else if (r->found)
            status = add(r, path, id);
    }
    ls_json_free(doc);
    free(path);
    return status;
}

static ls_status read_name(reader *r, const ls_tokenizer *tokenizer)
{
    ls_json_doc *doc;
    char        *path;
    ls_status    status = open_file(r, "tokenizer_config.json", &path, &doc);

    if (!status && doc) {
        const ls_json *root = ls_json_root(doc), *name = ls_json_find(root, "eos_token");
        if (name && name->kind == LS_JSON_OBJECT)
            name = ls_json_find(name, "content");
        int32_t token = name && name->kind == LS_JSON_STRING
                            ? ls_tokenizer_find_added(tokenizer, name->text)
                            : -1;
        if (token >= 0 && token < r->vocab_size)
            ls_ends_add(r->ends, token);
    }
    ls_json_free(doc);
    free(path);
    return status;
}

ls_status ls_hf_read_end_of_text(const char *directory, const ls_tokenizer *tokenizer,
                                 int64_t vocab_size, ls_ends *ends)
{
    reader r = {.directory = directory, .vocab_size = vocab_size, .ends = ends};

    *ends            = (ls_ends){0};
    ls_status status = read_ids(&r, "generation_config.json");
    if (!status && !r.found)
        status = read_ids(&r, "config.json");
    return status || r.found ? status : read_name(&r, tokenizer);
}

/*
 * config.c - loads a config: bind, fill, check.
 *
 * 1. bind: every value of the file and of each --set finds its key in the table; what finds
 *    none is a problem.  A later value replaces an earlier one, so only the last is checked.
 * 2. fill: the value, or the default, is checked against the table and goes into the struct.
 * 3. what is missing, what belongs to another model type, computed defaults, rules between
 *    keys.  Rules run only when all values stand, so they never see a half-filled struct.
 *
 * Problems are collected, so that one run shows them all.
 */
#include "cli/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config_impl.h"
#include "core/alloc.h"

enum { LARGEST_FILE = 16 << 20 };

typedef struct {
    ls_config      *cfg;
    config_problems problems;
    int             later;   /* of these, values that are not in this version */
    config_source  *sources; /* of each key */
    ls_json_doc    *file;
    ls_json_doc   **set_docs; /* of each --set */
    int             n_sets;
} loader;

/* ------------------------------------------------------------------------------- bind */

static bool is_section(const char *path)
{
    for (int i = 0; i < ls__config_n_sections; i++) {
        if (!strcmp(ls__config_sections[i].path, path))
            return true;
    }
    return false;
}

static void unknown_key(loader *l, const config_source *source, const char *path)
{
    bool        group   = source->node->kind == LS_JSON_OBJECT;
    const char *nearest = l->problems.hidden ? NULL : ls__config_nearest(path, group);

    if (nearest)
        ls__config_problem(&l->problems, source, "unknown %s \"%.100s\"; did you mean \"%s\"?",
                           group ? "section" : "key", path, nearest);
    else
        ls__config_problem(&l->problems, source, "unknown %s \"%.100s\"",
                           group ? "section" : "key", path);
}

/* Binds the members of a section; prefix is its path with a dot behind, "" for the top. */
static ls_status bind_section(loader *l, const ls_json *section, const char *prefix)
{
    for (const ls_json *m = section->child; m; m = m->next) {
        config_source source = {.node = m};
        ls_status     status = LS_OK;
        char         *path   = ls_sprintf("%s%s", prefix, m->key);
        int           key    = path ? ls__config_find(path) : -1;

        if (!path)
            return LS_ENOMEM;
        if (key >= 0 || !l->problems.hidden) /* a pass over the text */
            ls_json_where(l->file, m, &source.line, &source.column);
        if (key >= 0) {
            l->sources[key] = source;
        } else if (!is_section(path)) {
            unknown_key(l, &source, path);
        } else if (m->kind != LS_JSON_OBJECT) {
            ls__config_problem(&l->problems, &source, "%s: wanted an object, found %s", path,
                               ls_json_kind_name(m));
        } else {
            char *inner = ls_sprintf("%s.", path);
            status      = inner ? bind_section(l, m, inner) : LS_ENOMEM;
            free(inner);
        }
        free(path);
        if (status)
            return status;
    }
    return LS_OK;
}

static ls_status bind_file(loader *l, const char *text, size_t n)
{
    ls_status status = ls_json_parse(text, n, l->problems.name, &l->file);

    if (status == LS_EFORMAT)
        return ls_fail(LS_ECONFIG, "%s", ls_error_message());
    if (status)
        return status;
    const ls_json *root = ls_json_root(l->file);
    if (root->kind != LS_JSON_OBJECT)
        return ls_fail(LS_ECONFIG,
                       "%s: wanted an object with the sections of a config, found %s",
                       l->problems.name, ls_json_kind_name(root));
    return bind_section(l, root, "");
}

/* A document of value: its JSON, or a string where it is none. */
static ls_status parse_set_value(const char *value, ls_json_doc **doc)
{
    ls_status status = ls_json_parse(value, strlen(value), "--set", doc);
    if (status != LS_EFORMAT)
        return status;

    size_t bytes  = ls_json_escape(NULL, 0, value) + 1;
    char  *quoted = ls_calloc(bytes, 1);
    if (!quoted)
        return LS_ENOMEM;
    ls_json_escape(quoted, bytes, value);
    status = ls_json_parse(quoted, bytes - 1, "--set", doc);
    free(quoted);
    if (status == LS_OK && strcmp(ls_json_root(*doc)->text, value) != 0)
        return ls_fail(LS_ECONFIG, "--set: the value \"%.100s\" is not UTF-8",
                       ls_json_root(*doc)->text);
    return status;
}

static ls_status bind_set(loader *l, const char *set, ls_json_doc **doc)
{
    config_source source = {.set = set};
    const char   *equals = strchr(set, '=');

    if (!equals || equals == set) {
        ls__config_problem(&l->problems, &source, "wanted key.path=value");
        return LS_OK;
    }
    char     *path   = ls_sprintf("%.*s", (int)(equals - set), set);
    ls_status status = path ? parse_set_value(equals + 1, doc) : LS_ENOMEM;
    if (status == LS_OK) {
        int key     = ls__config_find(path);
        source.node = ls_json_root(*doc);
        if (key >= 0)
            l->sources[key] = source;
        else if (is_section(path))
            ls__config_problem(&l->problems, &source, "%s is a section; set its keys", path);
        else
            unknown_key(l, &source, path);
    }
    free(path);
    return status;
}

/* ------------------------------------------------------------------------------- fill */

static ls_status fill_all(loader *l)
{
    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_source *source = &l->sources[i];
        const config_key    *key    = &ls__config_keys[i];
        ls_status            status = ls__config_fill(l->cfg, key, source, &l->problems);
        if (status)
            return status;
    }
    return LS_OK;
}

/* ------------------------------------------------------------------------------ check */

static const char *type_name(const ls_config *cfg)
{
    return cfg->model.type == LS_CFG_MODEL_GPT ? "gpt" : "mlp";
}

/* Keys that are missing, and keys of the other model type. */
static void check_presence(loader *l)
{
    const config_source *type    = &l->sources[ls__config_find("model.type")];
    bool                 no_type = !type->node || type->node->kind != LS_JSON_STRING ||
                   ls__config_choice(&ls__config_keys[ls__config_find("model.type")],
                                     type->node->text) < 0;

    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_key    *key     = &ls__config_keys[i];
        const config_source *source  = &l->sources[i];
        bool                 belongs = ls__config_belongs(key, l->cfg);

        if (key->only && no_type)
            continue;
        if (source->node && !belongs)
            ls__config_problem(&l->problems, source,
                               "%s is a key of model.type \"%s\", not of \"%s\"", key->path,
                               key->only, type_name(l->cfg));
        if (!source->node && belongs && ls__config_required(key))
            ls__config_problem(&l->problems, NULL, "the required key %s%s%s is missing",
                               key->path, key->only ? " of model.type " : "",
                               key->only ? key->only : "");
    }
}

/* Whether node, of the right type, says the same as the JSON text of a scalar. */
static bool says(const ls_json *node, const char *json)
{
    if (node->kind == LS_JSON_NUMBER)
        return node->whole == strtoll(json, NULL, 10);
    if (node->kind == LS_JSON_BOOL)
        return node->boolean == (json[0] == 't');
    size_t n = strlen(node->text);
    return !strncmp(json + 1, node->text, n) && !strcmp(json + 1 + n, "\"");
}

static bool is_also(const config_key *key, const ls_json *node)
{
    return (key->also[0] && !strcmp(node->text, key->also[0])) ||
           (key->also[1] && !strcmp(node->text, key->also[1]));
}

static void check_later(loader *l)
{
    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_key    *key    = &ls__config_keys[i];
        const config_source *source = &l->sources[i];

        if (!key->later || !source->node || says(source->node, key->standard))
            continue;
        if (is_also(key, source->node))
            continue;
        l->later++;
        ls__config_problem(&l->problems, source, "%s: %.*s is not in this version", key->path,
                           ls__config_shown(source->node), source->node->source);
    }
}

static ls_status report(loader *l)
{
    config_problems *p      = &l->problems;
    ls_status        status = p->count > l->later ? LS_ECONFIG : LS_EUNSUPPORTED;

    if (!p->count)
        return LS_OK;
    if (p->hidden)
        return ls_fail(status, "%s\n... and %d more", p->text, p->hidden);
    return ls_fail(status, "%s", p->text);
}

static ls_status check(loader *l)
{
    ls_status status = fill_all(l);

    if (status)
        return status;
    check_presence(l);
    if (l->problems.count)
        return report(l);
    status = ls__config_compute(l->cfg, l->sources, l->problems.name);
    if (status)
        return status;
    ls__config_check_rules(l->cfg, l->sources, &l->problems);
    check_later(l);
    return report(l);
}

/* ------------------------------------------------------------------------------- load */

static void loader_close(loader *l)
{
    for (int i = 0; i < l->n_sets && l->set_docs; i++)
        ls_json_free(l->set_docs[i]);
    free(l->set_docs);
    free(l->sources);
    ls_json_free(l->file);
}

static ls_status load_text(loader *l, const char *text, size_t n, const char *const *sets)
{
    ls_status status;

    l->sources  = ls_calloc((size_t)ls__config_n_keys, sizeof *l->sources);
    l->set_docs = l->sources ? ls_calloc((size_t)l->n_sets + 1, sizeof(ls_json_doc *)) : NULL;
    if (!l->set_docs)
        return LS_ENOMEM;
    status = bind_file(l, text, n);
    for (int i = 0; i < l->n_sets && status == LS_OK; i++)
        status = bind_set(l, sets[i], &l->set_docs[i]);
    return status ? status : check(l);
}

static ls_status load_named(ls_config *cfg, const char *text, size_t n, const char *name,
                            const char *const *sets, int n_sets)
{
    loader    l = {.cfg = cfg, .n_sets = n_sets, .problems.name = name};
    ls_status status;

    *cfg   = (ls_config){0};
    status = load_text(&l, text, n, sets);
    loader_close(&l);
    if (status)
        ls_config_free(cfg);
    return status;
}

ls_status ls_config_parse(ls_config *cfg, const char *text, const char *name,
                          const char *const *sets, int n_sets)
{
    return load_named(cfg, text, strlen(text), name, sets, n_sets);
}

/* The whole file with its size; ECONFIG when it cannot be read, as the user named it. */
static ls_status read_file(const char *path, char **text, size_t *n)
{
    FILE     *file   = fopen(path, "rb");
    ls_status status = LS_OK;
    size_t    room   = 1 << 16;

    *text = NULL;
    *n    = 0;
    if (!file)
        return ls_fail(LS_ECONFIG, "cannot read the config %s: %s", path, strerror(errno));
    for (bool more = true; more && status == LS_OK; room *= 4) {
        char *wider = ls_calloc(room, 1);
        if (wider && *n)
            memcpy(wider, *text, *n);
        free(*text);
        *text = wider;
        if (!wider)
            status = LS_ENOMEM;
        else
            *n += fread(wider + *n, 1, room - *n, file);
        more = wider && *n == room && room < LARGEST_FILE;
    }
    if (status == LS_OK && ferror(file))
        status = ls_fail(LS_ECONFIG, "cannot read the config %s: %s", path, strerror(errno));
    if (status == LS_OK && *n >= LARGEST_FILE)
        status = ls_fail(LS_ECONFIG, "%s is not a config: larger than %d MiB", path,
                         LARGEST_FILE >> 20);
    fclose(file);
    return status;
}

ls_status ls_config_load(ls_config *cfg, const char *path, const char *const *sets, int n_sets)
{
    char     *text;
    size_t    n;
    ls_status status = read_file(path, &text, &n);

    *cfg = (ls_config){0};
    if (status == LS_OK)
        status = load_named(cfg, text, n, path, sets, n_sets);
    free(text);
    return status;
}

static void free_key(ls_config *cfg, const config_key *key)
{
    void *field = ls__config_field(cfg, key);

    if (key->type == KEY_TEXT || key->type == KEY_TEXT_NULL)
        free(*(char **)field);
    if (key->type == KEY_INTS || key->type == KEY_INT_PAIR)
        free(((ls_cfg_ints *)field)->item);
    if (key->type == KEY_PATHS || key->type == KEY_PATHS_NULL) {
        ls_cfg_paths *paths = field;
        for (int64_t i = 0; i < paths->count; i++)
            free(paths->item[i]);
        free(paths->item);
    }
}

void ls_config_free(ls_config *cfg)
{
    for (int i = 0; i < ls__config_n_keys; i++)
        free_key(cfg, &ls__config_keys[i]);
    *cfg = (ls_config){0};
}

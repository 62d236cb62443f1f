/*
 * config_fill.c - one value, checked against its row of the table, into its field.
 *
 * What is of the wrong type or out of range is noted as a problem, and the field stays zero.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/config_impl.h"
#include "core/alloc.h"

typedef struct {
    ls_config       *cfg;
    config_problems *problems;
} filling;

int ls__config_shown(const ls_json *node)
{
    size_t n = node->source_bytes;

    if (n <= 60)
        return (int)n;
    for (n = 60; ((unsigned char)node->source[n] & 0xC0) == 0x80;)
        n--;
    return (int)n;
}

static void wrong_type(filling *f, const config_key *key, const config_source *source,
                       const char *wanted)
{
    const ls_json *node = source->node;

    if (node->kind == LS_JSON_OBJECT || node->kind == LS_JSON_ARRAY)
        ls__config_problem(f->problems, source, "%s: wanted %s, found %s", key->path, wanted,
                           ls_json_kind_name(node));
    else
        ls__config_problem(f->problems, source, "%s: wanted %s, found %.*s", key->path, wanted,
                           ls__config_shown(node), node->source);
}

static bool in_range(filling *f, const config_key *key, const config_source *source,
                     const ls_json *node)
{
    char   min[LS_JSON_DOUBLE_BYTES], max[LS_JSON_DOUBLE_BYTES];
    double x = node->number;

    if ((key->above ? x > key->min : x >= key->min) &&
        (key->below ? x < key->max : x <= key->max))
        return true;
    ls_json_print_double(min, sizeof min, key->min);
    ls_json_print_double(max, sizeof max, key->max);
    ls__config_problem(f->problems, source, "%s: %.*s is out of range, wanted %s %s and %s %s",
                       key->path, ls__config_shown(node), node->source,
                       key->above ? ">" : ">=", min, key->below ? "<" : "<=", max);
    return false;
}

/* The integer of node, which is the source's value or an element of it. */
static bool take_int(filling *f, const config_key *key, const config_source *source,
                     const ls_json *node, int64_t *value)
{
    config_source here = *source;

    here.node = node;
    if (node->kind != LS_JSON_NUMBER || !node->integer) {
        wrong_type(f, key, &here,
                   key->type == KEY_INT_OR_AUTO ? "an integer or \"auto\"" : "an integer");
        return false;
    }
    if (!in_range(f, key, source, node))
        return false;
    *value = node->whole;
    return true;
}

static bool take_number(filling *f, const config_key *key, const config_source *source,
                        const ls_json *node, double *value)
{
    config_source here = *source;

    here.node = node;
    if (node->kind != LS_JSON_NUMBER) {
        wrong_type(f, key, &here, "a number");
        return false;
    }
    if (!in_range(f, key, source, node))
        return false;
    *value = node->number;
    return true;
}

static void fill_number_pair(filling *f, const config_key *key, const config_source *source)
{
    const ls_json *node  = source->node;
    double        *value = ls__config_field(f->cfg, key);

    if (node->kind != LS_JSON_ARRAY || node->count != 2)
        wrong_type(f, key, source, "a list of two numbers");
    else if (take_number(f, key, source, node->child, value))
        take_number(f, key, source, node->child->next, value + 1);
}

static void fill_bool(filling *f, const config_key *key, const config_source *source)
{
    if (source->node->kind != LS_JSON_BOOL)
        wrong_type(f, key, source, "true or false");
    else
        *(bool *)ls__config_field(f->cfg, key) = source->node->boolean;
}

/* "a" or "b" or "c", cut where it does not fit. */
static void list_choices(const config_key *key, char *text, size_t bytes)
{
    size_t used = 0;

    for (int i = 0; key->choices[i] && used < bytes; i++) {
        const char *between = !i ? "" : key->choices[i + 1] ? ", " : " or ";
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s\"%s\"", between, key->choices[i]);
    }
}

/* Enums are stored as the unsigned int that they are compatible with. */
static void fill_choice(filling *f, const config_key *key, const config_source *source)
{
    char wanted[120];
    int  choice = -1;

    if (source->node->kind == LS_JSON_STRING)
        choice = ls__config_choice(key, source->node->text);
    list_choices(key, wanted, sizeof wanted);
    if (choice < 0)
        wrong_type(f, key, source, wanted);
    else
        memcpy(ls__config_field(f->cfg, key), &choice, sizeof choice);
}

static ls_status fill_text(filling *f, const config_key *key, const config_source *source)
{
    char         **value = ls__config_field(f->cfg, key);
    const ls_json *node  = source->node;

    if (node->kind == LS_JSON_NULL && key->type == KEY_TEXT_NULL)
        return LS_OK;
    if (node->kind != LS_JSON_STRING || !*node->text) {
        wrong_type(f, key, source,
                   key->type == KEY_TEXT_NULL ? "a string or null" : "a string");
        return LS_OK;
    }
    *value = ls_strdup(node->text);
    return *value ? LS_OK : LS_ENOMEM;
}

static ls_status fill_paths(filling *f, const config_key *key, const config_source *source)
{
    ls_cfg_paths  *paths = ls__config_field(f->cfg, key);
    const ls_json *node  = source->node;
    bool           list  = node->kind == LS_JSON_ARRAY;

    if (node->kind == LS_JSON_NULL && key->type == KEY_PATHS_NULL)
        return LS_OK;
    if (list ? !node->count : node->kind != LS_JSON_STRING) {
        wrong_type(f, key, source, "a path or a list of paths");
        return LS_OK;
    }
    paths->item = ls_calloc(list ? node->count : 1, sizeof *paths->item);
    if (!paths->item)
        return LS_ENOMEM;
    for (const ls_json *m = list ? node->child : node; m; m = list ? m->next : NULL) {
        config_source here = *source;
        here.node          = m;
        if (m->kind != LS_JSON_STRING || !*m->text) {
            wrong_type(f, key, &here, "a path");
            continue;
        }
        paths->item[paths->count] = ls_strdup(m->text);
        if (!paths->item[paths->count++])
            return LS_ENOMEM;
    }
    return LS_OK;
}

static ls_status fill_ints(filling *f, const config_key *key, const config_source *source)
{
    ls_cfg_ints   *ints = ls__config_field(f->cfg, key);
    const ls_json *node = source->node;
    bool           pair = key->type == KEY_INT_PAIR;

    if (node->kind == LS_JSON_NULL && pair)
        return LS_OK;
    if (node->kind != LS_JSON_ARRAY || (pair ? node->count != 2 : node->count < 2)) {
        wrong_type(f, key, source,
                   pair ? "a list of two integers or null" : "a list of at least two integers");
        return LS_OK;
    }
    ints->item = ls_calloc(node->count, sizeof *ints->item);
    if (!ints->item)
        return LS_ENOMEM;
    for (const ls_json *m = node->child; m; m = m->next) {
        if (take_int(f, key, source, m, &ints->item[ints->count]))
            ints->count++;
    }
    return LS_OK;
}

static void fill_int(filling *f, const config_key *key, const config_source *source)
{
    const ls_json *node   = source->node;
    bool           a_auto = key->type == KEY_INT_OR_AUTO && node->kind == LS_JSON_STRING &&
                  !strcmp(node->text, "auto");

    if (!a_auto)
        take_int(f, key, source, node, ls__config_field(f->cfg, key));
}

static ls_status fill(filling *f, const config_key *key, const config_source *source)
{
    switch (key->type) {
    case KEY_INT:
    case KEY_INT_OR_AUTO:
        fill_int(f, key, source);
        return LS_OK;
    case KEY_NUMBER:
        take_number(f, key, source, source->node, ls__config_field(f->cfg, key));
        return LS_OK;
    case KEY_NUMBER_PAIR:
        fill_number_pair(f, key, source);
        return LS_OK;
    case KEY_BOOL:
        fill_bool(f, key, source);
        return LS_OK;
    case KEY_CHOICE:
        fill_choice(f, key, source);
        return LS_OK;
    case KEY_TEXT:
    case KEY_TEXT_NULL:
        return fill_text(f, key, source);
    case KEY_PATHS:
    case KEY_PATHS_NULL:
        return fill_paths(f, key, source);
    case KEY_INTS:
    case KEY_INT_PAIR:
        return fill_ints(f, key, source);
    }
    return LS_OK;
}

static ls_status fill_default(filling *f, const config_key *key)
{
    config_source source = {0};
    ls_json_doc  *doc;
    ls_status     status;

    if (!key->standard)
        return LS_OK;
    status = ls_json_parse(key->standard, strlen(key->standard), key->path, &doc);
    if (status)
        return status;
    source.node = ls_json_root(doc);
    status      = fill(f, key, &source);
    ls_json_free(doc);
    return status;
}

ls_status ls__config_fill(ls_config *cfg, const config_key *key, const config_source *source,
                          config_problems *problems)
{
    filling f = {cfg, problems};

    return source->node ? fill(&f, key, source) : fill_default(&f, key);
}

/*
 * json.c - documents: the scanner's tree with the strings and numbers of cJSON's.
 *
 * Both trees have the same shape and order, the scanner having accepted the text, so one walk
 * side by side copies what cJSON decoded.  Strings stay cJSON's; nodes are one array.
 */
#include "core/json.h"

#include <cjson/cJSON.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/json_impl.h"

struct ls_json_doc {
    char    *text;
    cJSON   *tree;
    ls_json *nodes;
};

/* Copies decoded values into the nodes, which follow each other in document order. */
static ls_json *decode(ls_json *node, const cJSON *item)
{
    ls_json     *next = node + 1;
    const cJSON *member;

    node->key    = item->string;
    node->text   = item->valuestring;
    node->number = node->kind == LS_JSON_NUMBER ? item->valuedouble : 0;
    cJSON_ArrayForEach(member, item)
    {
        next = decode(next, member);
    }
    return next;
}

static ls_status fail_node(const ls_json_doc *doc, const char *name, const ls_json *node,
                           const char *what, const char *which)
{
    int line, column;
    ls_json_where(doc, node, &line, &column);
    return ls_fail(LS_EFORMAT, "%s:%d:%d: %s %s", name, line, column, what, which);
}

/* By key, then by place, so that of two equal ones the later is named. */
static int compare_keys(const void *a, const void *b)
{
    const ls_json *x = *(const ls_json *const *)a, *y = *(const ls_json *const *)b;
    int            order = strcmp(x->key, y->key);
    return order ? order : x->start < y->start ? -1 : 1;
}

static ls_status check_duplicates(const ls_json_doc *doc, const char *name,
                                  const ls_json *object)
{
    ls_status       status = LS_OK;
    const ls_json **sorted = ls_calloc(object->count + 1, sizeof(const ls_json *));
    size_t          n      = 0;

    if (!sorted)
        return LS_ENOMEM;
    for (const ls_json *m = object->child; m; m = m->next)
        sorted[n++] = m;
    qsort(sorted, n, sizeof(const ls_json *), compare_keys);
    for (size_t i = 1; i < n && status == LS_OK; i++) {
        char quoted[128];
        ls_json_escape(quoted, sizeof quoted, sorted[i]->key);
        if (!strcmp(sorted[i - 1]->key, sorted[i]->key))
            status = fail_node(doc, name, sorted[i], "duplicate key", quoted);
    }
    free(sorted);
    return status;
}

static ls_status check_nodes(const ls_json_doc *doc, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const ls_json *node   = &doc->nodes[i];
        ls_status      status = LS_OK;

        if (node->kind == LS_JSON_NUMBER && !isfinite(node->number))
            status = fail_node(doc, name, node, "a number", "beyond the range of double");
        if (node->kind == LS_JSON_OBJECT)
            status = check_duplicates(doc, name, node);
        if (status)
            return status;
    }
    return LS_OK;
}

/* cJSON reads numbers by the locale of the thread. */
static cJSON *parse_in_c_locale(const char *text, size_t n)
{
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before   = uselocale(c_locale);
    cJSON   *tree     = cJSON_ParseWithLength(text, n + 1);

    uselocale(before);
    if (c_locale)
        freelocale(c_locale);
    return tree;
}

static ls_status parse_into(ls_json_doc *doc, const char *text, size_t n, const char *name)
{
    size_t    n_nodes;
    ls_status status;

    doc->text  = ls_calloc(n + 1, 1);
    doc->nodes = doc->text ? ls_calloc(ls__json_count(text, n), sizeof *doc->nodes) : NULL;
    if (!doc->nodes)
        return LS_ENOMEM;
    if (n)
        memcpy(doc->text, text, n);
    status = ls__json_scan(doc->text, n, name, doc->nodes, &n_nodes);
    if (status)
        return status;
    doc->tree = parse_in_c_locale(doc->text, n);
    if (!doc->tree)
        return ls_fail(LS_ENOMEM, "%s: no memory for a JSON text of %zu bytes", name, n);
    decode(doc->nodes, doc->tree);
    return check_nodes(doc, name, n_nodes);
}

ls_status ls_json_parse(const char *text, size_t n, const char *name, ls_json_doc **doc)
{
    ls_json_doc *made   = ls_calloc(1, sizeof *made);
    ls_status    status = made ? parse_into(made, text, n, name) : LS_ENOMEM;

    if (status) {
        ls_json_free(made);
        made = NULL;
    }
    *doc = made;
    return status;
}

void ls_json_free(ls_json_doc *doc)
{
    if (!doc)
        return;
    cJSON_Delete(doc->tree);
    free(doc->nodes);
    free(doc->text);
    free(doc);
}

const ls_json *ls_json_root(const ls_json_doc *doc)
{
    return doc->nodes;
}

void ls_json_where(const ls_json_doc *doc, const ls_json *node, int *line, int *column)
{
    ls__json_place(doc->text, node->start, line, column);
}

const char *ls_json_kind_name(const ls_json *node)
{
    static const char *const names[] = {
        [LS_JSON_NULL] = "null",       [LS_JSON_BOOL] = "a boolean",
        [LS_JSON_NUMBER] = "a number", [LS_JSON_STRING] = "a string",
        [LS_JSON_ARRAY] = "a list",    [LS_JSON_OBJECT] = "an object"};
    return names[node->kind];
}

const ls_json *ls_json_find(const ls_json *object, const char *path)
{
    while (object) {
        size_t         n = strcspn(path, ".");
        const ls_json *m = object->kind == LS_JSON_OBJECT ? object->child : NULL;

        while (m && (strncmp(m->key, path, n) != 0 || m->key[n]))
            m = m->next;
        if (!m || !path[n])
            return m;
        object = m;
        path += n + 1;
    }
    return NULL;
}

static ls_status find_kind(const ls_json *object, const char *path, ls_json_kind kind,
                           const ls_json **node)
{
    ls_json wanted = {.kind = kind};

    *node = ls_json_find(object, path);
    if (!*node)
        return ls_fail(LS_EFORMAT, "%s is missing, wanted %s", path,
                       ls_json_kind_name(&wanted));
    if ((*node)->kind != kind)
        return ls_fail(LS_EFORMAT, "%s is %s, wanted %s", path, ls_json_kind_name(*node),
                       ls_json_kind_name(&wanted));
    return LS_OK;
}

ls_status ls_json_get_int(const ls_json *object, const char *path, int64_t min, int64_t max,
                          int64_t *value)
{
    const ls_json *node;
    ls_status      status = find_kind(object, path, LS_JSON_NUMBER, &node);

    if (status)
        return status;
    int shown = node->source_bytes < 60 ? (int)node->source_bytes : 60;
    if (!node->integer)
        return ls_fail(LS_EFORMAT, "%s is %.*s, wanted an integer", path, shown, node->source);
    if (node->whole < min || node->whole > max)
        return ls_fail(LS_EFORMAT, "%s is %.*s, wanted %lld to %lld", path, shown, node->source,
                       (long long)min, (long long)max);
    *value = node->whole;
    return LS_OK;
}

ls_status ls_json_get_double(const ls_json *object, const char *path, double *value)
{
    const ls_json *node;
    ls_status      status = find_kind(object, path, LS_JSON_NUMBER, &node);

    if (status == LS_OK)
        *value = node->number;
    return status;
}

ls_status ls_json_get_bool(const ls_json *object, const char *path, bool *value)
{
    const ls_json *node;
    ls_status      status = find_kind(object, path, LS_JSON_BOOL, &node);

    if (status == LS_OK)
        *value = node->boolean;
    return status;
}

ls_status ls_json_get_string(const ls_json *object, const char *path, const char **value)
{
    const ls_json *node;
    ls_status      status = find_kind(object, path, LS_JSON_STRING, &node);

    if (status == LS_OK)
        *value = node->text;
    return status;
}

/*
 * params_match.c - the tensors a program has against those a file has.
 *
 * Both are sorted by name, so one walk over the two finds every difference.  A message names
 * the first ten and counts the rest; when the names differ by a well-known prefix alone, it
 * says so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/params_impl.h"
#include "core/alloc.h"
#include "core/strbuf.h"

enum { LISTED = 10 };

typedef struct {
    const ls_safetensors  *file;
    const ls_named_tensor *list; /* sorted */
    size_t                 n;
    ls_strbuf              text;
    size_t                 differences, missing;
} matching;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ls_named_tensor *)a)->name, ((const ls_named_tensor *)b)->name);
}

ls_named_tensor *ls__params_sorted(const ls_named_tensor *list, size_t n)
{
    ls_named_tensor *sorted = ls_calloc(n, sizeof *sorted);

    if (!sorted || !n)
        return sorted;
    memcpy(sorted, list, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
    return sorted;
}

/* Counts a difference; true when it is to be described, after its separator. */
static bool begin_difference(matching *m)
{
    if (m->differences++ >= LISTED)
        return false;
    if (m->differences > 1)
        ls_strbuf_format(&m->text, "; ");
    return true;
}

static void add_missing(matching *m, const ls_named_tensor *wanted)
{
    ls_st_name_text name;
    ls_shape_text   shape;

    m->missing++;
    if (begin_difference(m))
        ls_strbuf_format(&m->text, "missing '%s' %s", ls_st_print_name(wanted->name, &name),
                         ls_shape_print(&wanted->tensor->shape, &shape));
}

static void add_unexpected(matching *m, const ls_st_entry *found)
{
    ls_st_name_text  name;
    ls_st_shape_text shape;

    if (begin_difference(m))
        ls_strbuf_format(&m->text, "unexpected '%s' %s", ls_st_print_name(found->name, &name),
                         ls_st_print_shape(found->dim, found->ndim, &shape));
}

static bool same_shape(const ls_st_entry *e, const ls_shape *shape)
{
    if (e->ndim != shape->ndim)
        return false;
    for (int i = 0; i < e->ndim; i++)
        if (e->dim[i] != (uint64_t)shape->dim[i])
            return false;
    return true;
}

static void compare(matching *m, const ls_named_tensor *wanted, const ls_st_entry *found)
{
    const char      *dtype = ls_dtype_name(ls_tensor_owned(wanted->tensor)->dtype);
    ls_st_name_text  name;
    ls_st_shape_text has;
    ls_shape_text    want;

    if (!same_shape(found, &wanted->tensor->shape) && begin_difference(m))
        ls_strbuf_format(&m->text, "'%s' has shape %s, expected %s",
                         ls_st_print_name(found->name, &name),
                         ls_st_print_shape(found->dim, found->ndim, &has),
                         ls_shape_print(&wanted->tensor->shape, &want));
    if (strcmp(found->dtype, dtype) != 0 && begin_difference(m))
        ls_strbuf_format(&m->text, "'%s' is %s, expected %s",
                         ls_st_print_name(found->name, &name), found->dtype, dtype);
}

static void walk(matching *m)
{
    const ls_st_entry *entry = m->file->header.entry;
    size_t             i = 0, k = 0, n = m->n, n_entries = m->file->header.n_entries;

    while (i < n || k < n_entries) {
        int order = i == n ? 1 : k == n_entries ? -1 : strcmp(m->list[i].name, entry[k].name);
        if (order < 0)
            add_missing(m, &m->list[i++]);
        else if (order > 0)
            add_unexpected(m, &entry[k++]);
        else
            compare(m, &m->list[i++], &entry[k++]);
    }
}

/* A tensor of the file that is called prefix + name, which no file has beyond 1024 bytes. */
static bool has_prefixed(const matching *m, const char *prefix, const char *name)
{
    char both[LS_ST_MAX_NAME + 1];
    int  bytes = snprintf(both, sizeof both, "%s%s", prefix, name);

    return bytes > 0 && (size_t)bytes < sizeof both && ls_safetensors_find(m->file, both);
}

static bool has_without(const matching *m, const char *prefix, const char *name)
{
    size_t head = strlen(prefix);

    return !strncmp(name, prefix, head) && ls_safetensors_find(m->file, name + head);
}

/* Missing names that the file has with (or without) the prefix. */
static size_t count_explained(const matching *m, const char *prefix,
                              bool (*has)(const matching *, const char *, const char *))
{
    size_t found = 0;

    for (size_t i = 0; i < m->n; i++)
        found +=
            !ls_safetensors_find(m->file, m->list[i].name) && has(m, prefix, m->list[i].name);
    return found;
}

/* When a prefix accounts for every missing name, that is what the user needs to hear. */
static void add_hint(matching *m)
{
    static const char *const prefixes[] = {"module.", "_orig_mod.", "transformer.", "model."};

    for (size_t i = 0; m->missing && i < sizeof prefixes / sizeof *prefixes; i++) {
        if (count_explained(m, prefixes[i], has_prefixed) == m->missing)
            ls_strbuf_format(&m->text, "; the file's names begin with '%s'", prefixes[i]);
        else if (count_explained(m, prefixes[i], has_without) == m->missing)
            ls_strbuf_format(&m->text, "; the file's names lack the beginning '%s'",
                             prefixes[i]);
        else
            continue;
        return;
    }
}

static ls_status report(matching *m)
{
    if (!m->differences)
        return LS_OK;
    if (m->differences > LISTED)
        ls_strbuf_format(&m->text, "; and %zu more", m->differences - LISTED);
    add_hint(m);
    if (ls_strbuf_status(&m->text))
        return ls_fail_in(LS_ENOMEM, "%s", m->file->path);
    return ls_fail(LS_ESHAPE, "%s does not fit: %s", m->file->path, m->text.data);
}

ls_status ls__params_match(const ls_safetensors *file, const ls_named_tensor *list, size_t n)
{
    matching m = {.file = file, .list = ls__params_sorted(list, n), .n = n};

    if (!m.list)
        return ls_fail_in(LS_ENOMEM, "%s", file->path);
    walk(&m);
    ls_status status = report(&m);
    ls_strbuf_free(&m.text);
    free((void *)m.list);
    return status;
}

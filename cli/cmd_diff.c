/*
 * cmd_diff.c - `lockstep diff`: two checkpoints tensor by tensor.
 *
 * Both lists are sorted by name: one walk over the two meets every tensor once.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/json_scan.h"
#include "checkpoint/view.h"
#include "cli/commands.h"
#include "cli/compare.h"
#include "cli/files.h"

static const char help[] =
    "usage: lockstep diff A B [--json]\n"
    "\n"
    "Compares two checkpoints tensor by tensor, by their bits.  A and B are checkpoints'\n"
    "directories, run directories (their newest valid ones) or .safetensors files.  Of two\n"
    "checkpoints all tensors are compared, the optimizer's too; where one is a file, the\n"
    "parameters.  For a tensor that differs: the first differing element, how many differ, "
    "the\n"
    "largest absolute difference and, for F32, the largest distance in units in the last "
    "place.\n"
    "\n"
    "  --json       one JSON object on one line\n"
    "  -h, --help   this text\n"
    "\n"
    "Exit status: 0 bit-identical, 1 different or not readable, 2 wrong usage.\n";

typedef struct {
    const ls_safetensors *a, *b;
    bool                  json;
    ls_strbuf             text;
    uint64_t              compared, identical, only_a, only_b;
    uint64_t              listed; /* tensors in the JSON list */
} comparison;

/* The start of a tensor's object, to be closed by the caller. */
static void json_tensor(comparison *c, const ls_st_entry *e, const char *status)
{
    ls_strbuf_format(&c->text, "%s{\"name\":", c->listed++ ? "," : "");
    ls_strbuf_json(&c->text, e->name, strlen(e->name));
    ls_strbuf_format(&c->text, ",\"status\":\"%s\",\"dtype\":\"%s\",\"shape\":", status,
                     e->dtype);
    ls_strbuf_dims(&c->text, e->dim, e->ndim);
}

static void text_tensor(comparison *c, const ls_st_entry *e, const char *what)
{
    ls_st_name_text  name;
    ls_st_shape_text shape;

    ls_strbuf_format(&c->text, "%-10s %s %s %s", what, ls_st_print_name(e->name, &name),
                     e->dtype, ls_st_print_shape(e->dim, e->ndim, &shape));
}

static void add_only(comparison *c, const ls_st_entry *e, bool in_a)
{
    *(in_a ? &c->only_a : &c->only_b) += 1;
    if (c->json) {
        json_tensor(c, e, in_a ? "only_a" : "only_b");
        ls_strbuf_add(&c->text, "}", 1);
    } else {
        text_tensor(c, e, in_a ? "only in A:" : "only in B:");
        ls_strbuf_add(&c->text, "\n", 1);
    }
}

/* Other dtype or shape: no element to compare. */
static void add_unlike(comparison *c, const ls_st_entry *a, const ls_st_entry *b)
{
    ls_st_shape_text shape;

    if (c->json) {
        json_tensor(c, a, "unlike");
        ls_strbuf_format(&c->text, ",\"dtype_b\":\"%s\",\"shape_b\":", b->dtype);
        ls_strbuf_dims(&c->text, b->dim, b->ndim);
        ls_strbuf_add(&c->text, "}", 1);
    } else {
        text_tensor(c, a, "unlike:");
        ls_strbuf_format(&c->text, " in A, %s %s in B\n", b->dtype,
                         ls_st_print_shape(b->dim, b->ndim, &shape));
    }
}

/* Coordinates of an element. */
static void unravel(const ls_st_entry *e, uint64_t flat, uint64_t index[LS_ST_MAX_DIMS])
{
    for (int i = e->ndim - 1; i >= 0; i--) {
        index[i] = flat % e->dim[i];
        flat /= e->dim[i];
    }
}

static void json_difference(comparison *c, const ls_st_entry *e, const ls_difference *d)
{
    uint64_t index[LS_ST_MAX_DIMS];

    json_tensor(c, e, "different");
    unravel(e, d->first, index);
    ls_strbuf_format(&c->text, ",\"differing\":%llu,\"first\":%llu,\"first_index\":",
                     (unsigned long long)d->count, (unsigned long long)d->first);
    ls_strbuf_dims(&c->text, index, e->ndim);
    if (*d->a)
        ls_strbuf_format(&c->text, ",\"first_a\":\"%s\",\"first_b\":\"%s\"", d->a, d->b);
    if (d->has_distance && isfinite(d->max_abs))
        ls_strbuf_format(&c->text, ",\"max_abs\":%.17g", d->max_abs);
    else
        ls_strbuf_format(&c->text, ",\"max_abs\":null");
    if (d->has_ulps)
        ls_strbuf_format(&c->text, ",\"max_ulps\":%llu}", (unsigned long long)d->max_ulps);
    else
        ls_strbuf_format(&c->text, ",\"max_ulps\":null}");
}

static void text_difference(comparison *c, const ls_st_entry *e, const ls_difference *d)
{
    uint64_t index[LS_ST_MAX_DIMS], numel;

    text_tensor(c, e, "different:");
    unravel(e, d->first, index);
    ls_strbuf_format(&c->text, ": first at ");
    ls_strbuf_dims(&c->text, index, e->ndim);
    if (*d->a)
        ls_strbuf_format(&c->text, " (%s, %s)", d->a, d->b);
    if (ls_st_numel(e->dim, e->ndim, &numel))
        ls_strbuf_format(&c->text, ", %llu of %llu elements", (unsigned long long)d->count,
                         (unsigned long long)numel);
    if (d->has_distance)
        ls_strbuf_format(&c->text, ", max abs %.6g", d->max_abs);
    if (d->has_ulps)
        ls_strbuf_format(&c->text, ", max ulps %llu", (unsigned long long)d->max_ulps);
    ls_strbuf_add(&c->text, "\n", 1);
}

static void add_compared(comparison *c, const ls_st_entry *e, const ls_difference *d)
{
    c->identical += !d->count;
    if (d->count && c->json)
        json_difference(c, e, d);
    else if (d->count)
        text_difference(c, e, d);
    else if (c->json) {
        json_tensor(c, e, "identical");
        ls_strbuf_add(&c->text, "}", 1);
    }
}

static bool alike(const ls_st_entry *a, const ls_st_entry *b)
{
    return !strcmp(a->dtype, b->dtype) && a->ndim == b->ndim &&
           !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

static ls_status compare_pair(comparison *c, const ls_st_entry *a, const ls_st_entry *b)
{
    ls_difference d;

    c->compared++;
    if (!alike(a, b)) {
        add_unlike(c, a, b);
        return LS_OK;
    }
    ls_status status = ls_compare(c->a, a, c->b, b, &d);
    if (!status)
        add_compared(c, a, &d);
    return status;
}

static ls_status walk(comparison *c)
{
    const ls_st_header *a = &c->a->header, *b = &c->b->header;
    ls_status           status = LS_OK;
    size_t              i = 0, k = 0;

    while (!status && (i < a->n_entries || k < b->n_entries)) {
        int order = i == a->n_entries   ? 1
                    : k == b->n_entries ? -1
                                        : strcmp(a->entry[i].name, b->entry[k].name);
        if (order < 0)
            add_only(c, &a->entry[i++], true);
        else if (order > 0)
            add_only(c, &b->entry[k++], false);
        else
            status = compare_pair(c, &a->entry[i++], &b->entry[k++]);
    }
    return status;
}

static bool is_identical(const comparison *c)
{
    return c->identical == c->compared && !c->only_a && !c->only_b;
}

static void json_path(ls_strbuf *t, const char *path)
{
    ls_strbuf_json(t, path, ls_json_utf8(path, strlen(path)));
}

static void begin_output(comparison *c)
{
    if (!c->json)
        return;
    ls_strbuf_format(&c->text, "{\"a\":");
    json_path(&c->text, c->a->path);
    ls_strbuf_format(&c->text, ",\"b\":");
    json_path(&c->text, c->b->path);
    ls_strbuf_format(&c->text, ",\"tensors\":[");
}

static void end_output(comparison *c)
{
    unsigned long long different = c->compared - c->identical;

    if (c->json)
        ls_strbuf_format(&c->text,
                         "],\"identical\":%s,\"n_identical\":%llu,\"n_different\":%llu,"
                         "\"n_only_a\":%llu,\"n_only_b\":%llu}\n",
                         is_identical(c) ? "true" : "false", (unsigned long long)c->identical,
                         different, (unsigned long long)c->only_a,
                         (unsigned long long)c->only_b);
    else if (is_identical(c))
        ls_strbuf_format(&c->text, "identical: %llu tensors\n",
                         (unsigned long long)c->identical);
    else
        ls_strbuf_format(
            &c->text,
            "%llu tensors identical, %llu different, %llu only in A, %llu only in B\n",
            (unsigned long long)c->identical, different, (unsigned long long)c->only_a,
            (unsigned long long)c->only_b);
}

/* All tensors of two checkpoints; parameters where one of the two has nothing else. */
static ls_status open_both(const ls_file_args *args, ls_safetensors **a, ls_safetensors **b)
{
    ls_status status = ls_checkpoint_open_state(args->path[0], a);

    if (!status)
        status = ls_checkpoint_open_state(args->path[1], b);
    if (status || !ls_view_checkpoint(*a) == !ls_view_checkpoint(*b))
        return status;
    ls_view_keep(ls_view_checkpoint(*a) ? *a : *b, LS_KIND_PARAMETER);
    return LS_OK;
}

/* *identical says whether they are, when the status is LS_OK. */
static ls_status diff(const ls_file_args *args, bool *identical)
{
    ls_safetensors *a = NULL, *b = NULL;
    comparison      c      = {.json = args->json};
    ls_status       status = open_both(args, &a, &b);

    if (status)
        goto out_close;
    c.a = a;
    c.b = b;
    begin_output(&c);
    status = walk(&c);
    end_output(&c);
    if (!status)
        status = ls_strbuf_put(&c.text);
    *identical = is_identical(&c);
out_close:
    ls_strbuf_free(&c.text);
    ls_safetensors_close(b);
    ls_safetensors_close(a);
    return status;
}

int ls_cmd_diff(int argc, char **argv)
{
    ls_file_args args;
    bool         identical = false;
    ls_status    status    = ls_file_args_parse(argc, argv, 2, &args);

    if (!status && args.help) {
        fputs(help, stdout);
        return 0;
    }
    if (!status)
        status = diff(&args, &identical);
    return status ? ls_report(status) : !identical;
}

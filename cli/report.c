/*
 * report.c - a run's files as JSON, put into cli/report.html, which draws them.
 *
 * The page holds {"runs": [{name, dir, config, summary, metrics, trace}]}.  Metrics are the
 * lines as they are.  Of a trace only spans are needed, as short rows
 * [rank, track, name, start, duration, step, index, bytes], times in microseconds.
 */
#include "cli/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_dir.h"
#include "core/alloc.h"
#include "core/json.h"

extern const char ls__report_page[]; /* cli/report.html */

enum { MOST_SPANS = 30000, MOST_NAMES = 32, MOST_NAME = 48 };

typedef struct {
    int64_t rank, track, step, index, bytes;
    int     name;
    double  start, duration;
} span;

typedef struct {
    span       *spans;
    int64_t     n, capacity;
    char        names[MOST_NAMES][MOST_NAME];
    int         n_names;
    const char *group; /* what travels together: "bucket" or "unit" */
} trace;

/* ---- files ---- */

/* The text of dir/name, freed with ls_strbuf_free(); *there false where there is none.  EIO. */
static ls_status read_file(const char *dir, const char *name, ls_strbuf *text, bool *there)
{
    char   chunk[1 << 16];
    size_t got;
    char  *path = ls_run_dir_path(dir, name);
    FILE  *f    = path ? fopen(path, "re") : NULL;

    *there           = f != NULL;
    ls_status status = path ? LS_OK : LS_ENOMEM;
    if (path && !f && errno != ENOENT && errno != ENOTDIR)
        status = ls_fail(LS_EIO, "%s: %s", path, strerror(errno));
    while (f && (got = fread(chunk, 1, sizeof chunk, f)) > 0)
        ls_strbuf_add(text, chunk, got);
    if (f && ferror(f))
        status = ls_fail(LS_EIO, "%s: %s", path, strerror(errno));
    if (f)
        fclose(f);
    free(path);
    return status ? status : ls_strbuf_status(text);
}

/* JSON inside a script element: nothing in it may look like markup. */
static void add_json(ls_strbuf *page, const char *json, size_t n)
{
    size_t done = 0;

    for (size_t i = 0; i < n; i++)
        if (json[i] == '<') {
            ls_strbuf_add(page, json + done, i - done);
            ls_strbuf_add(page, "\\u003c", 6);
            done = i + 1;
        }
    ls_strbuf_add(page, json + done, n - done);
}

static ls_status add_document(ls_strbuf *page, const char *dir, const char *name)
{
    ls_strbuf    text = {0};
    ls_json_doc *doc  = NULL;
    bool         there;
    ls_status    status = read_file(dir, name, &text, &there);

    if (!status && there)
        status = ls_json_parse(text.data ? text.data : "", text.used, name, &doc);
    if (!status && there)
        add_json(page, text.data, text.used);
    else if (!status)
        ls_strbuf_format(page, "null");
    ls_json_free(doc);
    ls_strbuf_free(&text);
    return status ? ls_fail_in(status, "%s", dir) : LS_OK;
}

/* ---- metrics ---- */

static ls_status check_line(const char *line, size_t n, const char *dir, int64_t number)
{
    ls_json_doc *doc;
    ls_status    status = ls_json_parse(line, n, "metrics.jsonl", &doc);

    if (status)
        return ls_fail_in(status, "%s, line %lld", dir, (long long)number);
    if (ls_json_root(doc)->kind != LS_JSON_OBJECT || !ls_json_find(ls_json_root(doc), "step"))
        status =
            ls_fail(LS_EFORMAT, "%s, metrics.jsonl, line %lld: wanted an object with \"step\"",
                    dir, (long long)number);
    ls_json_free(doc);
    return status;
}

static ls_status add_lines(ls_strbuf *page, const char *text, const char *dir)
{
    const char *line   = text, *end;
    ls_status   status = LS_OK;

    ls_strbuf_format(page, "[");
    for (int64_t i = 1; !status && (end = strchr(line, '\n')); i++) {
        status = check_line(line, (size_t)(end - line), dir, i);
        ls_strbuf_format(page, i > 1 ? ",\n" : "");
        add_json(page, line, (size_t)(end - line));
        line = end + 1;
    }
    ls_strbuf_format(page, "]");
    return status;
}

static ls_status add_metrics(ls_strbuf *page, const char *dir)
{
    ls_strbuf text = {0};
    bool      there;
    ls_status status = read_file(dir, "metrics.jsonl", &text, &there);

    if (!status && !there)
        status = ls_fail(LS_ECONFIG, "%s: no run directory: it has no metrics.jsonl", dir);
    if (!status)
        status = add_lines(page, text.data ? text.data : "", dir);
    ls_strbuf_free(&text);
    return status;
}

/* ---- trace ---- */

static int name_index(trace *t, const char *name)
{
    for (int i = 0; i < t->n_names; i++)
        if (!strcmp(t->names[i], name))
            return i;
    if (t->n_names == MOST_NAMES)
        return MOST_NAMES - 1;
    snprintf(t->names[t->n_names], MOST_NAME, "%s", name);
    return t->n_names++;
}

static int64_t whole_at(const ls_json *event, const char *path, int64_t standard)
{
    const ls_json *node = ls_json_find(event, path);
    return node && node->kind == LS_JSON_NUMBER && node->integer ? node->whole : standard;
}

static double number_at(const ls_json *event, const char *path)
{
    const ls_json *node = ls_json_find(event, path);
    return node && node->kind == LS_JSON_NUMBER ? node->number : 0;
}

/* A complete event is a span; names of tracks, flights and arrows are left out. */
static ls_status take_event(trace *t, const ls_json *event)
{
    const ls_json *phase = ls_json_find(event, "ph"), *name = ls_json_find(event, "name");

    if (!phase || phase->kind != LS_JSON_STRING || strcmp(phase->text, "X") || !name ||
        name->kind != LS_JSON_STRING)
        return LS_OK;
    if (t->n == t->capacity) {
        int64_t more  = t->capacity ? 2 * t->capacity : 1024;
        span   *spans = realloc(t->spans, (size_t)more * sizeof *spans);
        if (!spans)
            return ls_fail(LS_ENOMEM, "%lld spans of a trace", (long long)more);
        t->spans    = spans;
        t->capacity = more;
    }
    int64_t unit   = whole_at(event, "args.unit", -1),
            bucket = whole_at(event, "args.bucket", unit);
    if (unit >= 0)
        t->group = "unit";
    t->spans[t->n++] = (span){.rank     = whole_at(event, "pid", 0),
                              .track    = whole_at(event, "tid", 0),
                              .name     = name_index(t, name->text),
                              .start    = number_at(event, "ts"),
                              .duration = number_at(event, "dur"),
                              .step     = whole_at(event, "args.step", 0),
                              .index    = whole_at(event, "args.micro_batch", bucket),
                              .bytes    = whole_at(event, "args.bytes", 0)};
    return LS_OK;
}

/* One event a line, with a comma behind; what a run that died has cut is left out. */
static ls_status read_events(trace *t, const char *text)
{
    ls_status status = LS_OK;

    for (const char *line = text; *line && !status;) {
        size_t       n = strcspn(line, "\n"), length = n;
        const char  *next = line + n + (line[n] == '\n');
        ls_json_doc *doc;
        if (length && line[length - 1] == ',')
            length--;
        if (length && *line == '{') {
            status = ls_json_parse(line, length, "trace.json", &doc);
            if (!status)
                status = take_event(t, ls_json_root(doc));
            else if (status == LS_EFORMAT && !*next)
                status = LS_OK;
            ls_json_free(doc);
        }
        line = next;
    }
    return status;
}

static int by_step(const void *a, const void *b)
{
    const span *x = a, *y = b;

    if (x->step != y->step)
        return (x->step > y->step) - (x->step < y->step);
    return (x->start > y->start) - (x->start < y->start);
}

/* The first span of the last steps that are not too many. */
static int64_t first_shown(trace *t)
{
    if (t->n)
        qsort(t->spans, (size_t)t->n, sizeof *t->spans, by_step);
    int64_t first = t->n > MOST_SPANS ? t->n - MOST_SPANS : 0;
    while (first > 0 && first < t->n && t->spans[first].step == t->spans[first - 1].step)
        first++;
    return first;
}

static void add_span(ls_strbuf *page, const span *s)
{
    char start[LS_JSON_DOUBLE_BYTES], duration[LS_JSON_DOUBLE_BYTES];

    ls_json_print_double(start, sizeof start, s->start);
    ls_json_print_double(duration, sizeof duration, s->duration);
    ls_strbuf_format(page, "[%lld,%lld,%d,%s,%s,%lld,%lld,%lld]", (long long)s->rank,
                     (long long)s->track, s->name, start, duration, (long long)s->step,
                     (long long)s->index, (long long)s->bytes);
}

static void print_trace(ls_strbuf *page, trace *t)
{
    int64_t first = first_shown(t);

    ls_strbuf_format(page, "{\"group\":\"%s\",\"left_out\":%lld,\"names\":[", t->group,
                     (long long)first);
    for (int i = 0; i < t->n_names; i++) {
        char name[6 * MOST_NAME + 3];
        ls_json_escape(name, sizeof name, t->names[i]);
        ls_strbuf_format(page, i ? "," : "");
        add_json(page, name, strlen(name));
    }
    ls_strbuf_format(page, "],\"spans\":[");
    for (int64_t i = first; i < t->n; i++) {
        ls_strbuf_format(page, i > first ? "," : "");
        add_span(page, &t->spans[i]);
    }
    ls_strbuf_format(page, "]}");
}

static ls_status add_trace(ls_strbuf *page, const char *dir)
{
    ls_strbuf text = {0};
    trace     t    = {.group = "bucket"};
    bool      there;
    ls_status status = read_file(dir, "trace.json", &text, &there);

    if (!status && there && text.data)
        status = ls_fail_in(read_events(&t, text.data), "%s", dir);
    if (!status && there)
        print_trace(page, &t);
    else if (!status)
        ls_strbuf_format(page, "null");
    free(t.spans);
    ls_strbuf_free(&text);
    return status;
}

/* ---- the page ---- */

/* The last part of the path. */
static const char *name_of(const char *dir, char *buffer, size_t size)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    snprintf(buffer, size, "%.*s", (int)(n < size ? n : size - 1), dir);
    const char *slash = strrchr(buffer, '/');
    return slash && slash[1] ? slash + 1 : buffer;
}

static void add_string(ls_strbuf *page, const char *key, const char *text)
{
    char *json = ls_calloc(6 * strlen(text) + 3, 1);

    if (json) {
        ls_json_escape(json, 6 * strlen(text) + 3, text);
        ls_strbuf_format(page, "\"%s\":", key);
        add_json(page, json, strlen(json));
        ls_strbuf_format(page, ",");
    } else {
        page->failed = true;
    }
    free(json);
}

static ls_status add_run(ls_strbuf *page, const char *dir)
{
    char buffer[512];

    ls_strbuf_format(page, "{");
    add_string(page, "name", name_of(dir, buffer, sizeof buffer));
    add_string(page, "dir", dir);
    ls_strbuf_format(page, "\"config\":");
    ls_status status = add_document(page, dir, "config.json");
    ls_strbuf_format(page, ",\"summary\":");
    if (!status)
        status = add_document(page, dir, "summary.json");
    ls_strbuf_format(page, ",\n\"metrics\":");
    if (!status)
        status = add_metrics(page, dir);
    ls_strbuf_format(page, ",\n\"trace\":");
    if (!status)
        status = add_trace(page, dir);
    ls_strbuf_format(page, "}");
    return status;
}

ls_status ls_report_page(const char *const *dirs, int n, ls_strbuf *page)
{
    static const char mark[] = "@DATA@";
    const char       *at     = strstr(ls__report_page, mark);
    ls_status         status = LS_OK;

    ls_strbuf_add(page, ls__report_page, (size_t)(at - ls__report_page));
    ls_strbuf_format(page, "{\"runs\":[");
    for (int i = 0; i < n && !status; i++) {
        ls_strbuf_format(page, i ? ",\n" : "");
        status = add_run(page, dirs[i]);
    }
    ls_strbuf_format(page, "]}");
    at += sizeof mark - 1;
    ls_strbuf_add(page, at, strlen(at));
    return status ? status : ls_strbuf_status(page);
}

/*
 * csv.c - numbers between commas (RFC 4180: quotes are allowed around them).
 *
 * The first line of a file is a header when its last field is no number, or none of them is.
 * Empty lines are passed over.  A number is decimal, with a fraction and an exponent or
 * without.
 */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "data/table_impl.h"

typedef struct {
    const char    *path;
    const char    *at, *end; /* what is left of the file */
    int64_t        line, column;
    ls_table_shape shape;
    ls_bytes       values, labels; /* of all files so far */
    int64_t        rows;
} reader;

typedef struct {
    const char *text;
    size_t      bytes;
    bool        last; /* of its line */
} field;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void strip(field *f)
{
    for (int quoted = 0; quoted < 2; quoted++) {
        while (f->bytes && is_blank(f->text[0])) {
            f->text++;
            f->bytes--;
        }
        while (f->bytes && is_blank(f->text[f->bytes - 1]))
            f->bytes--;
        if (quoted || f->bytes < 2 || f->text[0] != '"' || f->text[f->bytes - 1] != '"')
            return;
        f->text++;
        f->bytes -= 2;
    }
}

/* Takes a field and the comma or the end of the line behind it. */
static field next_field(reader *r)
{
    field f      = {.text = r->at};
    bool  quoted = false;

    while (r->at < r->end && *r->at != '\n' && (quoted || *r->at != ',')) {
        quoted ^= *r->at == '"';
        r->at++;
    }
    f.bytes = (size_t)(r->at - f.text);
    f.last  = r->at == r->end || *r->at == '\n';
    r->at += r->at < r->end;
    strip(&f);
    r->column++;
    return f;
}

typedef enum { IS_NUMBER, IS_TEXT, IS_NOT_FINITE } field_kind;

static field_kind to_number(field f, double *number)
{
    char   text[64], *end;
    size_t digits = 0;

    for (size_t i = 0; i < f.bytes; i++)
        digits += isdigit((unsigned char)f.text[i]) != 0;
    if (!f.bytes || f.bytes >= sizeof text)
        return IS_TEXT;
    memcpy(text, f.text, f.bytes);
    text[f.bytes] = 0;
    *number       = strtod(text, &end);
    if (end != text + f.bytes || isspace((unsigned char)*text) || strpbrk(text, "xX("))
        return IS_TEXT;
    return !digits || !isfinite(*number) || fabs(*number) > 3.4e38 ? IS_NOT_FINITE : IS_NUMBER;
}

static ls_status bad_field(const reader *r, field f, field_kind kind, const char *wanted)
{
    return ls_fail(
        LS_EFORMAT, "%s: line %" PRId64 ", column %" PRId64 ": found %s%.*s%s, wanted %s",
        r->path, r->line, r->column, kind == IS_TEXT ? "\"" : "",
        f.bytes < 40 ? (int)f.bytes : 40, f.text, kind == IS_TEXT ? "\"" : "", wanted);
}

static ls_status push(ls_bytes *to, const void *item, size_t bytes)
{
    ls_status status = ls_bytes_reserve(to, bytes);

    if (!status) {
        memcpy(to->data + to->size, item, bytes);
        to->size += bytes;
    }
    return status;
}

static ls_status take_label(reader *r, field f)
{
    double     number = 0;
    field_kind kind   = to_number(f, &number);

    if (kind != IS_NUMBER || number < 0 || number > INT32_MAX || number != floor(number))
        return bad_field(r, f, kind, "a class: a whole number from 0");
    int32_t label = (int32_t)number;
    if (label >= r->shape.classes)
        return ls_fail(LS_ECONFIG,
                       "%s: line %" PRId64 ", column %" PRId64 ": class %" PRId32
                       ", model.sizes ends with %" PRId32 " classes",
                       r->path, r->line, r->column, label, r->shape.classes);
    return push(&r->labels, &label, sizeof label);
}

static ls_status take_field(reader *r, field f)
{
    double number = 0;

    if (r->column > r->shape.features)
        return take_label(r, f);
    field_kind kind = to_number(f, &number);
    if (kind != IS_NUMBER)
        return bad_field(r, f, kind, "a finite number");
    float value = (float)number;
    return push(&r->values, &value, sizeof value);
}

static ls_status take_line(reader *r)
{
    const char *start  = r->at;
    int64_t     n      = 0;
    ls_status   status = LS_OK;

    for (bool last = false; !last; n++)
        last = next_field(r).last;
    if (n != r->shape.features + 1)
        return ls_fail(LS_EFORMAT,
                       "%s: line %" PRId64 " has %" PRId64 " columns, wanted %" PRId64
                       " numbers (model.sizes) and the class",
                       r->path, r->line, n, r->shape.features);
    r->at     = start;
    r->column = 0;
    for (bool last = false; !last && !status;) {
        field f = next_field(r);
        last    = f.last;
        status  = take_field(r, f);
    }
    r->rows += !status;
    return status;
}

static bool is_empty_line(const reader *r)
{
    const char *p = r->at;

    while (p < r->end && is_blank(*p))
        p++;
    return p == r->end || *p == '\n';
}

static bool is_header(reader r)
{
    bool   any = false, last_is = false;
    double number;

    for (bool last = false; !last;) {
        field f = next_field(&r);
        last    = f.last;
        last_is = to_number(f, &number) != IS_TEXT;
        any     = any || last_is;
    }
    return !any || !last_is;
}

static void skip_line(reader *r)
{
    while (!next_field(r).last) {
    }
}

static ls_status read_file(reader *r, const char *path, const char *data, size_t bytes)
{
    bool      begun  = false;
    ls_status status = LS_OK;

    r->path = path;
    r->at   = data;
    r->end  = data + bytes;
    if (bytes >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) /* a byte order mark */
        r->at += 3;
    for (r->line = 1; r->at < r->end && !status; r->line++) {
        r->column = 0;
        if (is_empty_line(r) || (!begun && is_header(*r))) {
            begun = begun || !is_empty_line(r);
            skip_line(r);
            continue;
        }
        begun  = true;
        status = take_line(r);
    }
    return status;
}

ls_status ls__csv_load(ls_paths paths, ls_table_shape shape, ls_table *table)
{
    ls_text   text;
    reader    r      = {.shape = shape};
    ls_status status = ls_text_load(paths, &text);

    if (status)
        return status;
    for (int i = 0; i < paths.count && !status; i++) {
        size_t next = i + 1 < paths.count ? text.first[i + 1] : text.size;
        status      = read_file(&r, paths.path[i], (const char *)text.data + text.first[i],
                                next - text.first[i]);
    }
    ls_text_close(&text);
    if (!status && !r.rows)
        status = ls_fail(LS_EFORMAT, "%s: no rows", paths.path[0]);
    *table = (ls_table){.rows     = r.rows,
                        .features = shape.features,
                        .value    = (const float *)(const void *)r.values.data,
                        .label    = (const int32_t *)(const void *)r.labels.data,
                        .memory   = {r.values.data, r.labels.data},
                        .owned    = {r.values.capacity, r.labels.capacity}};
    return status;
}

/*
 * safetensors_header.c - the header of a safetensors file, from text to checked entries.
 *
 * One pass of json_scan.h over the text fills entries and pairs, in time linear in the text;
 * then two sorts prove what concerns entries together:
 *
 *     by offset   the first begins at 0, each begins where the last one ended, the last ends
 *                 with the file
 *     by name     no two are equal; this order stays, for ls_safetensors_find()
 *
 * How often a field may stand in a tensor, and what is skipped, follows the reference reader.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/json_scan.h"
#include "checkpoint/safetensors.h"
#include "core/alloc.h"

static const uint64_t max_header = 100000000; /* the reference's limit */

typedef struct {
    ls_json_scan  scan;
    const char   *path;
    const char   *tensor; /* being read; NULL outside of one */
    const char   *field;  /* of it, or of the header; NULL outside of one */
    ls_st_header *header;
    size_t        entry_capacity, pair_capacity;
    bool          has_metadata;
} parser;

ls_status ls_st_header_length(const char *path, const unsigned char prefix[8],
                              uint64_t file_bytes, uint64_t *length)
{
    uint64_t n = 0;

    if (file_bytes < 8)
        return ls_fail(LS_EFORMAT, "%s: truncated: expected at least 8 bytes, found %llu", path,
                       (unsigned long long)file_bytes);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | prefix[i];
    if (n > max_header)
        return ls_fail(
            LS_EFORMAT,
            "%s: not a safetensors file: its header's length is given as %llu bytes, "
            "the limit is %llu",
            path, (unsigned long long)n, (unsigned long long)max_header);
    if (n > file_bytes - 8)
        return ls_fail(LS_EFORMAT,
                       "%s: truncated in its header: expected at least %llu bytes, found %llu",
                       path, (unsigned long long)n + 8, (unsigned long long)file_bytes);
    *length = n;
    return LS_OK;
}

/* The failure of the scan, or what is given, with file, tensor, field and place. */
static ls_status refuse(const parser *p, const char *what)
{
    ls_st_name_text name;

    return ls_fail(
        LS_EFORMAT, "%s: %s%s%s%s%s%s (header byte %zu)", p->path, p->tensor ? "tensor '" : "",
        p->tensor ? ls_st_print_name(p->tensor, &name) : "header: ", p->tensor ? "': " : "",
        p->field ? p->field : "", p->field ? ": " : "", what, p->scan.at);
}

static ls_status scan_status(const parser *p)
{
    return p->scan.error ? refuse(p, p->scan.error) : LS_OK;
}

/* Room for one more of `size` bytes in an array that doubles; false (ENOMEM) if there is none.
 */
static bool make_room(void **array, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return true;
    size_t wanted = *capacity ? 2 * *capacity : 16;
    void  *grown  = ls_calloc(wanted, size);
    if (!grown)
        return false;
    if (n)
        memcpy(grown, *array, n * size);
    free(*array);
    *array    = grown;
    *capacity = wanted;
    return true;
}

static ls_status parse_dtype(parser *p, ls_st_entry *entry)
{
    ls_json_span span;

    if (!ls_json_string(&p->scan, &span))
        return refuse(p, p->scan.error);
    if (strlen(span.text) != span.bytes || !ls_st_dtype_bits(span.text)) {
        ls_st_name_text name;
        ls_st_print_name(span.text, &name);
        ls_fail(LS_EFORMAT, "'%s' is not a dtype of the format", name.text);
        return refuse(p, ls_error_message());
    }
    entry->dtype = span.text;
    return LS_OK;
}

static ls_status parse_shape(parser *p, ls_st_entry *entry)
{
    ls_json_scan *s = &p->scan;

    ls_json_enter(s, '[');
    for (bool first = true; ls_json_more(s, ']', &first);) {
        uint64_t dim;
        if (!ls_json_u64(s, &dim))
            break;
        if (entry->ndim == LS_ST_MAX_DIMS)
            return refuse(p, "more than 8 dimensions");
        entry->dim[entry->ndim++] = dim;
    }
    return scan_status(p);
}

static ls_status parse_offsets(parser *p, ls_st_entry *entry)
{
    ls_json_scan *s = &p->scan;
    uint64_t      offset[2];
    int           n = 0;

    ls_json_enter(s, '[');
    for (bool first = true; ls_json_more(s, ']', &first); n++) {
        uint64_t value;
        if (!ls_json_u64(s, &value))
            break;
        if (n == 2)
            return refuse(p, "expected two numbers, found more");
        offset[n] = value;
    }
    if (s->error)
        return refuse(p, s->error);
    if (n < 2)
        return refuse(p, "expected two numbers, found fewer");
    entry->begin = offset[0];
    entry->end   = offset[1];
    return LS_OK;
}

static const struct {
    const char *key;
    ls_status (*parse)(parser *, ls_st_entry *);
} fields[] = {{"dtype", parse_dtype}, {"shape", parse_shape}, {"data_offsets", parse_offsets}};

enum { N_FIELDS = sizeof fields / sizeof *fields };

/* One "key": value of a tensor; keys of later versions of the format are passed over. */
static ls_status parse_field(parser *p, ls_st_entry *entry, bool seen[N_FIELDS])
{
    ls_json_span key;

    if (!ls_json_key(&p->scan, &key))
        return refuse(p, p->scan.error);
    for (int i = 0; i < N_FIELDS; i++) {
        if (!ls_json_is(&key, fields[i].key))
            continue;
        p->field = fields[i].key;
        if (seen[i])
            return refuse(p, "given twice");
        seen[i] = true;
        return fields[i].parse(p, entry);
    }
    ls_json_skip(&p->scan);
    return scan_status(p);
}

/* Size by shape and dtype against size by offsets. */
static ls_status check_size(const parser *p, const ls_st_entry *entry)
{
    uint64_t  bytes;
    ls_status status = ls_st_bytes(entry->dtype, entry->dim, entry->ndim, &bytes);

    if (status)
        return refuse(p, ls_error_message());
    if (entry->end >= entry->begin && entry->end - entry->begin == bytes)
        return LS_OK;
    ls_st_shape_text shape;
    ls_fail(LS_EFORMAT, "data_offsets [%llu,%llu] do not hold %s %s, which has %llu bytes",
            (unsigned long long)entry->begin, (unsigned long long)entry->end, entry->dtype,
            ls_st_print_shape(entry->dim, entry->ndim, &shape), (unsigned long long)bytes);
    return refuse(p, ls_error_message());
}

static ls_status parse_fields(parser *p, ls_st_entry *entry)
{
    ls_json_scan *s              = &p->scan;
    bool          seen[N_FIELDS] = {false};

    ls_json_enter(s, '{');
    for (bool first = true; ls_json_more(s, '}', &first);) {
        ls_status status = parse_field(p, entry, seen);
        if (status)
            return status;
        p->field = NULL;
    }
    if (s->error)
        return refuse(p, s->error);
    for (int i = 0; i < N_FIELDS; i++)
        if (!seen[i]) {
            p->field = fields[i].key;
            return refuse(p, "missing");
        }
    return check_size(p, entry);
}

static ls_status check_name(parser *p, const ls_json_span *name)
{
    if (!name->bytes)
        return refuse(p, "a tensor has an empty name");
    p->tensor = name->text;
    if (strlen(name->text) != name->bytes)
        return refuse(p, "its name holds a NUL");
    if (name->bytes > LS_ST_MAX_NAME)
        return refuse(p, "its name is longer than 1024 bytes");
    if (p->header->n_entries == LS_ST_MAX_TENSORS)
        return refuse(p, "the file has more than 2^20 tensors");
    return LS_OK;
}

static ls_status parse_tensor(parser *p, const ls_json_span *name)
{
    ls_st_header *h      = p->header;
    ls_status     status = check_name(p, name);

    if (status)
        return status;
    if (!make_room((void **)&h->entry, h->n_entries, &p->entry_capacity, sizeof *h->entry))
        return ls_fail_in(LS_ENOMEM, "%s", p->path);
    ls_st_entry *entry = &h->entry[h->n_entries];
    *entry             = (ls_st_entry){.name = name->text};
    status             = parse_fields(p, entry);
    if (status)
        return status;
    h->n_entries++;
    p->tensor = NULL;
    return LS_OK;
}

static ls_status parse_pair(parser *p)
{
    ls_st_header *h = p->header;
    ls_json_span  key, value;

    if (!ls_json_key(&p->scan, &key) || !ls_json_string(&p->scan, &value))
        return refuse(p, p->scan.error);
    if (!make_room((void **)&h->pair, h->n_pairs, &p->pair_capacity, sizeof *h->pair))
        return ls_fail_in(LS_ENOMEM, "%s", p->path);
    h->pair[h->n_pairs++] = (ls_st_pair){key.text, value.text, key.bytes, value.bytes};
    return LS_OK;
}

static ls_status parse_metadata(parser *p)
{
    p->field = "__metadata__";
    if (p->has_metadata)
        return refuse(p, "given twice");
    p->has_metadata = true;
    if (ls_json_peek(&p->scan) == 'n')
        ls_json_null(&p->scan);
    else {
        ls_json_enter(&p->scan, '{');
        for (bool first = true; ls_json_more(&p->scan, '}', &first);) {
            ls_status status = parse_pair(p);
            if (status)
                return status;
        }
    }
    ls_status status = scan_status(p);
    p->field         = NULL;
    return status;
}

static ls_status parse_header(parser *p)
{
    size_t bad = ls_json_utf8(p->scan.text, p->scan.length);

    if (bad < p->scan.length) {
        p->scan.at = bad;
        return refuse(p, "not UTF-8");
    }
    ls_json_enter(&p->scan, '{');
    for (bool first = true; ls_json_more(&p->scan, '}', &first);) {
        ls_json_span key;
        if (!ls_json_key(&p->scan, &key))
            break;
        bool      metadata = ls_json_is(&key, "__metadata__");
        ls_status status   = metadata ? parse_metadata(p) : parse_tensor(p, &key);
        if (status)
            return status;
    }
    ls_json_end(&p->scan);
    return scan_status(p);
}

static int by_offset(const void *a, const void *b)
{
    const ls_st_entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ls_st_entry *)a)->name, ((const ls_st_entry *)b)->name);
}

static int by_key(const void *a, const void *b)
{
    const ls_st_pair *x = a, *y = b;
    size_t            n     = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int               order = memcmp(x->key, y->key, n);

    return order ? order : x->key_bytes < y->key_bytes ? -1 : x->key_bytes > y->key_bytes;
}

/* The whole file must end where the last tensor does. */
static ls_status check_end(const char *path, uint64_t end, uint64_t data_bytes,
                           uint64_t file_bytes)
{
    uint64_t expected;

    if (end == data_bytes)
        return LS_OK;
    if (__builtin_add_overflow(file_bytes - data_bytes, end, &expected))
        return ls_fail(LS_EFORMAT, "%s: data_offsets end at %llu, beyond any file", path,
                       (unsigned long long)end);
    return ls_fail(LS_EFORMAT, "%s: %s: expected %llu bytes, found %llu", path,
                   end > data_bytes ? "truncated" : "bytes after the last tensor",
                   (unsigned long long)expected, (unsigned long long)file_bytes);
}

/* Of entries sorted by offset. */
static ls_status check_tiling(const char *path, const ls_st_header *h, uint64_t file_bytes)
{
    ls_st_name_text name;
    uint64_t        end = 0;

    for (size_t i = 0; i < h->n_entries; end = h->entry[i++].end) {
        const ls_st_entry *e = &h->entry[i];
        if (e->begin != end)
            return ls_fail(
                LS_EFORMAT, "%s: tensor '%s': data_offsets begin at %llu, expected %llu: %s",
                path, ls_st_print_name(e->name, &name), (unsigned long long)e->begin,
                (unsigned long long)end,
                e->begin > end ? "a hole in the data" : "it overlaps another tensor");
    }
    return check_end(path, end, h->data_bytes, file_bytes);
}

/* Of entries sorted by name and pairs sorted by key. */
static ls_status check_unique(const char *path, const ls_st_header *h)
{
    ls_st_name_text name;

    for (size_t i = 1; i < h->n_entries; i++)
        if (!by_name(&h->entry[i - 1], &h->entry[i]))
            return ls_fail(LS_EFORMAT, "%s: tensor '%s': given twice", path,
                           ls_st_print_name(h->entry[i].name, &name));
    for (size_t i = 1; i < h->n_pairs; i++)
        if (!by_key(&h->pair[i - 1], &h->pair[i]))
            return ls_fail(LS_EFORMAT, "%s: __metadata__: '%s' given twice", path,
                           ls_st_print_name(h->pair[i].key, &name));
    return LS_OK;
}

static void sort(void *array, size_t n, size_t size, int (*order)(const void *, const void *))
{
    if (n)
        qsort(array, n, size, order);
}

/* Names first: two tensors of one name are better called that than an overlap. */
static ls_status check_header(const char *path, ls_st_header *h, uint64_t file_bytes)
{
    sort(h->entry, h->n_entries, sizeof *h->entry, by_name);
    sort(h->pair, h->n_pairs, sizeof *h->pair, by_key);
    ls_status status = check_unique(path, h);
    if (status)
        return status;
    sort(h->entry, h->n_entries, sizeof *h->entry, by_offset);
    status = check_tiling(path, h, file_bytes);
    sort(h->entry, h->n_entries, sizeof *h->entry, by_name);
    return status;
}

ls_status ls_st_header_parse(const char *path, char *text, uint64_t length, uint64_t file_bytes,
                             ls_st_header *header)
{
    *header  = (ls_st_header){.text = text, .data_bytes = file_bytes - 8 - length};
    parser p = {.scan = {.text = text, .length = length}, .path = path, .header = header};

    ls_status status = parse_header(&p);
    if (!status)
        status = check_header(path, header, file_bytes);
    if (status)
        ls_st_header_free(header);
    return status;
}

void ls_st_header_free(ls_st_header *header)
{
    free(header->entry);
    free(header->pair);
    free(header->text);
    *header = (ls_st_header){0};
}

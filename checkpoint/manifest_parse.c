/*
 * manifest_parse.c - a manifest out of a text that nobody vouches for.
 *
 * First the text's own CRC-32, then one walk in place (json_scan.h), then ls_manifest_check().
 * Lists grow as members come, so that no number in the text decides what is allocated.  Keys
 * that are not known are passed over; those that are must come once.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/json_scan.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "core/alloc.h"
#include "core/gz.h"

typedef struct {
    ls_json_scan scan;
    const char  *path;
    ls_manifest *m;
    size_t       room[3]; /* of tensors, files, chunks */
    ls_status    status;  /* what is not the scanner's failure */
} parser;

static void fail(parser *p, ls_status status)
{
    if (!p->status)
        p->status = status;
    if (!p->scan.error)
        p->scan.error = "";
}

static bool is_well(const parser *p)
{
    return !p->scan.error && !p->status;
}

/* Room for one more of `size` bytes in a list of n. */
static void *grow(parser *p, void *list, size_t n, size_t size, size_t *room, size_t most)
{
    if (n < *room)
        return list;
    if (n >= most) {
        fail(p, ls_fail(LS_EFORMAT, "%s: more than %zu members in a list", p->path, most));
        return list;
    }
    size_t more  = *room ? 2 * *room : 64;
    void  *grown = ls_calloc(more, size);
    if (!grown) {
        fail(p, ls_fail_in(LS_ENOMEM, "%s", p->path));
        return list;
    }
    if (n)
        memcpy(grown, list, n * size);
    free(list);
    *room = more;
    return grown;
}

/* ---- values ---- */

static void copy_text(parser *p, char **out)
{
    ls_json_span span;

    if (!ls_json_string(&p->scan, &span))
        return;
    if (strlen(span.text) != span.bytes)
        fail(p, ls_fail(LS_EFORMAT, "%s: a string with a NUL inside", p->path));
    else if (!(*out = ls_strdup(span.text)))
        fail(p, LS_ENOMEM);
}

static void take_word(parser *p, const char *const *words, int n, int *place)
{
    ls_json_span    span;
    ls_st_name_text text;

    if (!ls_json_string(&p->scan, &span))
        return;
    for (int i = 0; i < n; i++)
        if (ls_json_is(&span, words[i])) {
            *place = i;
            return;
        }
    fail(p, ls_fail(LS_EFORMAT, "%s: '%s' is not one of its words: expected '%s' or another",
                    p->path, ls_st_print_name(span.text, &text), words[0]));
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c) : NULL;

    return found ? (int)(found - digits) : -1;
}

/* Eight lower-case hex digits. */
static bool read_crc(const char *text, size_t n, uint32_t *crc)
{
    *crc = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return false;
        *crc = *crc << 4 | (uint32_t)digit;
    }
    return n == 8;
}

static void take_crc(parser *p, uint32_t *crc)
{
    ls_json_span span;

    if (ls_json_string(&p->scan, &span) && !read_crc(span.text, span.bytes, crc))
        fail(p, ls_fail(LS_EFORMAT, "%s: a CRC-32 that is not eight hex digits", p->path));
}

static void take_int(parser *p, int64_t most, int64_t *value)
{
    uint64_t x = 0;

    if (ls_json_u64(&p->scan, &x) && x > (uint64_t)most)
        fail(p, ls_fail(LS_EFORMAT, "%s: %llu, expected at most %lld", p->path,
                        (unsigned long long)x, (long long)most));
    *value = (int64_t)x;
}

static void take_index(parser *p, uint32_t *value)
{
    int64_t x = 0;

    take_int(p, UINT32_MAX, &x);
    *value = (uint32_t)x;
}

/* ---- objects ---- */

typedef struct {
    const char *key;
    void (*take)(parser *p, void *object);
    bool optional;
} member;

static void take_member(parser *p, const member *members, int n, void *object, unsigned *seen)
{
    ls_json_span    key;
    ls_st_name_text text;

    if (!ls_json_key(&p->scan, &key))
        return;
    for (int i = 0; i < n; i++) {
        if (!ls_json_is(&key, members[i].key))
            continue;
        if (*seen & 1u << i)
            fail(p, ls_fail(LS_EFORMAT, "%s: \"%s\" twice in one object", p->path,
                            ls_st_print_name(key.text, &text)));
        *seen |= 1u << i;
        if (is_well(p))
            members[i].take(p, object);
        return;
    }
    ls_json_skip(&p->scan);
}

static void take_object(parser *p, const member *members, int n, void *object)
{
    unsigned seen = 0;

    ls_json_enter(&p->scan, '{');
    for (bool first = true; ls_json_more(&p->scan, '}', &first);)
        take_member(p, members, n, object, &seen);
    for (int i = 0; i < n && is_well(p); i++)
        if (!(seen & 1u << i) && !members[i].optional)
            fail(p,
                 ls_fail(LS_EFORMAT, "%s: an object without \"%s\"", p->path, members[i].key));
}

/* ---- chunks ---- */

static void chunk_file(parser *p, void *c)
{
    take_index(p, &((ls_manifest_chunk *)c)->file);
}

static void chunk_first(parser *p, void *c)
{
    ls_json_u64(&p->scan, &((ls_manifest_chunk *)c)->first);
}

static void chunk_rows(parser *p, void *c)
{
    ls_json_u64(&p->scan, &((ls_manifest_chunk *)c)->rows);
}

static void chunk_offset(parser *p, void *c)
{
    ls_json_u64(&p->scan, &((ls_manifest_chunk *)c)->offset);
}

static void chunk_stored(parser *p, void *c)
{
    ls_json_u64(&p->scan, &((ls_manifest_chunk *)c)->stored);
}

static void chunk_bytes(parser *p, void *c)
{
    ls_json_u64(&p->scan, &((ls_manifest_chunk *)c)->bytes);
}

static void chunk_crc(parser *p, void *c)
{
    take_crc(p, &((ls_manifest_chunk *)c)->crc);
}

static const member chunk_members[] = {
    {"file", chunk_file, false},    {"first", chunk_first, false},
    {"rows", chunk_rows, false},    {"offset", chunk_offset, false},
    {"stored", chunk_stored, true}, {"bytes", chunk_bytes, false},
    {"crc32", chunk_crc, false},
};

static void take_chunk(parser *p, uint32_t tensor)
{
    ls_manifest      *m = p->m;
    ls_manifest_chunk c = {.tensor = tensor, .stored = UINT64_MAX};

    take_object(p, chunk_members, sizeof chunk_members / sizeof *chunk_members, &c);
    if (c.stored == UINT64_MAX)
        c.stored = c.bytes;
    m->chunk = grow(p, m->chunk, m->n_chunks, sizeof c, &p->room[2], LS_MANIFEST_MOST_CHUNKS);
    if (is_well(p))
        m->chunk[m->n_chunks++] = c;
}

/* ---- tensors ---- */

static void tensor_name(parser *p, void *t)
{
    ls_manifest_tensor *tensor = t;

    copy_text(p, &tensor->name);
    if (is_well(p) && (!*tensor->name || strlen(tensor->name) > LS_ST_MAX_NAME))
        fail(p, ls_fail(LS_EFORMAT, "%s: a tensor's name of %zu bytes, expected 1 to %d",
                        p->path, strlen(tensor->name), LS_ST_MAX_NAME));
}

static void tensor_kind(parser *p, void *t)
{
    static const char *const kinds[] = {
#define X(kind, name) name,
        LS_TENSOR_KIND_MAP(X)
#undef X
    };
    int kind = 0;

    take_word(p, kinds, LS_KIND_COUNT, &kind);
    ((ls_manifest_tensor *)t)->kind = (ls_tensor_kind)kind;
}

static void tensor_dtype(parser *p, void *t)
{
    ls_json_span    span;
    ls_st_name_text text;

    if (ls_json_string(&p->scan, &span) &&
        (strlen(span.text) != span.bytes ||
         !ls_dtype_parse(span.text, &((ls_manifest_tensor *)t)->dtype)))
        fail(p, ls_fail(LS_EFORMAT, "%s: dtype '%s', which Lockstep does not have", p->path,
                        ls_st_print_name(span.text, &text)));
}

static void tensor_shape(parser *p, void *t)
{
    ls_manifest_tensor *tensor = t;

    ls_json_enter(&p->scan, '[');
    for (bool first = true; ls_json_more(&p->scan, ']', &first);) {
        if (tensor->ndim == LS_ST_MAX_DIMS)
            fail(p,
                 ls_fail(LS_EFORMAT, "%s: more than %d dimensions", p->path, LS_ST_MAX_DIMS));
        else
            ls_json_u64(&p->scan, &tensor->dim[tensor->ndim++]);
    }
}

static void tensor_chunks(parser *p, void *t)
{
    (void)t;
    ls_json_enter(&p->scan, '[');
    for (bool first = true; ls_json_more(&p->scan, ']', &first);)
        take_chunk(p, (uint32_t)p->m->n_tensors);
}

static const member tensor_members[] = {
    {"name", tensor_name, false},     {"kind", tensor_kind, false},
    {"dtype", tensor_dtype, false},   {"shape", tensor_shape, false},
    {"chunks", tensor_chunks, false},
};

static void take_tensors(parser *p, void *manifest)
{
    ls_manifest *m = manifest;

    ls_json_enter(&p->scan, '[');
    for (bool first = true; ls_json_more(&p->scan, ']', &first);) {
        ls_manifest_tensor t = {0};
        m->tensor = grow(p, m->tensor, m->n_tensors, sizeof t, &p->room[0], LS_ST_MAX_TENSORS);
        take_object(p, tensor_members, sizeof tensor_members / sizeof *tensor_members, &t);
        if (is_well(p))
            m->tensor[m->n_tensors++] = t;
        else
            free(t.name);
    }
}

/* ---- files ---- */

static void file_name(parser *p, void *f)
{
    copy_text(p, &((ls_manifest_file *)f)->name);
}

static void file_bytes(parser *p, void *f)
{
    ls_json_u64(&p->scan, &((ls_manifest_file *)f)->bytes);
}

static void file_header_bytes(parser *p, void *f)
{
    ls_json_u64(&p->scan, &((ls_manifest_file *)f)->header_bytes);
}

static void file_header_crc(parser *p, void *f)
{
    take_crc(p, &((ls_manifest_file *)f)->header_crc);
}

static const member file_members[] = {
    {"name", file_name, false},
    {"bytes", file_bytes, false},
    {"header_bytes", file_header_bytes, false},
    {"header_crc32", file_header_crc, false},
};

static void take_files(parser *p, void *manifest)
{
    ls_manifest *m = manifest;

    ls_json_enter(&p->scan, '[');
    for (bool first = true; ls_json_more(&p->scan, ']', &first);) {
        ls_manifest_file f = {0};
        m->file = grow(p, m->file, m->n_files, sizeof f, &p->room[1], LS_MANIFEST_MOST_RANKS);
        take_object(p, file_members, sizeof file_members / sizeof *file_members, &f);
        if (is_well(p))
            m->file[m->n_files++] = f;
        else
            free(f.name);
    }
}

/* ---- the top ---- */

static void take_version(parser *p, void *m)
{
    int64_t version = 0;

    (void)m;
    take_int(p, INT64_MAX, &version);
    if (is_well(p) && version != LS_MANIFEST_VERSION)
        fail(p, ls_fail(LS_EFORMAT,
                        "%s: format version %lld, this program reads %d; a newer Lockstep "
                        "wrote it",
                        p->path, (long long)version, LS_MANIFEST_VERSION));
}

static void take_step(parser *p, void *m)
{
    take_int(p, INT64_MAX, &((ls_manifest *)m)->step);
}

static void take_world(parser *p, void *m)
{
    take_int(p, LS_MANIFEST_MOST_RANKS, &((ls_manifest *)m)->world);
}

static void take_strategy(parser *p, void *m)
{
    copy_text(p, &((ls_manifest *)m)->strategy);
}

static void take_codec(parser *p, void *m)
{
    static const char *const codecs[] = {"none", "zlib"};
    int                      codec    = 0;

    take_word(p, codecs, 2, &codec);
    ((ls_manifest *)m)->compressed = codec == 1;
}

static void take_state(parser *p, void *m)
{
    copy_text(p, &((ls_manifest *)m)->state);
}

static void take_config(parser *p, void *m)
{
    copy_text(p, &((ls_manifest *)m)->config);
}

static void take_tokenizer(parser *p, void *m)
{
    copy_text(p, &((ls_manifest *)m)->tokenizer);
}

static const member top_members[] = {
    {"lockstep_checkpoint", take_version, false},
    {"step", take_step, false},
    {"world_size", take_world, false},
    {"strategy", take_strategy, false},
    {"codec", take_codec, false},
    {"state", take_state, false},
    {"config", take_config, false},
    {"tokenizer", take_tokenizer, false},
    {"files", take_files, false},
    {"tensors", take_tensors, false},
};

/* `,"crc32":"0123abcd"}` and a newline, at the end of the text. */
static ls_status check_crc(const char *text, size_t n, const char *path, uint32_t *crc)
{
    static const char before[] = ",\"crc32\":\"", after[] = "\"}\n";
    enum { BEFORE = sizeof before - 1, AFTER = sizeof after - 1, TAIL = BEFORE + 8 + AFTER };
    uint32_t wanted = 0;

    if (n < TAIL || memcmp(text + n - TAIL, before, BEFORE) != 0 ||
        memcmp(text + n - AFTER, after, AFTER) != 0 ||
        !read_crc(text + n - AFTER - 8, 8, &wanted))
        return ls_fail(LS_EFORMAT,
                       "%s: cut off or edited: its %zu bytes do not end in its own CRC-32",
                       path, n);
    *crc = ls_crc32(0, text, n - TAIL);
    if (*crc == wanted)
        return LS_OK;
    return ls_fail(LS_EFORMAT, "%s: damaged or edited: its CRC-32 is %08x, it says %08x", path,
                   *crc, wanted);
}

static ls_status parse(parser *p, size_t n)
{
    size_t good = ls_json_utf8(p->scan.text, n);

    if (good < n)
        return ls_fail(LS_EFORMAT, "%s: byte %zu is not UTF-8", p->path, good);
    take_object(p, top_members, sizeof top_members / sizeof *top_members, p->m);
    if (!p->status)
        ls_json_end(&p->scan);
    if (p->status)
        return p->status;
    if (p->scan.error)
        return ls_fail(LS_EFORMAT, "%s: byte %zu: %s", p->path, p->scan.at, p->scan.error);
    return ls_manifest_check(p->m, p->path);
}

ls_status ls_manifest_parse(char *text, size_t n, const char *path, ls_manifest *m)
{
    parser p = {.scan = {.text = text, .length = n}, .path = path, .m = m};

    *m               = (ls_manifest){0};
    ls_status status = check_crc(text, n, path, &m->crc);
    if (!status)
        status = parse(&p, n);
    if (status)
        ls_manifest_free(m);
    return status;
}

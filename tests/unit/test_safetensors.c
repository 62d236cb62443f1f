/*
 * test_safetensors.c - reader and writer: verdicts on headers, damage, size, lack of memory.
 */
#include "checkpoint/safetensors.h"

#include <sys/stat.h>
#include <time.h>

#include "checkpoint/json_scan.h"
#include "core/alloc.h"
#include "temp_dir.h"
#include "test.h"

#define T(fields) "{\"t\":{" fields "}}"
#define F32(shape, offsets) "\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets
#define F32X(shape, offsets, more) T(F32(shape, offsets) "," more)
#define TEN "1,1,1,1,1,1,1,1,1,1"

/* A header, the bytes of data behind it, and what the refusal says; NULL where it is valid. */
static const struct {
    const char *name, *header;
    uint64_t    data;
    const char *message;
} verdicts[] = {
    /* valid, also where it surprises */
    {"one tensor", T(F32("[2,3]", "[0,24]")), 24, NULL},
    {"no tensors", "{}", 0, NULL},
    {"metadata alone", "{\"__metadata__\":{\"a\":\"b\"}}", 0, NULL},
    {"metadata null", "{\"__metadata__\":null}", 0, NULL},
    {"metadata empty", "{\"__metadata__\":{}}", 0, NULL},
    {"scalar", T(F32("[]", "[0,4]")), 4, NULL},
    {"zero dimension", T(F32("[0]", "[0,0]")), 0, NULL},
    {"zero before overflow", T(F32("[0,18446744073709551615,2]", "[0,0]")), 0, NULL},
    {"unknown key",
     F32X("[1]", "[0,4]", "\"x\":{\"y\":[1.5e3,-0,null,true,\"\\ud83d\\ude00\"]}"), 4, NULL},
    {"unknown key twice", F32X("[1]", "[0,4]", "\"x\":1,\"x\":2"), 4, NULL},
    {"offsets out of order",
     "{\"a\":{" F32("[1]", "[4,8]") "},\"b\":{" F32("[1]", "[0,4]") "}}", 8, NULL},
    {"zero-size between",
     "{\"a\":{" F32("[1]", "[0,4]") "},\"z\":{" F32("[0]", "[4,4]") "},\"c\":{" F32(
         "[1]", "[4,8]") "}}",
     8, NULL},
    {"white space around", " \t\n\r{ \"t\" : { " F32(" [ 1 ] ", "[ 0 , 4 ]") " } } \t\n\r", 4,
     NULL},
    {"name escaped", "{\"\\u0074\\n\":{" F32("[1]", "[0,4]") "}}", 4, NULL},
    {"8 dimensions", T(F32("[1,1,1,1,1,1,1,1]", "[0,4]")), 4, NULL},
    {"F4 pair", T("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]"), 1, NULL},
    {"F6 four", T("\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]"), 3, NULL},
    {"F8", T("\"dtype\":\"F8_E5M2FNUZ\",\"shape\":[3],\"data_offsets\":[0,3]"), 3, NULL},
    {"C64", T("\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]"), 8, NULL},
    {"NUL in metadata value", "{\"__metadata__\":{\"a\":\"b\\u0000c\"}}", 0, NULL},

    /* JSON */
    {"empty", "", 0, "expected an object"},
    {"not JSON", "{", 0, "expected a string"},
    {"array", "[]", 0, "expected an object"},
    {"string", "\"t\"", 0, "expected an object"},
    {"BOM", "\xef\xbb\xbf{}", 0, "expected an object"},
    {"not UTF-8", "{\"\xff\":1}", 0, "not UTF-8"},
    {"overlong UTF-8", "{\"\xc0\xaf\":1}", 0, "not UTF-8"},
    {"surrogate in UTF-8", "{\"\xed\xa0\x80\":1}", 0, "not UTF-8"},
    {"UTF-8 cut", "{\"\xe2\x82", 0, "not UTF-8"},
    {"lone surrogate", "{\"\\ud800\":{" F32("[1]", "[0,4]") "}}", 4, "\\u escape"},
    {"low surrogate first", "{\"\\udc00\":{" F32("[1]", "[0,4]") "}}", 4, "\\u escape"},
    {"wrong low surrogate", "{\"\\ud800\\u0041\":1}", 4, "\\u escape"},
    {"short \\u", "{\"\\u00", 0, "\\u escape"},
    {"wrong escape", "{\"\\x\":1}", 0, "wrong escape"},
    {"raw control character", "{\"a\nb\":1}", 0, "control character"},
    {"string without end", "{\"abc", 0, "without an end"},
    {"trailing comma", "{\"t\":{" F32("[1]", "[0,4]") "},}", 4, "after ','"},
    {"leading comma", "{,\"t\":{" F32("[1]", "[0,4]") "}}", 4, "expected a string"},
    {"comma in array", T(F32("[1,]", "[0,4]")), 4, "shape: expected a value after ','"},
    {"no comma", T("\"dtype\":\"F32\" \"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "expected ','"},
    {"no colon", "{\"t\" {}}", 0, "expected ':'"},
    {"comment", "{/**/}", 0, "expected a string"},
    {"NaN", F32X("[1]", "[0,4]", "\"x\":NaN"), 4, "expected a JSON value"},
    {"two objects", "{}{}", 0, "follows"},
    {"garbage after", "{}x", 0, "follows"},
    {"bad number", F32X("[1]", "[0,4]", "\"x\":01"), 4, "malformed number"},
    {"bad fraction", F32X("[1]", "[0,4]", "\"x\":1."), 4, "malformed number"},
    {"bad exponent", F32X("[1]", "[0,4]", "\"x\":1e"), 4, "malformed number"},
    {"minus alone", F32X("[1]", "[0,4]", "\"x\":-"), 4, "malformed number"},

    /* tensors */
    {"tensor null", "{\"t\":null}", 0, "tensor 't': expected an object"},
    {"tensor number", "{\"t\":1}", 0, "tensor 't': expected an object"},
    {"tensor array", "{\"t\":[\"F32\",[1],[0,4]]}", 4, "tensor 't': expected an object"},
    {"dtype object", T("\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "dtype: expected a string"},
    {"dtype unknown", T("\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "'F99' is not a dtype"},
    {"dtype lower case", T("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "'f32' is not a dtype"},
    {"dtype with NUL", T("\"dtype\":\"F32\\u0000\",\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "is not a dtype"},
    {"dtype missing", T("\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "tensor 't': dtype: missing"},
    {"shape missing", T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "shape: missing"},
    {"offsets missing", T("\"dtype\":\"F32\",\"shape\":[1]"), 4, "data_offsets: missing"},
    {"dtype twice", F32X("[1]", "[0,4]", "\"dtype\":\"F32\""), 4, "dtype: given twice"},
    {"shape twice", F32X("[1]", "[0,4]", "\"shape\":[1]"), 4, "shape: given twice"},
    {"offsets twice", F32X("[1]", "[0,4]", "\"data_offsets\":[0,4]"), 4,
     "data_offsets: given twice"},
    {"shape negative", T(F32("[-1]", "[0,4]")), 4, "shape: expected an unsigned"},
    {"shape -0", T(F32("[-0]", "[0,0]")), 0, "shape: expected an unsigned"},
    {"shape 1.0", T(F32("[1.0]", "[0,4]")), 4, "shape: expected an unsigned"},
    {"shape 1e0", T(F32("[1e0]", "[0,4]")), 4, "shape: expected an unsigned"},
    {"shape 01", T(F32("[01]", "[0,4]")), 4, "shape: expected an unsigned"},
    {"shape string", T(F32("[\"1\"]", "[0,4]")), 4, "shape: expected an unsigned"},
    {"shape bool", T(F32("[true]", "[0,4]")), 4, "shape: expected an unsigned"},
    {"shape null", T(F32("null", "[0,4]")), 4, "shape: expected an array"},
    {"shape 2^64", T(F32("[18446744073709551616]", "[0,4]")), 4, "shape: expected an unsigned"},
    {"shape overflow", T(F32("[2,18446744073709551614]", "[0,4]")), 4, "more than 2^64 bits"},
    {"shape overflow in bits", T(F32("[2,9223372036854775807]", "[0,4]")), 4,
     "more than 2^64 bits"},
    {"overflow before zero", T(F32("[18446744073709551615,2,0]", "[0,0]")), 0,
     "more than 2^64 bits"},
    {"9 dimensions", T(F32("[" TEN "]", "[0,4]")), 4, "more than 8 dimensions"},
    {"one offset", T(F32("[1]", "[0]")), 4, "found fewer"},
    {"no offsets", T(F32("[1]", "[]")), 4, "found fewer"},
    {"three offsets", T(F32("[1]", "[0,4,4]")), 4, "found more"},
    {"offsets negative", T(F32("[1]", "[-4,0]")), 4, "data_offsets: expected an unsigned"},
    {"offsets float", T(F32("[1]", "[0.0,4.0]")), 4, "data_offsets: expected an unsigned"},
    {"end before begin", T(F32("[1]", "[4,0]")), 4, "do not hold F32 (1), which has 4 bytes"},
    {"size too small", T(F32("[2]", "[0,4]")), 4, "do not hold F32 (2), which has 8 bytes"},
    {"size too large", T(F32("[1]", "[0,8]")), 8, "do not hold F32 (1), which has 4 bytes"},
    {"odd F4", T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, "whole number"},
    {"name empty", "{\"\":{" F32("[1]", "[0,4]") "}}", 4, "empty name"},
    {"name with NUL", "{\"a\\u0000b\":{" F32("[1]", "[0,4]") "}}", 4, "holds a NUL"},

    /* tensors together */
    {"hole at the start", T(F32("[1]", "[4,8]")), 8, "expected 0: a hole"},
    {"hole between", "{\"a\":{" F32("[1]", "[0,4]") "},\"b\":{" F32("[1]", "[8,12]") "}}", 12,
     "tensor 'b': data_offsets begin at 8, expected 4: a hole"},
    {"overlap", "{\"a\":{" F32("[2]", "[0,8]") "},\"b\":{" F32("[2]", "[4,12]") "}}", 12,
     "tensor 'b': data_offsets begin at 4, expected 8: it overlaps"},
    {"same range", "{\"a\":{" F32("[1]", "[0,4]") "},\"b\":{" F32("[1]", "[0,4]") "}}", 4,
     "overlaps"},
    {"zero-size elsewhere", "{\"a\":{" F32("[1]", "[0,4]") "},\"z\":{" F32("[0]", "[8,8]") "}}",
     4, "a hole"},
    {"zero-size within", "{\"a\":{" F32("[1]", "[0,4]") "},\"z\":{" F32("[0]", "[2,2]") "}}", 4,
     "overlaps"},
    {"name twice", "{\"t\":{" F32("[1]", "[0,4]") "},\"t\":{" F32("[1]", "[0,4]") "}}", 4,
     "tensor 't': given twice"},
    {"name twice, escaped",
     "{\"t\":{" F32("[1]", "[0,4]") "},\"\\u0074\":{" F32("[1]", "[4,8]") "}}", 8,
     "tensor 't': given twice"},
    {"data cut", T(F32("[2]", "[0,8]")), 6, "truncated: expected"},
    {"data beyond", T(F32("[1]", "[0,4]")), 6, "bytes after the last tensor: expected"},
    {"data without tensors", "{}", 1, "bytes after the last tensor"},
    {"end beyond any file",
     T("\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":"
       "[0,18446744073709551615]"),
     4, "2^64 bits"},

    /* metadata */
    {"metadata int", "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: expected a string"},
    {"metadata null value", "{\"__metadata__\":{\"a\":null}}", 0, "expected a string"},
    {"metadata nested", "{\"__metadata__\":{\"a\":{}}}", 0, "expected a string"},
    {"metadata array", "{\"__metadata__\":[]}", 0, "__metadata__: expected an object"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
     "__metadata__: given twice"},
    {"metadata key twice", "{\"__metadata__\":{\"a\":\"1\",\"\\u0061\":\"2\"}}", 0,
     "__metadata__: 'a' given twice"},
    {"metadata nul", "{\"__metadata__\":nul}", 0, "expected a JSON value"},
};

/* The header in memory of its own, so that a read beyond it is seen. */
static ls_status parse(const char *header, size_t length, uint64_t data, ls_st_header *h)
{
    char *text = malloc(length ? length : 1);

    memcpy(text, header, length);
    return ls_st_header_parse("f", text, length, 8 + length + data, h);
}

/* What must hold of whatever was accepted. */
static bool is_sound(const ls_st_header *h)
{
    uint64_t total = 0;

    for (size_t i = 0; i < h->n_entries; i++) {
        const ls_st_entry *e = &h->entry[i];
        uint64_t           bytes;
        if (e->begin > e->end || e->end > h->data_bytes || !*e->name ||
            ls_st_bytes(e->dtype, e->dim, e->ndim, &bytes) || bytes != e->end - e->begin ||
            (i && strcmp(h->entry[i - 1].name, e->name) >= 0))
            return false;
        total += bytes;
    }
    return total == h->data_bytes;
}

static void test_verdicts(void)
{
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        ls_st_header h;
        const char  *text = verdicts[i].header;
        TEST_ROW(verdicts[i].name);
        ls_status status = parse(text, strlen(text), verdicts[i].data, &h);
        if (verdicts[i].message)
            CHECK_FAILS(status, LS_EFORMAT, verdicts[i].message);
        else if (CHECK_OK(status))
            CHECK(is_sound(&h));
        if (!status)
            ls_st_header_free(&h);
    }
}

/* Every escape of JSON, as the bytes it stands for. */
static void test_escapes(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"\\\"\\\\\\/"
        "\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\\udbff\\udfff\"}}";
    static const char value[] =
        "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf";
    ls_st_header h;

    if (!CHECK_OK(parse(header, strlen(header), 0, &h)))
        return;
    CHECK(h.n_pairs == 1 && h.pair[0].value_bytes == strlen(value));
    CHECK(!strcmp(h.pair[0].value, value));
    ls_st_header_free(&h);
}

static void test_nesting(void)
{
    enum { SURROUNDING = 2, TOO_DEEP = LS_JSON_DEPTH - SURROUNDING };

    for (int depth = TOO_DEEP - 1; depth <= TOO_DEEP; depth++) {
        char         text[512], open[200] = "", close[200] = "";
        ls_st_header h;
        memset(open, '[', (size_t)depth);
        memset(close, ']', (size_t)depth);
        int n = snprintf(
            text, sizeof text,
            "{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":%s%s}}", open,
            close);
        ls_status status = parse(text, (size_t)n, 4, &h);
        if (depth == TOO_DEEP)
            CHECK_FAILS(status, LS_EFORMAT, "nested too deeply");
        else if (CHECK_OK(status))
            ls_st_header_free(&h);
    }
}

static void test_long_names(void)
{
    for (int bytes = LS_ST_MAX_NAME; bytes <= LS_ST_MAX_NAME + 1; bytes++) {
        char         name[LS_ST_MAX_NAME + 2] = "", text[LS_ST_MAX_NAME + 100];
        ls_st_header h;
        memset(name, 'n', (size_t)bytes);
        int       n = snprintf(text, sizeof text, "{\"%s\":{" F32("[1]", "[0,4]") "}}", name);
        ls_status status = parse(text, (size_t)n, 4, &h);
        if (bytes > LS_ST_MAX_NAME)
            CHECK_FAILS(status, LS_EFORMAT, "longer than 1024");
        else if (CHECK_OK(status))
            ls_st_header_free(&h);
    }
}

/* Raw first bytes of a file, and what is said of it. */
static void test_lengths(void)
{
    static const struct {
        const char   *name;
        unsigned char prefix[8];
        uint64_t      file_bytes;
        const char   *message;
    } rows[] = {
        {"empty file", {0}, 0, "truncated: expected at least 8 bytes, found 0"},
        {"7 bytes", {2}, 7, "truncated: expected at least 8 bytes, found 7"},
        {"only 8 bytes",
         {60},
         8,
         "truncated in its header: expected at least 68 bytes, found 8"},
        {"one byte short", {2}, 9, "expected at least 10 bytes, found 9"},
        {"100000001", {0x01, 0xe1, 0xf5, 0x05}, 1 << 30, "the limit is 100000000"},
        {"2^64 - 1",
         {255, 255, 255, 255, 255, 255, 255, 255},
         1 << 30,
         "the limit is 100000000"},
        {"too large", {0x3c, 0, 0, 0, 0, 0, 255, 255}, 68, "not a safetensors file"},
        {"right", {2}, 10, NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t length;
        TEST_ROW(rows[i].name);
        ls_status status =
            ls_st_header_length("f", rows[i].prefix, rows[i].file_bytes, &length);
        if (rows[i].message)
            CHECK_FAILS(status, LS_EFORMAT, rows[i].message);
        else
            CHECK(!status && length == 2);
    }
}

static const float   reals[6] = {1.5f, -0.0f, 3.0f, 1e-40f, -2.0f, 7.0f};
static const int64_t longs[2] = {-1, 1LL << 60};
static const char    bytes[3] = {1, 2, 3};

static const ls_st_source sources[] = {
    {"b.\"quoted\"\n\x01/é", "U8", 1, {3}, bytes},
    {"a", "F32", 2, {2, 3}, reals},
    {"z", "F32", 0, {0}, reals},
    {"empty", "F32", 2, {0, 4}, NULL},
    {"step", "I64", 1, {2}, longs},
};
static const ls_st_metadata metadata[] = {{"step", "7"}, {"con\tfig", "{\"a\":\"\\\"\x1f\"}"}};

enum { N = sizeof sources / sizeof *sources };

static ls_status write_sample(const char *path)
{
    return ls_safetensors_write(path, sources, N, metadata, 2);
}

static void check_sample(const ls_safetensors *f)
{
    CHECK(f->header.n_entries == N && f->header.n_pairs == 3 && f->data_offset % 8 == 0);
    for (size_t i = 0; i < N; i++) {
        const ls_st_source *s = &sources[i];
        const ls_st_entry  *e = ls_safetensors_find(f, s->name);
        char                got[64];
        if (!CHECK(e && !strcmp(e->dtype, s->dtype) && e->ndim == s->ndim))
            continue;
        size_t n = (size_t)(e->end - e->begin);
        CHECK_BITS(e->dim, s->dim, (size_t)s->ndim * sizeof *s->dim);
        CHECK_OK(ls_safetensors_read(f, e, 0, got, n));
        CHECK(!n || !memcmp(got, s->data, n));
        CHECK_FAILS(ls_safetensors_read(f, e, 1, got, n), LS_EINVAL, "asked for");
        CHECK_FAILS(ls_safetensors_read(f, e, UINT64_MAX, got, 1), LS_EINVAL, "asked for");
    }
    CHECK(!strcmp(ls_safetensors_metadata(f, "format"), "pt"));
    for (int i = 0; i < 2; i++)
        CHECK(!strcmp(ls_safetensors_metadata(f, metadata[i].key), metadata[i].value));
    CHECK(!ls_safetensors_find(f, "nothing") && !ls_safetensors_metadata(f, "nothing"));
}

static void test_round_trip(void)
{
    static const char *const order[] = {"step", "a", "empty", "z", "b.\"quoted\"\n\x01/é"};
    const char              *path    = temp_path("a.safetensors");
    ls_safetensors          *f;

    CHECK_OK(write_sample(path));
    CHECK(temp_files(false) == 1);
    if (!CHECK_OK(ls_safetensors_open(path, &f)))
        return;
    check_sample(f);
    uint64_t begin = 0; /* larger dtypes first, then by name */
    for (int i = 0; i < N; i++) {
        const ls_st_entry *e = ls_safetensors_find(f, order[i]);
        CHECK(e && e->begin == begin);
        begin = e->end;
    }
    ls_safetensors_close(f);
}

/* Whatever the header's length, the data begins at a multiple of 8. */
static void test_alignment(void)
{
    const char *path = temp_path("aligned.safetensors");

    for (size_t n = 0; n < 16; n++) {
        char            value[17] = "aaaaaaaaaaaaaaaa";
        ls_st_metadata  pair      = {"k", value};
        ls_safetensors *f;
        value[n] = '\0';
        CHECK_OK(ls_safetensors_write(path, sources, N, &pair, 1));
        if (CHECK_OK(ls_safetensors_open(path, &f)))
            CHECK(f->data_offset % 8 == 0);
        ls_safetensors_close(f);
    }
}

static void test_writer_refusals(void)
{
    static const struct {
        const char    *name;
        ls_st_source   tensor;
        ls_st_metadata pair;
        const char    *message;
    } rows[] = {
        {"empty name", {"", "F32", 0, {0}, reals}, {"k", "v"}, "cannot name a tensor"},
        {"reserved name", {"__metadata__", "F32", 0, {0}, reals}, {"k", "v"}, "cannot name"},
        {"not UTF-8", {"\xff", "F32", 0, {0}, reals}, {"k", "v"}, "cannot name"},
        {"dtype", {"a", "f32", 0, {0}, reals}, {"k", "v"}, "'f32' is not a dtype"},
        {"rank", {"a", "F32", 9, {0}, reals}, {"k", "v"}, "9 dimensions"},
        {"overflow", {"a", "F32", 2, {1ULL << 60, 1ULL << 60}, reals}, {"k", "v"}, "2^64 bits"},
        {"F4", {"a", "F4", 1, {1}, reals}, {"k", "v"}, "whole number"},
        {"format", {"a", "F32", 0, {0}, reals}, {"format", "np"}, "'format' given twice"},
        {"value", {"a", "F32", 0, {0}, reals}, {"k", "\xc0"}, "not UTF-8"},
    };
    const char *path = temp_path("refused.safetensors");

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        CHECK_FAILS(ls_safetensors_write(path, &rows[i].tensor, 1, &rows[i].pair, 1), LS_EINVAL,
                    rows[i].message);
        CHECK(access(path, F_OK) != 0);
    }
    TEST_ROW("twice");
    ls_st_source twice[] = {sources[1], sources[1]};
    CHECK_FAILS(ls_safetensors_write(path, twice, 2, NULL, 0), LS_EINVAL, "'a' given twice");
}

/* Every bit of every byte in front of the data: refused, or sound. */
static void test_flips(void)
{
    size_t size;
    char  *file     = temp_get(temp_path("a.safetensors"), &size);
    size_t length   = (size_t)(unsigned char)file[0] | (size_t)(unsigned char)file[1] << 8;
    int    accepted = 0;

    for (size_t at = 0; at < 8 + length; at++)
        for (int bit = 0; bit < 8; bit++) {
            ls_st_header h;
            uint64_t     n;
            file[at] = (char)(file[at] ^ 1 << bit);
            if (!ls_st_header_length("f", (unsigned char *)file, size, &n) &&
                !parse(file + 8, (size_t)n, size - 8 - n, &h)) {
                accepted++;
                CHECK(is_sound(&h));
                ls_st_header_free(&h);
            }
            file[at] = (char)(file[at] ^ 1 << bit);
        }
    CHECK(accepted > 0); /* flips within names */
    free(file);
}

static void test_truncation(void)
{
    size_t size;
    char  *file = temp_get(temp_path("a.safetensors"), &size), full[64];

    snprintf(full, sizeof full, "expected %zu bytes, found", size);
    uint64_t data =
        size - 8 - ((size_t)(unsigned char)file[0] | (size_t)(unsigned char)file[1] << 8);
    for (size_t n = 0; n < size; n++) {
        ls_safetensors *f;
        const char     *path = temp_path("cut.safetensors");
        temp_put(path, file, n);
        CHECK_FAILS(ls_safetensors_open(path, &f), LS_EFORMAT, path);
        CHECK(strstr(ls_error_message(), "truncated") != NULL);
        CHECK(n < size - data || strstr(ls_error_message(), full));
    }
    free(file);
}

/* A file that shrinks while it is open is an error of the read. */
static void test_cut_while_open(void)
{
    const char     *path = temp_path("shrinks.safetensors");
    ls_safetensors *f;
    char            got[64];

    CHECK_OK(write_sample(path));
    if (!CHECK_OK(ls_safetensors_open(path, &f)))
        return;
    CHECK(truncate(path, (off_t)f->data_offset + 4) == 0);
    CHECK_FAILS(ls_safetensors_read(f, ls_safetensors_find(f, "a"), 0, got, 24), LS_EIO,
                "tensor 'a': ");
    CHECK(strstr(ls_error_message(), "while it is open") != NULL);
    ls_safetensors_close(f);
}

static void test_not_a_file(void)
{
    ls_safetensors *f;

    CHECK_FAILS(ls_safetensors_open(temp_path("none"), &f), LS_EIO, "No such file");
    CHECK_FAILS(ls_safetensors_open(temp_dir, &f), LS_EIO, "is a directory");
    CHECK_FAILS(ls_safetensors_open("/dev/null", &f), LS_EIO, "not a regular file");
    const char *fifo = temp_path("fifo");
    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK_FAILS(ls_safetensors_open(fifo, &f), LS_EIO, "not a regular file");
    CHECK_FAILS(write_sample("/dev/null"), LS_EIO, "not a regular file");
    CHECK_FAILS(write_sample(temp_dir), LS_EIO, "is a directory");
    CHECK_FAILS(write_sample(temp_path("no/such.safetensors")), LS_EIO, "No such file");
    CHECK_FAILS(write_sample(temp_path("")), LS_EINVAL, "not the name of a file");
}

/* The n-th allocation fails, for every n: an error, and the old file stays. */
static void test_out_of_memory(void)
{
    const char *path = temp_path("a.safetensors");
    size_t      before_bytes, after_bytes;
    char       *before = temp_get(path, &before_bytes);
    int         writes = 0, reads = 0;
    ls_status   status = LS_ENOMEM;

    for (; status && writes < 200; writes += status != LS_OK) {
        ls_alloc_fail_after(writes);
        status = ls_safetensors_write(path, sources, N, metadata, 1); /* other bytes */
        ls_alloc_fail_after(-1);
        char *after = temp_get(path, &after_bytes);
        CHECK(!status || status == LS_ENOMEM);
        CHECK(!status || (after_bytes == before_bytes && !memcmp(before, after, before_bytes)));
        free(after);
    }
    for (status = LS_ENOMEM; status && reads < 200; reads += status != LS_OK) {
        ls_safetensors *f = NULL;
        ls_alloc_fail_after(reads);
        status = ls_safetensors_open(path, &f);
        ls_alloc_fail_after(-1);
        CHECK(!status || (status == LS_ENOMEM && !f));
        ls_safetensors_close(f);
    }
    CHECK(writes >= 5 && reads >= 4);
    free(before);
}

/* Processor time to parse a header of n tensors, named so that names and offsets differ in
 * order. */
static double time_many(int n)
{
    size_t       used = 0, capacity = (size_t)n * 90 + 10;
    char        *text = malloc(capacity);
    ls_st_header h;

    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(
            text + used, capacity - used,
            "%s\"h.%d.w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
            i ? "," : "{", (int)((int64_t)i * 7919 % n), 4 * i, 4 * i + 4);
    text[used++]  = '}';
    clock_t begin = clock();
    if (CHECK_OK(parse(text, used, (uint64_t)4 * (uint64_t)n, &h))) {
        CHECK(h.n_entries == (size_t)n && is_sound(&h));
        ls_st_header_free(&h);
    }
    free(text);
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

/* Ten times the tensors take some ten times the work; looking each up in turn would take 100.
 */
static void test_many(void)
{
    double few = time_many(10000), many = time_many(100000);

    printf("10^5 tensors: %.0f ms, 10^4: %.0f ms\n", 1e3 * many, 1e3 * few);
    CHECK(many < 40 * few + 0.05);
}

int main(void)
{
    temp_dir_make();
    test_verdicts();
    TEST_ROW("escapes");
    test_escapes();
    TEST_ROW("nesting");
    test_nesting();
    TEST_ROW("long names");
    test_long_names();
    test_lengths();
    TEST_ROW("round trip");
    test_round_trip();
    TEST_ROW("alignment");
    test_alignment();
    test_writer_refusals();
    TEST_ROW("flips");
    test_flips();
    TEST_ROW("truncation");
    test_truncation();
    TEST_ROW("cut while open");
    test_cut_while_open();
    TEST_ROW("not a file");
    test_not_a_file();
    TEST_ROW("out of memory");
    test_out_of_memory();
    TEST_ROW("10^5 tensors");
    test_many();
    temp_dir_remove();
    return test_summary("safetensors");
}

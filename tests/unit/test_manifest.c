/*
 * test_manifest.c - manifests: back out of their text, and every kind that must be refused.
 */
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/gz.h"
#include "temp_dir.h"
#include "test.h"

/* Two files, three tensors: 5 x 2 F32 in two chunks, a scalar I64, an empty one. */
static const char text_head[] =
    "{\"lockstep_checkpoint\":1,\"step\":7,\"world_size\":2,\"strategy\":\"ddp\",\"codec\":"
    "\"none\",\"state\":\"{}\",\"config\":\"{}\",\"tokenizer\":\"{}\",\"files\":[{\"name\":\"a."
    "st\","
    "\"bytes\":132,\"header_bytes\":100,\"header_crc32\":\"00000001\"},{\"name\":\"b.st\","
    "\"bytes\":"
    "116,\"header_bytes\":100,\"header_crc32\":\"00000002\"}],\"tensors\":[{\"name\":\"w\","
    "\"kind\":"
    "\"parameter\",\"dtype\":\"F32\",\"shape\":[5,2],\"chunks\":[{\"file\":0,\"first\":0,"
    "\"rows\":3,"
    "\"offset\":108,\"bytes\":24,\"crc32\":\"0000000a\"},{\"file\":1,\"first\":3,\"rows\":2,"
    "\"offset\":100,\"bytes\":16,\"crc32\":\"0000000b\"}]},{\"name\":\"s\",\"kind\":\"buffer\","
    "\"dtype\":\"I64\",\"shape\":[],\"chunks\":[{\"file\":0,\"first\":0,\"rows\":1,\"offset\":"
    "100,"
    "\"bytes\":8,\"crc32\":\"0000000c\"}]},{\"name\":\"e\",\"kind\":\"optimizer\",\"dtype\":"
    "\"F32\","
    "\"shape\":[0,4],\"chunks\":[]}]";

/* The text with its CRC-32 behind; freed with free(). */
static char *sealed(const char *text, size_t n, size_t *bytes)
{
    char *out = calloc(n + 32, 1);

    memcpy(out, text, n);
    *bytes = n + (size_t)sprintf(out + n, ",\"crc32\":\"%08x\"}\n", ls_crc32(0, text, n));
    return out;
}

static ls_status parse_sealed(const char *text, size_t n, ls_manifest *m)
{
    size_t    bytes;
    char     *own    = sealed(text, n, &bytes);
    ls_status status = ls_manifest_parse(own, bytes, "manifest.json", m);

    free(own);
    return status;
}

static void test_round(void)
{
    ls_manifest m, again;

    TEST_ROW("round");
    if (!CHECK_OK(parse_sealed(text_head, strlen(text_head), &m)))
        return;
    CHECK(m.step == 7 && m.world == 2 && !strcmp(m.strategy, "ddp") && !m.compressed);
    CHECK(m.n_tensors == 3 && m.n_files == 2 && m.n_chunks == 3);
    const ls_manifest_tensor *w = ls_manifest_find(&m, "w"), *s = ls_manifest_find(&m, "s");
    if (CHECK(w && s)) {
        CHECK(w->rows == 5 && w->row_bytes == 8 && w->n_chunks == 2);
        CHECK(m.chunk[w->first_chunk + 1].crc == 0xb);
        CHECK(s->rows == 1 && s->row_bytes == 8 && s->kind == LS_KIND_BUFFER);
    }
    CHECK(!ls_manifest_find(&m, "x"));
    char *text = ls_manifest_print(&m);
    if (CHECK(text) && CHECK_OK(ls_manifest_parse(text, strlen(text), "again", &again))) {
        CHECK(again.crc == m.crc && again.n_chunks == 3);
        ls_manifest_free(&again);
    }
    free(text);
    ls_manifest_free(&m);
}

/* Flipped, cut or lengthened anywhere: the text's own checksum tells. */
static void test_damage(void)
{
    size_t      n;
    char       *text  = sealed(text_head, strlen(text_head), &n);
    char       *other = malloc(n + 2);
    ls_manifest m;
    int         missed = 0;

    TEST_ROW("damage");
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(other, text, n);
            other[i] = (char)(other[i] ^ 1 << bit);
            missed += ls_manifest_parse(other, n, "flipped", &m) != LS_EFORMAT;
        }
    for (size_t i = 0; i < n; i++) {
        memcpy(other, text, n);
        missed += ls_manifest_parse(other, i, "cut", &m) != LS_EFORMAT;
    }
    memcpy(other, text, n);
    other[n] = ' ';
    missed += ls_manifest_parse(other, n + 1, "longer", &m) != LS_EFORMAT;
    CHECK(missed == 0);
    free(other);
    free(text);
}

/* One place of the text replaced, and the checksum made to fit. */
static const struct {
    const char *name, *from, *to, *wants;
} rows[] = {
    {"newer version", "checkpoint\":1", "checkpoint\":2", "version 2"},
    {"no version", "\"lockstep_checkpoint\":1,", "", "lockstep_checkpoint"},
    {"no state", "\"state\":\"{}\",", "", "without \"state\""},
    {"no config", "\"config\":\"{}\",", "", "without \"config\""},
    {"no tokenizer", "\"tokenizer\":\"{}\",", "", "without \"tokenizer\""},
    {"no chunk crc", ",\"crc32\":\"0000000a\"", "", "without \"crc32\""},
    {"key twice", "\"step\":7", "\"step\":7,\"step\":8", "\"step\" twice"},
    {"key twice by an escape", "\"step\":7", "\"step\":7,\"\\u0073tep\":8", "twice"},
    {"negative step", "\"step\":7", "\"step\":-7", "unsigned"},
    {"huge step", "\"step\":7", "\"step\":9223372036854775808", "at most"},
    {"world too large", "\"world_size\":2", "\"world_size\":5000", "at most 4096"},
    {"unknown codec", "\"none\"", "\"zstd\"", "zstd"},
    {"parent's file", "a.st", "../a.st", "'../a.st'"},
    {"absolute file", "a.st", "/etc/passwd", "/etc/passwd"},
    {"hidden file", "a.st", ".a", "'.a'"},
    {"file with a NUL", "a.st", "a\\u0000", "NUL"},
    {"file with a newline", "a.st", "a\\nb", "\\x0a"},
    {"file twice", "b.st", "a.st", "a.st is given twice"},
    {"header beyond the file", "\"header_bytes\":100,\"header_crc32\":\"00000001\"",
     "\"header_bytes\":900,\"header_crc32\":\"00000001\"", "header of 900"},
    {"file longer than its chunks", "\"bytes\":132", "\"bytes\":133", "end at byte 132"},
    {"file shorter than its chunks", "\"bytes\":132", "\"bytes\":131", "a.st"},
    {"file of 2^64", "\"bytes\":132", "\"bytes\":18446744073709551615", "a.st"},
    {"crc of seven digits", "0000000a", "000000a", "eight hex digits"},
    {"crc in upper case", "0000000a", "0000000A", "eight hex digits"},
    {"name twice", "\"name\":\"s\"", "\"name\":\"w\"", "'w' is given twice"},
    {"name twice by an escape", "\"name\":\"s\"", "\"name\":\"\\u0077\"", "'w' is given twice"},
    {"no name", "\"name\":\"s\"", "\"name\":\"\"", "0 bytes"},
    {"unknown kind", "\"parameter\"", "\"gradient\"", "gradient"},
    {"unknown dtype", "\"F32\",\"shape\":[5,2]", "\"F16\",\"shape\":[5,2]", "F16"},
    {"another dtype", "\"F32\",\"shape\":[5,2]", "\"F64\",\"shape\":[5,2]", "size"},
    {"shape that overflows", "[5,2]", "[4294967296,4294967296,4294967296]", "'w'"},
    {"shape of nine", "[5,2]", "[1,1,1,1,1,1,1,1,1]", "8 dimensions"},
    {"shape of fractions", "[5,2]", "[5.0,2]", "unsigned"},
    {"one row more", "[5,2]", "[6,2]", "row 5 of 6"},
    {"one row less", "[5,2]", "[4,2]", "beyond"},
    {"hole in the rows", "\"first\":3", "\"first\":4", "no chunk has row 3"},
    {"rows twice", "\"first\":3", "\"first\":2", "two chunks have row 2"},
    {"rows that overflow", "\"rows\":2", "\"rows\":18446744073709551615", "beyond"},
    {"no rows", "\"rows\":2,\"offset\":100,\"bytes\":16",
     "\"rows\":0,\"offset\":100,\"bytes\":0", "'w'"},
    {"chunk of a third file", "\"file\":1", "\"file\":2", "file 2, of 2"},
    {"chunk of a huge file number", "\"file\":1", "\"file\":4294967296", "at most"},
    {"chunks overlap in the file", "\"offset\":108", "\"offset\":104", "a.st"},
    {"hole in the file", "\"offset\":108", "\"offset\":112", "a.st"},
    {"chunk in the header", "\"offset\":100,\"bytes\":16", "\"offset\":0,\"bytes\":16", "b.st"},
    {"stored fewer, not compressed", "\"bytes\":16", "\"stored\":8,\"bytes\":16", "size"},
    {"not an object", "{\"lock", "[{\"lock", "object"},
    {"comma", "\"step\":7", "\"step\":7,", "byte"},
    {"not UTF-8", "\"ddp\"", "\"\xff\"", "UTF-8"},
};

static void test_refused(void)
{
    char other[4096];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *at = strstr(text_head, rows[i].from);
        ls_manifest m;
        TEST_ROW(rows[i].name);
        if (!CHECK(at))
            continue;
        int n = snprintf(other, sizeof other, "%.*s%s%s", (int)(at - text_head), text_head,
                         rows[i].to, at + strlen(rows[i].from));
        if (!CHECK(parse_sealed(other, (size_t)n, &m) == LS_EFORMAT))
            continue;
        if (!CHECK(strstr(ls_error_message(), rows[i].wants)))
            printf("  message: %s\n", ls_error_message());
        CHECK(!strncmp(ls_error_message(), "manifest.json: ", 15));
    }
}

/* Unknown keys are a newer writer's business, deep ones too, within reason. */
static void test_unknown(void)
{
    static char other[8192];
    ls_manifest m;

    TEST_ROW("unknown keys");
    int n = snprintf(other, sizeof other, "{\"new\":[{\"a\":[1,2.5e3,null,true]}],%s",
                     text_head + 1);
    if (CHECK_OK(parse_sealed(other, (size_t)n, &m)))
        ls_manifest_free(&m);
    TEST_ROW("nested too deeply");
    memset(other, 0, sizeof other);
    strcpy(other, "{\"new\":");
    memset(other + 7, '[', 2000);
    memset(other + 2007, ']', 2000);
    strcat(other, ",");
    strcat(other, text_head + 1);
    CHECK(parse_sealed(other, strlen(other), &m) == LS_EFORMAT);
    CHECK(strstr(ls_error_message(), "deep"));
}

/* 10^5 tensors take no more than a moment: nothing in the reader is quadratic. */
static void test_many(void)
{
    enum { MANY = 100000 };
    ls_manifest m = {.step = 1, .world = 1};

    TEST_ROW("many tensors");
    m.strategy = ls_strdup("single");
    m.state = ls_strdup("{}"), m.config = ls_strdup("{}"), m.tokenizer = ls_strdup("{}");
    m.tensor = ls_calloc(MANY, sizeof *m.tensor);
    m.chunk  = ls_calloc(MANY, sizeof *m.chunk);
    m.file   = ls_calloc(1, sizeof *m.file);
    m.file[0] =
        (ls_manifest_file){.name = ls_strdup("f"), .bytes = 8 + 4 * MANY, .header_bytes = 8};
    m.n_files = 1;
    for (uint32_t i = 0; i < MANY; i++) {
        m.tensor[i] = (ls_manifest_tensor){.name = ls_sprintf("t%u", i), .dtype = LS_F32};
        m.chunk[i]  = (ls_manifest_chunk){
             .tensor = i, .rows = 1, .bytes = 4, .stored = 4, .offset = 8 + 4 * (uint64_t)i};
    }
    m.n_tensors = m.n_chunks = MANY;
    if (CHECK_OK(ls_manifest_check(&m, "many"))) {
        char       *text = ls_manifest_print(&m);
        ls_manifest again;
        if (CHECK(text) && CHECK_OK(ls_manifest_parse(text, strlen(text), "many", &again))) {
            CHECK(again.n_tensors == MANY && ls_manifest_find(&again, "t99999"));
            ls_manifest_free(&again);
        }
        free(text);
    }
    ls_manifest_free(&m);
}

static void test_memory(void)
{
    ls_manifest m;
    ls_status   status = LS_ENOMEM;
    size_t      n;
    char       *text = sealed(text_head, strlen(text_head), &n), *own = malloc(n + 1);

    TEST_ROW("out of memory");
    for (int i = 0; status && i < 1000; i++) {
        memcpy(own, text, n);
        ls_alloc_fail_after(i);
        status = ls_manifest_parse(own, n, "memory", &m);
        ls_alloc_fail_after(-1);
        CHECK(!status || status == LS_ENOMEM);
    }
    CHECK_OK(status);
    ls_manifest_free(&m);
    free(own);
    free(text);
}

static void test_files(void)
{
    ls_manifest m;

    TEST_ROW("no file");
    CHECK(ls_manifest_read(temp_path("nope"), &m) == LS_EIO);
    TEST_ROW("a directory");
    CHECK(ls_manifest_read(temp_dir, &m) == LS_EIO);
    TEST_ROW("a symbolic link");
    size_t n;
    char  *text = sealed(text_head, strlen(text_head), &n);
    temp_put(temp_path("m.json"), text, n);
    CHECK(!symlink(temp_path("m.json"), temp_path("link")));
    CHECK(ls_manifest_read(temp_path("link"), &m) == LS_EIO);
    CHECK(strstr(ls_error_message(), "symbolic link"));
    if (CHECK_OK(ls_manifest_read(temp_path("m.json"), &m)))
        ls_manifest_free(&m);
    free(text);
}

int main(void)
{
    temp_dir_make();
    test_round();
    test_damage();
    test_refused();
    test_unknown();
    test_many();
    test_memory();
    test_files();
    temp_dir_remove();
    return test_summary("manifest");
}

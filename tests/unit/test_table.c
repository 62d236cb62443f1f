/*
 * test_table.c - csv, idx and token files: what is read, and what is refused with which words.
 */
#include "data/table.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "scratch.h"
#include "test.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define TEXT(s) s, sizeof(s) - 1

/* ---- csv: two numbers and a class below 3 ---- */

static const struct {
    const char *name, *content;
    size_t      size;
    ls_status   status;
    const char *message; /* or NULL, and the rows as "x y class;" */
    const char *rows;
} csvs[] = {
    {"plain", TEXT("1,2,0\n3.5,-4e-1,2\n"), LS_OK, NULL, "1 2 0;3.5 -0.4 2;"},
    {"no newline at the end", TEXT("1,2,0\n3,4,1"), LS_OK, NULL, "1 2 0;3 4 1;"},
    {"header", TEXT("a,b,class\n1,2,0\n"), LS_OK, NULL, "1 2 0;"},
    {"header of numbers", TEXT("0,1,label\n1,2,0\n"), LS_OK, NULL, "1 2 0;"},
    {"quotes", TEXT("\"a,b\",\"c\",k\n\"1\", \"2\" ,0\n"), LS_OK, NULL, "1 2 0;"},
    {"CRLF, blanks, empty lines", TEXT("\n a , b , c \r\n\r\n 1 ,\t2 , 0 \r\n\r\n"), LS_OK,
     NULL, "1 2 0;"},
    {"byte order mark",
     TEXT("\xef\xbb\xbf"
          "1,2,0\n"),
     LS_OK, NULL, "1 2 0;"},
    {"class as 1.0", TEXT("1,2,1.0\n"), LS_OK, NULL, "1 2 1;"},
    {"ragged, less", TEXT("1,2,0\n1,2\n"), LS_EFORMAT, "csv: line 2 has 2 columns, wanted 2",
     NULL},
    {"ragged, more", TEXT("1,2,0\n\n1,2,0,0\n"), LS_EFORMAT, "csv: line 3 has 4 columns", NULL},
    {"NaN", TEXT("1,2,0\n1,nan,0\n"), LS_EFORMAT,
     "line 2, column 2: found nan, wanted a finite", NULL},
    {"infinite", TEXT("inf,2,0\n"), LS_EFORMAT, "line 1, column 1: found inf", NULL},
    {"too large", TEXT("1,1e39,0\n"), LS_EFORMAT, "line 1, column 2: found 1e39", NULL},
    {"text", TEXT("a,b,c\n1,red,0\n"), LS_EFORMAT,
     "csv: line 2, column 2: found \"red\", wanted a finite number", NULL},
    {"text in the first line", TEXT("1,red,0\n"), LS_EFORMAT, "line 1, column 2: found \"red\"",
     NULL},
    {"empty field", TEXT("1,,0\n"), LS_EFORMAT, "line 1, column 2: found \"\"", NULL},
    {"hexadecimal", TEXT("1,0x10,0\n"), LS_EFORMAT, "found \"0x10\"", NULL},
    {"number with a tail", TEXT("1,2a,0\n"), LS_EFORMAT, "found \"2a\"", NULL},
    {"NUL behind a number", TEXT("1,2,0\n1,2\0 3,0\n"), LS_EFORMAT,
     "csv: line 2, column 2: found \"2", NULL},
    {"NUL at the end", TEXT("1,2\0,0\n1,2,0\n"), LS_EFORMAT, "line 1, column 2", NULL},
    {"odd white space", TEXT("1,\v2,0\n"), LS_EFORMAT, "line 1, column 2", NULL},
    {"semicolons", TEXT("1;2;0\n2;3;1\n"), LS_EFORMAT, "line 2 has 1 columns", NULL},
    {"class of text", TEXT("1,2,0\n1,2,cat\n"), LS_EFORMAT,
     "line 2, column 3: found \"cat\", wanted a class", NULL},
    {"class of a fraction", TEXT("1,2,0.5\n"), LS_EFORMAT,
     "column 3: found 0.5, wanted a class", NULL},
    {"class below 0", TEXT("1,2,-1\n"), LS_EFORMAT, "column 3: found -1, wanted a class", NULL},
    {"class too large", TEXT("1,2,3\n"), LS_ECONFIG,
     "line 1, column 3: class 3, model.sizes ends with 3", NULL},
    {"header alone", TEXT("a,b,c\n"), LS_EFORMAT, "csv: no rows", NULL},
    {"open quote", TEXT("1,2,0\n\"1,2,0\n"), LS_EFORMAT, "line 2 has 1 columns", NULL},
    {"bytes", TEXT("\x00\x01\x02\xff,\x80\n1,2,0\n1\n"), LS_EFORMAT, "line 3 has 1 columns",
     NULL},
};

static void print_rows(const ls_table *t, char *out, size_t size)
{
    float  x[8];
    size_t used = 0;

    for (int64_t i = 0; i < t->rows; i++) {
        int32_t label = ls_table_read(t, i, x);
        for (int64_t k = 0; k < t->features; k++)
            used += (size_t)snprintf(out + used, size - used, "%g ", (double)x[k]);
        used += (size_t)snprintf(out + used, size - used, "%d;", label);
    }
}

static void check_table(ls_status status, ls_status want, const char *message, const char *rows,
                        ls_table *t, int64_t before)
{
    char got[256] = "";

    if (want) {
        CHECK_FAILS(status, want, message);
        CHECK(!t->rows && !t->label);
    } else if (CHECK_OK(status)) {
        print_rows(t, got, sizeof got);
        if (!CHECK(!strcmp(got, rows)))
            printf("     got \"%s\", want \"%s\"\n", got, rows);
    }
    ls_table_close(t);
    CHECK(ls_mem_get_stats().total == before);
}

static void test_csv(void)
{
    for (size_t i = 0; i < COUNT(csvs); i++) {
        int64_t     before = ls_mem_get_stats().total;
        const char *path   = scratch_write("csv", csvs[i].content, csvs[i].size);
        ls_table    t;

        TEST_ROW(csvs[i].name);
        ls_status status =
            ls_table_load(LS_FORMAT_CSV, (ls_paths){&path, 1}, (ls_table_shape){2, 3}, &t);
        check_table(status, csvs[i].status, csvs[i].message, csvs[i].rows, &t, before);
    }
}

static void test_csv_files(void)
{
    const char *paths[] = {scratch_write("one", TEXT("a,b,c\n1,2,0\n")),
                           scratch_write("two", TEXT("a,b,c\n3,4,1"))};
    int64_t     before  = ls_mem_get_stats().total;
    ls_table    t;

    TEST_ROW("two files");
    ls_status status =
        ls_table_load(LS_FORMAT_CSV, (ls_paths){paths, 2}, (ls_table_shape){2, 3}, &t);
    check_table(status, LS_OK, NULL, "1 2 0;3 4 1;", &t, before);
    TEST_ROW("line of the second file");
    scratch_write("two", TEXT("a,b,c\n3,4,1\n5,x,0\n"));
    status = ls_table_load(LS_FORMAT_CSV, (ls_paths){paths, 2}, (ls_table_shape){2, 3}, &t);
    check_table(status, LS_EFORMAT, "two: line 3, column 2: found \"x\"", NULL, &t, before);
}

/* ---- idx: images of 1 x 2, classes below 3 ---- */

#define IMAGES  \
    "\0\0\10\3" \
    "\0\0\0\2"  \
    "\0\0\0\1"  \
    "\0\0\0\2"  \
    "\0\377\63\146"
#define LABELS  \
    "\0\0\10\1" \
    "\0\0\0\2"  \
    "\2\0"

static const struct {
    const char *name, *images;
    size_t      n_images;
    const char *labels;
    size_t      n_labels;
    ls_status   status;
    const char *message, *rows;
} idxs[] = {
    {"plain", TEXT(IMAGES), TEXT(LABELS), LS_OK, NULL, "0 1 2;0.2 0.4 0;"},
    {"two dimensions", TEXT("\0\0\10\2\0\0\0\2\0\0\0\2\0\377\63\146"), TEXT(LABELS), LS_OK,
     NULL, "0 1 2;0.2 0.4 0;"},
    {"swapped", TEXT(LABELS), TEXT(IMAGES), LS_EFORMAT,
     "images: one dimension; the images come first", NULL},
    {"labels of images", TEXT(IMAGES), TEXT(IMAGES), LS_EFORMAT,
     "labels: 3 dimensions, labels have one", NULL},
    {"wrong magic", TEXT("\1\0\10\1\0\0\0\2\2\0"), TEXT(LABELS), LS_EFORMAT,
     "images: not an idx file", NULL},
    {"text", TEXT("1,2,3\n1,2,3\n"), TEXT(LABELS), LS_EFORMAT, "images: not an idx file", NULL},
    {"floats", TEXT("\0\0\15\1\0\0\0\1\0\0\0\0"), TEXT(LABELS), LS_EUNSUPPORTED,
     "values of type 0x0d", NULL},
    {"cut", IMAGES, sizeof(IMAGES) - 2, TEXT(LABELS), LS_EFORMAT,
     "images: 3 bytes of values, its header says 2 of 2 each", NULL},
    {"longer", TEXT(IMAGES "x"), TEXT(LABELS), LS_EFORMAT, "images: 5 bytes of values", NULL},
    {"header cut", TEXT("\0\0\10\3\0\0\0\2"), TEXT(LABELS), LS_EFORMAT,
     "3 dimensions in 8 bytes", NULL},
    {"no dimensions", TEXT("\0\0\10\0\0\0\0\0"), TEXT(LABELS), LS_EFORMAT, "0 dimensions",
     NULL},
    {"overflow", TEXT("\0\0\10\3\377\377\377\377\377\377\377\377\377\377\377\377"),
     TEXT(LABELS), LS_EFORMAT, "0 bytes of values", NULL},
    {"fewer labels", TEXT(IMAGES), TEXT("\0\0\10\1\0\0\0\1\1"), LS_EFORMAT, "2 images", NULL},
    {"no rows", TEXT("\0\0\10\2\0\0\0\0\0\0\0\2"), TEXT("\0\0\10\1\0\0\0\0"), LS_EFORMAT,
     "0 images", NULL},
    {"other size", TEXT("\0\0\10\2\0\0\0\2\0\0\0\1\0\377"), TEXT(LABELS), LS_ECONFIG,
     "images of 1 values, model.sizes begins with 2", NULL},
    {"label too large", TEXT(IMAGES), TEXT("\0\0\10\1\0\0\0\2\0\3"), LS_ECONFIG,
     "label 3 at row 1 (from 0), model.sizes ends with 3", NULL},
};

static void test_idx(void)
{
    for (size_t i = 0; i < COUNT(idxs); i++) {
        const char *paths[] = {scratch_write("images", idxs[i].images, idxs[i].n_images),
                               scratch_write("labels", idxs[i].labels, idxs[i].n_labels)};
        int64_t     before  = ls_mem_get_stats().total;
        ls_table    t;

        TEST_ROW(idxs[i].name);
        ls_status status =
            ls_table_load(LS_FORMAT_IDX, (ls_paths){paths, 2}, (ls_table_shape){2, 3}, &t);
        check_table(status, idxs[i].status, idxs[i].message, idxs[i].rows, &t, before);
    }
    const char *one = scratch_path("images");
    ls_table    t;
    TEST_ROW("one file");
    CHECK_FAILS(ls_table_load(LS_FORMAT_IDX, (ls_paths){&one, 1}, (ls_table_shape){2, 3}, &t),
                LS_ECONFIG, "1 file, data.format \"idx\" needs two");
}

/* ---- a dataset of rows ---- */

static void test_dataset(void)
{
    const char     *train = scratch_write("csv", TEXT("1,2,0\n3,4,1\n5,6,2\n7,8,0\n"));
    ls_dataset_opts opts  = {
         .format = LS_FORMAT_CSV, .train = {&train, 1}, .val_fraction = 0.3, .shape = {2, 3}};
    int64_t    before = ls_mem_get_stats().total;
    ls_dataset d;
    ls_sampler s;
    float      x[2];

    TEST_ROW("rows split");
    CHECK_OK(ls_dataset_load(&opts, &d));
    CHECK(d.train_rows.rows == 3 && d.val_rows.rows == 1 && d.vocab_size == 3 && !d.tokenizer);
    CHECK(ls_table_read(&d.val_rows, 0, x) == 0 && x[0] == 7 && x[1] == 8);
    CHECK_OK(ls_sampler_init_rows(&s, &d.train_rows, LS_ORDER_SHUFFLE, 5));
    bool seen[3] = {false};
    for (int64_t q = 0; q < 3; q++)
        seen[ls_sampler_place(&s, q)] = true;
    CHECK(seen[0] && seen[1] && seen[2]);
    char     whole[LS_SHA256_HEX], part[LS_SHA256_HEX];
    ls_table first = ls_table_slice(&d.train_rows, 0, 2);
    CHECK_OK(ls_table_sha256(&d.train_rows, whole));
    CHECK_OK(ls_table_sha256(&first, part));
    CHECK(strlen(whole) == 64 && strcmp(whole, part));
    ls_dataset_close(&d);
    opts.val_fraction = 0.1;
    CHECK_FAILS(ls_dataset_load(&opts, &d), LS_ECONFIG, "data.val_fraction takes has no row");
    opts.val_fraction = 0;
    opts.val          = (ls_paths){&train, 1};
    CHECK_OK(ls_dataset_load(&opts, &d));
    CHECK(d.val_rows.rows == 4);
    ls_dataset_close(&d);
    CHECK(ls_mem_get_stats().total == before);
}

/* ---- token files ---- */

#define HEAD(magic, version, count) magic version count, 12
static const struct {
    const char    *name;
    ls_data_format format;
    const char    *head; /* llm.c's, filled up to its 1024 bytes */
    size_t         n_head;
    const char    *tail;
    size_t         n_tail;
    int32_t        limit;
    ls_status      status;
    const char    *message;
    int            n;
    int32_t        token[3];
} tokens[] = {
    {"u16",
     LS_FORMAT_TOKENS_U16,
     "",
     0,
     TEXT("\1\0\377\377\0\1"),
     65536,
     LS_OK,
     NULL,
     3,
     {1, 65535, 256}},
    {"no limit", LS_FORMAT_TOKENS_U16, "", 0, TEXT("\1\0"), 0, LS_OK, NULL, 1, {1}},
    {"odd",
     LS_FORMAT_TOKENS_U16,
     "",
     0,
     TEXT("\1\0\2"),
     0,
     LS_EFORMAT,
     "file: 3 bytes, 16-bit tokens make an even number",
     0,
     {0}},
    {"too large",
     LS_FORMAT_TOKENS_U16,
     "",
     0,
     TEXT("\1\0\2\0"),
     2,
     LS_ECONFIG,
     "file: token 2 (token number 1, from 0) does not fit a vocabulary of 2",
     0,
     {0}},
    {"llmc",
     LS_FORMAT_LLMC,
     HEAD("\x88\xd8\x34\x01", "\1\0\0\0", "\2\0\0\0"),
     TEXT("\1\0\2\0"),
     3,
     LS_OK,
     NULL,
     2,
     {1, 2}},
    {"llmc too large",
     LS_FORMAT_LLMC,
     HEAD("\x88\xd8\x34\x01", "\1\0\0\0", "\2\0\0\0"),
     TEXT("\1\0\2\0"),
     2,
     LS_ECONFIG,
     "file: token 2 (token number 1",
     0,
     {0}},
    {"llmc magic",
     LS_FORMAT_LLMC,
     HEAD("\x89\xd8\x34\x01", "\1\0\0\0", "\2\0\0\0"),
     TEXT("\1\0\2\0"),
     3,
     LS_EFORMAT,
     "file: magic number 20240521 and version 1, llm.c's files of 16-bit tokens have 20240520",
     0,
     {0}},
    {"llmc version",
     LS_FORMAT_LLMC,
     HEAD("\x88\xd8\x34\x01", "\7\0\0\0", "\2\0\0\0"),
     TEXT("\1\0\2\0"),
     3,
     LS_EFORMAT,
     "version 7",
     0,
     {0}},
    {"llmc short",
     LS_FORMAT_LLMC,
     HEAD("\x88\xd8\x34\x01", "\1\0\0\0", "\3\0\0\0"),
     TEXT("\1\0\2\0"),
     3,
     LS_EFORMAT,
     "4 bytes of tokens, its header says 3 tokens",
     0,
     {0}},
    {"llmc odd",
     LS_FORMAT_LLMC,
     HEAD("\x88\xd8\x34\x01", "\1\0\0\0", "\2\0\0\0"),
     TEXT("\1\0\2\0\1"),
     3,
     LS_EFORMAT,
     "5 bytes of tokens",
     0,
     {0}},
    {"llmc negative",
     LS_FORMAT_LLMC,
     HEAD("\x88\xd8\x34\x01", "\1\0\0\0", "\377\377\377\377"),
     TEXT("\1\0\2\0"),
     3,
     LS_EFORMAT,
     "its header says -1",
     0,
     {0}},
    {"llmc header cut",
     LS_FORMAT_LLMC,
     "",
     0,
     TEXT("\x88\xd8\x34\x01"),
     3,
     LS_EFORMAT,
     "4 bytes, an llm.c token file has a header of 1024",
     0,
     {0}},
};

static const char *write_tokens(size_t i)
{
    static char file[LS_LLMC_HEADER_BYTES + 64];
    size_t      head = tokens[i].n_head ? LS_LLMC_HEADER_BYTES : 0;

    memset(file, 0, sizeof file);
    memcpy(file, tokens[i].head, tokens[i].n_head);
    memcpy(file + head, tokens[i].tail, tokens[i].n_tail);
    return scratch_write("file", file, head + tokens[i].n_tail);
}

static void test_tokens(void)
{
    for (size_t i = 0; i < COUNT(tokens); i++) {
        int64_t     before = ls_mem_get_stats().total;
        const char *path   = write_tokens(i);
        ls_tokens   t;

        TEST_ROW(tokens[i].name);
        ls_status status =
            ls_tokens_load(tokens[i].format, (ls_paths){&path, 1}, tokens[i].limit, &t);
        if (tokens[i].status) {
            CHECK_FAILS(status, tokens[i].status, tokens[i].message);
            CHECK(!t.data);
        } else if (CHECK_OK(status) && CHECK(t.count == tokens[i].n)) {
            for (int k = 0; k < tokens[i].n; k++)
                CHECK(ls_tokens_at(&t, k) == tokens[i].token[k]);
        }
        ls_tokens_close(&t);
        CHECK(ls_mem_get_stats().total == before);
    }
}

/* What is written is read; two files follow each other, and the second is named. */
static void test_written(void)
{
    unsigned char file[LS_LLMC_HEADER_BYTES + 6];
    int32_t       some[] = {7, 300, 65535};
    ls_tokens     made, read;

    TEST_ROW("written");
    CHECK_OK(ls_tokens_init(&made, 3, 65536));
    for (int i = 0; i < 3; i++)
        ls_tokens_set(&made, i, some[i]);
    ls_llmc_header(3, file);
    ls_tokens_write_u16(&made, file + LS_LLMC_HEADER_BYTES);
    const char *paths[] = {scratch_write("a", file, sizeof file),
                           scratch_write("b", file, sizeof file)};
    CHECK_OK(ls_tokens_load(LS_FORMAT_LLMC, (ls_paths){paths, 2}, 0, &read));
    CHECK(read.count == 6);
    for (int i = 0; i < 6 && i < read.count; i++)
        CHECK(ls_tokens_at(&read, i) == some[i % 3]);
    ls_tokens_close(&read);
    ls_tokens_close(&made);
    scratch_write("a", file, 0);
    ls_llmc_header(0, file);
    scratch_write("a", file, LS_LLMC_HEADER_BYTES);
    CHECK_FAILS(ls_tokens_load(LS_FORMAT_LLMC, (ls_paths){paths, 2}, 300, &read), LS_ECONFIG,
                "b: token 300 (token number 1, from 0)");
}

/* Every byte of the small files changed: refused, or read; sanitizers watch. */
static void test_damaged(void)
{
    static const unsigned char with[]   = {0, 1, 2, 3, 127, 128, 255};
    char                       images[] = IMAGES;
    const char *paths[] = {scratch_path("images"), scratch_write("labels", TEXT(LABELS))};
    int64_t     before  = ls_mem_get_stats().total;

    TEST_ROW("damaged idx");
    for (size_t i = 0; i < (sizeof images - 1) * sizeof with; i++) {
        ls_table t;
        char     kept           = images[i / sizeof with];
        images[i / sizeof with] = (char)with[i % sizeof with];
        scratch_write("images", images, sizeof images - 1);
        images[i / sizeof with] = kept;
        if (!ls_table_load(LS_FORMAT_IDX, (ls_paths){paths, 2}, (ls_table_shape){2, 3}, &t))
            CHECK(t.rows == 2 && t.features == 2);
        ls_table_close(&t);
        CHECK(ls_mem_get_stats().total == before);
    }
}

static void test_out_of_memory(void)
{
    const char *csv      = scratch_write("csv", TEXT("1,2,0\n"));
    const char *images[] = {scratch_write("images", TEXT(IMAGES)),
                            scratch_write("labels", TEXT(LABELS))};
    int64_t     before   = ls_mem_get_stats().total;
    bool        done     = false;

    TEST_ROW("out of memory");
    for (int n = 0; !done && CHECK(n < 100); n++) {
        ls_table a = {0}, b = {0};
        ls_alloc_fail_after(n);
        ls_status status =
            ls_table_load(LS_FORMAT_CSV, (ls_paths){&csv, 1}, (ls_table_shape){2, 3}, &a);
        if (!status)
            status =
                ls_table_load(LS_FORMAT_IDX, (ls_paths){images, 2}, (ls_table_shape){2, 3}, &b);
        ls_alloc_fail_after(-1);
        done = status == LS_OK;
        CHECK(done ? n > 6 : status == LS_ENOMEM);
        ls_table_close(&a);
        ls_table_close(&b);
        CHECK(ls_mem_get_stats().total == before);
    }
}

int main(void)
{
    scratch_open();
    test_csv();
    test_csv_files();
    test_idx();
    test_dataset();
    test_tokens();
    test_written();
    test_damaged();
    test_out_of_memory();
    scratch_close();
    return test_summary("table");
}

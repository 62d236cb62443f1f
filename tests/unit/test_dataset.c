/*
 * test_dataset.c - from files to the tokens of training and validation.
 */
#include "data/dataset.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "data/sampler.h"
#include "scratch.h"
#include "test.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* gzip of "0123456789" three times */
static const char digits_gz[] =
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x33\x30\x34\x32\x36\x31\x35\x33\xb7\xb0\x34\xc0"
    "\xc2\x02\x00\x94\x07\x5c\x2d\x1e\x00\x00\x00";

enum { MOST = 3 }; /* files in a list */

/* NULL stands for digits_gz */
static const struct {
    const char *name, *content;
} files[] = {
    {"abc", "abcdefghij"},  {"xyz", "zyx"},        {"d.gz", NULL},
    {"empty", ""},          {"latin", "abc\xe9z"}, {"long", "abcdefghijklmnopqrstuvwxyz"},
    {"utf8", "a\xc3\xa9z"},
};

static void write_files(void)
{
    for (size_t i = 0; i < COUNT(files); i++)
        if (files[i].content)
            scratch_write(files[i].name, files[i].content, strlen(files[i].content));
        else
            scratch_write(files[i].name, digits_gz, sizeof digits_gz - 1);
}

typedef struct {
    const char       *name;
    const char       *train[MOST], *val[MOST];
    double            fraction;
    ls_tokenizer_kind kind;
    int32_t           vocab_size;
    int64_t           context;
    /* wanted */
    ls_status         status;
    const char       *train_text, *val_text; /* decoded again; or the message */
    int32_t           vocab;
} row;

#define BYTE LS_TOKENIZER_BYTE
#define CHAR LS_TOKENIZER_CHAR

/* two lines a row: what is given, what is wanted */
/* clang-format off */
static const row rows[] = {
    {"one file", {"abc"}, {0}, 0, BYTE, 0, 9,
     LS_OK, "abcdefghij", "", 256},
    {"several, one gzip", {"abc", "d.gz", "xyz"}, {0}, 0, BYTE, 0, 4,
     LS_OK, "abcdefghij012345678901234567890123456789zyx", "", 256},
    {"order of the list", {"xyz", "abc"}, {0}, 0, BYTE, 0, 4,
     LS_OK, "zyxabcdefghij", "", 256},
    {"twice the same", {"xyz", "xyz"}, {0}, 0, BYTE, 0, 4,
     LS_OK, "zyxzyx", "", 256},
    {"val file", {"abc"}, {"xyz"}, 0, BYTE, 0, 2,
     LS_OK, "abcdefghij", "zyx", 256},
    {"val files", {"abc"}, {"xyz", "abc"}, 0, BYTE, 0, 9,
     LS_OK, "abcdefghij", "zyxabcdefghij", 256},
    {"fraction, floor", {"abc"}, {0}, 0.39, BYTE, 0, 2,
     LS_OK, "abcdefg", "hij", 256},
    {"fraction of all files", {"abc", "xyz"}, {0}, 0.5, BYTE, 0, 5,
     LS_OK, "abcdefg", "hijzyx", 256},
    {"larger vocabulary", {"abc"}, {0}, 0, BYTE, 1000, 4,
     LS_OK, "abcdefghij", "", 1000},
    {"smaller, but enough", {"abc"}, {0}, 0, BYTE, 'j' + 1, 4,
     LS_OK, "abcdefghij", "", 'j' + 1},
    {"char", {"abc"}, {0}, 0, CHAR, 0, 4,
     LS_OK, "abcdefghij", "", 10},
    {"char, from all of train", {"abc", "xyz"}, {0}, 0.25, CHAR, 0, 2,
     LS_OK, "abcdefghij", "zyx", 13},
    {"char, val of its characters", {"long"}, {"xyz"}, 0, CHAR, 32, 2,
     LS_OK, "abcdefghijklmnopqrstuvwxyz", "zyx", 32},
    {"char counts characters", {"utf8"}, {0}, 0, CHAR, 0, 2,
     LS_OK, "a\xc3\xa9z", "", 3},
    {"no context, no check", {"abc"}, {"xyz"}, 0, BYTE, 0, 0,
     LS_OK, "abcdefghij", "zyx", 256},

    {"no file", {0}, {0}, 0, BYTE, 0, 4,
     LS_ECONFIG, "data.train: no data file", NULL, 0},
    {"missing", {"abc", "no"}, {0}, 0, BYTE, 0, 4,
     LS_EIO, "/no: cannot be opened: No such", NULL, 0},
    {"missing val", {"abc"}, {"no"}, 0, BYTE, 0, 4,
     LS_EIO, "data.val: scratch", NULL, 0},
    {"empty file", {"abc", "empty"}, {0}, 0, BYTE, 0, 4,
     LS_EFORMAT, "/empty is empty", NULL, 0},
    {"empty val", {"abc"}, {"empty"}, 0, BYTE, 0, 4,
     LS_EFORMAT, "data.val: data file", NULL, 0},
    {"Latin-1", {"abc", "latin"}, {0}, 0, CHAR, 0, 4,
     LS_EFORMAT, "/latin: invalid UTF-8 at byte 3", NULL, 0},
    {"Latin-1 val", {"abc"}, {"latin"}, 0, CHAR, 0, 4,
     LS_EFORMAT, "/latin: invalid UTF-8 at byte 3", NULL, 0},
    {"unknown in val", {"abc"}, {"abc", "xyz"}, 0, CHAR, 0, 2,
     LS_ECONFIG, "/xyz: unknown character 'z' (U+007A) at byte 0", NULL, 0},
    {"vocabulary too small", {"xyz", "abc"}, {0}, 0, BYTE, 'x', 4,
     LS_ECONFIG, "/xyz: token 122 at byte 0", NULL, 0},
    {"in the second file", {"abc", "xyz"}, {0}, 0, BYTE, 'y', 4,
     LS_ECONFIG, "/xyz: token 122 at byte 0 (token number 10, from 0) does not fit", NULL, 0},
    {"too small for val", {"abc"}, {"xyz"}, 0, BYTE, 'x', 2,
     LS_ECONFIG, "data.val: scratch", NULL, 0},
    {"too small for char", {"abc"}, {0}, 0, CHAR, 9, 4,
     LS_ECONFIG, "token 9 at byte 9", NULL, 0},
    {"context too long", {"abc"}, {0}, 0, BYTE, 0, 10,
     LS_ECONFIG, "data.train has 10 tokens, model.context 10 needs at least 11", NULL, 0},
    {"too long for val", {"abc"}, {"xyz"}, 0, BYTE, 0, 3,
     LS_ECONFIG, "data.val has 3 tokens, model.context 3 needs at least 4", NULL, 0},
    {"too long for the rest", {"abc"}, {0}, 0.5, BYTE, 0, 5,
     LS_ECONFIG, "data.train less data.val_fraction has 5 tokens, model.context 5", NULL, 0},
    {"too long for the fraction", {"abc"}, {0}, 0.3, BYTE, 0, 4,
     LS_ECONFIG, "data.val_fraction takes has 3 tokens, model.context 4", NULL, 0},
    {"fraction of nothing", {"abc"}, {0}, 0.01, BYTE, 0, 4,
     LS_ECONFIG, "takes has 0 tokens", NULL, 0},
    {"fraction 1", {"abc"}, {0}, 1, BYTE, 0, 4,
     LS_ECONFIG, "data.val_fraction is 1", NULL, 0},
    {"fraction below 0", {"abc"}, {0}, -0.1, BYTE, 0, 4,
     LS_ECONFIG, "data.val_fraction is -0.1", NULL, 0},
    {"fraction NaN", {"abc"}, {0}, NAN, BYTE, 0, 4,
     LS_ECONFIG, "data.val_fraction is nan", NULL, 0},
    {"fraction and file", {"abc"}, {"xyz"}, 0.5, BYTE, 0, 2,
     LS_ECONFIG, "found both", NULL, 0},
    {"negative vocabulary", {"abc"}, {0}, 0, BYTE, -1, 2,
     LS_ECONFIG, "model.vocab_size -1", NULL, 0},
};
/* clang-format on */

static ls_paths resolve(const char *const names[MOST], const char *paths[MOST])
{
    int n = 0;

    while (n < MOST && names[n]) {
        paths[n] = scratch_path(names[n]);
        n++;
    }
    return (ls_paths){paths, n};
}

static void check_text(const ls_tokenizer *t, const ls_tokens *tokens, const char *wanted)
{
    char   text[256 + LS_TOKEN_LONGEST];
    size_t n = 0;

    for (int64_t i = 0; i < tokens->count && n < sizeof text - LS_TOKEN_LONGEST; i++)
        n += ls_tokenizer_decode(t, ls_tokens_at(tokens, i), text + n);
    text[n] = 0;
    if (!CHECK(!strcmp(text, wanted)))
        printf("     got \"%s\", want \"%s\"\n", text, wanted);
}

static void check_row(const row *r)
{
    const char     *train[MOST], *val[MOST];
    ls_dataset_opts opts = {.train        = resolve(r->train, train),
                            .val          = resolve(r->val, val),
                            .val_fraction = r->fraction,
                            .kind         = r->kind,
                            .vocab_size   = r->vocab_size,
                            .context      = r->context};
    ls_dataset      d;
    int64_t         before = ls_mem_get_stats().total;

    TEST_ROW(r->name);
    ls_status status = ls_dataset_load(&opts, &d);
    if (r->status) {
        CHECK_FAILS(status, r->status, r->train_text);
        CHECK(!d.tokenizer && !d.train.data && !d.val.data);
    } else if (CHECK_OK(status)) {
        check_text(d.tokenizer, &d.train, r->train_text);
        check_text(d.tokenizer, &d.val, r->val_text);
        CHECK(d.vocab_size == r->vocab);
    }
    ls_dataset_close(&d);
    CHECK(ls_mem_get_stats().total == before);
}

static void test_given_tokenizer(void)
{
    const char     *train = scratch_path("abc"), *other = scratch_path("xyz");
    ls_dataset_opts opts = {.train = {&train, 1},
                            .kind  = LS_TOKENIZER_BYTE,
                            .tokenizer_json =
                                "{\"kind\":\"char\",\"code_points\":[97,98,99,100,"
                                "101,102,103,104,105,106,120,121,122]}"};
    ls_dataset      d;
    ls_tokens       tokens;

    TEST_ROW("tokenizer of a parameter file");
    CHECK_OK(ls_dataset_load(&opts, &d));
    CHECK(d.vocab_size == 13 && d.train.count == 10 && ls_tokens_at(&d.train, 9) == 9);
    CHECK_OK(ls_dataset_load_tokens(&opts, (ls_paths){&other, 1}, d.tokenizer, d.vocab_size,
                                    &tokens));
    CHECK(tokens.count == 3 && ls_tokens_at(&tokens, 0) == 12);
    ls_tokens_close(&tokens);
    CHECK_FAILS(ls_dataset_load_tokens(&opts, (ls_paths){&other, 1}, d.tokenizer, 12, &tokens),
                LS_ECONFIG, "token 12 at byte 0");
    other = scratch_path("utf8");
    CHECK_FAILS(ls_dataset_load_tokens(&opts, (ls_paths){&other, 1}, d.tokenizer, 0, &tokens),
                LS_ECONFIG, "(U+00E9) at byte 1");
    ls_dataset_close(&d);
    opts.tokenizer_json = "{\"kind\":\"char\"}";
    CHECK_FAILS(ls_dataset_load(&opts, &d), LS_EFORMAT, "tokenizer: found 1 keys");
}

/* An evaluation sees the validation part's sequences 0 .. S-1, and none of train. */
static void test_sampling(void)
{
    const char     *train = scratch_path("long");
    ls_dataset_opts opts  = {.train = {&train, 1}, .val_fraction = 0.5, .context = 4};
    ls_dataset      d;
    ls_sampler      s;
    int32_t         inputs[4], targets[4];

    TEST_ROW("sequences of the validation part");
    CHECK_OK(ls_dataset_load(&opts, &d));
    CHECK_OK(ls_sampler_init(&s, &d.val, 4, LS_ORDER_SEQUENTIAL, 0));
    CHECK(ls_sampler_sequence_count(&s) == 3);
    for (int q = 0; q < 3; q++) {
        ls_sampler_fill(&s, q, inputs, targets);
        for (int t = 0; t < 4; t++)
            CHECK(inputs[t] == 'n' + 4 * q + t && targets[t] == inputs[t] + 1);
    }
    CHECK_OK(ls_sampler_init(&s, &d.train, 4, LS_ORDER_SEQUENTIAL, 0));
    ls_sampler_fill(&s, 2, inputs, targets);
    CHECK(targets[3] == 'm');
    ls_dataset_close(&d);
}

static void test_out_of_memory(ls_tokenizer_kind kind)
{
    const char     *train[] = {scratch_path("long"), scratch_path("d.gz")};
    const char     *val     = scratch_path("xyz");
    ls_dataset_opts opts = {.train = {train, 2}, .val = {&val, 1}, .kind = kind, .context = 2};
    int64_t         before = ls_mem_get_stats().total;
    bool            done   = false;

    TEST_ROW(ls_tokenizer_kind_name(kind));
    for (int n = 0; !done && CHECK(n < 100); n++) {
        ls_dataset d;
        ls_alloc_fail_after(n);
        ls_status status = ls_dataset_load(&opts, &d);
        ls_alloc_fail_after(-1);
        done = status == LS_OK;
        CHECK(done ? n > 10 : status == LS_ENOMEM && !d.tokenizer && !d.train.data);
        ls_dataset_close(&d);
        CHECK(ls_mem_get_stats().total == before);
    }
}

int main(void)
{
    scratch_open();
    write_files();
    for (size_t i = 0; i < COUNT(rows); i++)
        check_row(&rows[i]);
    test_given_tokenizer();
    test_sampling();
    test_out_of_memory(LS_TOKENIZER_BYTE);
    test_out_of_memory(LS_TOKENIZER_CHAR);
    scratch_close();
    return test_summary("dataset");
}

/*
 * test_tokenizer.c - UTF-8, the byte and char tokenizers, their JSON.
 */
#include "data/tokenizer.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/utf8.h"
#include "scratch.h"
#include "test.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char *const source = "source";

static ls_text view(const char *text)
{
    return ls_text_view(&source, text, strlen(text));
}

/* ---- UTF-8 ---- */

static const struct {
    const char *name, *bytes;
    size_t      size;
    uint32_t    point; /* 0 with no bytes: refused */
    size_t      length;
} utf8[] = {
    {"NUL", "\0", 1, 0, 1},
    {"ASCII", "az", 2, 'a', 1},
    {"last of 1 byte", "\x7f", 1, 0x7f, 1},
    {"first of 2", "\xc2\x80", 2, 0x80, 2},
    {"last of 2", "\xdf\xbf", 2, 0x7ff, 2},
    {"first of 3", "\xe0\xa0\x80", 3, 0x800, 3},
    {"below the surrogates", "\xed\x9f\xbf", 3, 0xd7ff, 3},
    {"above the surrogates", "\xee\x80\x80", 3, 0xe000, 3},
    {"last of 3", "\xef\xbf\xbf", 3, 0xffff, 3},
    {"first of 4", "\xf0\x90\x80\x80", 4, 0x10000, 4},
    {"the last", "\xf4\x8f\xbf\xbf", 4, 0x10ffff, 4},
    {"nothing", "", 0, 0, 0},
    {"continuation alone", "\x80", 1, 0, 0},
    {"cut after 1 of 2", "\xc3", 1, 0, 0},
    {"size ends before the character", "\xc3\xa9", 1, 0, 0},
    {"cut after 2 of 3", "\xe2\x82", 2, 0, 0},
    {"cut after 3 of 4", "\xf0\x90\x80", 3, 0, 0},
    {"2 bytes, ASCII second", "\xc3(", 2, 0, 0},
    {"3 bytes, lead third", "\xe2\x82\xc3", 3, 0, 0},
    {"overlong NUL", "\xc0\x80", 2, 0, 0},
    {"overlong 7f", "\xc1\xbf", 2, 0, 0},
    {"overlong 7ff", "\xe0\x9f\xbf", 3, 0, 0},
    {"overlong ffff", "\xf0\x8f\xbf\xbf", 4, 0, 0},
    {"first surrogate", "\xed\xa0\x80", 3, 0, 0},
    {"last surrogate", "\xed\xbf\xbf", 3, 0, 0},
    {"beyond Unicode", "\xf4\x90\x80\x80", 4, 0, 0},
    {"5 bytes", "\xf8\x88\x80\x80\x80", 5, 0, 0},
    {"fe", "\xfe", 1, 0, 0},
    {"ff", "\xff", 1, 0, 0},
};

static void test_utf8_table(void)
{
    for (size_t i = 0; i < COUNT(utf8); i++) {
        const unsigned char *bytes = (const unsigned char *)utf8[i].bytes;
        uint32_t             point = 0;

        TEST_ROW(utf8[i].name);
        CHECK(ls_utf8_decode(bytes, utf8[i].size, &point) == utf8[i].length);
        CHECK(!utf8[i].length || point == utf8[i].point);
    }
}

static void test_utf8_round_trip(void)
{
    int wrong = 0;

    TEST_ROW("every code point");
    for (uint32_t point = 0; point < LS_UTF8_POINTS; point++) {
        char     out[LS_UTF8_LONGEST];
        uint32_t back = 0;
        size_t   n    = ls_utf8_encode(point, out);
        size_t   m    = ls_utf8_decode((unsigned char *)out, n, &back);
        bool     ok   = ls_utf8_valid(point) ? m == n && back == point : m == 0;
        wrong += !ok;
    }
    CHECK(wrong == 0);
}

/* ---- encoding and decoding ---- */

/* text -> tokens -> text, also through a copy of the tokenizer made from its JSON. */
static void check_round_trip(const ls_tokenizer *t, const ls_text *text)
{
    ls_tokens tokens;
    char     *out = malloc(text->size + LS_TOKEN_LONGEST);
    size_t    n   = 0;

    CHECK_OK(ls_tokenizer_encode(t, text, 0, &tokens));
    for (int64_t i = 0; i < tokens.count && n <= text->size; i++)
        n += ls_tokenizer_decode(t, ls_tokens_at(&tokens, i), out + n);
    CHECK(n == text->size && !memcmp(out, text->data, n));
    ls_tokens_close(&tokens);
    free(out);
}

static void check_copy(const ls_tokenizer *t, const ls_text *text)
{
    ls_tokenizer *copy = NULL;
    char         *json = ls_tokenizer_to_json(t), *again;

    if (CHECK_OK(ls_tokenizer_from_json(json, &copy))) {
        CHECK(ls_tokenizer_get_kind(copy) == ls_tokenizer_get_kind(t));
        CHECK(ls_tokenizer_vocab_size(copy) == ls_tokenizer_vocab_size(t));
        check_round_trip(copy, text);
        again = ls_tokenizer_to_json(copy);
        CHECK(!strcmp(json, again));
        free(again);
    }
    ls_tokenizer_free(copy);
    free(json);
}

static void test_byte(void)
{
    unsigned char all[512] = {0};
    ls_text       text     = ls_text_view(&source, all, sizeof all);
    ls_tokens     tokens;
    ls_tokenizer *t;
    char          out[LS_TOKEN_LONGEST];

    TEST_ROW("byte");
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (unsigned char)(i * 7);
    CHECK_OK(ls_tokenizer_new(LS_TOKENIZER_BYTE, NULL, &t));
    CHECK(ls_tokenizer_vocab_size(t) == 256);
    CHECK_OK(ls_tokenizer_encode(t, &text, 256, &tokens));
    CHECK(tokens.count == 512 && tokens.width == 1);
    for (int64_t i = 0; i < 512; i++)
        CHECK(ls_tokens_at(&tokens, i) == all[i]);
    ls_tokens_close(&tokens);
    check_round_trip(t, &text);
    check_copy(t, &text);
    CHECK(ls_tokenizer_decode(t, 256, out) == 0 && ls_tokenizer_decode(t, -1, out) == 0);
    ls_tokenizer_free(t);
}

static const struct {
    const char *name, *text, *json;
    int32_t     vocab;
} chars[] = {
    {"one", "a", "{\"kind\":\"char\",\"code_points\":[97]}", 1},
    {"sorted", "cab\na", "{\"kind\":\"char\",\"code_points\":[10,97,98,99]}", 4},
    {"2, 3 and 4 bytes", "\xf0\x9d\x84\x9e\xe2\x82\xac\xc3\xa9\x65",
     "{\"kind\":\"char\",\"code_points\":[101,233,8364,119070]}", 4},
    {"only beyond ASCII", "\xc3\xa9\xc3\xa9", "{\"kind\":\"char\",\"code_points\":[233]}", 1},
    {"the last code point", "\x7f\xc2\x80\xf4\x8f\xbf\xbf",
     "{\"kind\":\"char\",\"code_points\":[127,128,1114111]}", 3},
};

static void test_char(void)
{
    for (size_t i = 0; i < COUNT(chars); i++) {
        ls_text       text = view(chars[i].text);
        ls_tokenizer *t    = NULL;

        TEST_ROW(chars[i].name);
        if (!CHECK_OK(ls_tokenizer_new(LS_TOKENIZER_CHAR, &text, &t)))
            continue;
        char *json = ls_tokenizer_to_json(t);
        CHECK(!strcmp(json, chars[i].json));
        CHECK(ls_tokenizer_vocab_size(t) == chars[i].vocab);
        check_round_trip(t, &text);
        check_copy(t, &text);
        free(json);
        ls_tokenizer_free(t);
    }
}

/* A text of the code points from first on. */
static void test_large_vocabulary(int32_t size, int width)
{
    char         *bytes = malloc((size_t)size * LS_UTF8_LONGEST);
    size_t        n     = 0;
    ls_tokenizer *t;
    ls_tokens     tokens;

    for (uint32_t point = 0xe000; point < 0xe000 + (uint32_t)size; point++)
        n += ls_utf8_encode(point, bytes + n);
    ls_text text = ls_text_view(&source, bytes, n);
    CHECK_OK(ls_tokenizer_new(LS_TOKENIZER_CHAR, &text, &t));
    CHECK_OK(ls_tokenizer_encode(t, &text, size, &tokens));
    CHECK(tokens.count == size && tokens.width == width);
    for (int32_t i = 0; i < size; i++)
        if (ls_tokens_at(&tokens, i) != i)
            CHECK(!"tokens in the order of the code points");
    ls_tokens_close(&tokens);
    check_copy(t, &text);
    ls_tokenizer_free(t);
    free(bytes);
}

/* ---- what is refused ---- */

static const struct {
    const char *name, *train, *text;
    int32_t     limit;
    ls_status   status;
    const char *message;
} refused[] = {
    {"unknown ASCII", "abc", "abxc", 0, LS_ECONFIG,
     "source: unknown character 'x' (U+0078) at byte 2"},
    {"unknown control", "abc", "a\n", 0, LS_ECONFIG, "character '' (U+000A) at byte 1"},
    {"unknown beyond ASCII", "abc", "ab\xc3\xa9", 0, LS_ECONFIG,
     "'\xc3\xa9' (U+00E9) at byte 2"},
    {"below all others", "\xc3\xaa", "\xc3\xa9", 0, LS_ECONFIG, "(U+00E9) at byte 0"},
    {"above all others", "\xc3\xa9", "\xc3\xaa", 0, LS_ECONFIG, "(U+00EA) at byte 0"},
    {"cut character", "abc", "ab\xc3", 0, LS_EFORMAT,
     "source: invalid UTF-8 at byte 2: found 0xc3"},
    {"Latin-1", "abc", "a\xe9zz", 0, LS_EFORMAT, "invalid UTF-8 at byte 1: found 0xe9"},
    {"char beyond the limit", "ab\xc3\xa9", "\xc3\xa9\x61\x62", 2, LS_ECONFIG,
     "token 2 at byte 0 (token number 0, from 0) does not fit a vocabulary of 2"},
    {"later", "\xc3\xa9zb", "zb\xc3\xa9z", 2, LS_ECONFIG, "token 2 at byte 2 (token number 2,"},
    {"byte beyond the limit", NULL, "ab\xc3z", 128, LS_ECONFIG,
     "token 195 at byte 2 (token number 2,"},
    {"byte at the limit", NULL, "abc", 'c', LS_ECONFIG, "token 99 at byte 2"},
};

static void test_refused(void)
{
    for (size_t i = 0; i < COUNT(refused); i++) {
        bool          is_char = refused[i].train;
        ls_text       train   = view(is_char ? refused[i].train : "");
        ls_text       text    = view(refused[i].text);
        ls_tokenizer *t;
        ls_tokens     tokens;

        TEST_ROW(refused[i].name);
        CHECK_OK(ls_tokenizer_new(is_char ? LS_TOKENIZER_CHAR : LS_TOKENIZER_BYTE, &train, &t));
        CHECK_FAILS(ls_tokenizer_encode(t, &text, refused[i].limit, &tokens), refused[i].status,
                    refused[i].message);
        CHECK(tokens.count == 0 && tokens.data == NULL);
        if (refused[i].limit) /* what does not fit fits a vocabulary of 256 */
            CHECK_OK(ls_tokenizer_encode(t, &text, 256, &tokens));
        ls_tokens_close(&tokens);
        ls_tokenizer_free(t);
    }
}

static void test_training_text(void)
{
    ls_text       empty = view(""), bad = view("abc\xff");
    ls_tokenizer *t;

    TEST_ROW("training text");
    CHECK_FAILS(ls_tokenizer_new(LS_TOKENIZER_CHAR, &bad, &t), LS_EFORMAT,
                "source: invalid UTF-8 at byte 3: found 0xff");
    CHECK(t == NULL);
    CHECK_FAILS(ls_tokenizer_new(LS_TOKENIZER_CHAR, &empty, &t), LS_EFORMAT, "found none");
    CHECK(t == NULL);
}

static void test_place(void)
{
    const char   *path[] = {scratch_write("a", "abc", 3), scratch_write("b", "de\xff", 3),
                            scratch_write("c", "f", 1)};
    ls_text       text;
    ls_tokenizer *t;
    char          wanted[128];

    TEST_ROW("file and offset among several");
    CHECK_OK(ls_text_load((ls_paths){path, 3}, &text));
    CHECK(text.size == 7);
    for (size_t i = 0; i < 7; i++) {
        ls_text_place place = ls_text_locate(&text, i);
        CHECK(place.path == path[i / 3] && place.offset == i % 3);
    }
    snprintf(wanted, sizeof wanted, "%s: invalid UTF-8 at byte 2", path[1]);
    CHECK_FAILS(ls_tokenizer_new(LS_TOKENIZER_CHAR, &text, &t), LS_EFORMAT, wanted);
    ls_text_close(&text);
}

static const struct {
    const char *name, *json, *message; /* NULL: accepted */
} jsons[] = {
    {"byte", "{\"kind\":\"byte\"}", NULL},
    {"white space", " {\n\"kind\" :\t\"char\" , \"code_points\" : [ 1 , 2 ] }\r\n", NULL},
    {"other order", "{\"code_points\":[1,2],\"kind\":\"char\"}", NULL},
    {"zero", "{\"kind\":\"char\",\"code_points\":[0]}", NULL},
    {"empty", "", "tokenizer:1:1"},
    {"no object", "[]", "found a list, wanted an object"},
    {"no kind", "{}", "kind"},
    {"kind no string", "{\"kind\":1}", "kind"},
    {"other kind", "{\"kind\":\"bpe\"}", "kind is \"bpe\", wanted \"byte\" or \"char\""},
    {"cut", "{\"kind\":\"byte\"", "tokenizer:1:"},
    {"tail", "{\"kind\":\"byte\"}x", "tokenizer:1:16"},
    {"one key more", "{\"kind\":\"byte\",\"x\":1}", "found 2 keys, a byte tokenizer has 1"},
    {"no list", "{\"kind\":\"char\"}", "found 1 keys, a char tokenizer has 2"},
    {"other list", "{\"kind\":\"char\",\"points\":[1]}", "code_points is missing"},
    {"string", "{\"kind\":\"char\",\"code_points\":\"a\"}", "code_points is a string"},
    {"object", "{\"kind\":\"char\",\"code_points\":{\"a\":1}}", "code_points is an object"},
    {"empty list", "{\"kind\":\"char\",\"code_points\":[]}", "code_points is empty"},
    {"list of strings", "{\"kind\":\"char\",\"code_points\":[\"a\"]}",
     "code_points[0] is \"a\""},
    {"descending", "{\"kind\":\"char\",\"code_points\":[2,1]}", "code_points[1] is 1, wanted"},
    {"twice", "{\"kind\":\"char\",\"code_points\":[2,2]}", "ascending"},
    {"negative", "{\"kind\":\"char\",\"code_points\":[-1]}", "code_points[0] is -1,"},
    {"surrogate", "{\"kind\":\"char\",\"code_points\":[55296]}", "[0] is 55296,"},
    {"beyond Unicode", "{\"kind\":\"char\",\"code_points\":[1114112]}", "[0] is 1114112,"},
    {"2^32 + a", "{\"kind\":\"char\",\"code_points\":[4294967393]}", "[0] is 4294967393,"},
    {"huge", "{\"kind\":\"char\",\"code_points\":[18446744073709551617]}",
     "is 18446744073709551617,"},
    {"fraction", "{\"kind\":\"char\",\"code_points\":[1.0]}", "[0] is 1.0,"},
};

static void test_json(void)
{
    for (size_t i = 0; i < COUNT(jsons); i++) {
        ls_tokenizer *t = NULL;

        TEST_ROW(jsons[i].name);
        ls_status status = ls_tokenizer_from_json(jsons[i].json, &t);
        if (jsons[i].message)
            CHECK_FAILS(status, LS_EFORMAT, jsons[i].message);
        else
            CHECK_OK(status);
        CHECK((t != NULL) == !jsons[i].message);
        ls_tokenizer_free(t);
    }
}

/* ---- out of memory ---- */

/* Everything once; which allocation fails decides how far it comes. */
static ls_status all_at_once(ls_tokenizer_kind kind)
{
    ls_text       text = view("some text of a dozen characters");
    ls_tokenizer *t = NULL, *copy = NULL;
    ls_tokens     tokens = {0};
    char         *json   = NULL;
    ls_status     status = ls_tokenizer_new(kind, &text, &t);

    if (!status)
        status = ls_tokenizer_encode(t, &text, 0, &tokens);
    if (!status) {
        json   = ls_tokenizer_to_json(t);
        status = json ? ls_tokenizer_from_json(json, &copy) : LS_ENOMEM;
    }
    free(json);
    ls_tokens_close(&tokens);
    ls_tokenizer_free(copy);
    ls_tokenizer_free(t);
    return status;
}

static void test_out_of_memory(ls_tokenizer_kind kind)
{
    int64_t before = ls_mem_get_stats().total;
    bool    done   = false;

    TEST_ROW(ls_tokenizer_kind_name(kind));
    for (int n = 0; !done && CHECK(n < 1000); n++) {
        ls_alloc_fail_after(n);
        ls_status status = all_at_once(kind);
        ls_alloc_fail_after(-1);
        done = status == LS_OK;
        CHECK(done ? n >= 4 : status == LS_ENOMEM);
        CHECK(ls_mem_get_stats().total == before);
    }
}

int main(void)
{
    scratch_open();
    test_utf8_table();
    test_utf8_round_trip();
    test_byte();
    test_char();
    TEST_ROW("300 characters");
    test_large_vocabulary(300, 2);
    TEST_ROW("70,000 characters");
    test_large_vocabulary(70000, 4);
    test_refused();
    test_training_text();
    test_place();
    test_json();
    test_out_of_memory(LS_TOKENIZER_BYTE);
    test_out_of_memory(LS_TOKENIZER_CHAR);
    scratch_close();
    return test_summary("tokenizer");
}

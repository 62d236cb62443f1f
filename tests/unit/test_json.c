/*
 * test_json.c - the strict JSON reader, typed access, and printing that reads back.
 */
#include <float.h>
#include <locale.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/json.h"
#include "test.h"

#define TEXT(literal) literal, sizeof literal - 1

static ls_status parse(const char *text, ls_json_doc **doc)
{
    return ls_json_parse(text, strlen(text), "t.json", doc);
}

static void test_refused(void)
{
    static const struct {
        const char *text;
        size_t      n;
        const char *message;
    } rows[] = {
        {TEXT(""), "t.json:1:1: the text ends here, wanted a value"},
        {TEXT("  \n "), "t.json:2:2: the text ends here"},
        {TEXT("\xEF\xBB\xBF{}"), "1:1: a byte order mark"},
        {TEXT("{} x"), "1:4: found 'x', wanted the end"},
        {TEXT("{}\0"), "1:3: a NUL byte"},
        {TEXT("{\"a\": 1 \0}"), "1:9: a NUL byte"},
        {TEXT("{\"a\": \"\xff\"}"), "1:8: the byte 0xff is not UTF-8"},
        {TEXT("\"\xC0\x80\""), "1:2: the byte 0xc0 is not UTF-8"},         /* overlong */
        {TEXT("\"\xED\xA0\x80\""), "1:2: the byte 0xed is not UTF-8"},     /* a surrogate */
        {TEXT("\"\xF4\x90\x80\x80\""), "1:2: the byte 0xf4 is not UTF-8"}, /* above U+10FFFF */
        {TEXT("\"\xE2\x82\""), "1:2: the byte 0xe2 is not UTF-8"},
        {TEXT("\"\xE2\x82\xAC\xE2\x82\xAC\" x"), "1:6: found 'x'"}, /* columns are characters */
        {TEXT("[1] // note"), "1:5: a comment"},
        {TEXT("/* note */ 1"), "1:1: a comment"},
        {TEXT("[1 # note\n]"), "1:4: a comment"},
        {TEXT("[1,]"), "1:4: a comma before ']'"},
        {TEXT("{\"a\": 1,}"), "1:9: a comma before '}'"},
        {TEXT("[1 2]"), "1:4: found '2', wanted ',' or ']'"},
        {TEXT("[,1]"), "1:2: found ',', wanted a value"},
        {TEXT("{\"a\" 1}"), "1:6: found '1', wanted ':'"},
        {TEXT("{\"a\": 1; }"), "1:8: found ';', wanted ',' or '}'"},
        {TEXT("{a: 1}"), "1:2: found 'a', wanted a key"},
        {TEXT("{'a': 1}"), "strings take double quotes"},
        {TEXT("{1: 1}"), "wanted a key"},
        {TEXT("["), "1:2: the text ends here"},
        {TEXT("{\"a\": [1, {\"b\": 2}"), "the text ends here, wanted ',' or ']'"},
        {TEXT("[1}"), "found '}', wanted ',' or ']'"},
        {TEXT("\"abc"), "1:1: a string that does not end"},
        {TEXT("\"abc\\\""), "1:1: a string that does not end"},
        {TEXT("\"a\nb\""), "1:1: a string that does not end on its line"},
        {TEXT("\"a\tb\""), "1:3: the control character 0x09 in a string; write \\u0009"},
        {TEXT("\"\\x\""), "1:2: a backslash before"},
        {TEXT("\"\\"), "1:2: a backslash before"},
        {TEXT("\"\\u12\""), "1:2: \\u without four"},
        {TEXT("\"\\u0000\""), "1:2: \\u0000 is not accepted"},
        {TEXT("\"\\ud800\""), "1:2: \\ud800 is one half"},
        {TEXT("\"\\udc00\\ud800\""), "1:2: \\udc00 is one half"},
        {TEXT("\"\\ud800\\u0041\""), "1:2: \\ud800 is one half"},
        {TEXT("01"), "1:1: a number with a leading zero"},
        {TEXT("-01"), "1:1: a number with a leading zero"},
        {TEXT("+1"), "1:1: found '+'"},
        {TEXT(".5"), "1:1: found '.'"},
        {TEXT("1."), "1:3: the text ends here, wanted a digit behind the decimal point"},
        {TEXT("1.e5"), "1:3: found 'e', wanted a digit behind"},
        {TEXT("1e"), "wanted a digit of the exponent"},
        {TEXT("1e+"), "wanted a digit of the exponent"},
        {TEXT("-"), "wanted a digit"},
        {TEXT("0x10"), "1:2: found 'x'"},
        {TEXT("1_000"), "1:2: found '_'"},
        {TEXT("1,5"), "1:2: found ',', wanted the end"},
        {TEXT("1e999"), "1:1: a number beyond the range of double"},
        {TEXT("1000000000000000000000000000000000000000000000000000000000000"), "more than 60"},
        {TEXT("NaN"), "1:1: found NaN, wanted a value"},
        {TEXT("-Infinity"), "1:2: found 'I', wanted a digit"},
        {TEXT("True"), "1:1: found True"},
        {TEXT("nul"), "1:1: found nul"},
        {TEXT("truefalse"), "1:1: found truefalse"},
        {TEXT("{\"a\": 1, \"b\": 2,\n \"a\": 3}"), "t.json:2:2: duplicate key \"a\""},
        {TEXT("{\"a\": 1, \"\\u0061\": 3}"), "1:10: duplicate key \"a\""},
        {TEXT("[{\"x\": {\"\": 1, \"\": 2}}]"), "1:16: duplicate key \"\""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_json_doc *doc = NULL;
        TEST_ROW(rows[i].text);
        CHECK_FAILS(ls_json_parse(rows[i].text, rows[i].n, "t.json", &doc), LS_EFORMAT,
                    rows[i].message);
        CHECK(!doc);
        ls_json_free(doc);
    }
}

static void test_accepted(void)
{
    static const char *const rows[] = {
        "null",
        " true ",
        "\r\n\tfalse\n",
        "0",
        "-0",
        "-0.0e-0",
        "1E+5",
        "[]",
        "{}",
        "[[],{}]",
        "\"\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"",
        "{\"\": 1, \"a.b\": 2}",
        "\"\xF0\x9F\x98\x80 \x7F\"",
        "[1e-400, 5e-324, 1.7976931348623157e308]",
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_json_doc *doc = NULL;
        TEST_ROW(rows[i]);
        CHECK_OK(parse(rows[i], &doc));
        ls_json_free(doc);
    }
}

static void test_depth(void)
{
    char         text[2 * LS_JSON_LEVELS + 8];
    ls_json_doc *doc = NULL;

    TEST_ROW("depth");
    for (int extra = 0; extra < 2; extra++) {
        int n = LS_JSON_LEVELS + extra;
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        text[2 * n] = 0;
        if (extra)
            CHECK_FAILS(parse(text, &doc), LS_EFORMAT, "1:65: nested deeper than 64 levels");
        else
            CHECK_OK(parse(text, &doc));
        ls_json_free(doc);
        doc = NULL;
    }
}

static void test_tree(void)
{
    static const char text[] =
        "{\"a\": [1, 2.5, \"x\\ny\"],\n  \"b\": {\"c\": true, \"d\": null},\n"
        " \"big\": 123456789012345678901, \"n\": -9223372036854775807}";
    ls_json_doc   *doc  = NULL;
    const ls_json *root = NULL, *node;
    int            line, column;

    TEST_ROW("tree");
    if (!CHECK_OK(parse(text, &doc)))
        return;
    root = ls_json_root(doc);
    CHECK(root->kind == LS_JSON_OBJECT && root->count == 4 && !root->key && !root->next);
    node = ls_json_find(root, "a");
    CHECK(node && node->count == 3 && !strcmp(node->key, "a"));
    CHECK(node->source_bytes == strlen("[1, 2.5, \"x\\ny\"]"));
    node = node->child;
    CHECK(node->integer && node->whole == 1 && node->number == 1);
    node = node->next;
    CHECK(!node->integer && node->number == 2.5);
    CHECK(!strcmp(node->next->text, "x\ny") && !node->next->next);
    node = ls_json_find(root, "b.c");
    CHECK(node && node->boolean);
    ls_json_where(doc, node, &line, &column);
    CHECK(line == 2 && column == 9);
    CHECK(ls_json_find(root, "b.d") && ls_json_find(root, "b.d")->kind == LS_JSON_NULL);
    CHECK(!ls_json_find(root, "b.e") && !ls_json_find(root, "a.c") &&
          !ls_json_find(root, "b.cc"));
    CHECK(ls_json_find(root, "big")->integer && ls_json_find(root, "big")->whole == INT64_MAX);
    CHECK(ls_json_find(root, "n")->whole == -INT64_MAX);
    ls_json_free(doc);
}

static void test_typed(void)
{
    ls_json_doc   *doc = NULL;
    const ls_json *root;
    int64_t        whole  = 77;
    double         number = 77;
    bool           flag   = false;
    const char    *text   = NULL;

    TEST_ROW("typed access");
    if (!CHECK_OK(parse("{\"s\": {\"i\": 5, \"x\": 1.0, \"t\": \"hi\", \"f\": true}}", &doc)))
        return;
    root = ls_json_root(doc);
    CHECK_FAILS(ls_json_get_int(root, "s.x", 0, 9, &whole), LS_EFORMAT,
                "s.x is 1.0, wanted an integer");
    CHECK_FAILS(ls_json_get_int(root, "s.i", 6, 9, &whole), LS_EFORMAT,
                "s.i is 5, wanted 6 to 9");
    CHECK_FAILS(ls_json_get_int(root, "s.t", 6, 9, &whole), LS_EFORMAT,
                "s.t is a string, wanted a number");
    CHECK_FAILS(ls_json_get_bool(root, "s.i", &flag), LS_EFORMAT, "wanted a boolean");
    CHECK_FAILS(ls_json_get_string(root, "s.q", &text), LS_EFORMAT,
                "s.q is missing, wanted a string");
    CHECK(whole == 77 && !flag && !text);
    CHECK_OK(ls_json_get_int(root, "s.i", 0, 9, &whole));
    CHECK_OK(ls_json_get_double(root, "s.i", &number));
    CHECK_OK(ls_json_get_bool(root, "s.f", &flag));
    CHECK_OK(ls_json_get_string(root, "s.t", &text));
    CHECK(whole == 5 && number == 5 && flag && !strcmp(text, "hi"));
    ls_json_free(doc);
}

static void check_double(double x)
{
    char         text[LS_JSON_DOUBLE_BYTES];
    ls_json_doc *doc = NULL;

    ls_json_print_double(text, sizeof text, x);
    TEST_ROW(text);
    if (CHECK_OK(parse(text, &doc)))
        CHECK_BITS(&ls_json_root(doc)->number, &x, sizeof x);
    ls_json_free(doc);
}

static void test_doubles(void)
{
    static const struct {
        double      x;
        const char *text;
    } rows[]      = {{0.1, "0.1"},
                     {1.0, "1"},
                     {-0.0, "-0"},
                     {1e300, "1e+300"},
                     {1.0 / 3, "0.3333333333333333"},
                     {HUGE_VAL, "null"},
                     {-HUGE_VAL, "null"},
                     {NAN, "null"}};
    uint64_t bits = 88172645463325252u;
    char     text[LS_JSON_DOUBLE_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_json_print_double(text, sizeof text, rows[i].x);
        TEST_ROW(rows[i].text);
        CHECK(!strcmp(text, rows[i].text));
    }
    check_double(DBL_MAX);
    check_double(-DBL_MIN);
    check_double(5e-324);
    check_double(0.1 + 0.2);
    for (int i = 0; i < 2000; i++) {
        double x;
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17; /* xorshift64 */
        memcpy(&x, &bits, sizeof x);
        if (isfinite(x))
            check_double(x);
    }
}

/* Where such a locale is installed, its decimal comma must not matter. */
static void test_locale(void)
{
    TEST_ROW("locale");
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
        return;
    check_double(1234.5678);
    setlocale(LC_ALL, "C");
}

static void test_strings(void)
{
    static const struct {
        const char *text, *json;
    } rows[] = {{"", "\"\""},
                {"a\"b\\c/", "\"a\\\"b\\\\c/\""},
                {"\n\t\r\b\f\x01\x7F", "\"\\n\\t\\r\\b\\f\\u0001\\u007f\""},
                {"\xC3\xA9\xF0\x9F\x98\x80", "\"\xC3\xA9\xF0\x9F\x98\x80\""},
                {"a\xFFz\xC3", "\"a\\ufffdz\\ufffd\""}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char   json[64], cut[4] = "";
        char  *stream = NULL;
        size_t n;
        TEST_ROW(rows[i].json);
        CHECK(ls_json_escape(json, sizeof json, rows[i].text) == strlen(rows[i].json));
        CHECK(!strcmp(json, rows[i].json));
        CHECK(ls_json_escape(cut, sizeof cut, rows[i].text) == strlen(rows[i].json));
        CHECK(strlen(cut) <= 3 && !strncmp(cut, rows[i].json, strlen(cut)));
        CHECK(ls_json_escape(NULL, 0, rows[i].text) == strlen(rows[i].json));
        FILE *file = open_memstream(&stream, &n);
        ls_json_print_string(file, rows[i].text);
        CHECK(!fclose(file) && !strcmp(stream, rows[i].json));
        free(stream);
    }
}

static void test_allocations(void)
{
    TEST_ROW("n-th allocation fails");
    for (int n = 0;; n++) {
        ls_json_doc *doc = NULL;
        ls_alloc_fail_after(n);
        ls_status status = parse("{\"a\": {\"b\": [1, 2]}, \"c\": \"x\"}", &doc);
        ls_alloc_fail_after(-1);
        ls_json_free(doc);
        if (status == LS_OK) {
            CHECK(n >= 3);
            return;
        }
        if (!CHECK(status == LS_ENOMEM && !doc && n < 100))
            return;
    }
}

int main(void)
{
    test_refused();
    test_accepted();
    test_depth();
    test_tree();
    test_typed();
    test_doubles();
    test_locale();
    test_strings();
    test_allocations();
    return test_summary("json");
}

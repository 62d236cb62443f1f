/*
 * test_tokenizer_vocab.c - GPT-2's vocab.json and merges.txt: what is read of the files beside
 * them, and what is refused.
 *
 * That the tokens are those of Python's transformers, tests/reference/check_tokenizer.py shows.
 */
#include <stdlib.h>

#include "core/alloc.h"
#include "core/strbuf.h"
#include "core/utf8.h"
#include "data/bpe_impl.h"
#include "data/tokenizer.h"
#include "scratch.h"
#include "test.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define EOT "<|endoftext|>"

/* Files beside vocab.json, which has the 256 bytes, "ab" and "abc"; NULL: none. */
typedef struct {
    const char *more;   /* of the vocabulary */
    const char *merges; /* NULL: a b, ab c */
    const char *config, *map, *added;
} files;

static const char *const name[]   = {"merges.txt", "tokenizer_config.json",
                                     "special_tokens_map.json", "added_tokens.json"};
static const char        merges[] = "#version: 0.2\na b\nab c\n";

static void write_files(const files *f)
{
    const char *content[] = {f->merges ? f->merges : merges, f->config, f->map, f->added};
    ls_strbuf   vocab     = {0};

    for (int i = 0; i < 256; i++) {
        char   text[LS_UTF8_LONGEST];
        size_t n = ls_utf8_encode(ls__byte_char(i), text);
        ls_strbuf_add(&vocab, i ? "," : "{", 1);
        ls_strbuf_json(&vocab, text, n);
        ls_strbuf_format(&vocab, ":%d", i);
    }
    ls_strbuf_format(&vocab, ",\"ab\":256,\"abc\":257%s}", f->more ? f->more : "");
    scratch_write("vocab.json", vocab.data, vocab.used);
    for (size_t i = 0; i < COUNT(name); i++) {
        remove(scratch_path(name[i]));
        if (content[i])
            scratch_write(name[i], content[i], strlen(content[i]));
    }
    ls_strbuf_free(&vocab);
}

/* clang-format off */
static const struct {
    const char *row;
    files       files;
    const char *text;
    int         n;
    int32_t     token[6];
} good[] = {
    {"alone", {0}, "abcab" EOT, 3, {257, 256, 258}},
    {"end of text in the vocabulary", {.more = ",\"" EOT "\":258,\"x\xc4\xa0\":259"}, "ab" EOT, 2, {256, 258}},
    {"no version, empty lines, CR", {.merges = "a b\r\n\r\n\nab c"}, "abc", 1, {257}},
    {"no merges", {.merges = ""}, "ab", 2, {'a', 'b'}},
    {"prefix space", {.config = "{\"add_prefix_space\":true}"}, "ab", 2, {' ', 256}},
    {"bos", {.config = "{\"add_bos_token\":true}"}, "ab", 2, {258, 256}},
    {"bos by name", {.config = "{\"add_bos_token\":true,\"bos_token\":\"ab\"}"}, "c", 2, {256, 'c'}},
    {"bos of the map", {.config = "{\"add_bos_token\":true}", .map = "{\"bos_token\":{\"content\":\"ab\",\"lstrip\":false}}"}, "c", 2, {256, 'c'}},
    {"other names for all", {.map = "{\"bos_token\":\"ab\",\"eos_token\":\"ab\",\"unk_token\":\"abc\"}"}, "<|", 2, {'<', '|'}},
    {"none of them", {.config = "{\"bos_token\":null,\"eos_token\":null,\"unk_token\":null}"}, "<|", 2, {'<', '|'}},
    {"added", {.added = "{\"<x>\":259,\"" EOT "\":258}"}, "<x>" EOT "abc", 3, {259, 258, 257}},
    {"added before the end of text", {.added = "{\"<x>\":258}"}, "<x>" EOT, 2, {258, 259}},
    {"added, and special", {.added = "{\"<x>\":258}", .map = "{\"pad_token\":\"<x>\"}"}, "<x>", 1, {258}},
    {"decoder", {.config = "{\"added_tokens_decoder\":{\"258\":{\"content\":\"<x>\",\"special\":false}},\"tokenizer_class\":\"GPT2TokenizerFast\"}"}, "a<x>", 2, {'a', 258}},
    {"additional", {.map = "{\"additional_special_tokens\":[\"ab\"]}"}, "abc", 2, {256, 'c'}},
};

static const struct {
    const char *row;
    files       files;
    ls_status   status;
    const char *message;
} bad[] = {
    {"another class", {.config = "{\"tokenizer_class\":\"RobertaTokenizer\"}"}, LS_EUNSUPPORTED, "tokenizer_class \"RobertaTokenizer\" without a tokenizer.json"},
    {"config no JSON", {.config = "{"}, LS_EFORMAT, "tokenizer_config.json:1:"},
    {"map a list", {.map = "[]"}, LS_EFORMAT, "special_tokens_map.json: found a list, wanted an object"},
    {"special token in no vocabulary", {.map = "{\"pad_token\":\"<y>\"}"}, LS_EUNSUPPORTED, "special token \"<y>\" is in no vocabulary"},
    {"special token of another id", {.added = "{\"ab\":258}"}, LS_EUNSUPPORTED, "special token \"ab\" is there with another id"},
    {"two ids", {.added = "{\"<x>\":258}", .config = "{\"added_tokens_decoder\":{\"259\":{\"content\":\"<x>\"}}}"}, LS_EFORMAT, "token \"<x>\" has the ids 259 and 258"},
    {"a gap", {.added = "{\"<x>\":300}"}, LS_EUNSUPPORTED, "added token \"<x>\" has the id 300, wanted 258"},
    {"lstrip", {.map = "{\"pad_token\":{\"content\":\"ab\",\"lstrip\":true}}"}, LS_EUNSUPPORTED, "pad_token.lstrip is true"},
    {"a number as token", {.map = "{\"pad_token\":3}"}, LS_EFORMAT, "pad_token is a number, wanted a token"},
    {"id of added", {.added = "{\"<x>\":\"258\"}"}, LS_EFORMAT, "token \"<x>\" is a string, wanted its id"},
    {"id of decoder", {.config = "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<x>\"}}}"}, LS_EFORMAT, "added_tokens_decoder: wanted ids and tokens"},
    {"prefix space", {.config = "{\"add_prefix_space\":1}"}, LS_EFORMAT, "add_prefix_space"},
    {"bos", {.config = "{\"add_bos_token\":1}"}, LS_EFORMAT, "add_bos_token"},
    {"merge of one", {.merges = "a b\nabc\n"}, LS_EFORMAT, "merges.txt:2: wanted two tokens with a space between"},
    {"merge of three", {.merges = "a b c\n"}, LS_EFORMAT, "merges.txt:1:"},
    {"merge of none", {.merges = " b\n"}, LS_EFORMAT, "merges.txt:1:"},
    {"merge not UTF-8", {.merges = "\xff b\n"}, LS_EFORMAT, "merges.txt:1: wanted two tokens"},
    {"merge of the unknown", {.merges = "a q#\n"}, LS_EFORMAT, "vocab.json: model.merges[0], \"a q#\": the second is not in the vocabulary"},
};
/* clang-format on */

static void test_good(void)
{
    const char *source = "source";

    for (size_t i = 0; i < COUNT(good); i++) {
        ls_tokenizer *t    = NULL;
        ls_text       text = ls_text_view(&source, good[i].text, strlen(good[i].text));
        ls_tokens     tokens;

        TEST_ROW(good[i].row);
        write_files(&good[i].files);
        if (!CHECK_OK(ls_tokenizer_load(scratch_path("vocab.json"), &t)) ||
            !CHECK_OK(ls_tokenizer_encode(t, &text, 0, &tokens)))
            continue;
        CHECK(tokens.count == good[i].n);
        for (int k = 0; k < good[i].n && k < tokens.count; k++)
            CHECK(ls_tokens_at(&tokens, k) == good[i].token[k]);
        ls_tokens_close(&tokens);
        ls_tokenizer_free(t);
    }
}

static void test_bad(void)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        ls_tokenizer *t = NULL;

        TEST_ROW(bad[i].row);
        write_files(&bad[i].files);
        CHECK_FAILS(ls_tokenizer_load(scratch_path("vocab.json"), &t), bad[i].status,
                    bad[i].message);
        CHECK(!t);
    }
    TEST_ROW("no merges.txt");
    ls_tokenizer *t;
    write_files(&(files){0});
    remove(scratch_path("merges.txt"));
    CHECK_FAILS(ls_tokenizer_load(scratch_path("vocab.json"), &t), LS_EIO, "merges.txt");
}

static void test_ends(void)
{
    ls_tokenizer *t = NULL;

    TEST_ROW("ends of text");
    write_files(&(files){.added = "{\"</s>\":258}"});
    CHECK_OK(ls_tokenizer_load(scratch_path("vocab.json"), &t));
    ls_ends ends = ls_tokenizer_ends(t);
    CHECK(ends.n == 2 && ends.token[0] == 259 && ends.token[1] == 258);
    CHECK(ls_tokenizer_find_added(t, "</s>") == 258 && ls_tokenizer_find_added(t, "ab") == -1);
    ls_tokenizer_free(t);
    for (int i = 0; i < LS_MOST_ENDS; i++)
        CHECK(ls_ends_add(&ends, 300 + i) == (i < LS_MOST_ENDS - 2));
    CHECK(ls_ends_add(&ends, 258) && ends.n == LS_MOST_ENDS && !ls_ends_has(&ends, 400));
}

static void test_out_of_memory(void)
{
    int64_t   before = ls_mem_get_stats().total;
    ls_status status = LS_ENOMEM;
    int       n      = 0;

    TEST_ROW("out of memory");
    write_files(&(files){.config = "{\"add_bos_token\":true,\"added_tokens_decoder\":{\"258\":"
                                   "{\"content\":\"<x>\"}}}",
                         .map    = "{\"pad_token\":\"ab\"}",
                         .added  = "{\"<y>\":259}"});
    for (; status && n < 5000; n++) {
        ls_tokenizer *t = NULL;
        ls_alloc_fail_after(n);
        status = ls_tokenizer_load(scratch_path("vocab.json"), &t);
        ls_alloc_fail_after(-1);
        CHECK(!status || status == LS_ENOMEM);
        ls_tokenizer_free(t);
        CHECK(ls_mem_get_stats().total == before);
    }
    CHECK(!status && n > 50);
}

int main(void)
{
    scratch_open();
    test_good();
    test_bad();
    test_ends();
    test_out_of_memory();
    scratch_close();
    return test_summary("tokenizer_vocab");
}

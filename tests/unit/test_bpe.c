/*
 * test_bpe.c - tokenizer.json read, refused, applied and trained.
 *
 * That the tokens are those of the Python package, tests/reference/check_tokenizer.py shows;
 * here stands what needs no Python: pieces, bad files, bytes that are not UTF-8, lack of
 * memory.
 */
#include <stdlib.h>

#include "core/alloc.h"
#include "core/strbuf.h"
#include "core/utf8.h"
#include "data/bpe_impl.h"
#include "data/bpe_train.h"
#include "data/tokenizer.h"
#include "scratch.h"
#include "test.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char *const source = "source";

static ls_text view(const char *text)
{
    return ls_text_view(&source, text, strlen(text));
}

/* ---- pieces: text and the same with | between them ---- */

static const struct {
    const char *name, *text, *cut;
} pieces[] =
    {
        {"words", "two words", "two| words"},
        {"number", "abc123 45x", "abc|123| 45|x"},
        {"contractions", "I'll we've 'tis she's", "I|'ll| we|'ve| '|tis| she|'s"},
        {"upper case is none", "I'LL", "I|'|LL"},
        {"others", "a--b !? .", "a|--|b| !?| ."},
        {"apostrophe behind others", "!'s", "!'|s"},
        {"spaces before a word", "a   b", "a|  | b"},
        {"spaces at the end", "a   ", "a|   "},
        {"lines", "a\n\nb \n c", "a|\n|\n|b| \n| c"},
        {"tab before a word", "a\tb\t\tc", "a|\t|b|\t|\t|c"},
        {"one space", " ", " "},
        {"space before a line", " \n", " \n"},
        {"no-break space", "a\xc2\xa0\xc2\xa0z", "a|\xc2\xa0|\xc2\xa0|z"},
        {"letters of all kinds", "\xc3\xa9t\xc3\xa9 \xd0\xbc\xd0\xb8\xd1\x80",
         "\xc3\xa9t\xc3\xa9| \xd0\xbc\xd0\xb8\xd1\x80"},
        {"marks are no letters", "e\xcc\x81x", "e|\xcc\x81|x"},
        {"numbers of all kinds", "x\xc2\xb2\xe2\x85\xa7", "x|\xc2\xb2\xe2\x85\xa7"},
        {"not UTF-8", "ab\xff\xfe z", "ab|\xff\xfe| z"},
        {"cut character", "ab\xe2\x82", "ab|\xe2\x82"},
        {"NUL", "\x01\x02", "\x01\x02"},
},
  llama3[] = {
      {"words", "two words", "two| words"},
      {"numbers by threes", "abc12345 67", "abc|123|45| |67"},
      {"contractions in either case", "I'LL we'vE x'S 'tis", "I|'LL| we|'vE| x|'S| '|tis"},
      {"long s", "it'\xc5\xbfx", "it|'\xc5\xbf|x"},
      {"no contraction", "'lx 'rx 'q", "'lx| '|rx| '|q"},
      {"any character before a word", "(a\tb!c\xc2\xa0z", "(a|\tb|!c|\xc2\xa0z"},
      {"no line before a word", "a\nb\r\nc", "a|\n|b|\r\n|c"},
      {"lines behind others", "a !!\r\n\n b", "a| !!\r\n\n| b"},
      {"spaces before a line", "a  \n \n  b", "a|  \n \n| | b"},
      {"spaces at the end", "a   ", "a|   "},
      {"tab before others", "\t!! \t!", "\t|!!| |\t|!"},
      {"numbers of all kinds", "x\xc2\xb2\xe2\x85\xa7\xc2\xb2\xc2\xb2",
       "x|\xc2\xb2\xe2\x85\xa7\xc2\xb2|\xc2\xb2"},
      {"not UTF-8",
       "ab\xff\xfe z\xff"
       "b",
       "ab|\xff\xfe| z|\xff"
       "b"},
};

static void check_pieces(const char *name, ls__cut *cut, const char *of, const char *want)
{
    const unsigned char *text = (const unsigned char *)of;
    size_t               size = strlen(of), used = 0;
    char                 got[128];

    TEST_ROW(name);
    for (size_t at = 0, n; at < size; at += n) {
        n = cut(text + at, size - at);
        if (!CHECK(n >= 1 && n <= size - at))
            break;
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%.*s", at ? "|" : "", (int)n,
                                 of + at);
    }
    if (!CHECK(!strcmp(got, want)))
        printf("     got \"%s\", want \"%s\"\n", got, want);
}

static void test_pieces(void)
{
    for (size_t i = 0; i < COUNT(pieces); i++)
        check_pieces(pieces[i].name, ls__piece_length, pieces[i].text, pieces[i].cut);
    for (size_t i = 0; i < COUNT(llama3); i++)
        check_pieces(llama3[i].name, ls__piece_length_llama3, llama3[i].text, llama3[i].cut);
}

/* ---- U+FFFD ---- */

static void test_utf8_next(void)
{
    static const struct {
        const char *name, *bytes;
        size_t      length; /* of the first */
        uint32_t    point;
    } rows[] = {
        {"valid", "\xe2\x82\xac", 3, 0x20ac},
        {"lone tail", "\x80\x80", 1, 0xfffd},
        {"never", "\xff", 1, 0xfffd},
        {"overlong", "\xc0\x80", 1, 0xfffd},
        {"cut 2 of 3", "\xe2\x82z", 2, 0xfffd},
        {"cut 3 of 4", "\xf0\x9f\x98z", 3, 0xfffd},
        {"cut 2 of 4", "\xf0\x9fz", 2, 0xfffd},
        {"cut by the end", "\xf0\x9f\x98", 3, 0xfffd},
        {"surrogate", "\xed\xa0\x80", 1, 0xfffd},
        {"overlong of 3", "\xe0\x80\x80", 1, 0xfffd},
        {"beyond", "\xf4\x90\x80\x80", 1, 0xfffd},
        {"lead by lead", "\xe2\xe2\x82\xac", 1, 0xfffd},
        {"overlong of 4", "\xf0\x80\x80", 1, 0xfffd},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint32_t point = 0;
        TEST_ROW(rows[i].name);
        CHECK(ls_utf8_next((const unsigned char *)rows[i].bytes, strlen(rows[i].bytes),
                           &point) == rows[i].length);
        CHECK(point == rows[i].point);
    }
}

/* ---- a small file: all bytes, some merges, one added token ---- */

/* NULL: what is usual */
typedef struct {
    const char *vocab;    /* behind the bytes, "" for nothing */
    const char *merges;   /* inside the list */
    const char *added;    /* inside the list */
    const char *sections; /* members of the whole, with a comma at the end */
    const char *model;    /* members of the model, with a comma at the end */
} parts;

#define ABC ",\"ab\": 256, \"abc\": 257, \"bc\": 258"
#define MERGES "\"b c\", \"a b\", \"ab c\""
#define EOT "{\"id\": 259, \"content\": \"<|end|>\", \"special\": true, \"normalized\": false}"
#define LEVEL "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"

static const char * or (const char *part, const char *usual)
{
    return part ? part : usual;
}

static char *make(const parts *p)
{
    ls_strbuf json = {0};

    ls_strbuf_format(&json, "{%s \"added_tokens\": [%s], \"model\": {%s \"vocab\": {",
                     or (p->sections, LEVEL), or (p->added, EOT),
                     or (p->model, "\"type\": \"BPE\","));
    for (int i = 0; i < 256; i++) {
        char   text[LS_UTF8_LONGEST];
        size_t n = ls_utf8_encode(ls__byte_char(i), text);
        ls_strbuf_format(&json, "%s", i ? "," : "");
        ls_strbuf_json(&json, text, n);
        ls_strbuf_format(&json, ":%d", i);
    }
    ls_strbuf_format(&json, "%s}, \"merges\": [%s]}}", or (p->vocab, ABC),
                     or (p->merges, MERGES));
    return json.data;
}

static const parts good = {0};

#define REGEX3                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| " \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define CUT(split, level)                                                                    \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\"," split \
    "},"                                                                                     \
    "{\"type\":\"ByteLevel\"," level "}]},"
#define REGEX(text) "\"pattern\":{\"Regex\":\"" text "\"}"
#define ISOLATED ",\"behavior\":\"Isolated\",\"invert\":false"
#define QUIET "\"add_prefix_space\":false,\"use_regex\":false"
#define AROUND(parts, ids)                                                        \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" parts "]," \
    "\"special_tokens\":{\"a\":{\"id\":\"a\",\"ids\":" ids "}}},"
#define SPECIAL "{\"SpecialToken\":{\"id\":\"a\"}}"
#define TEXT "{\"Sequence\":{\"id\":\"A\"}}"

static void test_encode(void)
{
    static const struct {
        const char *name, *text;
        int         n;
        int32_t     token[8];
    } rows[] = {
        {"ranks, not order", "abc", 2, {'a', 258}},
        {"ab", "abab", 2, {256, 256}},
        {"added", "ab<|end|>bc", 3, {256, 259, 258}},
        {"almost added", "<|end|", 6, {'<', '|', 'e', 'n', 'd', '|'}},
        {"invalid", "\xff", 3, {0xef, 0xbf, 0xbd}},
        {"cut character", "\xf0\x9f\x98z", 4, {0xef, 0xbf, 0xbd, 'z'}},
        {"each of two", "\xff\xff", 6, {0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd}},
    };
    ls_tokenizer *t    = NULL;
    char         *json = make(&good), *again, out[LS_TOKEN_LONGEST];

    TEST_ROW("good");
    if (!CHECK_OK(ls_tokenizer_from_json(json, &t)))
        exit(1);
    CHECK(ls_tokenizer_vocab_size(t) == 260 && ls_tokenizer_get_kind(t) == LS_TOKENIZER_BPE);
    again = ls_tokenizer_to_json(t);
    CHECK(!strcmp(again, json));
    CHECK(ls_tokenizer_decode(t, 257, out) == 3 && !memcmp(out, "abc", 3));
    CHECK(ls_tokenizer_decode(t, 259, out) == 7 && !memcmp(out, "<|end|>", 7));
    CHECK(ls_tokenizer_decode(t, 0xad, out) == 1 && (unsigned char)out[0] == 0xad);
    CHECK(ls_tokenizer_decode(t, 260, out) == 0 && ls_tokenizer_decode(t, -1, out) == 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        ls_text   text = view(rows[i].text);
        ls_tokens tokens;
        TEST_ROW(rows[i].name);
        if (!CHECK_OK(ls_tokenizer_encode(t, &text, 0, &tokens)))
            continue;
        CHECK(tokens.count == rows[i].n && tokens.width == 2);
        for (int k = 0; k < rows[i].n && k < tokens.count; k++)
            CHECK(ls_tokens_at(&tokens, k) == rows[i].token[k]);
        ls_tokens_close(&tokens);
    }
    TEST_ROW("limit");
    ls_text   text = view("xabc");
    ls_tokens tokens;
    CHECK_FAILS(ls_tokenizer_encode(t, &text, 258, &tokens), LS_ECONFIG,
                "source: token 258 at byte 2 (token number 2, from 0) does not fit");
    CHECK(!tokens.data);
    ls_tokenizer_free(t);
    free(again);
    free(json);
}

/* A file in which one part is another: refused with this message (NULL: taken). */
#define OTHER(member, value) \
    {                        \
        .member = value      \
    }
/* clang-format off */
static const struct {
    const char *name;
    parts       parts;
    ls_status   status;
    const char *message;
} files[] = {
    {"old file", OTHER(model, ""), LS_OK, NULL},
    {"merges as pairs", OTHER(merges, "[\"b\",\"c\"]"), LS_OK, NULL},
    {"merge given twice", OTHER(merges, "\"b c\",\"a b\",\"b c\""), LS_OK, NULL},
    {"no merges", OTHER(merges, ""), LS_OK, NULL},
    {"nulls", OTHER(sections, LEVEL "\"normalizer\":null,\"decoder\":null,\"truncation\":null,"), LS_OK, NULL},
    {"decoder", OTHER(sections, LEVEL "\"decoder\":{\"type\":\"ByteLevel\"},"), LS_OK, NULL},
    {"off", OTHER(model, "\"dropout\":null,\"unk_token\":\"a\",\"end_of_word_suffix\":\"\",\"byte_fallback\":false,"), LS_OK, NULL},
    {"token left out", OTHER(added, "{\"id\":270,\"content\":\"x y\"}"), LS_OK, NULL},
    {"added is known", OTHER(added, "{\"id\":256,\"content\":\"ab\"}"), LS_OK, NULL},

    {"WordPiece", OTHER(model, "\"type\":\"WordPiece\","), LS_EUNSUPPORTED, "a tokenizer of type \"WordPiece\", which is not in this version"},
    {"Unigram", OTHER(model, "\"type\":\"Unigram\","), LS_EUNSUPPORTED, "type \"Unigram\""},
    {"WordLevel", OTHER(model, "\"type\":\"WordLevel\","), LS_EUNSUPPORTED, "type \"WordLevel\""},
    {"no pre-tokenizer", OTHER(sections, ""), LS_EUNSUPPORTED, "its pre_tokenizer is null, not in this version; wanted ByteLevel"},
    {"Whitespace", OTHER(sections, "\"pre_tokenizer\":{\"type\":\"Whitespace\"},"), LS_EUNSUPPORTED, "its pre_tokenizer is Whitespace"},
    {"Sequence of none", OTHER(sections, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[]},"), LS_EUNSUPPORTED, "its pre_tokenizer is Sequence of others than Split and ByteLevel"},
    {"Sequence of others", OTHER(sections, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{\"type\":\"ByteLevel\"}]},"), LS_EUNSUPPORTED, "its pre_tokenizer is Sequence of others than Split and ByteLevel"},
    {"Split by another pattern", OTHER(sections, CUT(REGEX("\\\\p{L}+") ISOLATED, QUIET)), LS_EUNSUPPORTED, "a Split by \"\\p{L}+\", which is not in this version; wanted GPT-2's pattern or Llama 3's"},
    {"Split by a string", OTHER(sections, CUT("\"pattern\":{\"String\":\" \"}" ISOLATED, QUIET)), LS_EUNSUPPORTED, "a Split without pattern.Regex"},
    {"Split that removes", OTHER(sections, CUT(REGEX(REGEX3) ",\"behavior\":\"Removed\"", QUIET)), LS_EUNSUPPORTED, "a Split with behavior \"Removed\", which"},
    {"Split and a space", OTHER(sections, CUT(REGEX(REGEX3) ISOLATED, "\"add_prefix_space\":true,\"use_regex\":false")), LS_EUNSUPPORTED, "pre_tokenizer.add_prefix_space is true behind a Split"},
    {"Split and another cut", OTHER(sections, CUT(REGEX(REGEX3) ISOLATED, "\"add_prefix_space\":false")), LS_EUNSUPPORTED, "pre_tokenizer.use_regex is true behind a Split"},
    {"normalizer", OTHER(sections, LEVEL "\"normalizer\":{\"type\":\"NFC\"},"), LS_EUNSUPPORTED, "its normalizer is NFC, not in this version; wanted null"},
    {"post-processor of another", OTHER(sections, LEVEL "\"post_processor\":{\"type\":\"BertProcessing\"},"), LS_EUNSUPPORTED, "its post_processor is BertProcessing, not in this version; wanted ByteLevel, TemplateProcessing or null"},
    {"post-processors, one of another", OTHER(sections, LEVEL "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"RobertaProcessing\"}]},"), LS_EUNSUPPORTED, "its post_processor is RobertaProcessing"},
    {"template without a list", OTHER(sections, LEVEL "\"post_processor\":{\"type\":\"TemplateProcessing\"},"), LS_EFORMAT, "post_processor: single is no list"},
    {"template without ids", OTHER(sections, LEVEL AROUND(SPECIAL "," TEXT, "7")), LS_EFORMAT, "a token of its template has no ids"},
    {"template of no token", OTHER(sections, LEVEL AROUND(SPECIAL "," TEXT, "[-1]")), LS_EFORMAT, "an id of a token is no token"},
    {"template of a token too large", OTHER(sections, LEVEL AROUND(SPECIAL "," TEXT, "[260]")), LS_EFORMAT, "post_processor: token 260 is not in the vocabulary"},
    {"template of too many tokens", OTHER(sections, LEVEL AROUND(SPECIAL "," TEXT, "[1,2,3,4,5,6,7,8,9]")), LS_EFORMAT, "too many tokens around a text"},
    {"template without the text", OTHER(sections, LEVEL AROUND(SPECIAL, "[1]")), LS_EFORMAT, "does not hold the text once"},
    {"template of a number", OTHER(sections, LEVEL AROUND("1", "[1]")), LS_EFORMAT, "neither text nor token"},
    {"decoder of another", OTHER(sections, LEVEL "\"decoder\":{\"type\":\"Metaspace\"},"), LS_EUNSUPPORTED, "its decoder is Metaspace"},
    {"truncation", OTHER(sections, LEVEL "\"truncation\":{\"max_length\":8},"), LS_EUNSUPPORTED, "its truncation is set"},
    {"prefix space of a number", OTHER(sections, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":1},"), LS_EFORMAT, "add_prefix_space"},
    {"no regex", OTHER(sections, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false},"), LS_EUNSUPPORTED, "use_regex is false"},
    {"dropout", OTHER(model, "\"dropout\":0.1,"), LS_EUNSUPPORTED, "model.dropout is 0.1"},
    {"suffix", OTHER(model, "\"end_of_word_suffix\":\"</w>\","), LS_EUNSUPPORTED, "model.end_of_word_suffix is \"</w>\""},
    {"prefix", OTHER(model, "\"continuing_subword_prefix\":\"##\","), LS_EUNSUPPORTED, "continuing_subword_prefix"},
    {"byte fallback", OTHER(model, "\"byte_fallback\":true,"), LS_EUNSUPPORTED, "model.byte_fallback is true"},
    {"lstrip", OTHER(added, "{\"id\":259,\"content\":\"x\",\"lstrip\":true}"), LS_EUNSUPPORTED, "added_tokens.lstrip is true"},
    {"merge of the unknown", OTHER(merges, "\"b c\",\"q# c\""), LS_EFORMAT, "model.merges[1], \"q# c\": the first is not in the vocabulary"},
    {"merge with the unknown", OTHER(merges, "\"b q#\""), LS_EFORMAT, "model.merges[0], \"b q#\": the second is not"},
    {"merge into the unknown", OTHER(merges, "\"b b\""), LS_EFORMAT, "what they make is not"},
    {"merge of three", OTHER(merges, "\"a b c\""), LS_EFORMAT, "wanted two tokens"},
    {"merge of one", OTHER(merges, "[\"a\"]"), LS_EFORMAT, "wanted two tokens"},
    {"merge of a number", OTHER(merges, "7"), LS_EFORMAT, "model.merges[0], 7: wanted two tokens"},
    {"id twice", OTHER(vocab, ",\"ab\":256,\"abc\":256"), LS_EFORMAT, "token \"abc\" has the id 256"},
    {"id below 0", OTHER(vocab, ",\"ab\":-1"), LS_EFORMAT, "token \"ab\" has the id -1"},
    {"id of a fraction", OTHER(vocab, ",\"ab\":256.5"), LS_EFORMAT, "has the id 256.5"},
    {"id far away", OTHER(vocab, ",\"ab\":2000000000"), LS_EFORMAT, "has the id 2000000000"},
    {"id of a string", OTHER(vocab, ",\"ab\":\"x\""), LS_EFORMAT, "has the id \"x\""},
    {"added with another id", OTHER(added, "{\"id\":300,\"content\":\"ab\"}"), LS_EFORMAT, "token \"ab\" has the id 300"},
    {"added twice", OTHER(added, EOT "," EOT), LS_OK, NULL},
    {"added empty", OTHER(added, "{\"id\":259,\"content\":\"\"}"), LS_EFORMAT, "added_tokens: its content is empty"},
    {"added without id", OTHER(added, "{\"content\":\"q#\"}"), LS_EFORMAT, "token \"q#\" has the id none"},
    {"added no object", OTHER(added, "1"), LS_EFORMAT, "added_tokens: found a number"},
};
/* clang-format on */

/* What a file asks for beside merges: its tokens of a text. */
/* clang-format off */
static const struct {
    const char *name;
    parts       parts;
    const char *text;
    int         n;
    int32_t     token[8];
} kinds[] = {
    {"prefix space", OTHER(sections, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},"), "ab<|end|>c", 5, {' ', 256, 259, ' ', 'c'}},
    {"space that is there", OTHER(sections, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},"), " ab", 2, {' ', 256}},
    {"whole pieces", OTHER(model, "\"type\":\"BPE\",\"ignore_merges\":true,"), "abc abc", 4, {257, ' ', 'a', 258}},
    {"Llama 3's cut", OTHER(sections, CUT(REGEX(REGEX3) ISOLATED, QUIET)), "(ab", 2, {'(', 256}},
    {"removed between matches", OTHER(sections, CUT(REGEX(REGEX3) ",\"behavior\":\"Removed\",\"invert\":true", QUIET)), "ab ", 2, {256, ' '}},
    {"tokens around", OTHER(sections, LEVEL AROUND(SPECIAL "," TEXT "," SPECIAL, "[259,1]")), "ab", 5, {259, 1, 256, 259, 1}},
};
/* clang-format on */

static void test_kinds(void)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        ls_tokenizer *t    = NULL;
        char         *json = make(&kinds[i].parts);
        ls_text       text = view(kinds[i].text);
        ls_tokens     tokens;

        TEST_ROW(kinds[i].name);
        if (CHECK_OK(ls_tokenizer_from_json(json, &t)) &&
            CHECK_OK(ls_tokenizer_encode(t, &text, 0, &tokens))) {
            CHECK(tokens.count == kinds[i].n);
            for (int k = 0; k < kinds[i].n && k < tokens.count; k++)
                CHECK(ls_tokens_at(&tokens, k) == kinds[i].token[k]);
            ls_tokens_close(&tokens);
        }
        ls_tokenizer_free(t);
        free(json);
    }
}

static void test_files(void)
{
    for (size_t i = 0; i < COUNT(files); i++) {
        ls_tokenizer *t    = NULL;
        char         *json = make(&files[i].parts);

        TEST_ROW(files[i].name);
        ls_status status = ls_tokenizer_from_json(json, &t);
        if (files[i].message)
            CHECK_FAILS(status, files[i].status, files[i].message);
        else
            CHECK_OK(status);
        CHECK((t != NULL) == !files[i].message);
        ls_tokenizer_free(t);
        free(json);
    }
}

/* Files that are no such file at all, by path. */
static void test_load(void)
{
    static const struct {
        const char *name, *content, *message;
    } rows[] = {
        {"empty", "", "empty:1:1"},
        {"no JSON", "{\"model\": ", "no JSON:1:"},
        {"list", "[]", "found a list, wanted an object"},
        {"no model", "{\"kind\": \"byte\"}", "no \"model\"; it is not a tokenizer.json"},
        {"no vocab", "{\"model\": {\"type\": \"BPE\", \"merges\": []}}",
         "model.vocab is missing"},
        {"no merges", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}",
         "model.merges is missing"},
        {"unknown without bytes",
         "{" LEVEL "\"model\": {\"unk_token\": \"a\", \"vocab\": {\"a\": 0}, \"merges\": []}}",
         "lacks 255 of the 256 bytes"},
    };
    ls_tokenizer *t;

    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *path =
            scratch_write(rows[i].name, rows[i].content, strlen(rows[i].content));
        TEST_ROW(rows[i].name);
        ls_status status = ls_tokenizer_load(path, &t);
        CHECK(status == LS_EFORMAT || status == LS_EUNSUPPORTED);
        CHECK_FAILS(status, status, rows[i].message);
        CHECK(!t);
    }
    TEST_ROW("missing");
    CHECK_FAILS(ls_tokenizer_load(scratch_path("nope"), &t), LS_EIO, "nope");
    TEST_ROW("NUL");
    CHECK_FAILS(ls_tokenizer_load(scratch_write("nul", "{\0}", 3), &t), LS_EFORMAT,
                "a NUL byte");
}

static void test_missing_byte(void)
{
    const char   *json = "{" LEVEL "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}";
    ls_tokenizer *t    = NULL;
    ls_text       text = view("aab");
    ls_tokens     tokens;

    TEST_ROW("a byte without a token");
    CHECK_OK(ls_tokenizer_from_json(json, &t));
    CHECK_FAILS(ls_tokenizer_encode(t, &text, 0, &tokens), LS_ECONFIG,
                "source: byte 0x62 at byte 2 has no token");
    ls_tokenizer_free(t);
}

/* Whatever a damaged file says, it is refused or it encodes; sanitizers watch. */
static void test_damaged(void)
{
    static const char with[] = {'"', '9', '}', '[', ',', '\xff', ' '};
    ls_text           text   = view("abc ab<|end|> xyz");
    char             *json   = make(&good);
    size_t            size   = strlen(json);
    int64_t           before = ls_mem_get_stats().total;

    TEST_ROW("damaged");
    for (size_t at = 0; at < size; at += at < 200 || at + 400 > size ? 1 : 37) {
        ls_tokenizer *t = NULL;
        ls_tokens     tokens;
        char          kept = json[at];
        json[at]           = with[at % sizeof with];
        if (!ls_tokenizer_from_json(json, &t) && !ls_tokenizer_encode(t, &text, 0, &tokens))
            ls_tokens_close(&tokens);
        ls_tokenizer_free(t);
        json[at] = kept;
        CHECK(ls_mem_get_stats().total == before);
    }
    free(json);
}

/* One piece of a million bytes is n log n, not n * n. */
static void test_long_piece(void)
{
    enum { N = 1 << 20 };
    char         *json = make(&good), *text = malloc(N + 1);
    ls_tokenizer *t = NULL;
    ls_tokens     tokens;

    TEST_ROW("long piece");
    memset(text, 'a', N);
    for (int i = 1; i < N; i += 2)
        text[i] = 'b';
    text[N]       = 0;
    ls_text whole = view(text);
    CHECK_OK(ls_tokenizer_from_json(json, &t));
    CHECK_OK(ls_tokenizer_encode(t, &whole, 0, &tokens));
    CHECK(tokens.count == N / 2 && ls_tokens_at(&tokens, N / 2 - 1) == 256);
    ls_tokens_close(&tokens);
    ls_tokenizer_free(t);
    free(text);
    free(json);
}

/* ---- training ---- */

static void test_train(void)
{
    static const char *const special[] = {"<|end|>", "<|end|>", "", "ab"};
    ls_text                  text      = view("ab ab ab abc abc bc \xff");
    ls_tokenizer            *t         = NULL;
    char                    *json      = NULL, out[LS_TOKEN_LONGEST];
    int32_t                  size;

    TEST_ROW("the most frequent pairs");
    CHECK_OK(ls_bpe_train(&text, &(ls_bpe_train_opts){259, special, 1}, &json, &size));
    CHECK(size == 259);
    CHECK_OK(ls_tokenizer_from_json(json, &t));
    CHECK(ls_tokenizer_vocab_size(t) == 259);
    CHECK(ls_tokenizer_decode(t, 256, out) == 2 && !memcmp(out, "ab", 2));
    CHECK(ls_tokenizer_decode(t, 257, out) == 3 && !memcmp(out, " ab", 3));
    CHECK(ls_tokenizer_decode(t, 258, out) == 7 && !memcmp(out, "<|end|>", 7));
    ls_tokenizer_free(t);
    free(json);
    TEST_ROW("as many as there are");
    CHECK_OK(ls_bpe_train(&text, &(ls_bpe_train_opts){1000, NULL, 0}, &json, &size));
    CHECK(size > 260 && size < 275);
    free(json);
    TEST_ROW("too small");
    CHECK_FAILS(ls_bpe_train(&text, &(ls_bpe_train_opts){256, special, 1}, &json, &size),
                LS_ECONFIG, "a vocabulary of 256 tokens is too small");
    CHECK(!json);
    TEST_ROW("special tokens");
    CHECK_FAILS(ls_bpe_train(&text, &(ls_bpe_train_opts){300, special, 2}, &json, &size),
                LS_ECONFIG, "\"<|end|>\" is given twice");
    CHECK_FAILS(ls_bpe_train(&text, &(ls_bpe_train_opts){300, special + 2, 1}, &json, &size),
                LS_ECONFIG, "\"\" is empty");
    CHECK_FAILS(ls_bpe_train(&text, &(ls_bpe_train_opts){300, special + 3, 1}, &json, &size),
                LS_ECONFIG, "\"ab\" is an ordinary one");
}

/* ---- out of memory ---- */

static ls_status encode_as(const char *json, const ls_text *text)
{
    ls_tokenizer *t      = NULL;
    ls_tokens     tokens = {0};
    ls_status     status = ls_tokenizer_from_json(json, &t);

    if (!status)
        status = ls_tokenizer_encode(t, text, 0, &tokens);
    ls_tokens_close(&tokens);
    ls_tokenizer_free(t);
    return status;
}

static ls_status all_at_once(const char *whole)
{
    ls_text   text = view("some text of a dozen words, some of them twice \xff");
    char     *json = NULL;
    int32_t   size;
    ls_status status = ls_bpe_train(&text, &(ls_bpe_train_opts){280, &source, 1}, &json, &size);

    if (!status)
        status = encode_as(json, &text);
    if (!status)
        status = encode_as(whole, &text);
    free(json);
    return status;
}

static void test_out_of_memory(void)
{
    char   *whole  = make(&(parts){.model = "\"type\":\"BPE\",\"ignore_merges\":true,"});
    int64_t before = ls_mem_get_stats().total;
    bool    done   = false;

    TEST_ROW("out of memory");
    for (int n = 0; !done && CHECK(n < 100000); n++) {
        ls_alloc_fail_after(n);
        ls_status status = all_at_once(whole);
        ls_alloc_fail_after(-1);
        done = status == LS_OK;
        CHECK(done ? n > 300 : status == LS_ENOMEM);
        CHECK(ls_mem_get_stats().total == before);
    }
    free(whole);
}

int main(void)
{
    scratch_open();
    test_pieces();
    test_utf8_next();
    test_encode();
    test_files();
    test_kinds();
    test_load();
    test_missing_byte();
    test_damaged();
    test_long_piece();
    test_train();
    test_out_of_memory();
    scratch_close();
    return test_summary("bpe");
}

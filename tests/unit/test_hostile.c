/*
 * test_hostile.c - small files made to cost much: time must grow as their size does.
 *
 * Each row makes a megabyte or so that looks for a loop within a loop, hashes that collide or
 * levels without end, and has a second of processor time.
 */
#include <stdlib.h>
#include <time.h>

#include "checkpoint/hf.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "cli/config.h"
#include "core/alloc.h"
#include "core/gz.h"
#include "core/strbuf.h"
#include "data/maps_impl.h"
#include "data/table.h"
#include "data/tokenizer.h"
#include "temp_dir.h"
#include "test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 10 };
#else
enum { SLOWER = 1 };
#endif
enum { MEGABYTE = 1 << 20 };

static const char *const source = "source";

static void repeat(ls_strbuf *t, const char *what, int n)
{
    while (n-- > 0)
        ls_strbuf_add(t, what, strlen(what));
}

/* ---- JSON ---- */

static void try_tokenizer(const ls_strbuf *json, ls_status wanted)
{
    ls_tokenizer *t = NULL;

    CHECK(ls_tokenizer_from_json(json->data, &t) == wanted);
    ls_tokenizer_free(t);
}

static void try_levels(void)
{
    ls_strbuf t = {0};

    repeat(&t, "[", MEGABYTE);
    try_tokenizer(&t, LS_EFORMAT);
    ls_strbuf_free(&t);
}

static void try_escapes(void)
{
    ls_strbuf t = {0};

    ls_strbuf_format(&t, "{\"kind\":\"");
    repeat(&t, "\\ud83d\\ude00", MEGABYTE / 12);
    ls_strbuf_format(&t, "\"}");
    try_tokenizer(&t, LS_EFORMAT);
    ls_strbuf_free(&t);
}

static void try_keys(void)
{
    ls_strbuf t = {0};

    ls_strbuf_format(&t, "{\"kind\":\"byte\"");
    for (int i = 0; i < 40000; i++)
        ls_strbuf_format(&t, ",\"one common beginning %d\":%d", i % 39999, i);
    ls_strbuf_format(&t, "}");
    try_tokenizer(&t, LS_EFORMAT);
    ls_strbuf_free(&t);
}

/* The config tells of a key that it does not know, with the one that was perhaps meant. */
static void try_config(void)
{
    ls_strbuf t = {0};
    ls_config cfg;

    ls_strbuf_format(&t, "{\"run\":{\"steps\":1");
    for (int i = 0; i < 40000; i++)
        ls_strbuf_format(&t, ",\"memory_mbs_%d\":{\"a\":1}", i);
    ls_strbuf_format(&t, ",\"");
    repeat(&t, "steps", MEGABYTE / 5);
    ls_strbuf_format(&t, "\":1}}");
    CHECK(ls_config_parse(&cfg, t.data, "hostile", NULL, 0) != LS_OK);
    ls_strbuf_free(&t);
}

/* ---- tokenizers ---- */

static void print_bpe(ls_strbuf *t, int merges, int added)
{
    ls_strbuf_format(t,
                     "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                     "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<\":0,\"a\":1");
    for (int i = 2, n = 2; i < 2 + merges; i++, n++) {
        ls_strbuf_format(t, ",\"");
        repeat(t, "a", n);
        ls_strbuf_format(t, "\":%d", i);
    }
    ls_strbuf_format(t, "},\"merges\":[");
    for (int i = 0; i < merges; i++) {
        ls_strbuf_format(t, "%s[\"a\",\"", i ? "," : "");
        repeat(t, "a", i + 1);
        ls_strbuf_format(t, "\"]");
    }
    ls_strbuf_format(t, "]},\"added_tokens\":[");
    for (int i = 0; i < added; i++)
        ls_strbuf_format(t, "%s{\"id\":%d,\"content\":\"<<<<<<%d\"}", i ? "," : "",
                         2 + merges + i, i);
    ls_strbuf_format(t, "]}");
}

/* A megabyte of one word through a tokenizer. */
static void try_text(int merges, int added, const char *word)
{
    ls_strbuf     json = {0}, text = {0};
    ls_tokenizer *t      = NULL;
    ls_tokens     tokens = {0};

    print_bpe(&json, merges, added);
    repeat(&text, word, MEGABYTE / (int)strlen(word));
    CHECK_OK(ls_tokenizer_from_json(json.data, &t));
    ls_text view = ls_text_view(&source, text.data, text.used);
    if (t)
        CHECK_OK(ls_tokenizer_encode(t, &view, 0, &tokens));
    CHECK(tokens.count > 0);
    ls_tokens_close(&tokens);
    ls_tokenizer_free(t);
    ls_strbuf_free(&json);
    ls_strbuf_free(&text);
}

static void try_added(void)
{
    try_text(0, 20000, "<");
}

static void try_word(void)
{
    try_text(500, 0, "a");
}

/* The inverse of MurmurHash3's finalizer: what hashes to x where nothing is unknown. */
static uint64_t unmix(uint64_t x)
{
    x = (x ^ x >> 33) * 0x9cb4b2f8129337db;
    x = (x ^ x >> 33) * 0x4f74430c22a54005;
    return x ^ x >> 33;
}

static void try_collisions(void)
{
    enum { KEYS = 60000 };
    static uint64_t key[KEYS];
    ls__bytes_map   bytes = {0};
    ls__pair_map    pairs = {0};

    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t pair = unmix(i << 20 | 1) - 1;
        key[i]        = 8 ^ unmix(unmix(i << 20));
        CHECK(ls__bytes_map_at(&bytes, (const unsigned char *)&key[i], sizeof key[i]) != NULL);
        CHECK(ls__pair_map_at(&pairs, (int32_t)(pair >> 32), (int32_t)pair) != NULL);
    }
    CHECK(bytes.count == KEYS && pairs.count == KEYS);
    ls__bytes_map_free(&bytes);
    ls__pair_map_free(&pairs);
}

/* ---- tables ---- */

static void try_csv(const char *what)
{
    ls_strbuf      t     = {0};
    const char    *path  = temp_path("hostile.csv");
    ls_table_shape shape = {1, 2};
    ls_table       table;

    repeat(&t, what, MEGABYTE / (int)strlen(what));
    temp_put(path, t.data, t.used);
    CHECK(ls_table_load(LS_FORMAT_CSV, (ls_paths){&path, 1}, shape, &table) == LS_EFORMAT);
    ls_strbuf_free(&t);
}

static void try_commas(void)
{
    try_csv(",");
}

static void try_quotes(void)
{
    try_csv("\"\n");
}

static void try_lines(void)
{
    try_csv("x\n\n");
}

/* ---- checkpoints ---- */

static void try_safetensors(void)
{
    ls_strbuf    t = {0};
    ls_st_header h;

    for (int i = 0; i < 15000; i++)
        ls_strbuf_format(&t,
                         "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                         i ? ',' : '{', i, 14999 - i, 15000 - i);
    ls_strbuf_format(&t, ",\"__metadata__\":{");
    for (int i = 0; i < 15000; i++)
        ls_strbuf_format(&t, "%s\"k%d\":\"v\"", i ? "," : "", i);
    ls_strbuf_format(&t, "}}");
    CHECK_OK(ls_st_header_parse("hostile", t.data, t.used, 8 + t.used + 15000, &h));
    CHECK(h.n_entries == 15000 && h.n_pairs == 15000);
    ls_st_header_free(&h); /* and the text, which is its */
}

static void try_manifest(void)
{
    ls_strbuf   t = {0};
    ls_manifest m;

    ls_strbuf_format(&t,
                     "{\"lockstep_checkpoint\":1,\"step\":1,\"world_size\":1,\"strategy\":\"\","
                     "\"codec\":\"none\",\"state\":\"\",\"config\":\"\",\"tokenizer\":\"\","
                     "\"files\":[{\"name\":\"f\",\"bytes\":24000,\"header_bytes\":0,"
                     "\"header_crc32\":\"00000000\"}],\"tensors\":[");
    for (int i = 0; i < 6000; i++)
        ls_strbuf_format(
            &t,
            "%s{\"name\":\"t%d\",\"kind\":\"parameter\",\"dtype\":\"F32\",\"shape\":[1],"
            "\"chunks\":[{\"file\":0,\"first\":0,\"rows\":1,\"offset\":%d,"
            "\"bytes\":4,\"crc32\":\"00000000\"}]}",
            i ? "," : "", i, 4 * (5999 - i));
    ls_strbuf_format(&t, "]");
    ls_strbuf_format(&t, ",\"crc32\":\"%08x\"}\n", ls_crc32(0, t.data, t.used));
    CHECK_OK(ls_manifest_parse(t.data, t.used, "hostile", &m));
    CHECK(m.n_tensors == 6000);
    ls_manifest_free(&m);
    ls_strbuf_free(&t);
}

/* A config.json of some words is a model of half a million tensors. */
static void try_layers(void)
{
    static const char json[] =
        "{\"model_type\":\"llama\",\"hidden_size\":2,\"intermediate_size\":1,"
        "\"num_attention_heads\":1,\"num_hidden_layers\":50000,\"vocab_size\":2}";
    ls_gpt_opts opts;
    char        folder[64];

    temp_put(temp_path("config.json"), json, strlen(json));
    snprintf(folder, sizeof folder, "%s", temp_dir);
    CHECK_OK(ls_hf_read_config(folder, &opts));
    ls_module *gpt = ls_gpt_new(&opts);
    CHECK(gpt != NULL);
    ls_module_free(gpt);
}

static double used_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
    static const struct {
        const char *name;
        void (*attempt)(void);
    } rows[] = {{"levels", try_levels},
                {"escapes", try_escapes},
                {"keys", try_keys},
                {"unknown keys", try_config},
                {"added tokens", try_added},
                {"one word", try_word},
                {"collisions", try_collisions},
                {"commas", try_commas},
                {"quotes", try_quotes},
                {"lines", try_lines},
                {"safetensors", try_safetensors},
                {"manifest", try_manifest},
                {"layers", try_layers}};

    temp_dir_make();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        double start = used_s();
        rows[i].attempt();
        double took = used_s() - start;
        printf("%-14s %.3f s\n", rows[i].name, took);
        CHECK(took < SLOWER);
    }
    temp_dir_remove();
    return test_summary("hostile");
}

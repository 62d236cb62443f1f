/*
 * test_hf.c - Hugging Face directories from inside: bits that come back, what F16 and BF16 are
 * read as, and failing allocations.  unit/test_models.py has the refusals.
 */
#include <stdlib.h>

#include "checkpoint/hf.h"
#include "checkpoint/params.h"
#include "core/alloc.h"
#include "temp_dir.h"
#include "test.h"

static ls_gpt_opts gpt2(void)
{
    return (ls_gpt_opts){.vocab_size     = 7,
                         .n_layer        = 2,
                         .n_head         = 2,
                         .n_kv_head      = 2,
                         .d_model        = 8,
                         .d_ff           = 12,
                         .context        = 5,
                         .bias           = true,
                         .tie_embeddings = true,
                         .norm           = LS_NORM_LAYER,
                         .norm_eps       = 1e-6,
                         .mlp            = LS_MLP_GELU_TANH,
                         .rope_base      = 10000};
}

static ls_gpt_opts llama(void)
{
    ls_gpt_opts o    = gpt2();
    o.n_head         = 4;
    o.n_kv_head      = 2;
    o.bias           = false;
    o.tie_embeddings = false;
    o.norm           = LS_NORM_RMS;
    o.mlp            = LS_MLP_SWIGLU;
    o.rope           = true;
    o.rope_base      = 5000;
    return o;
}

typedef struct {
    ls_gpt_opts      opts;
    ls_module       *gpt;
    ls_named_tensor *list;
    int              n;
} model;

/* No two values are equal, so that what is mixed up shows. */
static void model_open(model *m, ls_gpt_opts opts, bool filled)
{
    ls_real next = 1;

    *m      = (model){.opts = opts, .gpt = ls_gpt_new(&opts)};
    m->list = ls_module_list(m->gpt, false, &m->n);
    CHECK_OK(ls_module_init(m->gpt, 1));
    for (int i = 0; i < m->n; i++)
        for (int64_t j = 0; j < ls_tensor_numel(m->list[i].tensor); j++)
            ls_reals(m->list[i].tensor)[j] = filled ? next++ : 0;
}

static void model_close(model *m)
{
    free(m->list);
    ls_module_free(m->gpt);
}

static const ls_ends ends = {{3, 6}, 2};

static ls_hf_model hf_of(const model *m, const ls_tokenizer *tokenizer, uint64_t shard)
{
    return (ls_hf_model){&m->opts, m->list, (size_t)m->n, tokenizer, shard, &ends};
}

static bool equal(const model *a, const model *b)
{
    char x[LS_SHA256_HEX] = "x", y[LS_SHA256_HEX] = "y";

    CHECK_OK(ls_params_sha256(a->list, (size_t)a->n, x));
    CHECK_OK(ls_params_sha256(b->list, (size_t)b->n, y));
    return !strcmp(x, y);
}

static bool opts_equal(const ls_gpt_opts *a, const ls_gpt_opts *b)
{
    return a->vocab_size == b->vocab_size && a->n_layer == b->n_layer &&
           a->n_head == b->n_head && a->n_kv_head == b->n_kv_head && a->d_model == b->d_model &&
           a->d_ff == b->d_ff && a->context == b->context && a->bias == b->bias &&
           a->tie_embeddings == b->tie_embeddings && a->norm == b->norm &&
           a->norm_eps == b->norm_eps && a->mlp == b->mlp && a->rope == b->rope &&
           a->rope_base == b->rope_base;
}

static void empty_folder(const char *path)
{
    char command[600];

    snprintf(command, sizeof command, "rm -rf '%s'", path);
    CHECK(system(command) == 0);
}

static void test_back(ls_gpt_opts opts, uint64_t shard)
{
    const char   *folder = temp_path("hf");
    ls_tokenizer *bytes = NULL, *back = NULL;
    ls_gpt_opts   read;
    model         a, b;

    model_open(&a, opts, true);
    model_open(&b, opts, false);
    CHECK_OK(ls_tokenizer_new(LS_TOKENIZER_BYTE, NULL, &bytes));
    ls_hf_model from = hf_of(&a, bytes, shard), to = hf_of(&b, NULL, 0);
    CHECK_OK(ls_hf_export(folder, &from));
    CHECK_OK(ls_hf_read_config(folder, &read));
    CHECK(opts_equal(&read, &opts));
    CHECK_OK(ls_hf_read_parameters(folder, &to));
    CHECK(equal(&a, &b));
    CHECK_OK(ls_hf_read_tokenizer(folder, &back));
    CHECK(back && ls_tokenizer_get_kind(back) == LS_TOKENIZER_BYTE);
    ls_ends got;
    CHECK_OK(ls_hf_read_end_of_text(folder, bytes, opts.vocab_size, &got));
    CHECK(got.n == 2 && got.token[0] == 3 && got.token[1] == 6);
    CHECK_OK(ls_hf_read_end_of_text(folder, bytes, 6, &got));
    CHECK(got.n == 1 && got.token[0] == 3);
    CHECK_FAILS(ls_hf_export(folder, &from), LS_EIO, "not empty");
    ls_tokenizer_free(back);
    ls_tokenizer_free(bytes);
    empty_folder(folder);
    model_close(&a);
    model_close(&b);
}

/* A char tokenizer comes back with its characters, quotes and code points beyond 16 bits too.
 */
static void test_chars(void)
{
    static const char *const name   = "text";
    static const char        some[] = "b\"a\\\n\xc3\xa4\xf0\x9f\x98\x80";
    ls_text                  text   = ls_text_view(&name, some, strlen(some));
    ls_tokenizer            *chars = NULL, *back = NULL;
    model                    m;

    model_open(&m, gpt2(), true);
    CHECK_OK(ls_tokenizer_new(LS_TOKENIZER_CHAR, &text, &chars));
    ls_hf_model from = hf_of(&m, chars, 1 << 20);
    CHECK_OK(ls_hf_export(temp_path("hf"), &from));
    CHECK_OK(ls_hf_read_tokenizer(temp_path("hf"), &back));
    char *x = ls_tokenizer_to_json(chars), *y = back ? ls_tokenizer_to_json(back) : NULL;
    CHECK(x && y && !strcmp(x, y));
    free(x);
    free(y);
    ls_tokenizer_free(back);
    ls_tokenizer_free(chars);
    empty_folder(temp_path("hf"));
    model_close(&m);
}

/* What looks like our own tokenizers and is not must not be taken for them. */
static void test_not_ours(void)
{
#define FILE_WITH(more, vocab)                                                      \
    "{\"pre_tokenizer\":null," more "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab \
    "},\"merges\":[]}}"
    static const struct {
        const char *name, *json;
        ls_status   wanted;
    } rows[] = {
        {"ours", FILE_WITH("", "\"a\":1,\" \":0"), LS_OK},
        {"an id twice", FILE_WITH("", "\"a\":1,\" \":1"), LS_EFORMAT},
        {"added token",
         FILE_WITH("\"added_tokens\":[{\"id\":2,\"content\":\"<s>\"}],", "\"a\":1,\" \":0"),
         LS_EUNSUPPORTED},
        {"normalizer", FILE_WITH("\"normalizer\":{\"type\":\"Lowercase\"},", "\"a\":1,\" \":0"),
         LS_EUNSUPPORTED},
        {"merges of another kind",
         "{\"pre_tokenizer\":null,\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},"
         "\"merges\":{}}}",
         LS_EFORMAT},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_tokenizer *t = NULL;
        TEST_ROW(rows[i].name);
        temp_put(temp_path("tokenizer.json"), rows[i].json, strlen(rows[i].json));
        CHECK(ls_hf_read_tokenizer(temp_path("."), &t) == rows[i].wanted);
        CHECK(!t == (rows[i].wanted != LS_OK));
        ls_tokenizer_free(t);
    }
    unlink(temp_path("tokenizer.json"));
}

/* One tensor of each width: bits of a half, and what they are worth. */
static void test_narrow(void)
{
    static const struct {
        uint16_t half, bf16;
        float    value[2];
    } rows[] = {{0x3c00, 0x3f80, {1, 1}},
                {0xc000, 0xc000, {-2, -2}},
                {0x0001, 0x0001, {0x1p-24f, 0x1p-133f}},
                {0x83ff, 0x8080, {-0x3ffp-24f, -0x1p-126f}},
                {0x7bff, 0x7f7f, {65504, 0x1.fep127f}},
                {0x0400, 0x3eab, {0x1p-14f, 0x1.56p-2f}},
                {0x7c00, 0x7f80, {INFINITY, INFINITY}}};
    enum { ROWS = sizeof rows / sizeof *rows };

    static const char *const dtype[2] = {"F16", "BF16"};
    ls_gpt_opts              opts     = gpt2();
    model                    m;

    opts.n_layer = 1;
    for (int d = 0; d < 2; d++) {
        TEST_ROW(dtype[d]);
        model_open(&m, opts, false);
        uint16_t     raw[8 * 3 * 8] = {0};
        ls_st_source source[16]     = {{0}};
        size_t       n              = 0;
        for (int i = 0; i < ROWS; i++)
            raw[i] = d ? rows[i].bf16 : rows[i].half;
        static const struct {
            const char *name;
            int         ndim;
            uint64_t    dim[2];
        } all[] = {{"wte.weight", 2, {7, 8}},
                   {"wpe.weight", 2, {5, 8}},
                   {"h.0.ln_1.weight", 1, {8}},
                   {"h.0.ln_1.bias", 1, {8}},
                   {"h.0.attn.c_attn.weight", 2, {8, 24}},
                   {"h.0.attn.c_attn.bias", 1, {24}},
                   {"h.0.attn.c_proj.weight", 2, {8, 8}},
                   {"h.0.attn.c_proj.bias", 1, {8}},
                   {"h.0.ln_2.weight", 1, {8}},
                   {"h.0.ln_2.bias", 1, {8}},
                   {"h.0.mlp.c_fc.weight", 2, {8, 12}},
                   {"h.0.mlp.c_fc.bias", 1, {12}},
                   {"h.0.mlp.c_proj.weight", 2, {12, 8}},
                   {"h.0.mlp.c_proj.bias", 1, {8}},
                   {"ln_f.weight", 1, {8}},
                   {"ln_f.bias", 1, {8}}};
        for (; n < 16; n++)
            source[n] = (ls_st_source){.name  = all[n].name,
                                       .dtype = dtype[d],
                                       .ndim  = all[n].ndim,
                                       .dim   = {all[n].dim[0], all[n].dim[1]},
                                       .data  = raw};
        CHECK_OK(ls_safetensors_write(temp_path("model.safetensors"), source, n, NULL, 0));
        ls_hf_model to = hf_of(&m, NULL, 0);
        CHECK_OK(ls_hf_read_parameters(temp_path("."), &to));
        for (int k = 0; k < m.n; k++)
            for (int i = 0; !strcmp(m.list[k].name, "wte.weight") && i < ROWS; i++)
                CHECK_CLOSE(ls_reals(m.list[k].tensor)[i] == rows[i].value[d], 1, 0);
        model_close(&m);
    }
}

/* The n-th allocation fails, for every n: an error, nothing left, nothing half there. */
static void test_memory(void)
{
    const char   *folder = temp_path("hf");
    ls_tokenizer *bytes = NULL, *back = NULL;
    ls_status     status = LS_ENOMEM;
    model         a, b;
    int           n = 0;

    model_open(&a, llama(), true);
    model_open(&b, llama(), false);
    CHECK_OK(ls_tokenizer_new(LS_TOKENIZER_BYTE, NULL, &bytes));
    ls_hf_model from = hf_of(&a, bytes, 600), to = hf_of(&b, NULL, 0);
    temp_files(true);
    for (; status && n < 5000; n++) {
        ls_mem_trim();
        ls_alloc_fail_after(n);
        status = ls_hf_export(folder, &from);
        ls_alloc_fail_after(-1);
        CHECK(!status || (status == LS_ENOMEM && temp_files(false) == 0));
    }
    CHECK(!status && n > 50);
    n = 0;
    for (status = LS_ENOMEM; status && n < 5000; n++) {
        ls_gpt_opts read;
        ls_ends     got;
        ls_mem_trim();
        ls_alloc_fail_after(n);
        status = ls_hf_read_config(folder, &read);
        if (!status)
            status = ls_hf_read_tokenizer(folder, &back);
        if (!status)
            status = ls_hf_read_end_of_text(folder, back, 7, &got);
        if (!status)
            status = ls_hf_read_parameters(folder, &to);
        ls_alloc_fail_after(-1);
        CHECK(!status || status == LS_ENOMEM);
        ls_tokenizer_free(back);
        back = NULL;
    }
    CHECK(!status && n > 50 && equal(&a, &b));
    empty_folder(folder);
    ls_tokenizer_free(bytes);
    model_close(&a);
    model_close(&b);
}

int main(void)
{
    temp_dir_make();
    TEST_ROW("GPT-2");
    test_back(gpt2(), 1 << 20);
    TEST_ROW("GPT-2, a tensor a file");
    test_back(gpt2(), 1);
    TEST_ROW("Llama");
    test_back(llama(), 1 << 20);
    TEST_ROW("Llama in shards");
    test_back(llama(), 1000);
    TEST_ROW("characters");
    test_not_ours();
    test_chars();
    test_narrow();
    TEST_ROW("memory");
    test_memory();
    temp_dir_remove();
    return test_summary("hf");
}

/*
 * test_generate.c - what text is made of: the cache against a plain forward, the choice of
 * tokens, the stream of characters.
 */
#include <stdlib.h>

#include "cli/sampling.h"
#include "cli/text_stream.h"
#include "core/alloc.h"
#include "nn/gpt.h"
#include "test.h"

enum { T = 80, V = 13, C = 16, H = 4 };

typedef struct {
    const char *name;
    bool        rope, bias, tied, recompute;
    int64_t     kv_heads;
    int64_t     chunk; /* tokens that are given to the cache at once */
} style;

static const style styles[] = {
    {"learned, one by one", false, true, true, false, H, 1},
    {"learned, by threes", false, true, false, true, H, 3},
    {"rope, one by one", true, false, false, false, H, 1},
    {"rope, grouped, by sevens", true, true, false, false, 2, 7},
    {"rope, one key head, in bands", true, false, true, true, 1, 33},
    {"learned, grouped, all at once", false, true, true, false, 2, T},
};

static ls_gpt_opts opts_of(const style *s)
{
    return (ls_gpt_opts){.vocab_size     = V,
                         .n_layer        = 2,
                         .n_head         = H,
                         .n_kv_head      = s->kv_heads,
                         .d_model        = C,
                         .d_ff           = 24,
                         .context        = T,
                         .dropout        = 0.5, /* not in generated text */
                         .bias           = s->bias,
                         .tie_embeddings = s->tied,
                         .norm           = s->rope ? LS_NORM_RMS : LS_NORM_LAYER,
                         .norm_eps       = 1e-5,
                         .mlp            = s->rope ? LS_MLP_SWIGLU : LS_MLP_GELU,
                         .rope           = s->rope,
                         .rope_base      = 500,
                         .recompute      = s->recompute};
}

/* Values large enough that attention is not nearly uniform. */
static ls_module *model_of(const ls_gpt_opts *o)
{
    ls_module       *gpt = ls_gpt_new(o);
    int              n;
    ls_named_tensor *list = ls_module_list(gpt, false, &n);

    CHECK_OK(ls_module_init(gpt, 3));
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < ls_tensor_numel(list[i].tensor); j++)
            ls_reals(list[i].tensor)[j] *= list[i].tensor->shape.ndim > 1 ? 12 : 1;
    free(list);
    return gpt;
}

static void fill_ids(int32_t ids[T])
{
    for (int i = 0; i < T; i++)
        ids[i] = (i * i + 3 * i) % V;
}

/* The logits behind token t of a plain forward, which has all (1,T,V). */
static void check_row(const ls_real *got, const ls_real *all, int64_t t)
{
    double worst = 0, size = 0;

    for (int v = 0; v < V; v++) {
        double gap = fabs((double)got[v] - (double)all[t * V + v]);
        worst      = gap > worst ? gap : worst;
        size       = fabs((double)all[t * V + v]) > size ? fabs((double)all[t * V + v]) : size;
    }
    CHECK(size > 0.1);
    CHECK_CLOSE(worst, 0, 1e-5 * (1 + size));
}

static void test_cache(const style *s)
{
    ls_gpt_opts  o     = opts_of(s);
    ls_module   *gpt   = model_of(&o);
    ls_kv_cache *cache = ls_kv_cache_new(&o);
    ls_tape     *plain = ls_tape_new(), *tape = ls_tape_new();
    int32_t      ids[T];

    fill_ids(ids);
    ls_tape_set_training(plain, false);
    ls_tape_set_grad(plain, false);
    ls_tensor *x   = ls_tape_input(plain, LS_I32, LS_SHAPE2(1, T), ids);
    ls_tensor *all = ls_module_call(gpt, plain, x);
    for (int64_t t = 0; all && t < T; t += s->chunk) {
        int64_t n = T - t < s->chunk ? T - t : s->chunk;
        ls_tape_reset(tape);
        ls_tensor *next = ls_gpt_next(
            gpt, tape, ls_tape_input(tape, LS_I32, LS_SHAPE2(1, n), ids + t), cache);
        if (!CHECK_OK(ls_tape_status(tape)))
            break;
        CHECK(next->shape.ndim == 3 && next->shape.dim[1] == 1 && next->shape.dim[2] == V);
        CHECK(ls_kv_cache_length(cache) == t + n);
        check_row(ls_reals(next), ls_reals(all), t + n - 1);
    }
    CHECK(ls_tape_recorded(tape) == 0 && ls_tape_get_grad(tape) && ls_tape_get_training(tape));
    ls_tape_free(plain);
    ls_tape_free(tape);
    ls_kv_cache_free(cache);
    ls_module_free(gpt);
}

/* Without a cache: the last rows of several sequences. */
static void test_no_cache(void)
{
    ls_gpt_opts o    = opts_of(&styles[0]);
    ls_module  *gpt  = model_of(&o);
    ls_tape    *tape = ls_tape_new();
    int32_t     ids[T];

    fill_ids(ids);
    ls_tape_set_training(tape, false);
    ls_tensor *x    = ls_tape_input(tape, LS_I32, LS_SHAPE2(4, 20), ids);
    ls_tensor *all  = ls_module_call(gpt, tape, x);
    ls_tensor *next = ls_gpt_next(gpt, tape, x, NULL);
    CHECK_OK(ls_tape_status(tape));
    for (int b = 0; next && b < 4; b++)
        check_row(ls_reals(next) + (ptrdiff_t)b * V, ls_reals(all), b * 20 + 19);
    ls_tape_free(tape);
    ls_module_free(gpt);
}

/* What ls_gpt_next refuses; the cache stays as it was and goes on. */
static void test_refused(void)
{
    ls_gpt_opts  o = opts_of(&styles[0]), other = o;
    ls_module   *gpt        = model_of(&o);
    ls_kv_cache *cache      = ls_kv_cache_new(&o);
    ls_tape     *tape       = ls_tape_new();
    int32_t      ids[T + 1] = {0};

    other.context      = T / 2;
    ls_kv_cache *small = ls_kv_cache_new(&other);
    ls_tensor   *whole = ls_tape_input(tape, LS_I32, LS_SHAPE2(1, T), ids);
    CHECK(ls_gpt_next(gpt, tape, whole, cache) != NULL);
    const struct {
        const char  *name, *text;
        ls_shape     shape;
        ls_kv_cache *cache;
        ls_status    status;
    } rows[] = {{"full", "T <= 0", LS_SHAPE2(1, 1), cache, LS_ESHAPE},
                {"two sequences", "want (1,T)", LS_SHAPE2(2, 1), cache, LS_ESHAPE},
                {"no tokens", "T >= 1", LS_SHAPE2(1, 0), NULL, LS_ESHAPE},
                {"one dimension", "want (B,T)", LS_SHAPE1(3), NULL, LS_ESHAPE},
                {"another model's cache", "context 40", LS_SHAPE2(1, 1), small, LS_ESHAPE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        ls_tape_reset(tape);
        ls_tensor *x = ls_tape_input(tape, LS_I32, rows[i].shape, ids);
        CHECK(!ls_gpt_next(gpt, tape, x, rows[i].cache));
        CHECK_FAILS(ls_tape_status(tape), rows[i].status, rows[i].text);
        CHECK(ls_kv_cache_length(cache) == T);
    }
    TEST_ROW("a part of the model");
    ls_tape_reset(tape);
    CHECK(!ls_gpt_next(gpt->children, tape, ls_tape_input(tape, LS_I32, LS_SHAPE2(1, 1), ids),
                       cache));
    CHECK_FAILS(ls_tape_status(tape), LS_EINVAL, "want a gpt");
    ls_kv_cache_free(small);
    ls_kv_cache_free(cache);
    ls_tape_free(tape);
    ls_module_free(gpt);
}

/* The n-th allocation fails, for every n: an error, and the cache as before. */
static void test_memory(void)
{
    ls_gpt_opts  o      = opts_of(&styles[3]);
    ls_module   *gpt    = model_of(&o);
    ls_kv_cache *cache  = NULL;
    ls_tape     *tape   = ls_tape_new();
    ls_tensor   *next   = NULL;
    int32_t      ids[4] = {1, 2, 3, 4};
    int          n = 0, steps = 0;

    for (; !cache && n < 10; n++) {
        ls_alloc_fail_after(n);
        cache = ls_kv_cache_new(&o);
    }
    ls_alloc_fail_after(-1);
    CHECK(cache && n == 3);
    for (; !next && steps < 500; steps++) {
        ls_tape_reset(tape);
        ls_mem_trim();
        ls_alloc_fail_after(steps);
        next = ls_gpt_next(gpt, tape, ls_tape_input(tape, LS_I32, LS_SHAPE2(1, 4), ids), cache);
        ls_alloc_fail_after(-1);
        CHECK(next || (ls_tape_status(tape) == LS_ENOMEM && !ls_kv_cache_length(cache)));
    }
    CHECK(next && steps > 10 && ls_kv_cache_length(cache) == 4);
    ls_kv_cache_free(cache);
    ls_tape_free(tape);
    ls_module_free(gpt);
}

/* ---- sampling ---- */

enum { DRAWS = 20000 };

/* How often each token is drawn against its odds: within 5 standard deviations. */
static void test_odds(void)
{
    static const ls_real logits[] = {0, 1, 2, -1, 2};
    static const struct {
        const char *name;
        ls_sampling sampling;
        double      odds[5]; /* unnormalised */
    } rows[] = {
        {"plain", {1, 0, 1, 5}, {1, 2.718281828, 7.389056099, 0.3678794412, 7.389056099}},
        {"temperature 2",
         {2, 0, 1, 5},
         {1, 1.648721271, 2.718281828, 0.6065306597, 2.718281828}},
        {"top-k 3", {1, 3, 1, 5}, {0, 2.718281828, 7.389056099, 0, 7.389056099}},
        {"top-k 1: the first of equals", {1, 1, 1, 5}, {0, 0, 1, 0, 0}},
        {"top-k beyond all",
         {1, 99, 1, 5},
         {1, 2.718281828, 7.389056099, 0.3678794412, 7.389056099}},
        {"top-p 0.79: just more than the two",
         {1, 0, 0.79, 5},
         {0, 2.718281828, 7.389056099, 0, 7.389056099}},
        {"top-p 0.78: just the two", {1, 0, 0.78, 5}, {0, 0, 1, 0, 1}},
        {"top-p of what top-k leaves",
         {1, 3, 0.9, 5},
         {0, 2.718281828, 7.389056099, 0, 7.389056099}},
        {"top-p 0", {1, 0, 0, 5}, {0, 0, 1, 0, 0}},
        {"greedy", {0, 0, 1, 5}, {0, 0, 1, 0, 0}},
        {"nearly greedy", {0.001, 0, 1, 5}, {0, 0, 1, 0, 1}},
    };

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ls_candidate room[5];
        int          count[5] = {0};
        double       sum      = 0;
        TEST_ROW(rows[r].name);
        for (int i = 0; i < DRAWS; i++) {
            int32_t token = -1;
            if (!CHECK_OK(ls_sample(&rows[r].sampling, logits, 5, (uint64_t)i, room, &token)))
                break;
            count[token]++;
        }
        for (int i = 0; i < 5; i++)
            sum += rows[r].odds[i];
        for (int i = 0; i < 5; i++) {
            double p = rows[r].odds[i] / sum;
            CHECK_CLOSE(count[i], p * DRAWS, 5 * sqrt(DRAWS * p * (1 - p)));
        }
    }
}

static void test_not_finite(void)
{
    ls_candidate      room[2];
    const ls_sampling plain = {1, 0, 1, 1};
    const ls_real     nan[] = {0, NAN}, inf[] = {INFINITY, 0}, none[] = {-INFINITY, -INFINITY};
    const ls_real     one[] = {-INFINITY, 0};
    int32_t           token;

    TEST_ROW("logits that are not finite");
    CHECK_FAILS(ls_sample(&plain, nan, 2, 0, room, &token), LS_ENOTFINITE, "token 1");
    CHECK_FAILS(ls_sample(&plain, inf, 2, 0, room, &token), LS_ENOTFINITE, "inf");
    CHECK_FAILS(ls_sample(&plain, none, 2, 0, room, &token), LS_ENOTFINITE, "-inf");
    for (uint64_t i = 0; i < 100; i++) {
        CHECK_OK(ls_sample(&plain, one, 2, i, room, &token));
        CHECK(token == 1);
    }
}

/* ---- the stream ---- */

typedef struct {
    const char *name, *in, *stop;
    const char *after[3]; /* what is out after these many bytes of the input */
    int         bytes[3];
    const char *out; /* in the end */
} stream_row;

static const stream_row streams[] = {
    {"ascii", "abc", NULL, {"a", "ab", "abc"}, {1, 2, 3}, "abc"},
    {"whole characters",
     "\xc3\xa4\xe2\x82\xac",
     NULL,
     {"", "\xc3\xa4", "\xc3\xa4"},
     {1, 2, 4},
     "\xc3\xa4\xe2\x82\xac"},
    {"four bytes",
     "\xf0\x9f\x98\x80.",
     NULL,
     {"", "", "\xf0\x9f\x98\x80"},
     {1, 3, 4},
     "\xf0\x9f\x98\x80."},
    {"no start",
     "a\x80z",
     NULL,
     {"a", "a\xef\xbf\xbd", "a\xef\xbf\xbdz"},
     {1, 2, 3},
     "a\xef\xbf\xbdz"},
    {"broken off by a letter",
     "\xe2\x82z",
     NULL,
     {"", "", "\xef\xbf\xbd\xef\xbf\xbdz"},
     {1, 2, 3},
     "\xef\xbf\xbd\xef\xbf\xbdz"},
    {"broken off by the end",
     "z\xe2\x82",
     NULL,
     {"z", "z", "z"},
     {1, 2, 3},
     "z\xef\xbf\xbd\xef\xbf\xbd"},
    {"no character ever",
     "\xff\xc0\xed\xa0",
     NULL,
     {"\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd"},
     {1, 2, 3},
     "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"stop", "one. two", ".", {"one", "one", "one"}, {3, 4, 8}, "one"},
    {"stop that may come", "a--b---c", "---", {"a", "a", "a--b"}, {2, 3, 4}, "a--b"},
    {"stop that does not come", "a--", "---", {"a", "a", "a"}, {1, 2, 3}, "a--"},
    {"stop at once", "xyz", "xyz", {"", "", ""}, {1, 2, 3}, ""},
    {"stop of several bytes",
     "\xc3\xa4\xc3\xb6!",
     "\xc3\xb6",
     {"", "\xc3\xa4", "\xc3\xa4"},
     {1, 2, 4},
     "\xc3\xa4"},
    {"no stop", "ab", "", {"a", "ab", "ab"}, {1, 2, 2}, "ab"},
};

static bool same(const char *written, size_t size, const char *text)
{
    return size == strlen(text) && (!size || !memcmp(written, text, size));
}

static void run_stream(const stream_row *row, size_t step)
{
    char          *written = NULL;
    size_t         size = 0, n = strlen(row->in), at = 0;
    ls_text_stream s = {.out = open_memstream(&written, &size), .stop = row->stop};

    TEST_ROW(row->name);
    if (!CHECK(s.out != NULL))
        return;
    for (int k = 0; at < n; at += step) {
        size_t now = n - at < step ? n - at : step;
        CHECK_OK(ls_text_stream_add(&s, row->in + at, now));
        for (; step == 1 && k < 3 && (size_t)row->bytes[k] <= at + 1; k++)
            CHECK(same(written, size, row->after[k]));
    }
    CHECK_OK(ls_text_stream_end(&s));
    fflush(s.out);
    CHECK(same(written, size, row->out));
    fclose(s.out);
    free(written);
    ls_text_stream_close(&s);
}

/* A NUL is a character as any other; a failing allocation and a full device are errors. */
static void test_stream_rest(void)
{
    char          *written = NULL;
    size_t         size    = 0;
    ls_text_stream s       = {.out = open_memstream(&written, &size), .stop = "b"};
    FILE          *full    = fopen("/dev/full", "w");

    TEST_ROW("NUL");
    CHECK_OK(ls_text_stream_add(&s, "a\0b", 3));
    CHECK(s.stopped && size == 2 && !memcmp(written, "a", 2));
    ls_text_stream_close(&s);
    fclose(s.out);
    free(written);
    TEST_ROW("no memory");
    s = (ls_text_stream){.out = stdout};
    ls_alloc_fail_after(0);
    CHECK(ls_text_stream_add(&s, "a", 1) == LS_ENOMEM);
    ls_alloc_fail_after(-1);
    ls_text_stream_close(&s);
    TEST_ROW("full device");
    s = (ls_text_stream){.out = full};
    if (full) {
        CHECK_FAILS(ls_text_stream_add(&s, "a", 1), LS_EIO, "space");
        fclose(full);
    }
    ls_text_stream_close(&s);
}

int main(void)
{
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        TEST_ROW(styles[i].name);
        test_cache(&styles[i]);
    }
    TEST_ROW("no cache");
    test_no_cache();
    test_refused();
    TEST_ROW("memory");
    test_memory();
    test_odds();
    test_not_finite();
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        for (size_t step = 1; step <= 3; step++)
            run_stream(&streams[i], step);
    test_stream_rest();
    return test_summary("generate");
}

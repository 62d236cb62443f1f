/*
 * test_config.c - configs: what is refused and how, defaults, --set, the resolved text.
 *
 * With file names as arguments it is a tool for check_schema.py: for each file one line,
 * "ok", "later" or "bad", and for an "ok" one the resolved config behind it on that line.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cli/config.h"
#include "core/alloc.h"
#include "core/thread.h"
#include "test.h"

static const char minimal[] =
    "{\"run\": {\"steps\": 100}, \"model\": {\"type\": \"gpt\", \"n_layer\": 2, \"n_head\": "
    "4,\n"
    " \"d_model\": 64, \"context\": 32}, \"data\": {\"train\": \"a.txt\"},\n"
    " \"batch\": {\"global\": 8}, \"optim\": {\"lr\": 0.01}}";

static const char perceptron[] =
    "{\"run\": {\"steps\": 100}, \"model\": {\"type\": \"mlp\", \"sizes\": [2, 8, 3]},\n"
    " \"data\": {\"train\": \"a.csv\"}, \"batch\": {\"global\": 8}, \"optim\": {\"lr\": 0.01}}";

/* A refused text; the messages stand in one failure, in this order or another. */
static void test_texts(void)
{
    static const struct {
        const char *text;
        const char *messages[6];
    } rows[] = {
        {"", {"c.json:1:1: the text ends here"}},
        {"{\"run\": {\"steps\": 1,\n  }}", {"c.json:2:3: a comma before '}'"}},
        {"{\"run\": {\"steps\": 1, // n\n }}", {"c.json:1:22: a comment"}},
        {"{\"run\": {\"steps\": 1,\n\"steps\": 2}}", {"c.json:2:1: duplicate key \"steps\""}},
        {"[]", {"c.json: wanted an object with the sections of a config, found a list"}},
        {"{}",
         {"c.json: the required key run.steps is missing",
          "the required key model.type is missing", "data.train is missing",
          "batch.global is missing", "optim.lr is missing"}},
        {"{\"model\": {\"type\": \"gpt\"}}",
         {"the required key model.n_layer of model.type gpt is missing", "model.n_head of",
          "model.d_model of", "model.context of"}},
        {"{\"model\": {\"type\": \"mlp\"}}",
         {"the required key model.sizes of model.type mlp is missing"}},
        {"{\"run\": {\"stesp\": 5}, \"modle\": {}, \"lr\": 1,\n \"optim\": {\"warmup\": 1}}",
         {"c.json:1:10: unknown key \"run.stesp\"; did you mean \"run.steps\"?",
          "c.json:1:23: unknown section \"modle\"; did you mean \"model\"?",
          "c.json:1:36: unknown key \"lr\"; did you mean \"optim.lr\"?",
          "c.json:2:12: unknown key \"optim.warmup\"; did you mean "
          "\"optim.schedule.warmup\"?"}},
        {"{\"model\": {\"dropuot\": 0, \"n_embd\": 4, \"dModel\": 4}, \"train\": \"a\"}",
         {"\"model.dropuot\"; did you mean \"model.dropout\"?",
          "\"model.n_embd\"; did you mean \"model.d_model\"?",
          "\"model.dModel\"; did you mean \"model.d_model\"?",
          "\"train\"; did you mean \"data.train\"?"}},
        {"{\"log\": {\"evry\": 5}, \"eval\": {\"evry\": 5, \"qwertyuiop\": 1}}",
         {"\"log.evry\"; did you mean \"log.every\"?",
          "\"eval.evry\"; did you mean \"eval.every\"?", "unknown key \"eval.qwertyuiop\"\n"}},
        {"{\"run\": 5, \"optim\": {\"schedule\": \"cosine\"}}",
         {"1:2: run: wanted an object, found a number",
          "optim.schedule: wanted an object, found a string"}},
        {"{\"run\": {\"steps\": 1.5, \"seed\": 1.0, \"threads\": 1e3, \"name\": 5, \"dir\": "
         "\"\"}}",
         {"1:10: run.steps: wanted an integer, found 1.5",
          "run.seed: wanted an integer, found 1.0", "run.threads: wanted an integer, found 1e3",
          "run.name: wanted a string, found 5", "run.dir: wanted a string, found \"\""}},
        {"{\"model\": {\"type\": \"gpd\", \"bias\": 1, \"vocab_size\": \"all\", \"sizes\": "
         "[1]}}",
         {"model.type: wanted \"gpt\" or \"mlp\", found \"gpd\"",
          "model.bias: wanted true or false, found 1",
          "model.vocab_size: wanted an integer or \"auto\", found \"all\"",
          "model.sizes: wanted a list of at least two integers, found a list"}},
        {"{\"data\": {\"train\": [], \"val\": [\"a\", 5], \"val_fraction\": null}}",
         {"data.train: wanted a path or a list of paths, found a list",
          "data.val: wanted a path, found 5",
          "data.val_fraction: wanted a number, found null"}},
        {"{\"optim\": {\"betas\": [0.9], \"eps\": true, \"lr\": [1]}}",
         {"optim.betas: wanted a list of two numbers, found a list",
          "optim.eps: wanted a number, found true", "optim.lr: wanted a number, found a list"}},
        {"{\"optim\": {\"betas\": [0.9, \"x\"]}, \"parallel\": {\"port_range\": [1]}}",
         {"optim.betas: wanted a number, found \"x\"",
          "parallel.port_range: wanted a list of two integers or null, found a list"}},
        {"{\"run\": {\"steps\": 0, \"seed\": 99999999999999999999, \"memory_mb\": -1}}",
         {"run.steps: 0 is out of range, wanted >= 1",
          "run.seed: 99999999999999999999 is out of range, wanted >= 0 and <= 9007199254740992",
          "run.memory_mb: -1 is out of range, wanted >= 0"}},
        {"{\"model\": {\"dropout\": 1, \"norm_eps\": 0}, \"optim\": {\"betas\": [0.9, 1], "
         "\"lr\": -1}}",
         {"model.dropout: 1 is out of range, wanted >= 0 and < 1",
          "model.norm_eps: 0 is out of range, wanted > 0",
          "optim.betas: 1 is out of range, wanted >= 0 and < 1",
          "optim.lr: -1 is out of range"}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_config cfg;
        TEST_ROW(rows[i].text);
        for (int m = 0; m < 6 && rows[i].messages[m]; m++)
            CHECK_FAILS(ls_config_parse(&cfg, rows[i].text, "c.json", NULL, 0), LS_ECONFIG,
                        rows[i].messages[m]);
    }
}

/* One --set on top of the minimal config. */
static void test_sets_refused(void)
{
    static const struct {
        const char *set;
        ls_status   status;
        const char *message;
    } rows[] = {
        {"model.n_head=3", LS_ECONFIG,
         "--set model.n_head=3: model.d_model 64 is not divisible by model.n_head 3"},
        {"model.d_model=66", LS_ECONFIG, "model.d_model 66 is not divisible by model.n_head 4"},
        {"model.n_kv_head=3", LS_ECONFIG,
         "model.n_head 4 is not divisible by model.n_kv_head 3"},
        {"model.sizes=[1, 2]", LS_ECONFIG,
         "model.sizes is a key of model.type \"mlp\", not of \"gpt\""},
        {"batch.micro=3", LS_ECONFIG, "batch.micro 3 does not divide batch.global 8"},
        {"batch.micro=16", LS_ECONFIG, "batch.micro 16 does not divide batch.global 8"},
        {"optim.schedule.warmup=100", LS_ECONFIG,
         "optim.schedule.warmup 100 must be below the schedule's 100 steps"},
        {"optim.momentum=0.9", LS_ECONFIG,
         "optim.momentum is for optim.type \"sgd\", not \"adamw\""},
        {"data.format=csv", LS_ECONFIG, "data.format \"csv\" does not fit model.type \"gpt\""},
        {"eval.every=5", LS_ECONFIG, "eval.every 5 needs data.val or data.val_fraction"},
        {"run.name=a/b", LS_ECONFIG, "run.name \"a/b\" is not the name of a folder"},
        {"run.name=..", LS_ECONFIG, "run.name \"..\" is not the name of a folder"},
        {"run.name=", LS_ECONFIG, "run.name: wanted a string, found \"\""},
        {"run.name=a\xFF", LS_ECONFIG, "is not UTF-8"},
        {"parallel.port_range=[9, 5]", LS_ECONFIG, "the first port is above the last"},
        {"run.steps", LS_ECONFIG, "--set run.steps: wanted key.path=value"},
        {"=5", LS_ECONFIG, "--set =5: wanted key.path=value"},
        {"run=5", LS_ECONFIG, "--set run=5: run is a section; set its keys"},
        {"run.stps=5", LS_ECONFIG,
         "--set run.stps=5: unknown key \"run.stps\"; did you mean \"run.steps\"?"},
        {"run.steps=1e3", LS_ECONFIG,
         "--set run.steps=1e3: run.steps: wanted an integer, found 1e3"},
        {"run.steps=many", LS_ECONFIG, "run.steps: wanted an integer, found \"many\""},
        {"optim.lr=01", LS_ECONFIG, "optim.lr: wanted a number, found \"01\""},
        {"parallel.shard=half", LS_ECONFIG,
         "parallel.shard: wanted \"full\", \"gradients\" or \"optimizer\", found \"half\""},
        {"parallel.accumulate=both", LS_ECONFIG,
         "parallel.accumulate: wanted \"sharded\" or \"local\", found \"both\""},
        {"parallel.prefetch=1025", LS_ECONFIG, "parallel.prefetch: 1025 is out of range"},
        {"parallel.unit_blocks=0", LS_ECONFIG, "parallel.unit_blocks: 0 is out of range"},
        {"parallel.param_dtype=f16", LS_ECONFIG,
         "parallel.param_dtype: wanted \"f32\" or \"bf16\", found \"f16\""},
        {"parallel.reduce_dtype=f16", LS_ECONFIG,
         "parallel.reduce_dtype: wanted \"f32\" or \"bf16\", found \"f16\""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_config cfg;
        TEST_ROW(rows[i].set);
        CHECK_FAILS(ls_config_parse(&cfg, minimal, "c.json", &rows[i].set, 1), rows[i].status,
                    rows[i].message);
    }
}

/* Legal values whose features have no effect here, or that are the default. */
static void test_sets_accepted(void)
{
    static const char *const rows[] = {
        "parallel.strategy=auto",
        "parallel.strategy=single",
        "parallel.strategy=ddp",
        "parallel.backend=shm",
        "parallel.algorithm=ring",
        "run.determinism=fast",
        "parallel.bucket_mb=0.5",
        "parallel.overlap=false",
        "parallel.compress=bf16",
        "parallel.shard=optimizer",
        "parallel.prefetch=0",
        "parallel.accumulate=local",
        "parallel.unit_blocks=2",
        "parallel.interface=eth0",
        "parallel.interface=null",
        "parallel.port_range=[5000, 5000]",
        "parallel.backend=auto",
        "checkpoint.every=0",
        "checkpoint.every=-0",
        "checkpoint.keep=1",
        "checkpoint.async=false",
        "checkpoint.save_at_end=false",
        "checkpoint.on_error=stop",
        "checkpoint.best=false",
        "data.tokenizer=char",
        "data.tokenizer=byte",
        "data.format=text",
        "data.val=null",
        "data.val=[\"a\", \"b\"]",
        "data.val_fraction=0",
        "model.vocab_size=auto",
        "model.vocab_size=300",
        "model.init=\"p.safetensors\"",
        "model.rope_base=500000",
        "optim.lr=0",
        "optim.clip_norm=0",
        "log.progress=none",
        "run.seed=9007199254740992",
        "optim.schedule.warmup=99",
        "batch.micro=8",
        "run.name=\"5\"",
        "run.dir=a=b",
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_config cfg;
        TEST_ROW(rows[i]);
        CHECK_OK(ls_config_parse(&cfg, minimal, "c.json", &rows[i], 1));
        ls_config_free(&cfg);
    }
}

static void test_defaults(void)
{
    ls_config cfg;

    TEST_ROW("defaults");
    if (!CHECK_OK(ls_config_parse(&cfg, minimal, "some/where/c.json", NULL, 0)))
        return;
    CHECK(!strcmp(cfg.run.name, "c") && !strcmp(cfg.run.dir, "runs/c"));
    CHECK(cfg.run.steps == 100 && cfg.run.seed == 1337 && cfg.run.threads == ls_cpu_count());
    CHECK(cfg.run.determinism == LS_CFG_DETERMINISM_LOCKSTEP && cfg.run.memory_mb == 0);
    CHECK(cfg.model.type == LS_CFG_MODEL_GPT && cfg.model.vocab_size == 0);
    CHECK(cfg.model.n_kv_head == 4 && cfg.model.d_ff == 256 && cfg.model.dropout == 0);
    CHECK(cfg.model.bias && cfg.model.tie_embeddings && !cfg.model.recompute);
    CHECK(cfg.model.norm == LS_CFG_NORM_LAYERNORM && cfg.model.mlp == LS_CFG_MLP_GELU);
    CHECK(cfg.model.position == LS_CFG_POSITION_LEARNED && cfg.model.norm_eps == 1e-5);
    CHECK(cfg.model.rope_base == 10000 && !strcmp(cfg.model.init, "random"));
    CHECK(cfg.data.train.count == 1 && !strcmp(cfg.data.train.item[0], "a.txt"));
    CHECK(cfg.data.val.count == 0 && !strcmp(cfg.data.tokenizer, "byte"));
    CHECK(cfg.data.order == LS_CFG_ORDER_SHUFFLE && cfg.data.format == LS_CFG_FORMAT_TEXT);
    CHECK(cfg.batch.global == 8 && cfg.batch.micro == 2);
    CHECK(cfg.optim.type == LS_OPTIM_ADAMW && cfg.optim.lr == 0.01 && cfg.optim.eps == 1e-8);
    CHECK(cfg.optim.betas[0] == 0.9 && cfg.optim.betas[1] == 0.95);
    CHECK(cfg.optim.weight_decay == 0.1 && cfg.optim.momentum == 0 && cfg.optim.clip_norm == 1);
    CHECK(cfg.optim.schedule.type == LS_CFG_SCHEDULE_COSINE && cfg.optim.schedule.steps == 100);
    CHECK(cfg.optim.schedule.warmup == 0 && cfg.optim.schedule.min_lr == 0.01 / 10);
    CHECK(cfg.parallel.strategy == LS_CFG_STRATEGY_AUTO && cfg.parallel.bucket_mb == 25);
    CHECK(!cfg.parallel.interface && cfg.parallel.port_range.count == 0);
    CHECK(cfg.checkpoint.keep == 3 && cfg.checkpoint.save_at_end && cfg.checkpoint.async);
    CHECK(cfg.eval.every == 0 && cfg.eval.batches == 20);
    CHECK(cfg.log.every == 10 && cfg.log.jsonl && cfg.log.progress == LS_CFG_PROGRESS_AUTO);
    ls_config_free(&cfg);
    CHECK(!cfg.run.name && !cfg.data.train.item);
    ls_config_free(&cfg);
}

static void test_computed(void)
{
    static const struct {
        const char *sets[3];
        int64_t     kv, d_ff, micro, steps;
        double      decay, min_lr;
    } rows[] = {
        {{"batch.global=12"}, 4, 256, 3, 100, 0.1, 0.001},
        {{"batch.global=6"}, 4, 256, 3, 100, 0.1, 0.001},
        {{"batch.global=7"}, 4, 256, 7, 100, 0.1, 0.001},
        {{"batch.global=1"}, 4, 256, 1, 100, 0.1, 0.001},
        {{"batch.micro=4", "model.n_kv_head=2"}, 2, 256, 4, 100, 0.1, 0.001},
        {{"model.mlp=swiglu"}, 4, 192, 2, 100, 0.1, 0.001},                     /* 170.67 */
        {{"model.mlp=swiglu", "model.d_model=72"}, 4, 192, 2, 100, 0.1, 0.001}, /* exactly 192
                                                                                 */
        {{"model.mlp=swiglu", "model.d_model=76"}, 4, 256, 2, 100, 0.1, 0.001}, /* 202.67 */
        {{"model.mlp=swiglu", "model.d_ff=100"}, 4, 100, 2, 100, 0.1, 0.001},
        {{"optim.type=adam", "optim.lr=0.5"}, 4, 256, 2, 100, 0, 0.05},
        {{"optim.type=sgd", "optim.momentum=0.9"}, 4, 256, 2, 100, 0, 0.001},
        {{"optim.weight_decay=0", "run.steps=7"}, 4, 256, 2, 7, 0, 0.001},
        {{"optim.schedule.min_lr=0", "optim.schedule.steps=9"}, 4, 256, 2, 9, 0.1, 0},
        {{"run.steps=5", "run.steps=6"}, 4, 256, 2, 6, 0.1, 0.001}, /* the last one wins */
        {{"run.stops=\"x\"", NULL}, 0, 0, 0, 0, 0, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_config cfg;
        int       n = 0;
        while (n < 3 && rows[i].sets[n])
            n++;
        TEST_ROW(rows[i].sets[0]);
        if (!rows[i].kv) {
            CHECK_FAILS(ls_config_parse(&cfg, minimal, "c", rows[i].sets, n), LS_ECONFIG,
                        "stops");
            continue;
        }
        if (!CHECK_OK(ls_config_parse(&cfg, minimal, "c", rows[i].sets, n)))
            continue;
        CHECK(cfg.model.n_kv_head == rows[i].kv && cfg.model.d_ff == rows[i].d_ff);
        CHECK(cfg.batch.micro == rows[i].micro && cfg.optim.schedule.steps == rows[i].steps);
        CHECK(cfg.optim.weight_decay == rows[i].decay);
        CHECK_CLOSE(cfg.optim.schedule.min_lr, rows[i].min_lr, 1e-18);
        ls_config_free(&cfg);
    }
}

/* A wrong value of the file that a --set replaces is no problem. */
static void test_set_replaces(void)
{
    static const char *const sets[] = {"data.train=[\"x\", \"y z\"]", "optim.betas=[0, 0.5]",
                                       "optim.lr=1", "parallel.port_range=[7, 8]"};
    ls_config                cfg;

    TEST_ROW("--set replaces");
    static const char text[] =
        "{\"run\": {\"steps\": 5}, \"model\": {\"type\": \"gpt\", \"n_layer\": 1,"
        "\"n_head\": 1, \"d_model\": 6, \"context\": 4, \"position\": \"rope\"},"
        "\"batch\": {\"global\": 1}, \"optim\": {\"lr\": \"high\"}}";
    if (!CHECK_OK(ls_config_parse(&cfg, text, "c", sets, 4)))
        return;
    CHECK(cfg.data.train.count == 2 && !strcmp(cfg.data.train.item[1], "y z"));
    CHECK(cfg.optim.lr == 1 && cfg.optim.betas[0] == 0 && cfg.optim.betas[1] == 0.5);
    CHECK(cfg.parallel.port_range.count == 2 && cfg.parallel.port_range.item[1] == 8);
    ls_config_free(&cfg);

    static const char *const odd[] = {"data.train=a", "optim.lr=1", "model.d_model=5"};
    CHECK_FAILS(ls_config_parse(&cfg, text, "c", odd, 3), LS_ECONFIG,
                "model.position \"rope\" needs an even head size, found 5");
    static const char *const both[] = {"data.train=a", "optim.lr=1", "data.val=b",
                                       "data.val_fraction=0.5"};
    CHECK_FAILS(ls_config_parse(&cfg, text, "c", both, 4), LS_ECONFIG,
                "data.val and data.val_fraction exclude each other");
}

static void test_perceptron(void)
{
    static const char *const csv[] = {"data.format=csv"}, *const layer[] = {"model.n_layer=2"};
    ls_config cfg;

    TEST_ROW("mlp");
    CHECK_OK(ls_config_parse(&cfg, perceptron, "c", csv, 1));
    CHECK(cfg.model.sizes.count == 3 && cfg.model.context == 1);
    ls_config_free(&cfg);
    CHECK_FAILS(ls_config_parse(&cfg, perceptron, "c", NULL, 0), LS_ECONFIG,
                "data.format \"text\" does not fit model.type \"mlp\", which reads \"csv\"");
    CHECK_FAILS(ls_config_parse(&cfg, perceptron, "c", layer, 1), LS_ECONFIG,
                "model.n_layer is a key of model.type \"gpt\", not of \"mlp\"");
}

/* More problems than a message holds are counted. */
static void test_cap(void)
{
    char      text[4096] = "{";
    ls_config cfg;

    TEST_ROW("cap");
    for (int i = 0; i < 100; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "\"zzzzzzzz%d\": 1,", i);
    snprintf(text + strlen(text), sizeof text - strlen(text), "\"run\": {}}");
    CHECK_FAILS(ls_config_parse(&cfg, text, "c", NULL, 0), LS_ECONFIG, "zzzzzzzz0\"\n");
    CHECK(strstr(ls_error_message(), "\n... and ") && strstr(ls_error_message(), " more"));
}

static void check_round_trip(const char *text, const char *const *sets, int n)
{
    ls_config cfg, again;
    char     *first, *second;

    if (!CHECK_OK(ls_config_parse(&cfg, text, "c", sets, n)))
        return;
    first = ls_config_json(&cfg);
    ls_config_free(&cfg);
    if (CHECK(first) && CHECK_OK(ls_config_parse(&again, first, "other", NULL, 0))) {
        second = ls_config_json(&again);
        CHECK(second && !strcmp(first, second));
        free(second);
        ls_config_free(&again);
    }
    free(first);
}

static void test_round_trip(void)
{
    static const char *const sets[] = {
        "data.train=[\"a\", \"b\\\"\\u00e9\\n\"]",
        "data.val=c",
        "optim.lr=0.1234567890123456789",
        "optim.betas=[1e-300, 0.30000000000000004]",
        "run.seed=9007199254740991",
        "parallel.port_range=[1, 65535]",
        "parallel.interface=eth0",
        "model.vocab_size=257",
        "model.mlp=swiglu",
        "model.norm=rmsnorm",
        "model.position=rope",
        "model.bias=false",
    };
    TEST_ROW("round trip");
    check_round_trip(minimal, NULL, 0);
    check_round_trip(minimal, sets, sizeof sets / sizeof *sets);
}

static void test_files(void)
{
    char      dir[] = "/tmp/ls_config_XXXXXX", path[64];
    ls_config cfg;

    TEST_ROW("files");
    if (!CHECK(mkdtemp(dir)))
        return;
    CHECK_FAILS(ls_config_load(&cfg, dir, NULL, 0), LS_ECONFIG, "Is a directory");
    snprintf(path, sizeof path, "%s/tiny.json", dir);
    CHECK_FAILS(ls_config_load(&cfg, path, NULL, 0), LS_ECONFIG, "tiny.json: No such file");
    FILE *file = fopen(path, "w");
    fputs(minimal, file);
    fprintf(file, "%100000s", "");
    CHECK(!fclose(file));
    if (CHECK_OK(ls_config_load(&cfg, path, NULL, 0)))
        CHECK(!strcmp(cfg.run.name, "tiny"));
    ls_config_free(&cfg);
    file = fopen(path, "a");
    fputs("}", file);
    CHECK(!fclose(file));
    CHECK_FAILS(ls_config_load(&cfg, path, NULL, 0), LS_ECONFIG, "tiny.json:3:");
    file = fopen(path, "a");
    CHECK(file && !fseek(file, 17 << 20, SEEK_SET) && !ftruncate(fileno(file), 17 << 20));
    CHECK(!fclose(file));
    CHECK_FAILS(ls_config_load(&cfg, path, NULL, 0), LS_ECONFIG, "larger than 16 MiB");
    remove(path);
    rmdir(dir);
}

static void test_allocations(void)
{
    static const char *const sets[] = {"data.val=[\"x\", \"y\"]", "run.name=n",
                                       "parallel.port_range=[1, 2]"};
    TEST_ROW("n-th allocation fails");
    for (int n = 0;; n++) {
        ls_config cfg;
        ls_alloc_fail_after(n);
        ls_status status = ls_config_parse(&cfg, minimal, "c", sets, 3);
        ls_alloc_fail_after(-1);
        if (status == LS_OK) {
            ls_config_free(&cfg);
            CHECK(n > 50);
            return;
        }
        if (!CHECK(status == LS_ENOMEM && !cfg.run.name && !cfg.data.train.item && n < 5000))
            return;
    }
}

static int describe(int n, char **paths)
{
    for (int i = 0; i < n; i++) {
        ls_config cfg;
        ls_status status = ls_config_load(&cfg, paths[i], NULL, 0);
        char     *text   = status ? NULL : ls_config_json(&cfg);

        printf("%s", !status ? "ok " : status == LS_EUNSUPPORTED ? "later" : "bad");
        for (const char *c = text; c && *c; c++)
            putchar(*c == '\n' ? ' ' : *c);
        putchar('\n');
        free(text);
        ls_config_free(&cfg);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return describe(argc - 1, argv + 1);
    test_texts();
    test_sets_refused();
    test_sets_accepted();
    test_defaults();
    test_computed();
    test_set_replaces();
    test_perceptron();
    test_cap();
    test_round_trip();
    test_files();
    test_allocations();
    return test_summary("config");
}

/*
 * test_trainer.c - a whole small training in which the n-th allocation fails, for every n;
 * losses that are not finite; state that a failed step leaves as it was.
 */
#include "cli/trainer.h"

#include <math.h>
#include <stdlib.h>

#include "checkpoint/params.h"
#include "cli/model.h"
#include "core/alloc.h"
#include "temp_dir.h"
#include "test.h"

enum { MOST_ALLOCATIONS = 100000 };

static const char *const text =
    "zero one two three four five six seven; a rank never disagrees. ";

/* In sequences of 4 tokens from the start, two micro-batches of one: z stands in the first. */
static const char *const base =
    "{\"run\": {\"steps\": 2, \"threads\": 1}, \"model\": {\"type\": \"gpt\", \"n_layer\": 1,"
    " \"n_head\": 2, \"d_model\": 8, \"context\": 4}, \"batch\": {\"global\": 2, \"micro\": 1},"
    " \"data\": {\"train\": \"x\", \"val_fraction\": 0.3, \"order\": \"sequential\"},"
    " \"optim\": {\"lr\": 0.01}}";

static const struct {
    const char *name, *sets[8];
} styles[] = {
    {"gpt", {"data.tokenizer=char"}},
    {"gpt, dropout, three micro-batches, recompute",
     {"data.tokenizer=char", "model.dropout=0.1", "batch.global=3", "model.recompute=true"}},
    {"llama, sgd",
     {"model.n_kv_head=1", "model.norm=rmsnorm", "model.mlp=swiglu", "model.position=rope",
      "model.tie_embeddings=false", "optim.type=sgd", "data.order=shuffle"}},
};
enum { STYLES = sizeof styles / sizeof *styles };

static void parse(ls_config *cfg, const char *const *sets, const char *more)
{
    const char *all[10];
    char        data[600];
    int         n = 0;

    snprintf(data, sizeof data, "data.train=%s", temp_path("text.txt"));
    all[n++] = data;
    for (int i = 0; i < 8 && sets && sets[i]; i++)
        all[n++] = sets[i];
    if (more)
        all[n++] = more;
    CHECK_OK(ls_config_parse(cfg, base, "c.json", all, n));
}

/* All tensors of the training into one file. */
static ls_status save(ls_trainer *t, const char *path)
{
    const ls_stored_tensor *stored;
    ls_named_tensor         list[200];
    size_t                  n;
    ls_status               status = ls_trainer_tensors(t, &stored, &n);

    for (size_t i = 0; i < n && !status; i++)
        list[i] = (ls_named_tensor){stored[i].name, stored[i].tensor};
    return status ? status : ls_params_save(path, list, n, NULL, 0);
}

/* A training from its start to its file. */
static ls_status session(const ls_config *cfg, const char *path, char state[LS_SHA256_HEX])
{
    ls_trainer    *t;
    ls_step_result r;
    double         loss;
    char           params[LS_SHA256_HEX];
    ls_status      status = ls_trainer_new(cfg, &ls_ranks_alone, &t);

    for (int i = 0; i < 2 && !status; i++)
        status = ls_trainer_step(t, 0, &r);
    if (!status)
        status = ls_trainer_validate(t, 0, NULL, &loss);
    if (!status)
        status = save(t, path);
    if (!status)
        status = ls_trainer_hashes(t, params, state);
    ls_trainer_free(t);
    return status;
}

/* ENOMEM and nothing held or left behind, until there are allocations enough. */
static void test_every_allocation(int style)
{
    ls_config cfg;
    char      path[600];
    char      want[LS_SHA256_HEX], state[LS_SHA256_HEX];
    ls_status status = LS_ENOMEM;
    int64_t   n      = 0;

    TEST_ROW(styles[style].name);
    strcpy(path, temp_path("out.safetensors"));
    parse(&cfg, styles[style].sets, NULL);
    CHECK_OK(session(&cfg, path, want));
    unlink(path);
    int64_t held  = ls_mem_get_stats().total;
    int     files = temp_files(false);
    for (; status && n < MOST_ALLOCATIONS; n++) {
        ls_alloc_fail_after(n);
        status = session(&cfg, path, state);
        ls_alloc_fail_after(-1);
        if (!CHECK(!status || status == LS_ENOMEM) || !CHECK(ls_mem_get_stats().total == held))
            break;
        if (status && !CHECK(*ls_error_message()))
            break;
        bool saved = !access(path, F_OK);
        CHECK(temp_files(false) == files + saved);
        unlink(path);
    }
    CHECK_OK(status);
    CHECK(!strcmp(state, want));
    CHECK(n > 100);
    printf("  %s: %lld allocations\n", styles[style].name, (long long)n);
    ls_config_free(&cfg);
}

/* A step that failed for want of memory was not taken: taken again, it has the same bits. */
static void test_failed_step(int style)
{
    ls_config      cfg;
    ls_trainer    *t;
    ls_step_result r, want;
    char           params[3][LS_SHA256_HEX], state[3][LS_SHA256_HEX];
    ls_status      status = LS_ENOMEM;

    TEST_ROW("a failed step, taken again");
    parse(&cfg, styles[style].sets, NULL);
    if (!test_status(ls_trainer_new(&cfg, &ls_ranks_alone, &t), __FILE__, __LINE__, "new"))
        return;
    CHECK_OK(ls_trainer_step(t, 0, &want));
    CHECK_OK(ls_trainer_hashes(t, params[0], state[0]));
    ls_trainer_free(t);
    CHECK_OK(ls_trainer_new(&cfg, &ls_ranks_alone, &t));
    CHECK_OK(ls_trainer_hashes(t, params[1], state[1]));
    for (int64_t n = 0; status && n < MOST_ALLOCATIONS; n++) {
        ls_alloc_fail_after(n);
        status = ls_trainer_step(t, 0, &r);
        ls_alloc_fail_after(-1);
        CHECK_OK(ls_trainer_hashes(t, params[2], state[2]));
        CHECK(!strcmp(state[2], state[status ? 1 : 0]));
    }
    CHECK_OK(status);
    CHECK_BITS(&r.loss, &want.loss, sizeof r.loss);
    CHECK_BITS(&r.grad_norm, &want.grad_norm, sizeof r.grad_norm);
    ls_trainer_free(t);
    ls_config_free(&cfg);
}

typedef struct {
    const char *name;
    int64_t     at;
    float       value;
} poison;

/* Parameters of cfg's model with up to two values changed, in a file. */
static void write_poisoned(const ls_config *cfg, const poison *poisons, const char *path)
{
    int              n;
    ls_module       *model = ls_model_new(cfg, 256);
    ls_named_tensor *list  = ls_module_list(model, false, &n);

    CHECK_OK(ls_module_init(model, 1));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            if (poisons[k].name && !strcmp(list[i].name, poisons[k].name))
                ls_reals(list[i].tensor)[poisons[k].at] = (ls_real)poisons[k].value;
    CHECK_OK(ls_params_save(path, list, (size_t)n, NULL, 0));
    free(list);
    ls_module_free(model);
}

/* What stands in parameters, and how the step's refusal names it; nothing is updated. */
static const struct {
    const char *name;
    poison      poisons[2];
    const char *texts[2];
} poisoned[] = {
    {"NaN",
     {{"h.0.mlp.fc.weight", 3, NAN}},
     {"step 1: parameter h.0.mlp.fc.weight is not finite from the start"}},
    {"infinite", {{"ln_f.bias", 0, INFINITY}}, {"step 1: parameter ln_f.bias is not finite"}},
    {"overflow in every micro-batch",
     {{"ln_f.weight", 2, 3e38f}},
     {"step 1, micro-batch 0: the loss is",
      "gradient that is not finite is that of lm_head.weight"}},
    /* n is the third byte of " one", the second sequence; the sum of its two embeddings
       overflows. */
    {"overflow in the second micro-batch alone",
     {{"wte.weight", 8 * 'n', 3e38f}, {"wpe.weight", 8 * 2, 3e38f}},
     {"step 1, micro-batch 1: the loss is",
      "gradient that is not finite is that of lm_head.weight"}},
};

static void test_not_finite(size_t row)
{
    ls_config      cfg;
    ls_trainer    *t;
    ls_step_result r;
    char           params[2][LS_SHA256_HEX], state[2][LS_SHA256_HEX], init[600] = "model.init=";
    char          *path = init + strlen(init);

    TEST_ROW(poisoned[row].name);
    strcpy(path, temp_path("poison.safetensors"));
    parse(&cfg, (const char *const[8]){"model.tie_embeddings=false"}, init);
    write_poisoned(&cfg, poisoned[row].poisons, path);
    CHECK_OK(ls_trainer_new(&cfg, &ls_ranks_alone, &t));
    CHECK_OK(ls_trainer_hashes(t, params[0], state[0]));
    ls_status status = ls_trainer_step(t, 0, &r);
    for (int k = 0; k < 2 && poisoned[row].texts[k]; k++)
        CHECK_FAILS(status, LS_ENOTFINITE, poisoned[row].texts[k]);
    CHECK_OK(ls_trainer_hashes(t, params[1], state[1]));
    CHECK(!strcmp(state[0], state[1]));
    ls_trainer_free(t);
    ls_config_free(&cfg);
    unlink(path);
}

/* A config out of its file, for every allocation that fails. */
static void test_config_file(void)
{
    char      path[600];
    ls_status status = LS_ENOMEM;

    TEST_ROW("config file");
    strcpy(path, temp_path("c.json"));
    temp_put(path, base, strlen(base));
    for (int64_t n = 0; status && n < MOST_ALLOCATIONS; n++) {
        ls_config cfg;
        ls_alloc_fail_after(n);
        status = ls_config_load(&cfg, path, NULL, 0);
        ls_alloc_fail_after(-1);
        CHECK(status == LS_OK || (status == LS_ENOMEM && !cfg.run.name));
        ls_config_free(&cfg);
    }
    CHECK_OK(status);
    unlink(path);
}

int main(void)
{
    temp_dir_make();
    temp_put(temp_path("text.txt"), text, strlen(text));
    test_config_file();
    for (int i = 0; i < STYLES; i++) {
        test_every_allocation(i);
        test_failed_step(i);
    }
    for (size_t i = 0; i < sizeof poisoned / sizeof *poisoned; i++)
        test_not_finite(i);
    temp_dir_remove();
    return test_summary("trainer");
}

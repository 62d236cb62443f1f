/*
 * test_steady.c - a training step in its steady state asks the system for nothing.
 *
 * After three steps the next ones call no allocator (the calls of this program's own objects go
 * through the counters below, by the linker's --wrap) and touch no new page.
 */
#include <stdlib.h>
#include <sys/resource.h>

#include "cli/trainer.h"
#include "core/compute.h"
#include "count_allocations.h"
#include "ranks.h"

/* A size of text that covers the batches of all steps; the test's own source will do. */
static const char config[] =
    "{\"run\": {\"steps\": 20, \"threads\": 1},"
    " \"model\": {\"type\": \"gpt\", \"n_layer\": 2, \"n_head\": 4, \"d_model\": 64, "
    "\"context\": 32,"
    " \"mlp\": \"%s\", \"norm\": \"%s\", \"position\": \"%s\", \"dropout\": %s, \"recompute\": "
    "%s},"
    " \"data\": {\"train\": \"%s\", \"val_fraction\": 0.2},"
    " \"batch\": {\"global\": %d, \"micro\": 2}, \"optim\": {\"lr\": 1e-3},"
    " \"parallel\": {%s}}";

typedef struct {
    const char *name, *mlp, *norm, *position, *dropout, *recompute;
    int         ranks;    /* 0: one process that is no rank */
    const char *parallel; /* of the config */
} row;

static const row rows[] = {
    {"gpt-2 style", "gelu_tanh", "layernorm", "learned", "0", "false", 0, ""},
    {"llama style", "swiglu", "rmsnorm", "rope", "0", "false", 0, ""},
    {"dropout", "gelu", "layernorm", "learned", "0.1", "false", 0, ""},
    {"recompute", "gelu", "layernorm", "learned", "0.1", "true", 0, ""},
    {"fsdp", "gelu", "layernorm", "learned", "0.1", "false", 2, "\"strategy\": \"fsdp\""},
    {"fsdp, recompute, prefetch 2, kept", "gelu", "layernorm", "learned", "0.1", "true", 2,
     "\"strategy\": \"fsdp\", \"prefetch\": 2, \"reshard_after_forward\": false"},
    {"fsdp, gradients, local", "swiglu", "rmsnorm", "rope", "0", "false", 2,
     "\"strategy\": \"fsdp\", \"shard\": \"gradients\", \"accumulate\": \"local\""},
    {"fsdp, optimizer, prefetch 0", "swiglu", "rmsnorm", "rope", "0", "false", 2,
     "\"strategy\": \"fsdp\", \"shard\": \"optimizer\", \"prefetch\": 0"},
    {"bf16", "gelu_tanh", "layernorm", "learned", "0.1", "false", 0,
     "\"param_dtype\": \"bf16\""},
    {"bf16, llama style", "swiglu", "rmsnorm", "rope", "0", "true", 0,
     "\"param_dtype\": \"bf16\""},
    {"fsdp, bf16", "gelu", "layernorm", "learned", "0.1", "false", 2,
     "\"strategy\": \"fsdp\", \"param_dtype\": \"bf16\", \"reduce_dtype\": \"bf16\""},
};

/* 0 under a sanitizer, whose own memory is not ours. */
static int64_t page_faults(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
#endif
}

/* A choice of algorithm by measurement takes longer to settle. */
enum { WARM_UP = 3, WARM_UP_RANKS = 40, MEASURED = 5, TRIES = 3 };

static bool take_steps(ls_trainer *t, int n)
{
    ls_step_result step;
    double         loss;
    bool           ok = true;

    for (int i = 0; i < n && ok; i++)
        ok = CHECK_OK(ls_trainer_step(t, 0, &step));
    return ok && CHECK_OK(ls_trainer_validate(t, 2, NULL, &loss));
}

/* The system may take a page away by itself, so one of a few tries without a fault will do; all
 * ranks take as many. */
static bool some_steps_fault_not(ls_trainer *t)
{
    bool without = false;

    for (int i = 0; i < TRIES; i++) {
        int64_t faults = page_faults();
        take_steps(t, MEASURED);
        without |= page_faults() == faults;
    }
    return without;
}

static void steps_ask_for_nothing(const row *r, const ls_ranks *ranks)
{
    char        text[1400];
    ls_config   cfg;
    ls_trainer *t;

    snprintf(text, sizeof text, config, r->mlp, r->norm, r->position, r->dropout, r->recompute,
             __FILE__, r->ranks ? 8 : 6, r->parallel);
    if (!CHECK_OK(ls_config_parse(&cfg, text, "steady.json", NULL, 0)))
        return;
    if (CHECK_OK(ls_trainer_new(&cfg, ranks, &t)) &&
        take_steps(t, r->ranks ? WARM_UP_RANKS : WARM_UP)) {
        int calls = allocations;
        CHECK(some_steps_fault_not(t));
        CHECK(allocations == calls);
        ls_trainer_free(t);
    }
    ls_config_free(&cfg);
}

static void on_rank(ls_comm *world, void *context)
{
    int size = ls_comm_size(world);

    CHECK_OK(ls_compute_start(1));
    steps_ask_for_nothing(context, &(ls_ranks){world, ls_comm_rank(world), size, size});
    ls_compute_stop();
}

static void run_row(const row *r)
{
    row copy = *r;

    TEST_ROW(r->name);
    if (r->ranks) {
        CHECK(ranks_run(&(ranks_opts){.n = r->ranks}, on_rank, &copy) == 0);
        return;
    }
    CHECK_OK(ls_compute_start(1)); /* a second thread may touch its stack at any time */
    steps_ask_for_nothing(r, &ls_ranks_alone);
    ls_compute_stop();
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_row(&rows[i]);
    return test_summary("steady");
}

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
#include "test.h"

static int64_t allocations;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
int   __real_posix_memalign(void **p, size_t alignment, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
int   __wrap_posix_memalign(void **p, size_t alignment, size_t n);

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    allocations++;
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    allocations++;
    return __real_aligned_alloc(alignment, n);
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t n)
{
    allocations++;
    return __real_posix_memalign(p, alignment, n);
}

/* A size of text that covers the batches of all steps; the test's own source will do. */
static const char config[] =
    "{\"run\": {\"steps\": 20, \"threads\": 1},"
    " \"model\": {\"type\": \"gpt\", \"n_layer\": 2, \"n_head\": 4, \"d_model\": 64, "
    "\"context\": 32,"
    " \"mlp\": \"%s\", \"norm\": \"%s\", \"position\": \"%s\", \"dropout\": %s, \"recompute\": "
    "%s},"
    " \"data\": {\"train\": \"%s\", \"val_fraction\": 0.2},"
    " \"batch\": {\"global\": 6, \"micro\": 2}, \"optim\": {\"lr\": 1e-3},"
    " \"parallel\": {\"param_dtype\": \"%s\"}}";

typedef struct {
    const char *name, *mlp, *norm, *position, *dropout, *recompute, *dtype;
} row;

static const row rows[] = {
    {"gpt-2 style", "gelu_tanh", "layernorm", "learned", "0", "false", "f32"},
    {"llama style", "swiglu", "rmsnorm", "rope", "0", "false", "f32"},
    {"dropout", "gelu", "layernorm", "learned", "0.1", "false", "f32"},
    {"recompute", "gelu", "layernorm", "learned", "0.1", "true", "f32"},
    {"bf16", "gelu_tanh", "layernorm", "learned", "0.1", "false", "bf16"},
    {"bf16, llama style", "swiglu", "rmsnorm", "rope", "0", "true", "bf16"},
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

enum { WARM_UP = 3, MEASURED = 5, TRIES = 3 };

static bool take_steps(ls_trainer *t, int n)
{
    ls_step_result step;
    double         loss;
    bool           ok = true;

    for (int i = 0; i < n && ok; i++)
        ok = CHECK_OK(ls_trainer_step(t, 0, &step));
    return ok && CHECK_OK(ls_trainer_validate(t, 2, NULL, &loss));
}

/* The system may take a page away by itself, so one of a few tries without a fault will do. */
static bool some_steps_fault_not(ls_trainer *t)
{
    for (int i = 0; i < TRIES; i++) {
        int64_t faults = page_faults();
        take_steps(t, MEASURED);
        if (page_faults() == faults)
            return true;
    }
    return false;
}

static void steps_ask_for_nothing(const row *r)
{
    char        text[1024];
    ls_config   cfg;
    ls_trainer *t;

    snprintf(text, sizeof text, config, r->mlp, r->norm, r->position, r->dropout, r->recompute,
             __FILE__, r->dtype);
    if (!CHECK_OK(ls_config_parse(&cfg, text, "steady.json", NULL, 0)))
        return;
    if (CHECK_OK(ls_trainer_new(&cfg, &ls_ranks_alone, &t)) && take_steps(t, WARM_UP)) {
        int64_t calls = allocations;
        CHECK(some_steps_fault_not(t));
        CHECK(allocations == calls);
        ls_trainer_free(t);
    }
    ls_config_free(&cfg);
}

int main(void)
{
    CHECK_OK(ls_compute_start(1)); /* a second thread may touch its stack at any time */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        steps_ask_for_nothing(&rows[i]);
    }
    ls_compute_stop();
    return test_summary("steady");
}

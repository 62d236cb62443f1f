/*
 * test_working.c - masters and their BF16 copies: a step, what others see of it, failures.
 */
#include <stdlib.h>

#include "checkpoint/params.h"
#include "core/kernels/bf16.h"
#include "core/kernels/gemm_bf16.h"
#include "lockstep.h"
#include "nn/working.h"
#include "test.h"

static const ls_gpt_opts opts = {.vocab_size = 19,
                                 .n_layer    = 2,
                                 .n_head     = 2,
                                 .d_model    = 16,
                                 .d_ff       = 64,
                                 .context    = 8,
                                 .bias       = true,
                                 .norm_eps   = 1e-5,
                                 .dropout    = 0.1};

typedef struct {
    ls_module       *model;
    ls_named_tensor *list;
    int              n;
} fixture;

static bool open_fixture(fixture *f)
{
    f->model = ls_gpt_new(&opts);
    f->list  = ls_module_list(f->model, false, &f->n);
    return CHECK(f->list != NULL) && CHECK_OK(ls_module_init(f->model, 3));
}

static void close_fixture(fixture *f)
{
    free(f->list);
    ls_module_free(f->model);
}

static bool copies_are_current(const fixture *f)
{
    bool fine = true;

    for (int i = 0; i < f->n; i++) {
        const ls_tensor *t = f->list[i].tensor, *master = ls_tensor_owned(f->list[i].tensor);
        fine &= t->dtype == LS_BF16 && master->dtype == LS_REAL && !ls_tensor_is_spread(t);
        for (int64_t k = 0; k < ls_tensor_numel(t); k++)
            fine &= ls_halves(t)[k] == ls_bf16_from_f32((float)ls_reals(master)[k]);
    }
    return fine;
}

static ls_tensor *loss_of(fixture *f, ls_tape *tape)
{
    int32_t ids[16], targets[16];

    for (int i = 0; i < 16; i++) {
        ids[i]     = i * 7 % 19;
        targets[i] = (i * 7 + 7) % 19;
    }
    ls_tape_reset(tape);
    return ls_module_call_with(f->model, tape,
                               ls_tape_input(tape, LS_I32, LS_SHAPE2(2, 8), ids),
                               ls_tape_input(tape, LS_I32, LS_SHAPE2(2, 8), targets));
}

static void test_life(void)
{
    fixture           f;
    ls_working       *w;
    char              before[LS_SHA256_HEX], during[LS_SHA256_HEX], after[LS_SHA256_HEX];
    ls_optimizer_opts adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    ls_tape          *tape  = ls_tape_new();

    TEST_ROW("a step");
    if (!open_fixture(&f))
        return;
    CHECK_OK(ls_params_sha256(f.list, (size_t)f.n, before));
    CHECK_OK(ls_working_new(f.list, f.n, &w));
    CHECK(copies_are_current(&f));
    CHECK_OK(ls_params_sha256(f.list, (size_t)f.n, during));
    CHECK(!strcmp(before, during));
    ls_optimizer *opt = ls_optimizer_new(f.list, f.n, &adamw);
    CHECK_OK(ls_backward(tape, loss_of(&f, tape)));
    for (int i = 0; i < f.n; i++)
        CHECK(f.list[i].tensor->grad && !ls_tensor_owned(f.list[i].tensor)->grad);
    ls_working_take_gradients(w);
    for (int i = 0; i < f.n; i++)
        CHECK(!f.list[i].tensor->grad && ls_tensor_owned(f.list[i].tensor)->grad);
    ls_optimizer_step(opt, 1);
    CHECK(!copies_are_current(&f));
    ls_working_update(w);
    CHECK(copies_are_current(&f));
    for (int i = 0; i < f.n; i++)
        CHECK(!ls_tensor_owned(f.list[i].tensor)->grad);
    CHECK_OK(ls_params_sha256(f.list, (size_t)f.n, during));
    CHECK(strcmp(before, during) != 0);
    ls_tape_free(tape);
    ls_optimizer_free(opt);
    ls_working_free(w);
    for (int i = 0; i < f.n; i++)
        CHECK(f.list[i].tensor->dtype == LS_REAL && !f.list[i].tensor->shard);
    CHECK_OK(ls_params_sha256(f.list, (size_t)f.n, after));
    CHECK(!strcmp(during, after));
    close_fixture(&f);
}

static void test_refused(void)
{
    fixture     f;
    ls_working *w, *second;

    TEST_ROW("refused");
    f.model = ls_gpt_new(&opts);
    f.list  = ls_module_list(f.model, false, &f.n);
    CHECK_FAILS(ls_working_new(f.list, f.n, &w), LS_ESTATE, "wte.weight");
    CHECK(!w);
    CHECK_OK(ls_module_init(f.model, 3));
    CHECK_OK(ls_working_new(f.list, f.n, &w));
    CHECK_FAILS(ls_working_new(f.list, f.n, &second), LS_ESTATE, "wte.weight");
    CHECK(copies_are_current(&f));
    ls_working_free(w);
    ls_working_free(NULL);
    close_fixture(&f);
}

/* With any allocation failing all is as it was. */
static void test_no_memory(void)
{
    fixture     f;
    ls_working *w = NULL;
    char        before[LS_SHA256_HEX], after[LS_SHA256_HEX];
    int64_t     n = 0;

    TEST_ROW("no memory");
    if (!open_fixture(&f))
        return;
    CHECK_OK(ls_params_sha256(f.list, (size_t)f.n, before));
    int64_t bytes = ls_mem_get_stats().total;
    for (; n < 1000; n++) {
        ls_alloc_fail_after(n);
        ls_status status = ls_working_new(f.list, f.n, &w);
        ls_alloc_fail_after(-1);
        if (!status)
            break;
        CHECK(status == LS_ENOMEM && !w);
        CHECK(ls_mem_get_stats().total == bytes);
        CHECK_OK(ls_params_sha256(f.list, (size_t)f.n, after));
        CHECK(!strcmp(before, after) && f.list[0].tensor->dtype == LS_REAL);
    }
    CHECK(n > 4 && n < 1000);
    ls_working_free(w);
    CHECK(ls_mem_get_stats().total == bytes);
    close_fixture(&f);
}

int main(void)
{
    CHECK_OK(ls_compute_start(1));
    test_life();
    test_refused();
    test_no_memory();
    ls_gemm_bf16_forget();
    ls_compute_stop();
    return test_summary("working");
}

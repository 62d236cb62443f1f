/*
 * test_grad_sum.c - a step's gradients against the canonical tree written down as it is said.
 *
 * The loss of micro-batch m is sum(p * x_m) for each parameter p that it uses, so its gradient
 * is x_m to the bit.  Rule 2 of the law: the tree of M leaves is the tree of the largest power
 * of two below M, plus the tree of the rest; a parameter that a micro-batch does not use is a
 * leaf of +0, if any other of the step does.
 */
#include <stdlib.h>

#include "lockstep.h"
#include "test.h"

enum { LEAVES = 9, N = 21 };

typedef struct {
    const char *name;
    unsigned    used; /* bit m: micro-batch m uses the parameter */
} usage;

static const usage usages[] = {
    {"always", ~0u}, {"even", 0x155}, {"odd", 0xaa},   {"first", 0x1},
    {"late", 0x1e0}, {"last", 0x100}, {"second", 0x2}, {"never", 0},
};
enum { PARAMETERS = sizeof usages / sizeof *usages };

static ls_real leaf[PARAMETERS][LEAVES][N];

/* Wide-ranging values, so that every order of summing has its own bits; and zeros of both
 * signs. */
static void make_leaves(void)
{
    for (int p = 0; p < PARAMETERS; p++)
        for (int m = 0; m < LEAVES; m++) {
            ls_real *x = leaf[p][m];
            if (!(usages[p].used >> m & 1))
                continue; /* +0 */
            ls_init_fill(&(ls_init){LS_INIT_NORMAL, 1}, (uint64_t)m, usages[p].name, 0, N, x);
            for (int i = 0; i < N; i++)
                x[i] *= (ls_real)ldexp(1, (i * 5 + m * 3) % 13 - 6);
            x[N - 1] = m % 2 ? (ls_real)0.0 : (ls_real)-0.0;
            x[N - 2] = (ls_real)-0.0;
        }
}

static void tree(ls_real (*x)[N], int first, int n, ls_real *out)
{
    ls_real right[N];
    int     half = 1;

    if (n == 1) {
        memcpy(out, x[first], sizeof right);
        return;
    }
    while (half * 2 < n)
        half *= 2;
    tree(x, first, half, out);
    tree(x, first + half, n - half, right);
    for (int i = 0; i < N; i++)
        out[i] += right[i];
}

typedef struct {
    ls_tensor       tensor[PARAMETERS];
    ls_named_tensor list[PARAMETERS];
    ls_tape        *tape;
    ls_grad_sum    *sum;
} fixture;

static void open_fixture(fixture *f)
{
    for (int p = 0; p < PARAMETERS; p++) {
        f->tensor[p]               = ls_tensor_header(LS_REAL, LS_SHAPE1(N));
        f->tensor[p].requires_grad = true;
        f->list[p]                 = (ls_named_tensor){usages[p].name, &f->tensor[p]};
        CHECK_OK(ls_tensor_materialize(&f->tensor[p], LS_MEM_PARAMS));
        ls_init_fill(&(ls_init){LS_INIT_NORMAL, 1}, 1, "p", 0, N, ls_reals(&f->tensor[p]));
    }
    f->tape = ls_tape_new();
    f->sum  = ls_grad_sum_new(f->list, PARAMETERS);
}

static void close_fixture(fixture *f)
{
    ls_grad_sum_free(f->sum);
    ls_tape_free(f->tape);
    for (int p = 0; p < PARAMETERS; p++)
        ls_tensor_drop(&f->tensor[p]);
}

static ls_tensor *micro_loss(fixture *f, int m)
{
    ls_tensor *loss = NULL;

    ls_tape_reset(f->tape);
    for (int p = 0; p < PARAMETERS; p++) {
        if (!(usages[p].used >> m & 1))
            continue;
        ls_tensor *x    = ls_tape_input(f->tape, LS_REAL, LS_SHAPE1(N), leaf[p][m]);
        ls_tensor *term = ls_sum(f->tape, ls_mul(f->tape, &f->tensor[p], x));
        loss            = loss ? ls_add(f->tape, loss, term) : term;
    }
    return loss;
}

static ls_status run_step(fixture *f, int micros)
{
    ls_status status = LS_OK;

    ls_grad_sum_begin(f->sum, f->tape);
    for (int m = 0; m < micros && !status; m++) {
        status = ls_backward(f->tape, micro_loss(f, m));
        if (!status)
            status = ls_grad_sum_end_micro(f->sum);
    }
    ls_grad_sum_finish(f->sum, f->tape);
    return status;
}

static void check_step(const fixture *f, int micros)
{
    ls_real want[N];

    for (int p = 0; p < PARAMETERS; p++) {
        TEST_ROW(usages[p].name);
        if (!(usages[p].used & ((1u << micros) - 1))) {
            CHECK(!f->tensor[p].grad);
            continue;
        }
        tree(leaf[p], 0, micros, want);
        if (CHECK(f->tensor[p].grad))
            CHECK_BITS(ls_tensor_grad(&f->tensor[p]), want, sizeof want);
    }
}

/* Steps of all lengths one after another: nothing of a step stays for the next. */
static void test_tree(void)
{
    fixture f;

    open_fixture(&f);
    for (int micros = LEAVES; micros >= 1; micros--) {
        CHECK_OK(run_step(&f, micros));
        check_step(&f, micros);
    }
    CHECK_OK(run_step(&f, LEAVES));
    check_step(&f, LEAVES);
    close_fixture(&f);
}

/* The judge itself can tell orders apart: one after another has other bits. */
static void test_order_matters(void)
{
    ls_real want[N], sequence[N];

    TEST_ROW("order matters");
    tree(leaf[0], 0, LEAVES, want);
    memcpy(sequence, leaf[0][0], sizeof sequence);
    for (int m = 1; m < LEAVES; m++)
        for (int i = 0; i < N; i++)
            sequence[i] += leaf[0][m][i];
    CHECK(memcmp(want, sequence, sizeof want));
    tree(leaf[0], 0, 1, want);
    CHECK(signbit(want[N - 1]));
}

/* A step that fails leaves nothing for the next, which is whole. */
static void test_failing_step(void)
{
    fixture f;
    int64_t n = 0;

    TEST_ROW("failing allocations");
    open_fixture(&f);
    for (ls_status status = LS_ENOMEM; status && n < 1000; n++) {
        ls_alloc_fail_after(n);
        status = run_step(&f, 3);
        ls_alloc_fail_after(-1);
        CHECK(status == LS_OK || status == LS_ENOMEM);
    }
    CHECK(n > 10 && n < 1000);
    check_step(&f, 3);
    close_fixture(&f);
}

int main(void)
{
    make_leaves();
    test_order_matters();
    test_tree();
    test_failing_step();
    return test_summary("grad_sum");
}

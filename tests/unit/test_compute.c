/*
 * test_compute.c - starting and stopping, and that neither they nor threads change a bit.
 */
#include "core/compute.h"

#include <stdlib.h>

#include "lockstep.h"
#include "test.h"

enum { SIDE = 300 };

static void product(ls_real *out)
{
    ls_tape   *tape = ls_tape_new();
    ls_tensor *a    = ls_tape_tensor(tape, LS_REAL, LS_SHAPE2(SIDE, SIDE));

    ls_init_fill(&(ls_init){LS_INIT_NORMAL, 1}, 1, "a", 0, SIDE * SIDE, ls_reals(a));
    ls_tensor *y = ls_softmax(tape, ls_matmul(tape, a, a, false, true));
    if (CHECK_OK(ls_tape_status(tape)))
        memcpy(out, ls_reals(y), ls_tensor_bytes(y));
    ls_tape_free(tape);
}

static void test_threads(void)
{
    ls_real *plain = malloc(SIDE * SIDE * sizeof *plain);
    ls_real *again = malloc(SIDE * SIDE * sizeof *again);

    product(plain); /* nothing started: one thread, the same bits */
    for (int threads = 0; threads <= 3; threads++) {
        CHECK_OK(ls_compute_start(threads)); /* in place of the one before */
        product(again);
        CHECK_BITS(plain, again, SIDE * SIDE * sizeof *plain);
    }
    CHECK_FAILS(ls_compute_start(-1), LS_EINVAL, "-1 threads");
    ls_compute_stop();
    ls_compute_stop();
    CHECK(ls_mem_get_stats().reserved == 0);
    product(again);
    CHECK_BITS(plain, again, SIDE * SIDE * sizeof *plain);
    free(plain);
    free(again);
}

static void test_memory(void)
{
    ls_status status = LS_ENOMEM;

    for (int64_t n = 0; status && n < 100; n++) {
        ls_alloc_fail_after(n);
        status = ls_compute_start(2);
        ls_alloc_fail_after(-1);
        CHECK(status == LS_OK || status == LS_ENOMEM);
    }
    CHECK(status == LS_OK);
    ls_compute_stop();
}

int main(void)
{
    TEST_ROW("threads");
    test_threads();
    TEST_ROW("memory");
    test_memory();
    return test_summary("compute");
}

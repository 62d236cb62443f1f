/*
 * test.h - what the tests share: checks that are always on and name the row that failed.
 *
 *     TEST_ROW("matmul 3x4");            names what follows
 *     CHECK(x == 3);                     any condition
 *     CHECK_OK(ls_backward(tape, y));    an ls_status, printed with its message
 *     CHECK_CLOSE(got, want, bound);     |got - want| <= bound; NaN fails
 *     CHECK_BITS(a, b, bytes);           memcmp
 *     return test_summary("tape");       from main
 */
#ifndef LS_TESTS_TEST_H
#define LS_TESTS_TEST_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"

/* Checks may run on any thread: the sums are of the whole process, the rest is the thread's. */
static atomic_int                test_checks, test_failures;
static _Thread_local int         test_thread_failures;
static _Thread_local const char *test_row = "";

#define TEST_ROW(name) (test_row = (name))

static inline bool test_note(bool ok, const char *file, int line, const char *what)
{
    test_checks++;
    if (!ok) {
        test_failures++;
        test_thread_failures++;
        printf("FAIL %s:%d [%s] %s\n", file, line, test_row, what);
    }
    return ok;
}

static inline bool test_status(ls_status status, const char *file, int line, const char *what)
{
    bool ok = test_note(status == LS_OK, file, line, what);
    if (!ok)
        printf("     %s: %s\n", ls_status_text(status), ls_error_message());
    return ok;
}

static inline bool test_close(double got, double want, double bound, const char *file, int line,
                              const char *what)
{
    bool ok = test_note(fabs(got - want) <= bound, file, line, what);
    if (!ok)
        printf("     got %.17g, want %.17g, bound %.3g\n", got, want, bound);
    return ok;
}

/* Bits on purpose: -0 is not 0 here, and a NaN is itself. */
static inline bool test_bits(const void *a, const void *b, size_t bytes, const char *file,
                             int line, const char *what)
{
    return test_note(!memcmp(a, b, bytes), file, line, what);
}

/* The failure has this status and its message holds this text. */
static inline bool test_failure(ls_status got, ls_status want, const char *text,
                                const char *file, int line, const char *what)
{
    bool ok = test_note(got == want && strstr(ls_error_message(), text), file, line, what);
    if (!ok)
        printf("     got \"%s\": \"%s\", want \"%s\" with \"%s\"\n", ls_status_text(got),
               ls_error_message(), ls_status_text(want), text);
    return ok;
}

#define CHECK(condition) test_note((condition), __FILE__, __LINE__, #condition)
#define CHECK_OK(call) test_status((call), __FILE__, __LINE__, #call)
#define CHECK_CLOSE(got, want, bound) \
    test_close((double)(got), (double)(want), (bound), __FILE__, __LINE__, #got " ~ " #want)
#define CHECK_BITS(a, b, bytes) \
    test_bits((a), (b), (bytes), __FILE__, __LINE__, "bits of " #a " == " #b)
#define CHECK_FAILS(call, status, text) \
    test_failure((call), (status), (text), __FILE__, __LINE__, #call)

static inline int test_summary(const char *name)
{
    int checks = test_checks, failures = test_failures;
    printf("%s: %d checks, %d failures\n", name, checks, failures);
    return failures || !checks;
}

#endif

/*
 * test_error.c - status texts, messages with context, one message a thread.
 */
#include <pthread.h>
#include <string.h>

#include "test.h"

static void test_texts(void)
{
    static const struct {
        ls_status   status;
        const char *text;
    } rows[] = {
#define X(name, text) {LS_##name, text},
        LS_STATUS_MAP(X)
#undef X
            {LS_STATUS_COUNT, "unknown status"},
        {(ls_status)-1, "unknown status"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].text);
        CHECK(!strcmp(ls_status_text(rows[i].status), rows[i].text));
    }
}

static void test_messages(void)
{
    TEST_ROW("messages");
    CHECK(ls_error_message()[0] == '\0');
    CHECK_FAILS(ls_fail(LS_ESHAPE, "%d x %s", 3, "four"), LS_ESHAPE, "3 x four");
    CHECK_FAILS(ls_fail_in(LS_EIO, "step %d", 7), LS_EIO, "step 7: 3 x four");
    CHECK_FAILS(ls_fail_in(LS_EIO, "run"), LS_EIO, "run: step 7: 3 x four");
    CHECK(strlen(ls_error_message()) == strlen("run: step 7: 3 x four"));
    CHECK_FAILS(ls_fail(LS_EIO, "again: %s", ls_error_message()), LS_EIO, "again: run: step 7");
}

static void test_long_messages(void)
{
    static char text[6000];

    TEST_ROW("a message is cut, never overrun");
    memset(text, 'x', sizeof text - 1);
    CHECK_FAILS(ls_fail(LS_EINVAL, "%s", text), LS_EINVAL, "xxxx");
    CHECK(strlen(ls_error_message()) < sizeof text / 2);
    CHECK_FAILS(ls_fail_in(LS_EINVAL, "context"), LS_EINVAL, "context: xxxx");
    CHECK_FAILS(ls_fail_in(LS_EINVAL, "%s", text), LS_EINVAL, "xxxx");
}

static void *fail_elsewhere(void *seen)
{
    *(bool *)seen = ls_error_message()[0] != '\0';
    (void)ls_fail(LS_EINVAL, "of the other thread");
    return NULL;
}

static void test_threads(void)
{
    pthread_t thread;
    bool      seen = true;

    TEST_ROW("one message a thread");
    (void)ls_fail(LS_EINVAL, "of this thread");
    CHECK(!pthread_create(&thread, NULL, fail_elsewhere, &seen));
    CHECK(!pthread_join(thread, NULL));
    CHECK(!seen);
    CHECK(!strcmp(ls_error_message(), "of this thread"));
}

int main(void)
{
    test_texts();
    test_messages();
    test_long_messages();
    test_threads();
    return test_summary("error");
}

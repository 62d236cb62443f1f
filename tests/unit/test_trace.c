/*
 * test_trace.c - spans in memory; the text of a trace; a file that is lost and told of once.
 */
#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/trace.h"
#include "temp_dir.h"
#include "test.h"

static void test_spans(void)
{
    ls_trace *t = ls_trace_new();
    int64_t   n;

    TEST_ROW("nobody traces");
    ls_trace_set_step(NULL, 1);
    ls_trace_add(NULL, &(ls_span){0});
    ls_trace_until_now(NULL, LS_SPAN_STEP, 0, 0);
    ls_trace_free(NULL);

    TEST_ROW("a span");
    int64_t start = ls_now_ns();
    ls_trace_set_step(t, 7);
    ls_trace_until_now(t, LS_SPAN_FORWARD, start, 3);
    const ls_span *s = ls_trace_spans(t, &n);
    CHECK(n == 1 && s->kind == LS_SPAN_FORWARD && s->step == 7 && s->index == 3);
    CHECK(s->start == start && s->end >= start && s->end <= ls_now_ns());
    ls_trace_clear(t);
    ls_trace_spans(t, &n);
    CHECK(n == 0);

    TEST_ROW("what other ranks have too");
    ls_trace_until_now(t, LS_SPAN_WAIT, start, 0);
    ls_trace_until_now(t, LS_SPAN_STEP, start, 0);
    ls_trace_spans(t, &n);
    CHECK(n == 2 && ls_trace_alike(t) == 1);
    ls_trace_clear(t);
    CHECK(ls_trace_alike(t) == 0);

    TEST_ROW("beyond the capacity");
    for (int64_t i = 0; i < LS_TRACE_CAPACITY + 5; i++)
        ls_trace_add(t, &(ls_span){.start = i});
    s = ls_trace_spans(t, &n);
    CHECK(n == LS_TRACE_CAPACITY && s[n - 1].start == n - 1);
    CHECK(ls_trace_lost(t) == 5 && ls_trace_alike(t) == n + 5);
    ls_trace_clear(t);
    ls_trace_add(t, &(ls_span){.start = 1});
    ls_trace_spans(t, &n);
    CHECK(n == 1 && ls_trace_lost(t) == 5);
    ls_trace_free(t);
}

/* The operations that sum: of unit 3, the tenth of a group of its own. */
#define REDUCED(at)                                                                   \
    {                                                                                 \
        .kind = LS_SPAN_REDUCE_SCATTER, .launched = 19000, .start = at, .end = 22500, \
        .bytes = 8, .sequence = 10, .index = 3                                        \
    }

/* Rank 0 alone has an operation 9; rank 1 came last to 10, rank 0 to 11 and to the reduction.
 */
static const ls_span spans[] = {
    {.kind = LS_SPAN_BACKWARD, .start = 900, .end = 4000001, .step = 1, .index = 2},
    {.kind = LS_SPAN_ALL_REDUCE, .start = 1500, .end = 7000, .sequence = 9},
    {.kind     = LS_SPAN_ALL_REDUCE,
     .launched = 2000,
     .start    = 3000,
     .end      = 9000,
     .bytes    = 16,
     .sequence = 10,
     .step     = 1},
    {.kind = LS_SPAN_ALL_REDUCE, .start = 12000, .end = 14000, .sequence = 11, .index = 1},
    REDUCED(20500),
    {.kind = LS_SPAN_ALL_REDUCE, .start = 5000, .end = 9000, .sequence = 10},
    {.kind = LS_SPAN_ALL_REDUCE, .start = 10000, .end = 14000, .sequence = 11},
    REDUCED(20000)};

/* Lines of which the events that matter here are whole ones. */
static const char *const wanted[] = {
    "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"rank "
    "0\"}},\n",
    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"comm\"}},"
    "\n",
    "{\"ph\":\"X\",\"name\":\"backward\",\"cat\":\"compute\",\"pid\":0,\"tid\":0,\"ts\":-0.100,"
    "\"dur\":3999.101,\"args\":{\"step\":1,\"micro_batch\":2}},\n",
    "{\"ph\":\"X\",\"name\":\"all_reduce\",\"cat\":\"comm\",\"pid\":0,\"tid\":1,\"ts\":2.000,"
    "\"dur\":6.000,\"args\":{\"step\":1,\"bucket\":0,\"bytes\":16,\"sequence\":10}},\n",
    "{\"ph\":\"b\",\"name\":\"bucket "
    "0\",\"cat\":\"bucket\",\"id2\":{\"local\":\"6b\"},\"pid\":0,"
    "\"tid\":1,\"ts\":1.000,\"args\":{\"step\":1,\"bucket\":0,\"bytes\":16,\"sequence\":10}},"
    "\n",
    "{\"ph\":\"s\",\"name\":\"last to come\",\"cat\":\"flow\",\"id\":\"6b0000\",\"pid\":1,"
    "\"tid\":1,\"ts\":4.000},\n{\"ph\":\"f\",\"bp\":\"e\",\"name\":\"last to "
    "come\",\"cat\":\"flow\",\"id\":\"6b0000\",\"pid\":0,\"tid\":1,\"ts\":6.000},\n",
    "{\"ph\":\"s\",\"name\":\"last to come\",\"cat\":\"flow\",\"id\":\"750001\",\"pid\":0,"
    "\"tid\":1,\"ts\":11.000},\n{\"ph\":\"f\",\"bp\":\"e\",\"name\":\"last to "
    "come\",\"cat\":\"flow\",\"id\":\"750001\",\"pid\":1,\"tid\":1,\"ts\":12.000},\n",
    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,\"args\":{\"name\":\"comm, "
    "reduce_scatter\"}},\n",
    "{\"ph\":\"X\",\"name\":\"reduce_scatter\",\"cat\":\"comm\",\"pid\":1,\"tid\":2,\"ts\":19."
    "000,"
    "\"dur\":2.500,\"args\":{\"step\":0,\"unit\":3,\"bytes\":8,\"sequence\":10}},\n",
    "{\"ph\":\"s\",\"name\":\"last to come\",\"cat\":\"flow\",\"id\":\"6d0001\",\"pid\":0,"
    "\"tid\":2,\"ts\":19.500},\n{\"ph\":\"f\",\"bp\":\"e\",\"name\":\"last to "
    "come\",\"cat\":\"flow\",\"id\":\"6d0001\",\"pid\":1,\"tid\":2,\"ts\":20.500}\n]\n"};

static void test_text(void)
{
    ls_trace_file *f;
    char          *text = calloc(1, 1 << 14);
    const char    *path = temp_path("trace.json");

    TEST_ROW("text");
    CHECK_OK(ls_trace_file_open(path, 2, 1000, &f));
    ls_trace_file_add(f, spans, (int64_t[]){5, 3});
    CHECK_OK(ls_trace_file_check(f));
    ls_trace_file_close(f);
    FILE *file = fopen(path, "r");
    CHECK(text && file && fread(text, 1, (1 << 14) - 1, file) > 0);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!CHECK(strstr(text, wanted[i]) != NULL))
            printf("     %s\n     in %s\n", wanted[i], text);
    CHECK(!strstr(text, "\"id\":\"61"));
    if (file)
        fclose(file);
    free(text);
}

static void test_losses(void)
{
    ls_trace_file *f;

    TEST_ROW("no such folder");
    CHECK_FAILS(ls_trace_file_open("/nowhere/trace.json", 1, 0, &f), LS_EIO, "/nowhere");
    CHECK(!f);

    TEST_ROW("disk full");
    CHECK_OK(ls_trace_file_open("/dev/full", 1, 0, &f));
    CHECK_FAILS(ls_trace_file_check(f), LS_EIO, "/dev/full");
    CHECK_OK(ls_trace_file_check(f));
    ls_trace_file_add(f, spans, (int64_t[]){1});
    ls_trace_file_end(f);
    CHECK_OK(ls_trace_file_check(f));
    ls_trace_file_close(f);
    ls_trace_file_close(NULL);

    TEST_ROW("out of memory");
    for (int64_t n = 0; n < 2; n++) {
        ls_alloc_fail_after(n);
        CHECK(!ls_trace_new());
        ls_alloc_fail_after(n);
        CHECK(ls_trace_file_open(temp_path("none"), 1, 0, &f) == LS_ENOMEM && !f);
        CHECK_OK(ls_trace_file_open(temp_path("some"), 2, 0, &f));
        ls_alloc_fail_after(n);
        ls_trace_file_add(f, spans, (int64_t[]){4, 2}); /* without arrows */
        CHECK_OK(ls_trace_file_check(f));
        ls_trace_file_close(f);
    }
    ls_alloc_fail_after(-1);
}

int main(void)
{
    temp_dir_make();
    test_spans();
    test_text();
    test_losses();
    temp_dir_remove();
    return test_summary("trace");
}

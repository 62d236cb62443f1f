/*
 * test_call.c - descriptors of operations, and the flight recorder that keeps them.
 */
#include "dist/comm/call.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "dist/comm/recorder.h"
#include "test.h"

static void names(void)
{
    ls_algorithm found;

    TEST_ROW("names");
    CHECK(!strcmp(ls_collective_name(LS_ALL_REDUCE), "all_reduce"));
    CHECK(!strcmp(ls_reduce_op_name(LS_PROD), "prod"));
    for (int i = 0; i < LS_ALGORITHM_COUNT; i++)
        CHECK(ls_algorithm_parse(ls_algorithm_name((ls_algorithm)i), &found) &&
              (int)found == i);
    CHECK(!ls_algorithm_parse("", &found) && !ls_algorithm_parse("Ring", &found));
    CHECK(strstr(ls_collective_name((ls_collective)200), "unknown"));
    CHECK(strstr(ls_algorithm_name((ls_algorithm)200), "unknown"));
    CHECK(strstr(ls_reduce_op_name((ls_reduce_op)200), "unknown"));
}

static void texts(void)
{
    static const struct {
        ls_call     call;
        const char *text;
    } rows[] = {
        {{.kind = LS_ALL_REDUCE, .count = 1000, .op = LS_SUM, .root = 9},
         "all_reduce #17 (F32, sum, count 1000)"},
        {{.kind = LS_REDUCE, .count = 1, .dtype = LS_BF16, .op = LS_MAX, .root = 2},
         "reduce #17 (BF16, max, count 1, root 2)"},
        {{.kind = LS_BROADCAST, .count = 0, .dtype = LS_U8, .op = LS_MAX, .root = 1},
         "broadcast #17 (U8, count 0, root 1)"},
        {{.kind = LS_BARRIER, .count = 5, .root = 1}, "barrier #17"},
        {{.kind = LS_SEND, .count = 5, .root = 1}, "send #17 (F32, count 5, to rank 1)"},
        {{.kind = LS_RECV, .count = 5, .root = 0}, "recv #17 (F32, count 5, from rank 0)"},
        {{.kind = LS_ALL_TO_ALL, .count = INT64_MAX, .dtype = LS_I64},
         "all_to_all #17 (I64, count 9223372036854775807)"},
    };
    char text[LS_DESCRIPTOR_TEXT];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_descriptor d = ls_descriptor_of(&rows[i].call, 4, 17, LS_DIRECT);
        TEST_ROW(rows[i].text);
        CHECK(!strcmp(ls_descriptor_text(text, &d), rows[i].text));
    }
    ls_descriptor wild;
    memset(&wild, 0xff, sizeof wild);
    TEST_ROW("wild bits");
    CHECK(strlen(ls_descriptor_text(text, &wild)) < LS_DESCRIPTOR_TEXT);
    wild.kind = LS_REDUCE; /* the longest text */
    CHECK(strlen(ls_descriptor_text(text, &wild)) < LS_DESCRIPTOR_TEXT);
    CHECK(strchr(text, ')'));
}

static const ls_call base = {
    .kind = LS_ALL_REDUCE, .count = 1000, .dtype = LS_F32, .op = LS_SUM, .root = 0};

/* Both orders of asking give EMISMATCH and the same text, with `wanted` in it. */
static void check_differ(const ls_descriptor *a, const ls_descriptor *b, const char *wanted)
{
    char first[512];

    CHECK_FAILS(ls_descriptor_compare(a, 1, b, 3), LS_EMISMATCH, wanted);
    snprintf(first, sizeof first, "%s", ls_error_message());
    CHECK_FAILS(ls_descriptor_compare(b, 3, a, 1), LS_EMISMATCH, wanted);
    CHECK(!strcmp(first, ls_error_message()));
}

static void differences(void)
{
    ls_call count = base, op = base, dtype = base, kind = base, root, other_root;
    count.count     = 1001;
    op.op           = LS_MAX;
    dtype.dtype     = LS_I32;
    kind.kind       = LS_REDUCE_SCATTER;
    root            = base;
    root.kind       = LS_REDUCE;
    other_root      = root;
    other_root.root = 2;
    const struct {
        const char *name, *wanted;
        ls_call     a, b;
        uint64_t    sequence_b;
        int         algorithm_b;
    } rows[] = {
        {"count", "count 1001", base, count, 7, LS_TREE},
        {"op", "max", base, op, 7, LS_TREE},
        {"dtype", "I32", base, dtype, 7, LS_TREE},
        {"kind", "rank 3 calls reduce_scatter #7", base, kind, 7, LS_TREE},
        {"root", "root 2", root, other_root, 7, LS_TREE},
        {"sequence", "#8", base, base, 8, LS_TREE},
        {"algorithm", "algorithms tree and ring", base, base, 7, LS_RING},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_descriptor a = ls_descriptor_of(&rows[i].a, 4, 7, LS_TREE);
        ls_descriptor b = ls_descriptor_of(&rows[i].b, 4, rows[i].sequence_b,
                                           (ls_algorithm)rows[i].algorithm_b);
        TEST_ROW(rows[i].name);
        CHECK_OK(ls_descriptor_compare(&a, 1, &a, 3));
        check_differ(&a, &b, rows[i].wanted);
    }
}

static void unused_fields(void)
{
    ls_call       a = {.kind = LS_BROADCAST, .count = 3, .root = 1}, b = a;
    ls_descriptor da, db;

    TEST_ROW("fields without a use");
    b.op  = LS_PROD;
    b.in  = &a;
    b.out = &b;
    da = ls_descriptor_of(&a, 4, 1, LS_TREE), db = ls_descriptor_of(&b, 4, 1, LS_TREE);
    CHECK_OK(ls_descriptor_compare(&da, 0, &db, 1));
    a = b  = base;
    b.root = 3;
    da = ls_descriptor_of(&a, 4, 1, LS_TREE), db = ls_descriptor_of(&b, 4, 1, LS_TREE);
    CHECK_OK(ls_descriptor_compare(&da, 0, &db, 1));
    a = b   = (ls_call){.kind = LS_BARRIER};
    b.count = 4, b.dtype = LS_U8;
    da = ls_descriptor_of(&a, 4, 1, LS_TREE), db = ls_descriptor_of(&b, 4, 1, LS_TREE);
    CHECK_OK(ls_descriptor_compare(&da, 0, &db, 1));
}

static void pairs(void)
{
    ls_call       send = {.kind = LS_SEND, .count = 3, .root = 3};
    ls_call       recv = {.kind = LS_RECV, .count = 3, .root = 1};
    ls_descriptor a    = ls_descriptor_of(&send, 4, 2, LS_AUTO);
    ls_descriptor b    = ls_descriptor_of(&recv, 4, 2, LS_AUTO);

    TEST_ROW("send and recv");
    CHECK_OK(ls_descriptor_compare(&a, 1, &b, 3));
    CHECK_OK(ls_descriptor_compare(&b, 3, &a, 1));
    b.count = 4;
    check_differ(&a, &b, "rank 1 calls send #2 (F32, count 3, to rank 3), rank 3 calls recv");
    b.count = 3, b.root = 0;
    check_differ(&a, &b, "from rank 0");
    b.root = 1, b.kind = LS_SEND;
    check_differ(&a, &b, "rank 3 calls send");
}

static uint64_t slices_of(const ls_segment_list *slices, int size)
{
    ls_call call = {.kind = LS_ALL_GATHER, .count = 10, .slices = slices};
    return ls_descriptor_of(&call, size, 1, LS_DIRECT).slices;
}

static void slices(void)
{
    const ls_slice_segment s[]    = {{0, 4}, {4, 2}, {6, 4}};
    const ls_slice_segment t[]    = {{0, 4}, {4, 3}, {6, 4}};
    const ls_segment_list  a[]    = {{s, 1}, {s + 1, 2}};
    const ls_segment_list  same[] = {{s, 1}, {s + 1, 2}};
    const ls_segment_list  b[]    = {{s, 2}, {s + 2, 1}};
    const ls_segment_list  c[]    = {{s, 1}, {t + 1, 2}};
    const ls_segment_list  d[]    = {{s, 1}, {s + 1, 1}};
    const ls_segment_list  e[]    = {{NULL, 0}, {s, 3}};
    const ls_segment_list *all[]  = {a, b, c, d, e};

    TEST_ROW("segment lists");
    CHECK(slices_of(NULL, 2) == 0);
    CHECK(slices_of(a, 2) == slices_of(same, 2));
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            CHECK((slices_of(all[i], 2) == slices_of(all[j], 2)) == (i == j));
    ls_call call_a = base, call_b = base;
    call_a.slices = a, call_b.slices = b;
    ls_descriptor da = ls_descriptor_of(&call_a, 2, 1, LS_DIRECT);
    ls_descriptor db = ls_descriptor_of(&call_b, 2, 1, LS_DIRECT);
    check_differ(&da, &db, "segment lists");
}

static ls_record *record_add(ls_recorder *r, uint64_t sequence)
{
    ls_descriptor d = ls_descriptor_of(&base, 4, sequence, LS_DIRECT);
    return ls_recorder_add(r, &d, 0xabc, 4, 4000);
}

static void recorder_states(void)
{
    ls_recorder *r = calloc(1, sizeof *r);
    ls_record    last, *one, *two, *three;

    TEST_ROW("recorder: states");
    if (!CHECK(r))
        return;
    CHECK(!ls_recorder_last(r, &last));
    one = record_add(r, 1);
    CHECK(ls_recorder_last(r, &last) && last.what.sequence == 1);
    CHECK(last.state == LS_RECORD_QUEUED && last.queued > 0 && !last.started && !last.ended);
    CHECK(last.group == 0xabc && last.size == 4 && last.bytes == 4000);
    ls_record_start(one);
    two = record_add(r, 2);
    CHECK(ls_recorder_last(r, &last) && last.what.sequence == 1);
    CHECK(last.state == LS_RECORD_RUNNING && last.started >= last.queued && !last.ended);
    ls_record_end(one, LS_OK);
    CHECK(one->state == LS_RECORD_DONE && one->ended >= one->started);
    CHECK(ls_recorder_last(r, &last) && last.what.sequence == 2);
    three = record_add(r, 3);
    ls_record_start(two);
    ls_record_end(two, LS_EPEER);
    CHECK(two->state == LS_RECORD_FAILED);
    CHECK(ls_recorder_last(r, &last) && last.what.sequence == 3);
    ls_record_start(three);
    ls_record_start(record_add(r, 4));
    CHECK(ls_recorder_last(r, &last) && last.what.sequence == 4); /* the newest that runs */
    CHECK(last.state == LS_RECORD_RUNNING);
    free(r);
}

/* The printed text, in memory that the caller frees. */
static char *printed(const ls_recorder *r, int most)
{
    char  *text = NULL;
    size_t size;
    FILE  *file = open_memstream(&text, &size);

    if (file) {
        ls_recorder_print(r, file, most, ls_now_ns());
        fclose(file);
    }
    return text;
}

static int lines_of(const char *text)
{
    int n = 0;
    for (; text && *text; text++)
        n += *text == '\n';
    return n;
}

static void check_printed(const ls_recorder *r, int most, int lines, const char *start)
{
    char *text = printed(r, most);

    CHECK(text && lines_of(text) == lines);
    CHECK(text && !strncmp(text, start, strlen(start)));
    free(text);
}

static void recorder_ring(void)
{
    ls_recorder *r = calloc(1, sizeof *r);
    ls_record    last;

    TEST_ROW("recorder: ring");
    if (!CHECK(r))
        return;
    check_printed(r, 10, 0, "");
    for (uint64_t i = 1; i <= 1000; i++) {
        ls_record *record = record_add(r, i);
        ls_record_start(record);
        ls_record_end(record, i == 998 ? LS_EPEER : LS_OK);
    }
    CHECK(ls_recorder_last(r, &last) && last.what.sequence == 1000);
    check_printed(r, 3, 3,
                  "all_reduce #998 (F32, sum, count 1000) of 4 ranks, group abc, 4000 bytes: "
                  "failed, queued -");
    check_printed(r, 0, 0, "");
    check_printed(r, -1, 0, "");
    check_printed(r, 100000, LS_RECORDER_ENTRIES, "all_reduce #745 ");
    TEST_ROW("recorder: wild bits");
    memset((void *)r, 0xff, sizeof *r);
    CHECK(ls_recorder_last(r, &last));
    check_printed(r, 5, 5, "unknown operation");
    char *text = printed(r, 1);
    CHECK(text && strstr(text, "unknown dtype, count 18446744073709551615"));
    CHECK(text && strstr(text, "unknown state"));
    free(text);
    free(r);
}

static void *write_many(void *recorder)
{
    for (uint64_t i = 1; i <= 20000; i++) {
        ls_record *record = record_add(recorder, i);
        ls_record_start(record);
        ls_record_end(record, LS_OK);
    }
    return NULL;
}

/* A reader beside the writer: whatever it finds is an entry, and ThreadSanitizer is content. */
static void recorder_beside_writer(void)
{
    ls_recorder *r = calloc(1, sizeof *r);
    pthread_t    writer;
    ls_record    last;

    TEST_ROW("recorder: read while written");
    if (!CHECK(r))
        return;
    ls_record_start(record_add(r, 1));
    CHECK(!pthread_create(&writer, NULL, write_many, r));
    for (int i = 0; i < 200; i++) {
        CHECK(ls_recorder_last(r, &last) && last.what.kind == LS_ALL_REDUCE);
        free(printed(r, 3));
    }
    CHECK(!pthread_join(writer, NULL));
    CHECK(ls_recorder_last(r, &last) && last.what.sequence == 20000);
    free(r);
}

int main(void)
{
    names();
    texts();
    differences();
    unused_fields();
    pairs();
    slices();
    recorder_states();
    recorder_ring();
    recorder_beside_writer();
    return test_summary("call");
}

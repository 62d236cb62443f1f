#define _DEFAULT_SOURCE /* usleep */
/*
 * test_comm.c - what a group says of itself, what it refuses, and in which order it works.
 */
#include "ranks.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/json.h"
#include "dist/comm/board.h"
#include "dist/comm/transport_faulty.h"
#include "temp_dir.h"

typedef struct {
    const char  *backend;
    ls_algorithm algorithm;
} scene;

static ls_call call_of(ls_collective kind, const void *in, void *out, int64_t count)
{
    return (ls_call){.kind = kind, .in = in, .out = out, .count = count, .dtype = LS_F32};
}

static void check_sound(ls_comm *group)
{
    int32_t x = 1 + ls_comm_rank(group), n = ls_comm_size(group);

    CHECK_OK(ls_comm_all_reduce(group, &x, &x, 1, LS_I32, LS_SUM));
    CHECK(x == n * (n + 1) / 2);
}

/* ---- counters ---- */

static int64_t sent(ls_comm *world, const ls_call *call)
{
    int64_t before = ls_comm_counted(world, call->kind).sent;

    CHECK_OK(ls_comm_run(world, call));
    return ls_comm_counted(world, call->kind).sent - before;
}

static bool shares_memory(const char *backend)
{
    return !strcmp(backend, "shm") || !strcmp(backend, "threads");
}

/* T(N-1)/N once for a pass that reduces to slices or gathers them, twice for both; large enough
 * to be worked on in place where that can be. */
static void traffic(ls_comm *world, void *context)
{
    static const int each[] = {1, 1000, 30000};
    const scene     *s      = context;
    int64_t          n      = ls_comm_size(world);

    for (int i = 0; i < 6; i++) {
        int64_t c = each[i / 2], total = n * c, bytes = (int64_t)sizeof(float) * total;
        bool    heap    = i % 2;
        float  *in      = heap ? ls_comm_alloc(world, (size_t)bytes) : calloc((size_t)bytes, 1);
        float  *out     = heap ? ls_comm_alloc(world, (size_t)bytes) : calloc((size_t)bytes, 1);
        ls_call reduce  = call_of(LS_ALL_REDUCE, in, out, total);
        ls_call scatter = call_of(LS_REDUCE_SCATTER, in, out, c);
        ls_call gather  = call_of(LS_ALL_GATHER, in, out, c);
        int64_t got     = sent(world, &reduce);
        /* a small one over shared memory is computed by everybody: one load from each peer */
        bool    small = s->algorithm == LS_DIRECT && shares_memory(s->backend) && c <= 1000;
        CHECK(got == 2 * bytes * (n - 1) / n || (small && got == bytes * (n - 1)));
        CHECK(sent(world, &scatter) == bytes * (n - 1) / n);
        CHECK(sent(world, &gather) == bytes * (n - 1) / n);
        if (heap) {
            ls_comm_release(world, in);
            ls_comm_release(world, out);
        } else {
            free(in);
            free(out);
        }
    }
}

/* Each rank hands on what is of others, and nothing of its own. */
static void traffic_of_blocks(ls_comm *world, void *context)
{
    enum { C = 50, MOST = 8 };
    int64_t n = ls_comm_size(world), root = 1, bytes = C * (int64_t)sizeof(float);
    float   in[MOST * C] = {0}, out[MOST * C];
    int64_t all[3]       = {0};

    (void)context;
    for (int k = 0; k < 3; k++) {
        static const ls_collective kinds[] = {LS_GATHER, LS_SCATTER, LS_ALL_TO_ALL};
        ls_call                    call    = call_of(kinds[k], in, out, C);
        call.root                          = (int)root;
        all[k]                             = sent(world, &call);
    }
    CHECK(all[2] == bytes * (n - 1));
    CHECK_OK(ls_comm_all_reduce(world, all, all, 2, LS_I64, LS_SUM)); /* by whom is open */
    CHECK(all[0] == bytes * (n - 1) && all[1] == bytes * (n - 1));
}

/* What started work tells of its time, on its worker's thread. */
static void timed(ls_comm *world, void *context)
{
    enum { MANY = 1 << 20 };
    float        *x      = calloc(MANY, sizeof *x);
    ls_call       call   = call_of(LS_ALL_REDUCE, x, x, MANY);
    int64_t       before = ls_now_ns();
    ls_work      *work;
    ls_work_times t;

    (void)context;
    CHECK_OK(ls_comm_start(world, &call, &work));
    CHECK_OK(ls_work_wait_timed(work, &t));
    CHECK(before <= t.started && t.started <= t.began && t.began <= t.ended);
    CHECK(t.ended <= ls_now_ns() && t.sequence == 1);
    CHECK(t.cpu > 0 && t.cpu <= t.ended - t.started); /* 4 MB were added up or copied */
    free(x);
}

static void counted(ls_comm *world, void *context)
{
    float    x[100] = {0}, y[800];
    int      n      = ls_comm_size(world);
    ls_work *work;

    (void)context;
    for (int i = 0; i < 7; i++) {
        CHECK_OK(ls_comm_all_reduce(world, y, x, 100, LS_F32, LS_SUM));
        CHECK_OK(ls_comm_all_gather(world, y, x, 10, LS_BF16));
        CHECK_OK(ls_comm_barrier(world));
    }
    ls_call call = call_of(LS_ALL_REDUCE, x, y, 11);
    CHECK_OK(ls_comm_start(world, &call, &work));
    CHECK_OK(ls_work_wait(work));
    ls_comm_counters c = ls_comm_counted(world, LS_ALL_REDUCE);
    CHECK(c.calls == 8 && c.payload == 7 * 400 + 44);
    CHECK(c.total_ns > 0 && c.wait_ns >= 0 && c.copy_ns >= 0 && c.reduce_ns >= 0);
    CHECK(c.wait_ns + c.copy_ns + c.reduce_ns <= c.total_ns);
    c = ls_comm_counted(world, LS_ALL_GATHER);
    CHECK(c.calls == 7 && c.payload == 7 * 20 && c.sent == 7 * 20 * (n - 1));
    c = ls_comm_counted(world, LS_BARRIER);
    CHECK(c.calls == 7 && c.payload == 0 && c.sent == 0);
    CHECK(ls_comm_counted(world, LS_BROADCAST).calls == 0);
}

/* ---- the log ---- */

static void logged(ls_comm *world, void *context)
{
    float    x[10] = {0}, y[80] = {0};
    ls_comm *group;
    ls_work *work;
    ls_call  call = call_of(LS_REDUCE_SCATTER, y, x, 3);

    (void)context;
    memset(y, 0, sizeof y);
    CHECK_OK(ls_comm_barrier(world));
    CHECK_OK(ls_comm_all_reduce(world, y, x, 10, LS_F32, LS_MAX));
    CHECK_OK(ls_comm_start(world, &call, &work));
    CHECK_OK(ls_work_wait(work));
    CHECK_OK(ls_comm_split(world, 0, 0, &group));
    CHECK_OK(ls_comm_broadcast(group, y, 5, LS_I64, 0));
    ls_comm_free(group);
}

/* In this order on every rank: the operations of logged(). */
static const struct {
    const char *op;
    int64_t     seq, count, bytes;
} log_lines[] = {
    {"barrier", 1, 0, 0}, {"all_reduce", 2, 10, 40}, {"reduce_scatter", 3, 3, 12},
    {"split", 4, -1, -1}, {"split", 5, -1, -1},      {"broadcast", 1, 5, 40},
};

enum { LOG_LINES = sizeof log_lines / sizeof *log_lines };

static int64_t whole(const ls_json *o, const char *key)
{
    int64_t x = -1;

    CHECK_OK(ls_json_get_int(o, key, 0, INT64_MAX, &x));
    return x;
}

static void check_line(const ls_json *o, const char *backend, int *seen, int n)
{
    static const char *const times[] = {"us", "wait_us", "copy_us", "reduce_us"};
    int64_t                  rank    = whole(o, "rank");
    const char              *op = "", *text = "";

    if (!CHECK(rank < n && seen[rank] < LOG_LINES))
        return;
    int i = seen[rank]++;
    CHECK_OK(ls_json_get_string(o, "op", &op));
    CHECK(!strcmp(op, log_lines[i].op) && whole(o, "seq") == log_lines[i].seq);
    CHECK(log_lines[i].count < 0 || whole(o, "count") == log_lines[i].count);
    CHECK(log_lines[i].bytes < 0 || whole(o, "bytes") == log_lines[i].bytes);
    CHECK(whole(o, "size") == n && whole(o, "sent") >= 0 && whole(o, "time_ns") > 0);
    for (int k = 0; k < 4; k++) {
        double us = -1;
        CHECK_OK(ls_json_get_double(o, times[k], &us));
        CHECK(us >= 0);
    }
    CHECK_OK(ls_json_get_string(o, "transport", &text));
    CHECK(!strcmp(text, backend) ||
          (!strcmp(backend, "mixed") && (!strcmp(text, "shm+tcp") || !strcmp(text, "tcp"))));
    CHECK_OK(ls_json_get_string(o, "algorithm", &text));
    CHECK(text[0]);
    CHECK_OK(ls_json_get_string(o, "status", &text));
    CHECK(!strcmp(text, ls_status_text(LS_OK)));
    CHECK_OK(ls_json_get_string(o, "group", &text));
    CHECK(strlen(text) == 16 && (strtoull(text, NULL, 16) == 1) == (i < LOG_LINES - 1));
    CHECK_OK(ls_json_get_string(o, "dtype", &text));
}

static void read_log(const char *path, const char *backend, int n)
{
    size_t bytes;
    char  *text = temp_get(path, &bytes), *line = text;
    int    seen[8] = {0};

    CHECK(text && bytes && text[bytes - 1] == '\n');
    while (text && line < text + bytes) {
        char        *end = memchr(line, '\n', (size_t)(text + bytes - line));
        ls_json_doc *doc;
        if (!end)
            break;
        CHECK_OK(ls_json_parse(line, (size_t)(end - line), "log", &doc));
        if (doc)
            check_line(ls_json_root(doc), backend, seen, n);
        ls_json_free(doc);
        line = end + 1;
    }
    for (int r = 0; r < n; r++)
        CHECK(seen[r] == LOG_LINES);
    free(text);
}

static void not_joined(ls_comm *world, void *context)
{
    (void)context;
    CHECK(!world && strstr(ls_error_message(), "LOCKSTEP_COMM_LOG: /nowhere/log: No such"));
}

static void one_not_joined(ls_comm *world, void *context)
{
    (void)context;
    CHECK(!world);
    CHECK(strstr(ls_error_message(), ranks_me() == 1 ? "LOCKSTEP_COMM_LOG" : "rank 1"));
    if (ranks_me() != 1 && !strstr(ls_error_message(), "rank 1"))
        printf("     %s\n", ls_error_message());
}

static void spoil_log_of_one(ls_join_opts *opts, void *context)
{
    (void)context;
    if (opts->rank == 1)
        setenv("LOCKSTEP_COMM_LOG", "/nowhere/log", 1);
}

static void logs(const char *backend)
{
    ranks_opts  opts = {.backend = backend, .n = 3};
    const char *path = temp_path("log");

    TEST_ROW("log");
    setenv("LOCKSTEP_COMM_LOG", path, 1);
    CHECK(ranks_run(&opts, logged, NULL) == 0);
    read_log(path, backend, 3);
    TEST_ROW("a log on a full device stops nobody");
    setenv("LOCKSTEP_COMM_LOG", "/dev/full", 1);
    CHECK(ranks_run(&opts, logged, NULL) == 0);
    TEST_ROW("a log that cannot be opened");
    opts.unjoined = true;
    setenv("LOCKSTEP_COMM_LOG", "/nowhere/log", 1);
    CHECK(ranks_run(&opts, not_joined, NULL) == 0);
    unsetenv("LOCKSTEP_COMM_LOG");
    if (!strcmp(backend, "threads")) /* who share an environment */
        return;
    TEST_ROW("a log that one rank cannot open");
    opts.join = spoil_log_of_one;
    CHECK(ranks_run(&opts, one_not_joined, NULL) == 0);
}

/* ---- the recorder ---- */

enum { OPERATIONS = 400 };

static void killed(ls_comm *world, void *context)
{
    float x = 1, y;

    (void)context;
    for (int i = 1; i < OPERATIONS; i++)
        CHECK_OK(ls_comm_all_reduce(world, &y, &x, 1, LS_F32, LS_SUM));
    if (ls_comm_rank(world) == 1) { /* it enters the next one alone, and is killed there */
        ls_status status = ls_comm_broadcast(world, &y, 1, LS_F32, 0);
        (void)status;
        return;
    }
    ls_status status = LS_OK;
    while (!status) { /* rank 0 waits for word of it */
        usleep(1000);
        status = ls_comm_check(world);
    }
    CHECK_FAILS(status, LS_EPEER, "rank 1 ");
}

static int count_lines(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* The parent: kills rank 1 in its last operation and reads what it had been doing. */
static void read_recorder(ranks_job *job, void *context)
{
    ls_recorder *r      = ls_board_recorder(ranks_board(job), 1);
    int64_t      limit  = ls_now_ns() + INT64_C(10000000000);
    ls_record    last   = {.bytes = 0};
    char        *text   = NULL;
    size_t       size   = 0;
    int          status = 0;

    (void)context;
    while (ls_now_ns() < limit &&
           !(ls_recorder_last(r, &last) && last.what.kind == LS_BROADCAST &&
             atomic_load(&last.state) == LS_RECORD_RUNNING))
        usleep(1000);
    CHECK(ranks_kill(job, 1, SIGKILL));
    while (ls_now_ns() < limit && !ls_board_how_ended(ranks_board(job), 1, &status))
        usleep(1000);
    CHECK(status == SIGKILL);
    CHECK(ls_recorder_last(r, &last) && last.what.kind == LS_BROADCAST);
    CHECK(last.what.sequence == OPERATIONS && last.bytes == 4 && last.started >= last.queued);
    FILE *file = open_memstream(&text, &size);
    ls_recorder_print(r, file, 1000, ls_now_ns());
    fclose(file);
    CHECK(count_lines(text) == LS_RECORDER_ENTRIES);
    char first[40];
    snprintf(first, sizeof first, "all_reduce #%d ", OPERATIONS - LS_RECORDER_ENTRIES + 1);
    CHECK(!strncmp(text, first, strlen(first)));
    CHECK(strstr(text, "broadcast #400 (F32, count 1, root 0)") && strstr(text, ": running,"));
    free(text);
}

/* ---- leaving ---- */

/* The last rank takes the next one's part late, wherever that is; the others have left then. */
static void last_operation(ls_comm *world, void *context)
{
    enum { C = 30000, MOST = 4 };
    float *in  = ls_comm_alloc(world, sizeof(float) * C);
    float *out = ls_comm_alloc(world, sizeof(float) * C * MOST);
    int    n   = ls_comm_size(world);

    (void)context;
    in[C - 1] = (float)ls_comm_rank(world);
    CHECK_OK(ls_comm_all_gather(world, out, in, C, LS_F32));
    for (int r = 0; r < n; r++)
        CHECK(out[(r + 1) * C - 1] == (float)r);
    ls_comm_release(world, in);
    ls_comm_release(world, out);
}

static void leave_early(const char *backend, ls_algorithm algorithm)
{
    enum { MOST_EXCHANGES = 4 };
    char name[80];

    for (int n = 1; n <= MOST_EXCHANGES; n++) {
        ranks_opts opts = {.backend    = backend,
                           .n          = 4,
                           .algorithm  = algorithm,
                           .fast       = algorithm == LS_RING,
                           .fault      = n,
                           .fault_kind = LS_FAULT_DELAY,
                           .fault_rank = 2};
        snprintf(name, sizeof name, "leaving, %s, %s, exchange %d is late", backend,
                 ls_algorithm_name(algorithm), n);
        TEST_ROW(name);
        CHECK(ranks_run(&opts, last_operation, NULL) == 0);
    }
}

/* ---- explanations ---- */

static bool has(const char *text, const char *part)
{
    bool ok = strstr(text, part) != NULL;

    if (!ok)
        printf("     \"%s\" is not in:\n%s", part, text);
    return ok;
}

static void explained(ls_comm *world, void *context)
{
    const scene *s          = context;
    char         text[1200] = "", name[40];
    ls_call      call       = call_of(LS_ALL_REDUCE, text, text, 123456);
    int          n          = ls_comm_size(world);

    CHECK_OK(ls_comm_explain(world, &call, text, sizeof text));
    CHECK(has(text, "all_reduce of 123456 F32 on ") && has(text, " us/MB"));
    CHECK(has(text, ls_comm_transport(world)));
    for (int a = LS_DIRECT; a < LS_ALGORITHM_COUNT; a++)
        CHECK(has(text, ls_algorithm_name((ls_algorithm)a)));
    CHECK(!strstr(text, "needs a power of two, not 3") == (n != 3));
    CHECK(has(text, "another order of sums"));
    CHECK((strstr(text, "heap") != NULL) == shares_memory(s->backend));
    if (s->algorithm == LS_AUTO) {
        CHECK(has(text, "<- chosen") && !strstr(text, "forced"));
    } else {
        char *line = strstr(text, "<- forced");
        CHECK(line != NULL && !strstr(text, "chosen"));
        snprintf(name, sizeof name, "\n  %-8s ", ls_algorithm_name(s->algorithm));
        char *start = strstr(text, name);
        CHECK(start && line && start < line &&
              !memchr(start + 1, '\n', (size_t)(line - start - 1)));
    }
    for (size_t size = 1; size < 700; size += 37) { /* cut, never beyond */
        memset(text, 'x', sizeof text);
        CHECK_OK(ls_comm_explain(world, &call, text, size));
        CHECK(memchr(text, '\0', size) && text[size] == 'x');
    }
    check_sound(world);
}

/* ---- refusals ---- */

static const ls_slice_segment beyond[] = {{0, 3}, {8, 3}}, negative[] = {{-1, 2}},
                              twice[] = {{0, 10}};

static const struct {
    const char     *name, *text;
    ls_call         call;
    bool            with_slices;
    ls_segment_list slice;
} refusals[] = {
    {"kind", "no such operation", {.kind = LS_COLLECTIVE_COUNT}, false, {0}},
    {"split", "no such operation", {.kind = LS_SPLIT}, false, {0}},
    {"count", "count -1", {.kind = LS_ALL_REDUCE, .count = -1}, false, {0}},
    {"huge", "count", {.kind = LS_ALL_GATHER, .count = INT64_MAX / 8}, false, {0}},
    {"f64", "none of", {.kind = LS_ALL_REDUCE, .count = 1, .dtype = LS_F64}, false, {0}},
    {"dtype", "none of", {.kind = LS_BROADCAST, .count = 1, .dtype = (ls_dtype)77}, false, {0}},
    {"op", "reduce op", {.kind = LS_REDUCE, .count = 1, .op = (ls_reduce_op)9}, false, {0}},
    {"avg of I32",
     "avg of I32: integers have none",
     {.kind = LS_ALL_REDUCE, .count = 1, .dtype = LS_I32, .op = LS_AVG},
     false,
     {0}},
    {"avg of I64",
     "avg of I64: integers have none",
     {.kind = LS_REDUCE, .count = 1, .dtype = LS_I64, .op = LS_AVG},
     false,
     {0}},
    {"avg of U8",
     "avg of U8: integers have none",
     {.kind = LS_REDUCE_SCATTER, .count = 1, .dtype = LS_U8, .op = LS_AVG},
     false,
     {0}},
    {"avg of nothing",
     "avg of I32",
     {.kind = LS_ALL_REDUCE, .dtype = LS_I32, .op = LS_AVG},
     false,
     {0}},
    {"root",
     "root 99 of a group of",
     {.kind = LS_BROADCAST, .count = 1, .root = 99},
     false,
     {0}},
    {"root", "root -1 of a group of", {.kind = LS_REDUCE, .count = 1, .root = -1}, false, {0}},
    {"root", "root 3 of a group of 3", {.kind = LS_GATHER, .count = 1, .root = 3}, false, {0}},
    {"root", "root 3 of a group of 3", {.kind = LS_SCATTER, .count = 1, .root = 3}, false, {0}},
    {"peer", "peer 3 of a group of 3", {.kind = LS_SEND, .count = 1, .root = 3}, false, {0}},
    {"peer", "peer -2 of a group", {.kind = LS_RECV, .count = 1, .root = -2}, false, {0}},
    {"lists", "takes no segment lists", {.kind = LS_ALL_REDUCE, .count = 10}, true, {twice, 1}},
    {"leaves", "leaves the 10", {.kind = LS_ALL_GATHER, .count = 10}, true, {beyond, 2}},
    {"leaves", "leaves the 10", {.kind = LS_REDUCE_SCATTER, .count = 10}, true, {negative, 1}},
    {"overlap", "overlap in 10", {.kind = LS_ALL_GATHER, .count = 10}, true, {twice, 1}},
};

static void refuse(ls_comm *world, const ls_call *call, const char *text)
{
    ls_work *work = NULL;
    char     why[100];

    CHECK_FAILS(ls_comm_run(world, call), LS_EINVAL, text);
    CHECK_FAILS(ls_comm_start(world, call, &work), LS_EINVAL, text);
    CHECK(!work);
    CHECK_FAILS(ls_comm_explain(world, call, why, sizeof why), LS_EINVAL, text);
}

/* By all ranks, then by one of them; the group goes on. */
static void refused(ls_comm *world, void *context)
{
    float x[100] = {0}, y[100];

    (void)context;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        ls_call         call = refusals[i].call;
        ls_segment_list slices[3];
        for (int r = 0; r < 3; r++)
            slices[r] = refusals[i].slice;
        call.in     = x;
        call.out    = y;
        call.slices = refusals[i].with_slices ? slices : NULL;
        TEST_ROW(refusals[i].name);
        refuse(world, &call, refusals[i].text);
        check_sound(world);
        if (ls_comm_rank(world) == (int)(i % 3))
            refuse(world, &call, refusals[i].text);
        check_sound(world);
    }
    TEST_ROW("itself");
    ls_call self = call_of(LS_SEND, x, y, 1);
    self.root    = ls_comm_rank(world);
    refuse(world, &self, "with itself");
    TEST_ROW("no buffers");
    for (int kind = LS_BROADCAST; kind < LS_SPLIT; kind++) {
        ls_call none = call_of((ls_collective)kind, NULL, y, 1);
        none.root    = ls_comm_rank(world);
        if (kind != LS_BROADCAST)
            refuse(world, &none, "no input buffer");
        none.in  = x;
        none.out = NULL;
        refuse(world, &none, "no output buffer");
        check_sound(world);
    }
    CHECK_OK(ls_comm_check(world));
}

/* ---- order ---- */

static void in_order(ls_comm *world, void *context)
{
    enum { WORKS = 50 };
    float    x[WORKS], last = 1;
    ls_work *work[WORKS];

    (void)context;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < WORKS; i++) {
            x[i]         = (float)(i + 1);
            ls_call call = call_of(LS_ALL_REDUCE, &x[i], &x[i], 1);
            CHECK_OK(ls_comm_start(world, &call, &work[i]));
        }
        bool earlier = true; /* seen from the last to the first: once done, all before are */
        bool found   = false;
        for (int i = WORKS - 1; i >= 0; i--) {
            bool done = ls_work_test(work[i]);
            earlier   = earlier && (done || !found);
            found     = found || done;
        }
        CHECK(earlier);
        CHECK_OK(ls_comm_all_reduce(world, &last, &last, 1, LS_F32, LS_MAX));
        for (int i = 0; i < WORKS; i++)
            CHECK(ls_work_test(work[i]));
        for (int i = 0; i < WORKS; i++) {
            int k = i % 2 ? WORKS - 1 - i / 2 : i / 2; /* waited for in any order */
            CHECK_OK(ls_work_wait(work[k]));
            CHECK(x[k] == (float)((k + 1) * ls_comm_size(world)));
        }
    }
}

/* ---- threads ---- */

enum { THREADS = 4 };

typedef struct {
    ls_comm         *group;
    int              number;
    pthread_mutex_t *lock; /* of turn: who starts next, the same on all ranks */
    pthread_cond_t  *changed;
    int             *turn;
} user;

static void *use_own_group(void *argument)
{
    enum { MOST = 20000 };
    user  *u = argument;
    int    n = ls_comm_size(u->group), wrong = 0;
    float *x = calloc(MOST, sizeof *x);

    for (int i = 0; i < 100; i++) {
        int64_t count = 1 + i * (u->number + 1) * 997 % MOST;
        for (int64_t k = 0; k < count; k++)
            x[k] = (float)(u->number + k % 100);
        CHECK_OK(ls_comm_all_reduce(u->group, x, x, count, LS_F32, LS_SUM));
        for (int64_t k = 0; k < count; k++)
            wrong += x[k] != (float)(n * (int)(u->number + k % 100));
    }
    CHECK(wrong == 0);
    free(x);
    return NULL;
}

static void *start_in_turn(void *argument)
{
    user *u = argument;
    int   n = ls_comm_size(u->group), r = ls_comm_rank(u->group);

    for (int i = 0; i < 100; i++) {
        float    x = (float)(r + 10 * u->number + i), want = 0;
        ls_work *work;
        ls_call  call = call_of(LS_ALL_REDUCE, &x, &x, 1);
        for (int p = 0; p < n; p++)
            want += (float)(p + 10 * u->number + i);
        pthread_mutex_lock(u->lock);
        while (*u->turn % THREADS != u->number)
            pthread_cond_wait(u->changed, u->lock);
        CHECK_OK(ls_comm_start(u->group, &call, &work));
        ++*u->turn;
        pthread_cond_broadcast(u->changed);
        pthread_mutex_unlock(u->lock);
        CHECK_OK(ls_work_wait(work));
        CHECK(x == want);
    }
    return NULL;
}

static void with_threads(user users[THREADS], void *(*body)(void *))
{
    pthread_t thread[THREADS];

    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&thread[i], NULL, body, &users[i]));
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

static void threaded(ls_comm *world, void *context)
{
    user            users[THREADS];
    pthread_mutex_t lock    = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t  changed = PTHREAD_COND_INITIALIZER;
    int             turn    = 0;

    (void)context;
    for (int i = 0; i < THREADS; i++) {
        users[i] = (user){.number = i, .lock = &lock, .changed = &changed, .turn = &turn};
        CHECK_OK(ls_comm_split(world, 0, i % 2 ? -ls_comm_rank(world) : 0, &users[i].group));
    }
    with_threads(users, use_own_group);
    for (int i = 0; i < THREADS; i++) {
        ls_comm_free(users[i].group);
        users[i].group = world;
    }
    with_threads(users, start_in_turn);
    check_sound(world);
}

/* ---- */

static void run(const char *backend, int n, ls_algorithm algorithm, ranks_body body,
                const char *what)
{
    char       name[120];
    scene      s    = {backend, algorithm};
    ranks_opts opts = {
        .backend = backend, .n = n, .algorithm = algorithm, .fast = algorithm == LS_RING};

    snprintf(name, sizeof name, "%s, %s, %d ranks, %s", what, backend, n,
             ls_algorithm_name(algorithm));
    TEST_ROW(name);
    CHECK(ranks_run(&opts, body, &s) == 0);
}

static void run_recorder(const char *backend)
{
    int        ended[2];
    ranks_opts opts = {
        .backend = backend, .n = 2, .ended = ended, .meanwhile = read_recorder, .limit_s = 30};

    TEST_ROW("recorder of a rank that was killed");
    CHECK(ranks_run(&opts, killed, NULL) == 1);
    CHECK(ended[0] == 0 && ended[1] == SIGKILL);
}

int main(int argc, char **argv)
{
    static const ls_algorithm slices[] = {LS_DIRECT, LS_HALVING, LS_RING};
    const char               *backend  = argc > 1 ? argv[1] : "shm";

    for (int n = 2; n <= 5; n++)
        for (int a = 0; a < 3; a++)
            if (ls_algorithm_fits(slices[a], n))
                run(backend, n, slices[a], traffic, "traffic");
    for (int n = 2; n <= 4; n++)
        run(backend, n, LS_AUTO, traffic_of_blocks, "traffic of blocks");
    run(backend, 3, LS_AUTO, counted, "counters");
    run(backend, 2, LS_AUTO, timed, "times of started work");
    for (int a = 0; a < LS_ALGORITHM_COUNT; a++)
        if (ls_algorithm_fits((ls_algorithm)a, 3))
            run(backend, 3, (ls_algorithm)a, explained, "explain");
    run(backend, 4, LS_HALVING, explained, "explain");
    run(backend, 3, LS_AUTO, refused, "refusals");
    run(backend, 3, LS_AUTO, in_order, "order");
    run(backend, 3, LS_AUTO, threaded, "threads");
    leave_early(backend, LS_RING);
    leave_early(backend, LS_DIRECT);
    temp_dir_make();
    logs(backend);
    temp_dir_remove();
    if (strcmp(backend, "threads") != 0)
        run_recorder(backend);
    return test_summary("comm");
}

/*
 * test_control_wire.c - notices, deaths and questions over control connections: one rank, and
 * peers whose bytes the test itself writes (control_ends.h).
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "control_ends.h"
#include "core/alloc.h"

typedef struct {
    const char    *row;
    size_t         offset; /* of the word that is wrong */
    uint32_t       word;
    ls__frame_kind kind;
} broken_row;

static const broken_row broken[] = {
    {"wrong magic", offsetof(ls__frame, magic), 0x12345678, LS__ASK},
    {"unknown kind", offsetof(ls__frame, kind), LS__FRAME_KINDS, LS__ASK},
    {"huge kind", offsetof(ls__frame, kind), UINT32_MAX, LS__ASK},
    {"notice of no failure", offsetof(ls__frame, status), 0, LS__NOTICE},
    {"notice of an unknown status", offsetof(ls__frame, status), 9999, LS__NOTICE},
    {"negative status", offsetof(ls__frame, status), UINT32_MAX, LS__NOTICE},
    {"death of rank 3 of 3", offsetof(ls__frame, culprit), 3, LS__DEATH},
    {"death of rank -1", offsetof(ls__frame, culprit), UINT32_MAX, LS__DEATH},
};

/* The peer is given up by name, once and for all; a third rank is no part of that. */
static void test_broken_frame(const broken_row *row)
{
    const int others[] = {0, 2};
    wired     w;
    ls__frame f = frame_of(row->kind, WORLD_ID);

    TEST_ROW(row->row);
    wire_up(&w);
    wire_start(&w);
    memcpy((char *)&f + row->offset, &row->word, sizeof row->word);
    put(w.wire[0], &f, sizeof f);
    put(w.wire[0], "trash", 5);
    CHECK(wait_for(has_failed, w.guard, 5000));
    CHECK_FAILS(ls_guard_check(w.guard), LS_EPEER, "rank 1 (pid ");
    CHECK(strstr(ls_error_message(), "sent a control message that makes no sense") != NULL);
    ls_guard *apart = ls_guard_new(w.control, 30, others, 2, NULL, NULL);
    CHECK_OK(ls_guard_check(apart));
    ls_guard_free(apart);
    wire_down(&w);
}

static uint64_t next_random(uint64_t *state)
{
    return *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

/* Bytes that are random but for a right magic and kind, in pieces of random size. */
static void test_random_frames(void)
{
    uint64_t state = 1;

    TEST_ROW("random frames");
    for (int round = 0; round < 50; round++) {
        wired w;
        wire_up(&w);
        wire_start(&w);
        for (int i = 0; i < 20; i++) {
            ls__frame f = {0};
            for (size_t k = 0; k < sizeof f / 8; k++) {
                uint64_t word = next_random(&state);
                memcpy((char *)&f + 8 * k, &word, 8);
            }
            f.magic     = LS__FRAME_MAGIC;
            f.kind      = (uint32_t)(next_random(&state) >> 40) % LS__GOODBYE;
            f.group     = i % 2 ? WORLD_ID : f.group;
            f.status    = f.status % LS_STATUS_COUNT;
            f.culprit   = i % 4 ? 2 : f.culprit;
            size_t part = (size_t)(next_random(&state) >> 40) % sizeof f;
            send(w.wire[0], &f, part, MSG_NOSIGNAL);
            send(w.wire[0], (char *)&f + part, sizeof f - part, MSG_NOSIGNAL);
        }
        ls_sleep_ns(MS);
        wire_down(&w);
    }
}

static bool has_left(void *guard)
{
    return ls_guard_member_left(guard, 1);
}

static void test_notices(void)
{
    const int both[] = {0, 1}, others[] = {0, 2};
    wired     w;
    ls__frame f = frame_of(LS__NOTICE, 99);

    TEST_ROW("notice before the group is made");
    wire_up(&w);
    wire_start(&w);
    memset(f.text, 'x', sizeof f.text);
    memcpy(f.text, "line\nbreak", 10);
    put(w.wire[0], &f, sizeof f);
    ls__frame bye = {.magic = LS__FRAME_MAGIC, .kind = LS__GOODBYE};
    put(w.wire[0], &bye, sizeof bye); /* behind it, so the notice has been seen */
    CHECK(wait_for(has_left, w.guard, 5000));
    ls_guard *g       = ls_guard_new(w.control, 99, both, 2, NULL, NULL);
    ls_guard *not_its = ls_guard_new(w.control, 99, others, 2, NULL, NULL);
    CHECK_FAILS(ls_guard_check(g), LS_ETIMEOUT, "line breakxxx");
    CHECK(strlen(ls_error_message()) == LS_GUARD_TEXT - 1);
    CHECK_OK(ls_guard_check(not_its));
    ls_guard_free(g);
    ls_guard_free(not_its);
    TEST_ROW("a flood of notices of unknown groups");
    for (uint64_t i = 0; i < 200; i++) {
        f.group = 1000 + i;
        put(w.wire[1], &f, sizeof f);
    }
    TEST_ROW("notice from a rank that is no member");
    f.group = WORLD_ID;
    put(w.wire[1], &f, sizeof f);
    ls_sleep_ns(50 * MS);
    CHECK_OK(ls_guard_check(w.guard));
    TEST_ROW("goodbye, then the end: no failure");
    close(w.wire[0]);
    w.wire[0] = dup(w.wire[1]);
    ls_sleep_ns(50 * MS);
    CHECK_OK(ls_guard_check(w.guard));
    wire_down(&w);
}

/* Another rank's word for a death counts; of this rank too, and for groups made later. */
static void test_told_deaths(void)
{
    const int with_2[] = {0, 2};
    wired     w;
    ls__frame f = frame_of(LS__DEATH, 0);

    TEST_ROW("a death told by another");
    wire_up(&w);
    wire_start(&w);
    ls_guard *g = ls_guard_new(w.control, 40, with_2, 2, NULL, NULL);
    snprintf(f.text, sizeof f.text, "rank 2 died of it");
    put(w.wire[0], &f, sizeof f);
    CHECK(wait_for(has_failed, g, 5000));
    CHECK_FAILS(ls_guard_check(g), LS_EPEER, "rank 2 died of it");
    CHECK_OK(ls_guard_check(w.guard));
    close(w.wire[1]); /* its end, found later, changes nothing */
    w.wire[1] = dup(w.wire[0]);
    ls_sleep_ns(100 * MS);
    CHECK_FAILS(ls_guard_check(g), LS_EPEER, "rank 2 died of it");
    CHECK(atomic_load(&w.of.reports) == 1);
    ls_guard_free(g);
    TEST_ROW("this rank is given up by the others");
    f.culprit = 0;
    snprintf(f.text, sizeof f.text, "rank 0 cannot be reached");
    put(w.wire[0], &f, sizeof f);
    CHECK(wait_for(has_failed, w.guard, 5000));
    CHECK_FAILS(ls_guard_check(w.guard), LS_EPEER, "rank 0 cannot be reached");
    wire_down(&w);
}

static ls_guard *guard_of_all(ls_control *c)
{
    const int all[] = {0, 1, 2};

    return ls_guard_new(c, 50, all, 3, NULL, NULL);
}

/* All is there when the watch begins, so that one pass meets it. */
static void test_causes(void)
{
    wired     w;
    ls_board *board = NULL;
    ls__frame f     = frame_of(LS__NOTICE, 50);

    TEST_ROW("what rank 2 says counts before the end of rank 1");
    wire_up(&w);
    ls_guard *g = guard_of_all(w.control);
    shutdown(w.wire[0], SHUT_RDWR);
    snprintf(f.text, sizeof f.text, "the cause");
    put(w.wire[1], &f, sizeof f);
    wire_start(&w);
    CHECK(wait_for(has_failed, g, 5000));
    CHECK_FAILS(ls_guard_check(g), LS_ETIMEOUT, "the cause");
    ls_guard_free(g);
    wire_down(&w);
    TEST_ROW("of two that ended, the killed one is the cause");
    CHECK_OK(ls_board_new(3, &board));
    wire_up_with(&w, false, board);
    g = guard_of_all(w.control);
    ls_board_ended(board, 1, 1 << 8);
    ls_board_ended(board, 2, SIGKILL);
    shutdown(w.wire[0], SHUT_RDWR);
    shutdown(w.wire[1], SHUT_RDWR);
    wire_start(&w);
    CHECK(wait_for(has_failed, g, 5000));
    CHECK_FAILS(ls_guard_check(g), LS_EPEER, "was killed by signal 9 (Killed)");
    CHECK(wait_for(has_failed, w.guard, 5000));
    CHECK_FAILS(ls_guard_check(w.guard), LS_EPEER, "exited with status 1");
    ls_guard_free(g);
    g = guard_of_all(w.control);
    CHECK_FAILS(ls_guard_check(g), LS_EPEER, "was killed by signal 9 (Killed)");
    ls_guard_free(g);
    wire_down(&w);
    ls_board_free(board);
}

static ssize_t receive_frame(int fd, ls__frame *f, int flags)
{
    return recv(fd, f, sizeof *f, MSG_WAITALL | flags);
}

/* A death is told to all, after a moment for others to name the cause or the parent to publish.
 */
static void test_patience(void)
{
    static const struct {
        const char *row;
        bool        board;
        int64_t     publish_ms, least_ms; /* after the end */
        const char *text;
    } rows[] = {
        {"no board", false, 0, 19, "is gone: connection closed"},
        {"published late", true, 40, 40, "was killed by signal 9 (Killed)"},
        {"never published", true, 0, 199, "is gone: connection closed"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wired     w;
        ls_board *board = NULL;
        ls__frame f;
        TEST_ROW(rows[i].row);
        if (rows[i].board)
            CHECK_OK(ls_board_new(3, &board));
        wire_up_with(&w, false, board);
        wire_start(&w);
        int64_t begin = ls_now_ns();
        shutdown(w.wire[0], SHUT_RDWR);
        ls_sleep_ns(rows[i].publish_ms * MS);
        if (rows[i].publish_ms)
            ls_board_ended(board, 1, SIGKILL);
        CHECK(wait_for(has_failed, w.guard, 5000));
        CHECK(ls_now_ns() - begin >= rows[i].least_ms * MS);
        CHECK_FAILS(ls_guard_check(w.guard), LS_EPEER, rows[i].text);
        CHECK(recv(w.wire[1], &f, sizeof f, MSG_WAITALL) == sizeof f);
        CHECK(f.kind == LS__DEATH && f.culprit == 1 && !strcmp(f.text, ls_error_message()));
        CHECK(recv(w.wire[1], &f, 1, MSG_DONTWAIT) < 0);
        wire_down(&w);
        ls_board_free(board);
    }
}

/* A peer that reads nothing: no call waits, and its stream stays whole. */
static uint64_t drain_asks(int fd, uint64_t last)
{
    ls__frame f;

    while (recv(fd, &f, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
        CHECK(receive_frame(fd, &f, 0) == sizeof f);
        CHECK(f.magic == LS__FRAME_MAGIC && f.kind == LS__ASK && f.number > last);
        last = f.number;
    }
    return last;
}

static void test_full_socket(bool tcp)
{
    wired     w;
    ls__frame f;
    uint64_t  last  = 0;
    int       small = 4096;

    TEST_ROW(tcp ? "a full socket, tcp" : "a full socket");
    wire_up_with(&w, tcp, NULL);
    setsockopt(w.control->peer[1].fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    wire_start(&w);
    int64_t begin = ls_now_ns();
    for (int i = 0; i < 5000; i++)
        ls_guard_ask(w.guard);
    CHECK(ls_guard_fail(w.guard, LS_ETIMEOUT, "given up") == LS_ETIMEOUT);
    CHECK(ls_now_ns() - begin < 2000 * (int64_t)MS);
    for (int i = 0; i < 20; i++) {
        last = drain_asks(w.wire[0], last);
        ls_sleep_ns(5 * MS); /* for the end of a frame that was taken in part */
    }
    CHECK(last > 0 && last < 5000);
    CHECK(ls_guard_ask(w.guard) == 5001);
    CHECK(receive_frame(w.wire[0], &f, 0) == sizeof f && f.number == 5001);
    wire_down(&w);
}

static void test_questions(void)
{
    wired           w;
    ls__frame       f      = frame_of(LS__ASK, WORLD_ID), got;
    ls_descriptor   what   = all_reduce(12);
    ls_guard_answer answer = {0};

    TEST_ROW("answers");
    wire_up(&w);
    wire_start(&w);
    ls_guard_enter(w.guard, &what);
    f.number = 3;
    put(w.wire[0], &f, sizeof f);
    CHECK(receive_frame(w.wire[0], &got, 0) == sizeof got);
    CHECK(got.kind == LS__ANSWER && got.number == 3 && got.entered == 12 && got.left == 0);
    f.group = 12345;
    put(w.wire[0], &f, sizeof f);
    CHECK(receive_frame(w.wire[0], &got, 0) == sizeof got);
    CHECK(got.kind == LS__ANSWER && got.group == 12345 && got.entered == 0);
    TEST_ROW("answers to questions that were not asked");
    f        = frame_of(LS__ANSWER, WORLD_ID);
    f.number = 77;
    put(w.wire[0], &f, sizeof f);
    f.number  = 1;
    f.entered = 11;
    CHECK(ls_guard_ask(w.guard) == 1);
    put(w.wire[0], &f, sizeof f);
    for (int64_t end = in_ms(5000); ls_now_ns() < end; ls_sleep_ns(MS)) {
        answer = ls_guard_answered(w.guard, 1);
        if (answer.asked)
            break;
    }
    CHECK(answer.asked == 1 && answer.entered == 11);
    wire_down(&w);
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Nothing happens: before, after a death, and after a goodbye. */
static void test_idle(void)
{
    wired     w;
    ls__frame bye = {.magic = LS__FRAME_MAGIC, .kind = LS__GOODBYE};

    TEST_ROW("an idle watch costs nothing");
    wire_up(&w);
    wire_start(&w);
    for (int turn = 0; turn < 3; turn++) {
        if (turn == 1)
            put(w.wire[1], &bye, sizeof bye);
        if (turn == 2)
            shutdown(w.wire[0], SHUT_RDWR);
        if (turn == 2)
            CHECK(wait_for(has_failed, w.guard, 5000));
        double before = cpu_seconds();
        ls_sleep_ns(200 * MS);
        CHECK(cpu_seconds() - before < 0.02);
    }
    wire_down(&w);
}

/* A child of fork() frees what it inherited; the peers see nothing of it. */
static void test_fork(void)
{
    wired w;
    char  byte;
    int   status = -1;

    TEST_ROW("a forked child");
    wire_up(&w);
    wire_start(&w);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bool refused = ls_guard_fail(w.guard, LS_EPEER, "no") == LS_ESTATE &&
                       ls_guard_lost(w.guard, "no") == LS_ESTATE;
        ls_guard_ask(w.guard);
        ls_guard_free(w.guard);
        ls_control_free(w.control);
        _exit(refused ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(recv(w.wire[0], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK_OK(ls_guard_check(w.guard));
    ls_guard_ask(w.guard);
    ls__frame f;
    CHECK(receive_frame(w.wire[0], &f, 0) == sizeof f && f.kind == LS__ASK);
    wire_down(&w);
}

static void test_guards(void)
{
    const int members[] = {5, 6};
    wired     w;
    char      text[64];

    TEST_ROW("a guard without control");
    ls_guard *g = ls_guard_new(NULL, 1, members, 2, NULL, NULL);
    CHECK_OK(ls_guard_check(g));
    CHECK(ls_guard_ask(g) == 0 && ls_guard_answered(g, 0).asked == 0);
    CHECK(!strcmp(ls_guard_member_text(g, 1, text, sizeof text), "rank 6"));
    CHECK(!ls_guard_member_left(g, 1));
    CHECK_FAILS(ls_guard_lost(g, "closed"), LS_EPEER, "closed");
    CHECK_FAILS(ls_guard_fail(g, LS_EIO, "later"), LS_EPEER, "closed");
    ls_guard_free(g);
    TEST_ROW("1,000 guards");
    wire_up(&w);
    wire_start(&w);
    const int both[] = {0, 1};
    for (uint64_t i = 0; i < 1000; i++) {
        g           = ls_guard_new(w.control, 100 + i, both, 2, NULL, NULL);
        ls_guard *h = ls_guard_new(w.control, 5000 + i, both, 2, NULL, NULL);
        ls_guard_free(i % 2 ? g : h);
        ls_guard_free(i % 2 ? h : g);
    }
    CHECK(w.control->guards == w.guard && !w.guard->next);
    TEST_ROW("lost, and nobody says why");
    int64_t begin = ls_now_ns();
    CHECK_FAILS(ls_guard_lost(w.guard, "data connection closed"), LS_EPEER, "data connection");
    CHECK(ls_now_ns() - begin >= 290 * (int64_t)MS);
    wire_down(&w);
    TEST_ROW("lost, and the watch says why");
    wire_up(&w);
    wire_start(&w);
    shutdown(w.wire[0], SHUT_RDWR);
    CHECK_FAILS(ls_guard_lost(w.guard, "data"), LS_EPEER, "is gone: connection closed");
    wire_down(&w);
    TEST_ROW("no memory for a guard");
    wire_up(&w);
    wire_start(&w);
    for (int n = 0; n < 3; n++) {
        ls_alloc_fail_after(n);
        CHECK(!ls_guard_new(w.control, 9, both, 2, NULL, NULL));
    }
    ls_alloc_fail_after(-1);
    wire_down(&w);
}

int main(void)
{
    test_guards();
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        test_broken_frame(&broken[i]);
    test_random_frames();
    test_notices();
    test_told_deaths();
    test_causes();
    test_patience();
    test_full_socket(false);
    test_full_socket(true);
    test_questions();
    test_idle();
    test_fork();
    return test_summary("control_wire");
}

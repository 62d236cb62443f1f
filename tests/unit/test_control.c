#define _GNU_SOURCE /* memfd_create, to have descriptors to pass: Linux's own */
/*
 * test_control.c - hellos, deaths and questions over control connections.
 *
 * Three kinds of tests: ranks as forked processes that die in every way while the parent reaps
 * them; ranks as threads; and one rank against a "wire", where the test itself writes the
 * peer's bytes, right and wrong ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/control_impl.h"
#include "test.h"

enum { RANKS = 4, WORLD_ID = 7, MS = 1000000 };

static int64_t in_ms(int64_t ms)
{
    return ls_now_ns() + ms * MS;
}

/* ---- sockets ---- */

/* Segments and buffers are small, so that messages come and go in pieces. */
static bool tcp_pair(int fd[2])
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          size = sizeof to;
    int                door = socket(AF_INET, SOCK_STREAM, 0);

    fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(door, SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int));
    for (int i = 0; i < 2; i++)
        setsockopt(i ? door : fd[0], IPPROTO_TCP, TCP_MAXSEG, &(int){264}, sizeof(int));
    bool ok = !bind(door, (struct sockaddr *)&to, size) && !listen(door, 1) &&
              !getsockname(door, (struct sockaddr *)&to, &size) &&
              !connect(fd[0], (struct sockaddr *)&to, size);
    fd[1] = accept(door, NULL, NULL);
    close(door);
    return ok && fd[1] >= 0;
}

static bool pair_of(bool tcp, int fd[2])
{
    return tcp ? tcp_pair(fd) : !socketpair(AF_UNIX, SOCK_STREAM, 0, fd);
}

/* socket[a * n + b] is a's end of the connection to b. */
static int *mesh(int n, bool tcp)
{
    int *socket_of = malloc((size_t)(n * n) * sizeof *socket_of);

    for (int a = 0; a < n; a++)
        for (int b = a; b < n; b++) {
            int fd[2] = {-1, -1};
            if (a != b && !CHECK(pair_of(tcp, fd)))
                exit(1);
            socket_of[a * n + b] = fd[0];
            socket_of[b * n + a] = fd[1];
        }
    return socket_of;
}

static ls_hello hello_of(int rank)
{
    ls_hello h = {.version = LS_HELLO_VERSION, .pid = getpid(), .host = "node-7"};

    h.token[0] = (uint64_t)rank * 1000;
    return h;
}

static int open_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- ranks as processes ---- */

/* What a rank found, for the parent to judge. */
typedef struct {
    char       text[LS_GUARD_TEXT], told[LS_GUARD_TEXT], later[LS_GUARD_TEXT];
    ls_status  status, apart, born, left_apart;
    atomic_int reports, wakes, ready;
    int64_t    at; /* ls_now_ns() when it saw the failure */
} findings;

typedef struct {
    atomic_int go, helper;
    int64_t    died_at;
    int        pid[RANKS];
    findings   of[RANKS];
} shared;

typedef struct {
    int         rank;
    ls_control *control;
    ls_guard   *world, *pair; /* all; ranks 0 and 1 alone */
    ls_board   *board;
    shared     *shared;
} rank_env;

typedef struct {
    const char *row;
    bool        tcp, board, records, impatient; /* impatient: leaves with status 1 on failure */
    void (*die)(rank_env *e);                   /* rank 2 */
    const char *how;                            /* behind "rank 2 (pid n, host node-7) " */
} death_row;

static void count_wake(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

static void note_report(void *context, const char *text)
{
    findings *f = context;

    snprintf(f->told, sizeof f->told, "%s", text);
    atomic_fetch_add(&f->reports, 1);
}

static bool wait_for(bool (*is_so)(void *context), void *context, int ms)
{
    for (int64_t end = in_ms(ms); ls_now_ns() < end; ls_sleep_ns(MS))
        if (is_so(context))
            return true;
    return is_so(context);
}

static bool has_failed(void *guard)
{
    return ls_guard_failed(guard);
}

static bool all_ready(void *context)
{
    shared *s = context;

    for (int r = 0; r < RANKS; r++)
        if (!atomic_load(&s->of[r].ready))
            return false;
    return true;
}

static ls_descriptor all_reduce(uint64_t sequence)
{
    ls_call call = {.kind = LS_ALL_REDUCE, .count = 1000, .dtype = LS_F32, .op = LS_SUM};

    return ls_descriptor_of(&call, RANKS, sequence, LS_AUTO);
}

static void join(rank_env *e, int *sockets)
{
    const int everyone[RANKS] = {0, 1, 2, 3};
    ls_hello  mine            = hello_of(e->rank), all[RANKS];
    findings *f               = &e->shared->of[e->rank];

    for (int r = 0; r < RANKS; r++)
        for (int p = 0; p < RANKS && r != e->rank; p++)
            if (p != r)
                close(sockets[r * RANKS + p]);
    CHECK_OK(ls_control_new(e->rank, RANKS, sockets + e->rank * RANKS, e->board, &e->control));
    CHECK_OK(ls_control_hello(e->control, &mine, all, in_ms(10000)));
    CHECK_OK(ls_control_start(e->control, note_report, f));
    e->world = ls_guard_new(e->control, WORLD_ID, everyone, RANKS, count_wake, &f->wakes);
    e->pair  = ls_guard_new(e->control, WORLD_ID + 1, everyone, 2, NULL, NULL);
    CHECK(e->world && e->pair);
    e->shared->pid[e->rank] = getpid();
    atomic_store(&f->ready, 1);
    CHECK(wait_for(all_ready, e->shared, 10000));
}

static void leave(rank_env *e)
{
    ls_guard_free(e->world);
    ls_guard_free(e->pair);
    ls_control_free(e->control);
}

/* Starts the ranks; the parent's part is then to reap them. */
static void start_ranks(shared *s, bool tcp, ls_board *board, void (*body)(rank_env *, void *),
                        void *context, pid_t pid[RANKS])
{
    int *sockets = mesh(RANKS, tcp);

    fflush(stdout);
    for (int r = 0; r < RANKS; r++) {
        pid[r] = fork();
        if (pid[r] == 0) {
            rank_env e    = {.rank = r, .board = board, .shared = s};
            test_failures = 0;
            join(&e, sockets);
            free(sockets);
            body(&e, context);
            fflush(stdout);
            ls_board_free(board);
            _exit(test_failures ? 99 : 0);
        }
    }
    for (int i = 0; i < RANKS * RANKS; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    free(sockets);
}

/* Publishes each end at once; kills what lives after 20 seconds.  status[r] of waitpid(). */
static void reap_ranks(ls_board *board, const pid_t pid[RANKS], int status[RANKS])
{
    int left = RANKS;

    for (int64_t end = in_ms(20000); left; ls_sleep_ns(MS)) {
        for (int r = 0; r < RANKS; r++)
            if (waitpid(pid[r], &status[r], WNOHANG) == pid[r]) {
                left--;
                if (board)
                    ls_board_ended(board, r, status[r]);
            }
        if (!CHECK(ls_now_ns() < end))
            for (int r = 0; r < RANKS; r++)
                kill(pid[r], SIGKILL);
    }
}

static shared *new_shared(void)
{
    shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (s == MAP_FAILED)
        exit(1);
    return s;
}

/* ---- deaths ---- */

/* Without what a sanitizer puts into _exit(), a pause of a second for instance. */
static void end_now(int status)
{
    syscall(SYS_exit_group, status);
}

static void die_killed(rank_env *e)
{
    (void)e;
    raise(SIGKILL);
}

static void die_of_abort(rank_env *e)
{
    (void)e;
    signal(SIGABRT, SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    kill(getpid(), SIGABRT);
    ls_sleep_ns(1000 * (int64_t)MS);
}

static void die_exit_0(rank_env *e)
{
    (void)e;
    end_now(0);
}

static void die_exit_3(rank_env *e)
{
    (void)e;
    end_now(3);
}

/* A child of it keeps the sockets open. */
static void die_with_heir(rank_env *e)
{
    pid_t heir = fork();

    if (heir == 0) {
        for (;;)
            pause();
    }
    atomic_store(&e->shared->helper, (int)heir);
    end_now(0);
}

static void record_running(rank_env *e)
{
    ls_descriptor what = all_reduce(17);

    ls_record_start(
        ls_recorder_add(ls_board_recorder(e->board, e->rank), &what, WORLD_ID, RANKS, 4000));
}

static void record_done(rank_env *e)
{
    ls_descriptor what = all_reduce(16);
    ls_record    *record =
        ls_recorder_add(ls_board_recorder(e->board, e->rank), &what, WORLD_ID, RANKS, 4000);

    ls_record_start(record);
    ls_record_end(record, LS_OK);
}

static void die_between(rank_env *e)
{
    record_done(e);
    raise(SIGKILL);
}

static void survive(rank_env *e, bool impatient)
{
    const int others[] = {0, 3}, with_dead[] = {2, 3};
    findings *f = &e->shared->of[e->rank];

    wait_for(has_failed, e->world, 5000);
    f->at     = ls_now_ns();
    f->status = ls_guard_check(e->world);
    snprintf(f->text, sizeof f->text, "%s", ls_error_message());
    if (impatient)
        end_now(1);
    ls_sleep_ns(100 * MS); /* the others' ends are goodbyes; nothing may change for them */
    f->apart        = ls_guard_check(e->pair);
    ls_guard *apart = ls_guard_new(e->control, 20, others, 2, NULL, NULL);
    ls_guard *born  = ls_guard_new(e->control, 21, with_dead, 2, NULL, NULL);
    f->left_apart   = ls_guard_check(apart);
    f->born         = ls_guard_check(born);
    snprintf(f->later, sizeof f->later, "%s", ls_error_message());
    ls_guard_free(apart);
    ls_guard_free(born);
    leave(e);
}

static void run_death(rank_env *e, void *context)
{
    const death_row *row  = context;
    ls_descriptor    what = all_reduce(17);

    ls_guard_enter(e->world, &what);
    if (e->rank != 2) {
        survive(e, row->impatient);
        return;
    }
    if (row->records)
        record_running(e);
    ls_sleep_ns(20 * MS);
    e->shared->died_at = ls_now_ns();
    row->die(e);
}

static void judge_survivor(const shared *s, int r, const death_row *row, const char *want)
{
    const findings *f = &s->of[r];

    CHECK(f->status == LS_EPEER);
    CHECK(!strcmp(f->text, want));
    if (strcmp(f->text, want))
        printf("     rank %d: got \"%s\", want \"%s\"\n", r, f->text, want);
    CHECK(f->at - s->died_at < 1000 * (int64_t)MS);
    CHECK(f->wakes > 0);
    if (row->impatient)
        return;
    CHECK(f->reports == 1 && !strcmp(f->told, want));
    CHECK(f->apart == LS_OK && f->left_apart == LS_OK);
    CHECK(f->born == LS_EPEER && !strcmp(f->later, want));
}

static const death_row deaths[] = {
    {"kill -9, board", false, true, true, false, die_killed,
     "was killed by signal 9 (Killed) during all_reduce #17 (F32, sum, count 1000)"},
    {"abort, board, tcp", true, true, true, false, die_of_abort,
     "was killed by signal 6 (Aborted) during all_reduce #17 (F32, sum, count 1000)"},
    {"exit 0, board", false, true, true, false, die_exit_0,
     "exited with status 0 during all_reduce #17 (F32, sum, count 1000)"},
    {"exit 3, board, tcp", true, true, true, false, die_exit_3,
     "exited with status 3 during all_reduce #17 (F32, sum, count 1000)"},
    {"exit 3, nothing recorded", false, true, false, false, die_exit_3,
     "exited with status 3, seen in all_reduce #17 (F32, sum, count 1000)"},
    {"kill -9 between operations", false, true, false, false, die_between,
     "was killed by signal 9 (Killed) after all_reduce #16 (F32, sum, count 1000)"},
    {"kill -9, no board", false, false, false, false, die_killed,
     "is gone: connection closed, seen in all_reduce #17 (F32, sum, count 1000)"},
    {"kill -9, no board, tcp", true, false, false, false, die_killed,
     "is gone: connection closed, seen in all_reduce #17 (F32, sum, count 1000)"},
    {"an heir holds the sockets", false, false, false, false, die_with_heir,
     "is gone: its process ended, seen in all_reduce #17 (F32, sum, count 1000)"},
    {"an heir holds the sockets, board", false, true, true, false, die_with_heir,
     "exited with status 0 during all_reduce #17 (F32, sum, count 1000)"},
    {"survivors exit at once, board", false, true, true, true, die_killed,
     "was killed by signal 9 (Killed) during all_reduce #17 (F32, sum, count 1000)"},
    {"survivors exit at once, no board", false, false, false, true, die_exit_0,
     "is gone: connection closed, seen in all_reduce #17 (F32, sum, count 1000)"},
    {"survivors exit at once, tcp", true, true, true, true, die_exit_3,
     "exited with status 3 during all_reduce #17 (F32, sum, count 1000)"},
};

static void test_death(const death_row *row)
{
    shared   *s     = new_shared();
    ls_board *board = NULL;
    pid_t     pid[RANKS];
    int       status[RANKS];
    char      want[LS_GUARD_TEXT];

    TEST_ROW(row->row);
    if (row->board)
        CHECK_OK(ls_board_new(RANKS, &board));
    start_ranks(s, row->tcp, board, run_death, (void *)(uintptr_t)row, pid);
    reap_ranks(board, pid, status);
    if (atomic_load(&s->helper))
        kill(atomic_load(&s->helper), SIGKILL);
    snprintf(want, sizeof want, "rank 2 (pid %d, host node-7) %s", (int)pid[2], row->how);
    for (int r = 0; r < RANKS; r++) {
        if (r == 2)
            continue;
        CHECK(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == (row->impatient ? 1 : 0));
        judge_survivor(s, r, row, want);
    }
    ls_board_free(board);
    munmap(s, sizeof *s);
}

/* ---- leaving, failing, asking: among processes ---- */

static bool zero_left(void *context)
{
    rank_env *e = context;

    return ls_guard_member_left(e->world, 0);
}

/* Rank 0 leaves first; the others go on, know it, and have no failure. */
static void run_goodbye(rank_env *e, void *context)
{
    (void)context;
    CHECK(!ls_guard_member_left(e->world, 0));
    if (e->rank > 0) {
        CHECK(wait_for(zero_left, e, 5000));
        ls_sleep_ns(150 * MS);
        CHECK_OK(ls_guard_check(e->world));
        CHECK(atomic_load(&e->shared->of[e->rank].wakes) > 0);
        CHECK(atomic_load(&e->shared->of[e->rank].reports) == 0);
    }
    while (e->rank == 0 && !atomic_load(&e->shared->go))
        ls_sleep_ns(MS);
    leave(e);
}

/* Rank 1 fails the group; all members take over its text, and no other group fails. */
static void run_notice(rank_env *e, void *context)
{
    findings *f = &e->shared->of[e->rank];
    char      text[64];

    (void)context;
    if (e->rank == 1) {
        snprintf(text, sizeof text, "rank %d did not come", e->rank);
        CHECK(ls_guard_fail(e->world, LS_ETIMEOUT, text) == LS_ETIMEOUT);
        CHECK(ls_guard_fail(e->world, LS_EMISMATCH, "second") == LS_ETIMEOUT);
        CHECK(!strcmp(ls_error_message(), text));
    }
    CHECK(wait_for(has_failed, e->world, 5000));
    f->status = ls_guard_check(e->world);
    snprintf(f->text, sizeof f->text, "%s", ls_error_message());
    ls_sleep_ns(100 * MS);
    CHECK(atomic_load(&f->reports) == 1 && !strcmp(f->told, f->text));
    CHECK_OK(ls_guard_check(e->pair));
    leave(e);
}

static bool two_answered(void *context)
{
    rank_env *e = context;

    return ls_guard_answered(e->world, 2).asked && ls_guard_answered(e->world, 3).asked;
}

/* Rank 1 is stopped, rank 2 computes, rank 3 has left the operation. */
static void run_ask(rank_env *e, void *context)
{
    ls_descriptor what = all_reduce(4);
    ls_descriptor pair = {.sequence = 9, .kind = LS_SEND};

    (void)context;
    ls_guard_enter(e->world, &what);
    if (e->rank == 3)
        ls_guard_leave(e->world, 4);
    if (e->rank == 3) {
        ls_guard_enter(e->world, &pair);
        ls_guard_leave(e->world, 9);
    }
    atomic_fetch_add(&e->shared->go, 1);
    if (e->rank == 1)
        raise(SIGSTOP);
    if (e->rank == 0) {
        while (atomic_load(&e->shared->go) < RANKS)
            ls_sleep_ns(MS);
        ls_sleep_ns(50 * MS);
        uint64_t number = ls_guard_ask(e->world);
        CHECK(wait_for(two_answered, e, 5000));
        ls_sleep_ns(100 * MS);
        ls_guard_answer got[RANKS];
        for (int r = 0; r < RANKS; r++)
            got[r] = ls_guard_answered(e->world, r);
        CHECK(got[0].asked == number && got[0].entered == 4 && got[0].left == 0);
        CHECK(got[1].asked == 0);
        CHECK(got[2].asked == number && got[2].entered == 4 && got[2].left == 0);
        CHECK(got[3].asked == number && got[3].entered == 4 && got[3].left == 4);
        CHECK(atomic_load(&e->shared->of[0].wakes) >= 2);
        atomic_store(&e->shared->helper, 1);
    }
    while (!atomic_load(&e->shared->helper))
        ; /* computes */
    CHECK_OK(ls_guard_check(e->world));
    leave(e);
}

static void test_among_ranks(const char *row, bool tcp, void (*body)(rank_env *, void *),
                             shared *s, bool stops)
{
    pid_t pid[RANKS];
    int   status[RANKS];

    TEST_ROW(row);
    start_ranks(s, tcp, NULL, body, NULL, pid);
    if (stops) {
        for (int64_t end = in_ms(10000); !atomic_load(&s->helper) && ls_now_ns() < end;)
            ls_sleep_ns(MS);
        atomic_store(&s->helper, 1);
        kill(pid[1], SIGCONT);
    }
    if (!stops) {
        ls_sleep_ns(20 * MS);
        atomic_store(&s->go, 1);
    }
    reap_ranks(NULL, pid, status);
    for (int r = 0; r < RANKS; r++)
        CHECK(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == 0);
}

static void test_processes(void)
{
    for (size_t i = 0; i < sizeof deaths / sizeof *deaths; i++)
        test_death(&deaths[i]);
    for (int tcp = 0; tcp < 2; tcp++) {
        shared *s = new_shared();
        test_among_ranks("rank 0 leaves first", tcp, run_goodbye, s, false);
        munmap(s, sizeof *s);
        s = new_shared();
        test_among_ranks("one text for all", tcp, run_notice, s, false);
        for (int r = 0; r < RANKS; r++)
            CHECK(s->of[r].status == LS_ETIMEOUT && !strcmp(s->of[r].text, s->of[1].text));
        munmap(s, sizeof *s);
        s = new_shared();
        test_among_ranks("stopped, busy, done", tcp, run_ask, s, true);
        munmap(s, sizeof *s);
    }
}

/* ---- one rank and a wire ---- */

typedef struct {
    ls_control *control;
    int         wire[2]; /* the test's ends of the connections to ranks 1 and 2 */
    findings    of;
    ls_guard   *guard; /* ranks 0 and 1 */
} wired;

static void put(int fd, const void *data, size_t bytes)
{
    CHECK(send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
}

/* A test that finds nothing to read fails, it does not wait. */
static void set_patience(int fd)
{
    struct timeval limit = {.tv_sec = 5};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static void wire_up_with(wired *w, bool tcp, ls_board *board)
{
    int      sockets[3] = {-1, -1, -1};
    ls_hello all[3], mine = hello_of(0);

    *w = (wired){0};
    for (int i = 0; i < 2; i++) {
        int fd[2];
        CHECK(pair_of(tcp, fd));
        set_patience(fd[1]);
        sockets[1 + i]  = fd[0];
        w->wire[i]      = fd[1];
        ls_hello theirs = hello_of(1 + i);
        put(w->wire[i], &theirs, sizeof theirs);
    }
    CHECK_OK(ls_control_new(0, 3, sockets, board, &w->control));
    CHECK_OK(ls_control_hello(w->control, &mine, all, in_ms(5000)));
    for (int i = 0; i < 2; i++)
        CHECK(recv(w->wire[i], &all[0], sizeof all[0], MSG_WAITALL) == sizeof all[0]);
}

static void wire_up(wired *w)
{
    wire_up_with(w, false, NULL);
}

static void wire_start(wired *w)
{
    const int both[] = {0, 1};

    CHECK_OK(ls_control_start(w->control, note_report, &w->of));
    w->guard = ls_guard_new(w->control, WORLD_ID, both, 2, count_wake, &w->of.wakes);
    CHECK(w->guard != NULL);
}

static void wire_down(wired *w)
{
    ls_guard_free(w->guard);
    ls_control_free(w->control);
    close(w->wire[0]);
    close(w->wire[1]);
}

static ls__frame frame_of(ls__frame_kind kind, uint64_t group)
{
    return (ls__frame){.magic   = LS__FRAME_MAGIC,
                       .kind    = kind,
                       .group   = group,
                       .status  = LS_ETIMEOUT,
                       .culprit = 2};
}

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

/* ---- the blocking phase ---- */

static void test_hello_errors(void)
{
    static const struct {
        const char *row;
        size_t      bytes; /* of a hello, that rank 2 sends */
        bool        closes;
        uint64_t    version;
        ls_status   status;
        const char *text;
    } rows[] = {
        {"silence", 0, false, 1, LS_ETIMEOUT, "rank 2 did not send its hello in time"},
        {"half a hello", 100, false, 1, LS_ETIMEOUT, "rank 2 did not send its hello in time"},
        {"half a hello and the end", 100, true, 1, LS_EPEER,
         "rank 2 is gone before its hello came"},
        {"another version", sizeof(ls_hello), false, 9, LS_EMISMATCH,
         "rank 2 says hello in version 9, rank 0 in 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int      a[2] = {-1, -1}, b[2] = {-1, -1}, sockets[3] = {-1, -1, -1};
        ls_hello mine = hello_of(0), theirs = hello_of(2), all[3];

        TEST_ROW(rows[i].row);
        CHECK(pair_of(false, a) && pair_of(false, b));
        sockets[1]    = a[0];
        sockets[2]    = b[0];
        ls_control *c = NULL;
        CHECK_OK(ls_control_new(0, 3, sockets, NULL, &c));
        put(a[1], &theirs, sizeof theirs);
        theirs.version = rows[i].version;
        put(b[1], &theirs, rows[i].bytes);
        if (rows[i].closes)
            shutdown(b[1], SHUT_WR);
        CHECK_FAILS(ls_control_hello(c, &mine, all, in_ms(60)), rows[i].status, rows[i].text);
        ls_control_free(c);
        close(a[1]);
        close(b[1]);
    }
}

static void test_hello_texts(void)
{
    int         fd[2], sockets[2] = {-1, -1};
    ls_hello    mine = hello_of(0), all[2], theirs;
    ls_control *c    = NULL;
    char        text[160];

    TEST_ROW("a hello whose texts do not end");
    CHECK(pair_of(false, fd));
    sockets[1] = fd[0];
    CHECK_OK(ls_control_new(0, 2, sockets, NULL, &c));
    memset(&theirs, 'x', sizeof theirs);
    theirs.version = LS_HELLO_VERSION;
    theirs.host[0] = '\033';
    put(fd[1], &theirs, sizeof theirs);
    CHECK_OK(ls_control_hello(c, &mine, all, in_ms(5000)));
    CHECK(strlen(all[1].host) == sizeof all[1].host - 1 && all[1].host[0] == '?');
    CHECK(strlen(all[1].identity) < sizeof all[1].identity);
    CHECK(strlen(all[1].config) < sizeof all[1].config);
    CHECK(strlen(all[1].fingerprint) < sizeof all[1].fingerprint);
    CHECK(strlen(all[1].address) < sizeof all[1].address);
    CHECK(!memcmp(&all[0], &mine, sizeof mine));
    CHECK(strstr(ls__control_name(c, 1, text, sizeof text), "host ?xxx") != NULL);
    ls_control_free(c);
    close(fd[1]);
}

static bool same_file(int a, int b)
{
    struct stat x, y;

    return !fstat(a, &x) && !fstat(b, &y) && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static void send_mark(int fd, int file)
{
    union {
        char           bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr header;
    } a                    = {.bytes = {0}};
    const int     files[2] = {file, file};
    struct iovec  iov      = {(char[]){'d'}, 1};
    struct msghdr m        = {.msg_iov        = &iov,
                              .msg_iovlen     = 1,
                              .msg_control    = a.bytes,
                              .msg_controllen = sizeof a.bytes};
    a.header.cmsg_level    = SOL_SOCKET;
    a.header.cmsg_type     = SCM_RIGHTS;
    a.header.cmsg_len      = CMSG_LEN(sizeof files);
    memcpy(CMSG_DATA(&a.header), files, sizeof files);
    CHECK(sendmsg(fd, &m, 0) == 1);
}

/* The peer has sent its hello in pieces, its descriptor (twice), and a frame, all at once. */
static void test_boundaries(void)
{
    int         fd[2], sockets[2] = {-1, -1}, fds[2], file = memfd_create("test", 0);
    ls_hello    mine = hello_of(0), theirs = hello_of(1), all[2];
    ls_control *c         = NULL;
    const bool  wanted[2] = {false, true};
    const int   both[]    = {0, 1};
    int         before    = open_fds();

    TEST_ROW("messages of the next phase stay where they are");
    CHECK(pair_of(false, fd));
    sockets[1] = fd[0];
    for (size_t i = 0; i < sizeof theirs; i += 48)
        put(fd[1], (char *)&theirs + i, i + 48 < sizeof theirs ? 48 : sizeof theirs - i);
    send_mark(fd[1], file);
    ls__frame f = frame_of(LS__NOTICE, WORLD_ID);
    snprintf(f.text, sizeof f.text, "early");
    put(fd[1], &f, sizeof f);
    CHECK_OK(ls_control_new(0, 2, sockets, NULL, &c));
    CHECK_OK(ls_control_hello(c, &mine, all, in_ms(5000)));
    CHECK(all[1].token[0] == 1000 && ls_control_peer(c, 1)->token[0] == 1000);
    CHECK_OK(ls_control_pass(c, file, wanted, fds, in_ms(5000)));
    CHECK(fds[0] == -1 && same_file(fds[1], file));
    close(fds[1]);
    CHECK_OK(ls_control_start(c, NULL, NULL));
    ls_guard *g = ls_guard_new(c, WORLD_ID, both, 2, NULL, NULL);
    CHECK(wait_for(has_failed, g, 5000));
    CHECK_FAILS(ls_guard_check(g), LS_ETIMEOUT, "early");
    ls_guard_free(g);
    ls_control_free(c);
    close(fd[1]);
    CHECK(open_fds() == before);
    close(file);
}

static void test_pass_errors(void)
{
    const bool wanted[3] = {false, true, true};
    wired      w;
    int        fds[3], before, file = memfd_create("test", 0);

    TEST_ROW("a descriptor that does not come");
    before = open_fds();
    wire_up(&w);
    send_mark(w.wire[0], file);
    CHECK_FAILS(ls_control_pass(w.control, file, wanted, fds, in_ms(50)), LS_ETIMEOUT,
                "rank 2 (pid ");
    CHECK(fds[1] == -1 && fds[2] == -1);
    wire_down(&w);
    CHECK(open_fds() == before);
    TEST_ROW("something else than a descriptor");
    wire_up(&w);
    send_mark(w.wire[0], file);
    put(w.wire[1], "?", 1);
    CHECK_FAILS(ls_control_pass(w.control, file, wanted, fds, in_ms(5000)), LS_EMISMATCH,
                "rank 2 sent something else");
    wire_down(&w);
    CHECK(open_fds() == before);
    close(file);
}

/* ---- ranks as threads ---- */

typedef struct {
    int        n, rank, *sockets;
    bool       tcp;
    const int *files; /* [n], of which each passes its own; NULL: none */
    int        failures;
} thread_rank;

static void check_thread(thread_rank *t, bool ok)
{
    t->failures += !ok;
}

static void pass_files(thread_rank *t, ls_control *c)
{
    bool wanted[64];
    int  fds[64];

    for (int r = 0; r < t->n; r++)
        wanted[r] = (r + t->rank) % 3 != 0;
    check_thread(t, ls_control_pass(c, t->files[t->rank], wanted, fds, in_ms(20000)) == LS_OK);
    for (int r = 0; r < t->n; r++) {
        bool due = r != t->rank && wanted[r] && !t->tcp;
        check_thread(t, due ? same_file(fds[r], t->files[r]) : fds[r] == -1);
        if (fds[r] >= 0)
            check_thread(t, fcntl(fds[r], F_GETFD) == FD_CLOEXEC);
        if (fds[r] >= 0)
            close(fds[r]);
    }
}

static void *run_thread(void *context)
{
    thread_rank *t    = context;
    ls_hello     mine = hello_of(t->rank), *all = calloc((size_t)t->n, sizeof *all);
    ls_control  *c = NULL;
    char         text[64];

    check_thread(t,
                 ls_control_new(t->rank, t->n, t->sockets + t->rank * t->n, NULL, &c) == LS_OK);
    check_thread(t, ls_control_hello(c, &mine, all, in_ms(20000)) == LS_OK);
    for (int r = 0; r < t->n; r++)
        check_thread(t, all[r].token[0] == (uint64_t)r * 1000);
    if (t->files)
        pass_files(t, c);
    for (int r = 0; r < t->n; r++)
        check_thread(t, !strcmp(ls_control_address(c, r, text),
                                t->tcp && r != t->rank ? "127.0.0.1" : ""));
    check_thread(t, ls_control_rank(c) == t->rank && ls_control_world(c) == t->n);
    check_thread(t, ls_control_start(c, NULL, NULL) == LS_OK);
    ls_control_free(c);
    free(all);
    return NULL;
}

static void run_threads(int n, bool tcp, const int *files)
{
    int        *sockets = mesh(n, tcp);
    thread_rank rank[64];
    pthread_t   thread[64];

    for (int r = 0; r < n; r++) {
        rank[r] =
            (thread_rank){.n = n, .rank = r, .sockets = sockets, .tcp = tcp, .files = files};
        CHECK(!pthread_create(&thread[r], NULL, run_thread, &rank[r]));
    }
    for (int r = 0; r < n; r++) {
        pthread_join(thread[r], NULL);
        CHECK(rank[r].failures == 0);
    }
    free(sockets);
}

static void test_threads(void)
{
    static const struct {
        const char *row;
        int         n;
        bool        tcp, passes;
    } rows[] = {
        {"1 rank", 1, false, true},      {"2 ranks", 2, false, true},
        {"2 ranks, tcp", 2, true, true}, {"8 ranks", 8, false, true},
        {"8 ranks, tcp", 8, true, true}, {"32 ranks", 32, false, false},
    };
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int files[64];
        TEST_ROW(rows[i].row);
        int before = open_fds();
        for (int r = 0; r < rows[i].n; r++)
            files[r] = memfd_create("test", 0);
        run_threads(rows[i].n, rows[i].tcp, rows[i].passes ? files : NULL);
        for (int r = 0; r < rows[i].n; r++)
            close(files[r]);
        CHECK(open_fds() == before);
    }
    TEST_ROW("200 cycles");
    int before = open_fds();
    for (int i = 0; i < 200; i++)
        run_threads(2, i % 2, NULL);
    CHECK(open_fds() == before);
}

static void test_new_errors(void)
{
    int         before = open_fds(), sockets[3] = {-1, -1, -1}, fd[2], file[2];
    ls_control *c = NULL;

    TEST_ROW("no connection");
    CHECK(pair_of(false, fd));
    sockets[1] = fd[0];
    CHECK_FAILS(ls_control_new(0, 3, sockets, NULL, &c), LS_EINVAL,
                "rank 0: no control connection to rank 2");
    CHECK(!c && fcntl(fd[0], F_GETFD) < 0);
    close(fd[1]);
    TEST_ROW("no socket");
    CHECK(!pipe(file));
    CHECK_FAILS(ls_control_new(0, 2, (int[]){-1, file[0]}, NULL, &c), LS_EINVAL, "rank 1");
    close(file[1]);
    TEST_ROW("no memory");
    for (int n = 0; n < 4; n++) {
        CHECK(pair_of(false, fd));
        ls_alloc_fail_after(n);
        CHECK(ls_control_new(0, 2, (int[]){-1, fd[0]}, NULL, &c) == LS_ENOMEM && !c);
        ls_alloc_fail_after(-1);
        close(fd[1]);
    }
    CHECK(open_fds() == before);
    ls_control_free(NULL);
    ls_guard_free(NULL);
}

int main(void)
{
    test_new_errors();
    test_hello_errors();
    test_hello_texts();
    test_boundaries();
    test_pass_errors();
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
    test_threads();
    test_processes();
    return test_summary("control");
}

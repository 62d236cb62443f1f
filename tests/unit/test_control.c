#define _GNU_SOURCE /* memfd_create, to have descriptors to pass: Linux's own */
/*
 * test_control.c - hellos and descriptors over control connections: the phase in which a rank
 * waits for the others.
 *
 * Ranks are threads; or one rank has wires (control_ends.h).  Next to this one:
 * test_control_wire.c for what comes later, test_control_deaths.c for ranks that die.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "control_ends.h"
#include "core/alloc.h"

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
    test_threads();
    return test_summary("control");
}

/*
 * control_ends.h - ends of control connections, for the tests of control*.c.
 *
 * Sockets, meshes of them, what a rank's hooks were told (`findings`), and a rank whose two
 * peers are "wires": the test itself writes their bytes, right and wrong ones.
 */
#ifndef LS_TESTS_CONTROL_ENDS_H
#define LS_TESTS_CONTROL_ENDS_H

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

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
static inline bool tcp_pair(int fd[2])
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

static inline bool pair_of(bool tcp, int fd[2])
{
    return tcp ? tcp_pair(fd) : !socketpair(AF_UNIX, SOCK_STREAM, 0, fd);
}

/* socket[a * n + b] is a's end of the connection to b. */
static inline int *mesh(int n, bool tcp)
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

static inline ls_hello hello_of(int rank)
{
    ls_hello h = {.version = LS_HELLO_VERSION, .pid = getpid(), .host = "node-7"};

    h.token[0] = (uint64_t)rank * 1000;
    return h;
}

static inline int open_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- what was found ---- */

/* What a rank found, for the parent to judge. */
typedef struct {
    char       text[LS_GUARD_TEXT], told[LS_GUARD_TEXT], later[LS_GUARD_TEXT];
    ls_status  status, apart, born, left_apart;
    atomic_int reports, wakes, ready;
    int64_t    at; /* ls_now_ns() when it saw the failure */
} findings;

static inline void count_wake(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

static inline void note_report(void *context, const char *text)
{
    findings *f = context;

    snprintf(f->told, sizeof f->told, "%s", text);
    atomic_fetch_add(&f->reports, 1);
}

static inline bool wait_for(bool (*is_so)(void *context), void *context, int ms)
{
    for (int64_t end = in_ms(ms); ls_now_ns() < end; ls_sleep_ns(MS))
        if (is_so(context))
            return true;
    return is_so(context);
}

static inline bool has_failed(void *guard)
{
    return ls_guard_failed(guard);
}

static inline ls_descriptor all_reduce(uint64_t sequence)
{
    ls_call call = {.kind = LS_ALL_REDUCE, .count = 1000, .dtype = LS_F32, .op = LS_SUM};

    return ls_descriptor_of(&call, RANKS, sequence, LS_AUTO);
}

/* ---- one rank and a wire ---- */

typedef struct {
    ls_control *control;
    int         wire[2]; /* the test's ends of the connections to ranks 1 and 2 */
    findings    of;
    ls_guard   *guard; /* ranks 0 and 1 */
} wired;

static inline void put(int fd, const void *data, size_t bytes)
{
    CHECK(send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
}

/* A test that finds nothing to read fails, it does not wait. */
static inline void set_patience(int fd)
{
    struct timeval limit = {.tv_sec = 5};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static inline void wire_up_with(wired *w, bool tcp, ls_board *board)
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

static inline void wire_up(wired *w)
{
    wire_up_with(w, false, NULL);
}

static inline void wire_start(wired *w)
{
    const int both[] = {0, 1};

    CHECK_OK(ls_control_start(w->control, note_report, &w->of));
    w->guard = ls_guard_new(w->control, WORLD_ID, both, 2, count_wake, &w->of.wakes);
    CHECK(w->guard != NULL);
}

static inline void wire_down(wired *w)
{
    ls_guard_free(w->guard);
    ls_control_free(w->control);
    close(w->wire[0]);
    close(w->wire[1]);
}

static inline ls__frame frame_of(ls__frame_kind kind, uint64_t group)
{
    return (ls__frame){.magic   = LS__FRAME_MAGIC,
                       .kind    = kind,
                       .group   = group,
                       .status  = LS_ETIMEOUT,
                       .culprit = 2};
}

#endif

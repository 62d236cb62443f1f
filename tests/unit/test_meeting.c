/*
 * test_meeting.c - the rendezvous of three ranks, as threads: every pair ends up with one
 * connection of its own, and no memory at any point ends in an error, with all sockets closed.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/rendezvous.h"
#include "dist/comm/transport_tcp.h"
#include "test.h"

enum { WORLD = 3 };

typedef struct {
    ls_launch_env env;
    double        timeout_s;
    int64_t       fail_after; /* allocations; -1: none fails */
    int           sockets[WORLD];
    char          address[64];
    ls_status     status;
    bool          was_out; /* of memory */
} rank;

static void *meet(void *context)
{
    rank              *r    = context;
    ls_rendezvous_opts opts = {.timeout_s = r->timeout_s};

    ls_alloc_fail_after(r->fail_after);
    r->status = ls_rendezvous(&r->env, &opts, r->sockets, r->address);
    /* the failure that was set up has come if the next allocation does not */
    void *next = ls_calloc(1, 1);
    for (int i = 0; next && i < 200; i++) {
        free(next);
        next = ls_calloc(1, 1);
    }
    r->was_out = next != NULL;
    free(next);
    ls_alloc_fail_after(-1);
    return NULL;
}

static int count_fds(void)
{
    int  n      = 0;
    DIR *folder = opendir("/proc/self/fd");

    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}

/* A free port of loopback. */
static int free_port(void)
{
    ls_tcp_listener l;

    CHECK_OK(ls_tcp_listen("127.0.0.1", 0, 0, &l));
    int port = (int)l.port;
    ls_tcp_listener_close(&l);
    return port;
}

static void run(rank *ranks, int port, double timeout_s, int victim, int64_t fail_after)
{
    pthread_t threads[WORLD];

    for (int r = 0; r < WORLD; r++) {
        ranks[r] = (rank){.env        = {.rank        = r,
                                         .world       = WORLD,
                                         .local_rank  = -1,
                                         .local_world = -1,
                                         .master      = "127.0.0.1",
                                         .port        = port,
                                         .launcher    = "environment"},
                          .timeout_s  = timeout_s,
                          .fail_after = r == victim ? fail_after : -1};
        snprintf(ranks[r].env.run_id, sizeof ranks[r].env.run_id, "test %ld", (long)getpid());
        CHECK(pthread_create(&threads[r], NULL, meet, &ranks[r]) == 0);
    }
    for (int r = 0; r < WORLD; r++)
        pthread_join(threads[r], NULL);
}

static void close_all(rank *ranks)
{
    for (int r = 0; r < WORLD; r++)
        for (int q = 0; q < WORLD; q++)
            if (!ranks[r].status && ranks[r].sockets[q] >= 0)
                close(ranks[r].sockets[q]);
}

/* A byte from each to each arrives where it should. */
static void check_pairs(rank *ranks)
{
    for (int r = 0; r < WORLD; r++) {
        CHECK(ranks[r].sockets[r] == -1 && ranks[r].address[0] == '\0');
        for (int q = 0; q < WORLD; q++) {
            char byte = (char)(10 * r + q);
            if (q != r)
                CHECK(send(ranks[r].sockets[q], &byte, 1, MSG_NOSIGNAL) == 1);
        }
    }
    for (int r = 0; r < WORLD; r++)
        for (int q = 0; q < WORLD; q++) {
            char byte = 0;
            if (q != r)
                CHECK(recv(ranks[q].sockets[r], &byte, 1, 0) == 1 && byte == 10 * r + q);
        }
}

static void check_meeting(int port)
{
    rank ranks[WORLD];

    run(ranks, port, 20, -1, -1);
    bool well = true;
    for (int r = 0; r < WORLD; r++)
        well = CHECK(ranks[r].status == LS_OK) && well;
    if (well)
        check_pairs(ranks);
    close_all(ranks);
}

static void check_memory(int port, int victim)
{
    int  fds = count_fds();
    bool ran = true;

    for (int64_t n = 0; ran && n < 100; n++) {
        rank ranks[WORLD];
        run(ranks, port, 0.2, victim, n);
        ran = ranks[victim].was_out;
        CHECK(ran || ranks[victim].status == LS_OK);
        CHECK(ranks[victim].status == LS_OK || ranks[victim].status == LS_ENOMEM ||
              ranks[victim].status == LS_EPEER || ranks[victim].status == LS_ETIMEOUT);
        for (int r = 0; r < WORLD; r++)
            for (int q = 0; q < WORLD; q++)
                CHECK(!ranks[r].status || ranks[r].sockets[q] == -1);
        close_all(ranks);
        CHECK(count_fds() == fds);
    }
    CHECK(!ran); /* there was an n without a failure: all places have been seen */
}

int main(void)
{
    static const char *const ways[] = {"", "a secret"};

    for (int w = 0; w < 2; w++) {
        int port = free_port();
        setenv("LOCKSTEP_SECRET", ways[w], 1);
        TEST_ROW(w ? "by TCP" : "by a Unix socket");
        check_meeting(port);
        TEST_ROW(w ? "by TCP, out of memory" : "by a Unix socket, out of memory");
        for (int victim = 0; victim < WORLD; victim++)
            check_memory(port, victim);
    }
    return test_summary("meeting");
}

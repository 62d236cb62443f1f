/*
 * test_local_world.c - a world that a program makes itself: how its ranks end, and what of that
 * is told; nothing stays behind.
 */
#include "dist/comm/local_world.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "test.h"

typedef struct {
    const char   *name, *backend;
    int           n;
    ls_local_body body;
    ls_status     status;
    const char   *text; /* of the message */
} row;

static ls_status sum_ranks(ls_comm *world, void *context)
{
    int32_t   one = ls_comm_rank(world) + 1, sum = 0, n = ls_comm_size(world);
    ls_status status = ls_comm_all_reduce(world, &sum, &one, 1, LS_I32, LS_SUM);

    (void)context;
    if (!status && sum != n * (n + 1) / 2)
        status = ls_fail(LS_EINVAL, "the sum is %d", (int)sum);
    return status;
}

static ls_status one_refuses(ls_comm *world, void *context)
{
    (void)context;
    if (ls_comm_rank(world) == 1)
        return ls_fail(LS_EUNSUPPORTED, "not on a Sunday");
    return LS_OK;
}

static ls_status one_is_killed(ls_comm *world, void *context)
{
    (void)context;
    if (ls_comm_rank(world) == 1)
        raise(SIGKILL);
    return ls_comm_barrier(world);
}

static ls_status one_leaves(ls_comm *world, void *context)
{
    (void)context;
    if (ls_comm_rank(world) == 0)
        _exit(0);
    return LS_OK;
}

/* The others' time is over before it goes on. */
static ls_status one_stops(ls_comm *world, void *context)
{
    (void)context;
    if (ls_comm_rank(world) == 1)
        raise(SIGSTOP);
    return ls_comm_barrier(world);
}

static const row rows[] = {
    {"shm", "shm", 4, sum_ranks, LS_OK, ""},
    {"tcp", "tcp", 3, sum_ranks, LS_OK, ""},
    {"threads", "threads", 4, sum_ranks, LS_OK, ""},
    {"as it comes", NULL, 2, sum_ranks, LS_OK, ""},
    {"one rank", "shm", 1, sum_ranks, LS_OK, ""},
    {"more than cores", "shm", 20, sum_ranks, LS_OK, ""},
    {"a rank fails", "shm", 3, one_refuses, LS_EUNSUPPORTED, "rank 1: not on a Sunday"},
    {"a thread fails", "threads", 2, one_refuses, LS_EUNSUPPORTED, "rank 1: not on a Sunday"},
    {"a rank is killed", "shm", 3, one_is_killed, LS_EPEER, "killed by signal 9"},
    {"a rank is killed, tcp", "tcp", 2, one_is_killed, LS_EPEER, "killed by signal 9"},
    {"a rank leaves", "shm", 2, one_leaves, LS_EPEER, "rank 0: left with 0 before its end"},
    {"a rank stops", "shm", 2, one_stops, LS_ETIMEOUT, "rank 1"},
    {"no such backend", "pigeon", 2, sum_ranks, LS_ECONFIG, "pigeon"},
    {"no ranks", "shm", 0, sum_ranks, LS_ECONFIG, "0 ranks"},
    {"fewer than none", "shm", -1, sum_ranks, LS_ECONFIG, "-1 ranks"},
    {"too many", "shm", 1 << 20, sum_ranks, LS_ECONFIG, "1048576 ranks"},
};

static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int  n      = 0;

    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}

/* No child is left, running or unreaped. */
static bool is_childless(void)
{
    return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;
}

static ls_local_opts opts_of(const row *r)
{
    return (ls_local_opts){r->n, {.backend = r->backend, .timeout_s = 2}};
}

static void run_row(const row *r)
{
    ls_local_opts opts   = opts_of(r);
    int           before = open_files();

    TEST_ROW(r->name);
    if (r->status)
        CHECK_FAILS(ls_local_world(&opts, r->body, NULL), r->status, r->text);
    else
        CHECK_OK(ls_local_world(&opts, r->body, NULL));
    CHECK(open_files() == before);
    CHECK(is_childless());
}

/* Whichever of this process's allocations fails. */
static void run_out_of_memory(void)
{
    enum { OF_THE_PARENT = 4 };
    ls_local_opts opts   = {2, {.backend = "shm", .timeout_s = 2}};
    int           before = open_files();

    TEST_ROW("out of memory");
    for (int n = 0; n < OF_THE_PARENT; n++) {
        ls_alloc_fail_after(n);
        CHECK(ls_local_world(&opts, sum_ranks, NULL) == LS_ENOMEM);
        ls_alloc_fail_after(-1);
        CHECK(open_files() == before && is_childless());
    }
}

/* Another child of this process is none of its business. */
static void leave_other_children(void)
{
    ls_local_opts opts   = {2, {.backend = "shm"}};
    pid_t         other  = fork();
    int           status = 0;

    TEST_ROW("another child");
    if (other == 0)
        _exit(7);
    ls_sleep_ns(10000000);
    CHECK_OK(ls_local_world(&opts, sum_ranks, NULL));
    CHECK(waitpid(other, &status, 0) == other && WEXITSTATUS(status) == 7);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_row(&rows[i]);
    run_out_of_memory();
    leave_other_children();
    return test_summary("local_world");
}

/*
 * test_fork.c - a rank forks a child after the join, as a data loader is forked.
 *
 * The child may not use the group and is told so; whatever it does then (leaves by exit() with
 * the group freed or not, is killed, lives on), the parent and the other ranks go on.
 */
#include "outcome.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SUMS = 100 };

typedef enum { EXITS, FREES, IS_KILLED, LIVES_ON, WAYS } way;

static const char *const way_name[] = {"exits", "frees and exits", "is killed", "lives on"};

/* Refused, one way and the other; returns whether it was. */
static bool is_refused(ls_comm *world)
{
    ls_comm  *group = NULL;
    ls_work  *work  = NULL;
    ls_call   c     = {.kind = LS_BARRIER};
    ls_status run = ls_comm_barrier(world), start = ls_comm_start(world, &c, &work);
    ls_status split = ls_comm_split(world, 0, 0, &group), check = ls_comm_check(world);
    bool      named = strstr(ls_error_message(), "forked child") != NULL;

    ls_comm_abort(world, "this is no member");
    return run == LS_ESTATE && start == LS_ESTATE && split == LS_ESTATE && check == LS_ESTATE &&
           !work && !group && named && !ls_comm_alloc(world, 64);
}

static void child(ls_comm *world, way how)
{
    bool refused = is_refused(world);

    if (how == FREES)
        ls_comm_free(world);
    if (how == IS_KILLED)
        raise(SIGKILL);
    if (how == LIVES_ON)
        ls_sleep_ns(500 * MS);
    if (how == EXITS) /* with what the program has registered */
        exit(refused ? 0 : 1);
    _exit(refused ? 0 : 1);
}

static void sums(ls_comm *world)
{
    for (int i = 0; i < SUMS; i++) {
        float x = 1;
        CHECK_OK(ls_comm_all_reduce(world, &x, &x, 1, LS_F32, LS_SUM));
        CHECK(x == (float)ls_comm_size(world));
    }
}

static void body(ls_comm *world, void *context)
{
    const way *how = context;
    int        status;

    sums(world);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        child(world, *how);
    CHECK(pid > 0);
    sums(world);
    if (*how != LIVES_ON) {
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(*how == IS_KILLED ? WIFSIGNALED(status) : status == 0);
    }
    ls_sleep_ns(50 * MS); /* for a watch thread that takes the child's end for the parent's */
    sums(world);
    CHECK_OK(ls_comm_check(world));
}

int main(int argc, char **argv)
{
    const char *backends[] = {"shm", "tcp", "mixed"};

    for (int b = 0; b < 3; b++)
        for (int w = EXITS; w < WAYS; w++) {
            way        how  = (way)w;
            ranks_opts opts = {.backend = backends[b], .n = 3};
            if (argc > 1 && strcmp(argv[1], backends[b]))
                continue;
            TEST_ROW(way_name[w]);
            CHECK(ranks_run(&opts, body, &how) == 0);
        }
    return test_summary("fork");
}

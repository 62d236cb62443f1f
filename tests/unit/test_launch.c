#define _GNU_SOURCE /* prctl, to be sure of no orphan */
/*
 * test_launch.c - the launcher as a library: the board, a crashed rank's flight recorder, lines
 * without prefix, addresses, every allocation failing once.
 *
 * The ranks are this program itself: `test_launch rank WHAT`.  What the command does around it
 * is in faults/test_run.py.
 */
#include "dist/comm/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/launch_impl.h"
#include "test.h"

/* ---- the rank ---- */

static int number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

static ls_record *record(ls_board *board, int rank, int sequence)
{
    ls_call       call = {.kind = LS_BROADCAST, .count = 5, .root = 1};
    ls_descriptor d    = ls_descriptor_of(&call, 2, (uint64_t)sequence, LS_TREE);
    ls_record    *r    = ls_recorder_add(ls_board_recorder(board, rank), &d, 7, 2, 20);

    ls_record_start(r);
    return r;
}

/* Rank 1 dies in its 14th operation; rank 0 is ready for it and waits for the news. */
static int rank_dies(ls_board *board, int rank)
{
    ls_record any;
    int       how = 0;

    if (rank == 1) {
        while (!ls_recorder_last(ls_board_recorder(board, 0), &any))
            ls_sleep_ns(1000000);
        for (int i = 100; i < 113; i++)
            ls_record_end(record(board, 1, i), LS_OK);
        record(board, 1, 113);
        raise(SIGKILL);
    }
    signal(SIGTERM, SIG_IGN);
    record(board, 0, 1);
    for (int i = 0; i < 1000 && !ls_board_how_ended(board, 1, &how); i++)
        ls_sleep_ns(1000000);
    printf("rank 1 ended with %d\n", how);
    return 0;
}

static int rank_speaks(int rank)
{
    printf("out %d\n", rank);
    fprintf(stderr, "err %d\n", rank);
    return 0;
}

/* As the command does: says why, and leaves with 1. */
static int rank_fails(int rank)
{
    if (rank == 0)
        fprintf(stderr, "lockstep: error: my own words\n");
    return rank == 0;
}

static int rank_main(const char *what)
{
    ls_board *board = NULL;
    int       rank  = number("RANK"), code;

    if (ls_board_open(number("LOCKSTEP_BOARD_FD"), &board))
        return 99;
    if (ls_board_world(board) != number("WORLD_SIZE"))
        return 98;
    code = !strcmp(what, "die")     ? rank_dies(board, rank)
           : !strcmp(what, "speak") ? rank_speaks(rank)
                                    : rank_fails(rank);
    ls_board_free(board);
    return code;
}

/* ---- the launcher ---- */

typedef struct {
    int  status;
    char out[1 << 16], err[1 << 16];
} outcome;

static void read_back(FILE *file, char *text, size_t size)
{
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

/* n ranks of this program; opts may hold more. */
static ls_status launch(ls_launch_opts opts, int n, const char *what, outcome *o)
{
    char      self[] = "/proc/self/exe";
    char      rank[] = "rank";
    char      word[16];
    char     *argv[4] = {self, rank, word, NULL};
    ls_status status;

    snprintf(word, sizeof word, "%s", what);
    opts.n    = n;
    opts.argv = argv;
    opts.out  = tmpfile();
    opts.err  = tmpfile();
    o->status = -1;
    status    = ls_launch(&opts, &o->status);
    read_back(opts.out, o->out, sizeof o->out);
    read_back(opts.err, o->err, sizeof o->err);
    return status;
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

static void crash_is_told(void)
{
    outcome     o;
    const char *error;

    TEST_ROW("a rank that crashed");
    if (!CHECK_OK(launch((ls_launch_opts){0}, 2, "die", &o)))
        return;
    CHECK(o.status == 128 + SIGKILL);
    CHECK(strstr(o.out, "[0] rank 1 ended with 9\n"));
    CHECK(strstr(o.err, "lockstep: the last operations of rank 1:\n"));
    CHECK(count(o.err, "lockstep:   ") == 10);
    CHECK(!strstr(o.err, "#103") && strstr(o.err, "#104") && strstr(o.err, "#113"));
    CHECK(count(o.err, ": running") == 1);
    error = strstr(o.err, "lockstep: error: rank 1 (pid ");
    CHECK(error && strstr(error, ") was killed by signal 9 (Killed)\n"));
    CHECK(error && strchr(error, '\n')[1] == '\0');
}

static void plain_lines(void)
{
    outcome o;

    TEST_ROW("plain");
    if (!CHECK_OK(launch((ls_launch_opts){.plain = true}, 2, "speak", &o)))
        return;
    CHECK(o.status == 0);
    CHECK(!strcmp(o.out, "out 0\n[1] out 1\n") || !strcmp(o.out, "[1] out 1\nout 0\n"));
    CHECK(!strcmp(o.err, "err 0\n[1] err 1\n") || !strcmp(o.err, "[1] err 1\nerr 0\n"));
    TEST_ROW("plain, a rank that has said why");
    CHECK_OK(launch((ls_launch_opts){.plain = true}, 2, "fail", &o));
    CHECK(o.status == 1 && !strcmp(o.err, "lockstep: error: my own words\n"));
    TEST_ROW("not plain");
    CHECK_OK(launch((ls_launch_opts){0}, 2, "fail", &o));
    CHECK(o.status == 1 && count(o.err, "lockstep: error: ") == 2);
    CHECK(strstr(o.err, "[0] lockstep: error: my own words\nlockstep: error: rank 0 (pid "));
}

static int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  n   = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* Whatever fails: an error or a lost line, nothing open, no child, all as it was. */
static void every_allocation(void)
{
    outcome          o;
    int              files = open_files(), failed = 0, n;
    struct sigaction action;

    TEST_ROW("every allocation fails once");
    for (n = 0; n < 1000; n++) {
        ls_alloc_fail_after(n);
        ls_status status = launch((ls_launch_opts){0}, 2, "speak", &o);
        void     *probe  = ls_calloc(1, 1); /* NULL: the failure was not reached */
        ls_alloc_fail_after(-1);
        free(probe);
        CHECK(status == LS_OK || status == LS_ENOMEM);
        failed += status == LS_ENOMEM;
        if (!probe)
            break;
    }
    CHECK(n > 30 && n < 1000 && failed > 20);
    CHECK(o.status == 0 && strstr(o.out, "out 1\n") && strstr(o.err, "err 1\n"));
    CHECK(open_files() == files);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    CHECK(!sigaction(SIGTERM, NULL, &action) && action.sa_handler == SIG_DFL);
}

/* The third rank finds no descriptors: nothing of the first two is left. */
static void no_descriptors(void)
{
    enum { LIMIT = 90, FREE = 30 };
    struct rlimit before;
    outcome       o;
    int           files = open_files(), held[LIMIT], n = 0;

    TEST_ROW("no descriptors");
    CHECK(!getrlimit(RLIMIT_NOFILE, &before));
    if (!CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){LIMIT, before.rlim_max})))
        return;
    while (n < LIMIT - FREE && (held[n] = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0)
        n++;
    CHECK_FAILS(launch((ls_launch_opts){0}, 10, "speak", &o), LS_EIO,
                "no descriptors for rank");
    while (n > 0)
        close(held[--n]);
    CHECK(open_files() == files);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    TEST_ROW("enough again");
    CHECK_OK(launch((ls_launch_opts){0}, 10, "speak", &o));
    CHECK(o.status == 0);
    CHECK(!setrlimit(RLIMIT_NOFILE, &before));
}

static void one_at_a_time(void)
{
    ls__signals signals;
    outcome     o;

    TEST_ROW("one job at a time");
    if (!CHECK_OK(ls__signals_begin(&signals)))
        return;
    CHECK_FAILS(launch((ls_launch_opts){0}, 1, "speak", &o), LS_ESTATE, "another job");
    ls__signals_end(&signals);
    CHECK_OK(launch((ls_launch_opts){0}, 1, "speak", &o));
}

static void addresses(void)
{
    static const struct {
        const char *text, *host;
        int         port; /* 0: refused */
    } row[] = {{"host:1", "host", 1},
               {"127.0.0.1:65535", "127.0.0.1", 65535},
               {"[::1]:80", "::1", 80},
               {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
               {"host:0", NULL, 0},
               {"host:65536", NULL, 0},
               {"host: 1", NULL, 0},
               {"host:-1", NULL, 0},
               {"host:+1", NULL, 0},
               {"host:", NULL, 0},
               {"host", NULL, 0},
               {"", NULL, 0},
               {":", NULL, 0},
               {":1", NULL, 0},
               {"[]:1", NULL, 0},
               {"::1:80", NULL, 0},
               {"host:99999999999999999999", NULL, 0}};
    char        longest[400];
    ls__address a;

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        TEST_ROW(row[i].text);
        if (!row[i].port) {
            CHECK_FAILS(ls__address_parse(row[i].text, &a), LS_ECONFIG, "--rdzv");
            continue;
        }
        CHECK_OK(ls__address_parse(row[i].text, &a));
        CHECK(!strcmp(a.host, row[i].host) && a.port == row[i].port);
    }
    TEST_ROW("a long host");
    memset(longest, 'h', sizeof longest);
    snprintf(longest + 256, 8, ":1");
    CHECK_FAILS(ls__address_parse(longest, &a), LS_ECONFIG, "HOST:PORT");
    CHECK_OK(ls__address_parse(longest + 1, &a));
}

/* A zombie is nobody; its group without it neither. */
static void groups(void)
{
    pid_t     runs = fork();
    siginfo_t info;

    TEST_ROW("groups");
    if (runs == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    setpgid(runs, runs);
    pid_t zombie = fork();
    if (zombie == 0)
        _exit(0);
    setpgid(zombie, zombie);
    CHECK(!waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT));
    ls__group g[] = {{zombie, true}, {runs, false}, {0x7ffffffe, true}};
    CHECK(ls__groups_living(g, 3) == 1);
    CHECK(!g[0].lives && g[1].lives && !g[2].lives);
    kill(runs, SIGKILL);
    waitpid(runs, NULL, 0);
    waitpid(zombie, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "rank"))
        return rank_main(argv[2]);
    addresses();
    groups();
    crash_is_told();
    plain_lines();
    no_descriptors();
    one_at_a_time();
    every_allocation();
    return test_summary("launch");
}

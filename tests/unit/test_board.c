#define _GNU_SOURCE /* memfd_create, to make files that are not boards */
/*
 * test_board.c - the board between a parent and its ranks, and files that only look like one.
 */
#include "dist/comm/board.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "test.h"

enum { WORLD = 3 };

/* The rank: opens the board by its descriptor, records an operation, and dies in it. */
static void rank_main(int fd, int rank)
{
    ls_board     *board = NULL;
    ls_call       call  = {.kind = LS_BROADCAST, .count = 5, .root = 1};
    ls_descriptor d     = ls_descriptor_of(&call, WORLD, 40 + (uint64_t)rank, LS_TREE);

    if (ls_board_open(fd, &board))
        _exit(99);
    if (ls_board_world(board) != WORLD)
        _exit(98);
    ls_record_start(ls_recorder_add(ls_board_recorder(board, rank), &d, 7, WORLD, 20));
    if (rank == 1)
        raise(SIGKILL);
    ls_board_free(board);
    _exit(rank);
}

static void ranks_die(void)
{
    ls_board *board;
    pid_t     pid[WORLD];
    int       how;
    ls_record last;

    TEST_ROW("ranks that die");
    if (!CHECK_OK(ls_board_new(WORLD, &board)))
        return;
    CHECK(ls_board_world(board) == WORLD);
    CHECK(fcntl(ls_board_fd(board), F_GETFD) & FD_CLOEXEC);
    for (int r = 0; r < WORLD; r++) {
        pid[r] = fork();
        if (pid[r] == 0)
            rank_main(ls_board_fd(board), r);
        CHECK(pid[r] > 0);
    }
    for (int r = 0; r < WORLD; r++) {
        int status;
        CHECK(!ls_board_how_ended(board, r, &how));
        CHECK(waitpid(pid[r], &status, 0) == pid[r]);
        ls_board_ended(board, r, status);
        CHECK(ls_board_how_ended(board, r, &how) && how == status);
        CHECK(r == 1 ? WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL
                     : WIFEXITED(how) && WEXITSTATUS(how) == r);
        CHECK(ls_recorder_last(ls_board_recorder(board, r), &last));
        CHECK(last.what.sequence == 40 + (uint64_t)r && last.state == LS_RECORD_RUNNING);
    }
    ls_board_free(board);
}

static void two_mappings(void)
{
    ls_board *mine, *theirs;
    int       how;

    TEST_ROW("two mappings");
    if (!CHECK_OK(ls_board_new(2, &mine)) ||
        !CHECK_OK(ls_board_open(ls_board_fd(mine), &theirs)))
        return;
    ls_board_ended(theirs, 1, 0); /* a status of 0 is published as well */
    CHECK(ls_board_how_ended(mine, 1, &how) && how == 0);
    CHECK(!ls_board_how_ended(mine, 0, &how));
    ls_board_free(theirs);
    CHECK(fcntl(ls_board_fd(mine), F_GETFD) >= 0); /* it was borrowed */
    CHECK(ftruncate(ls_board_fd(mine), 0) != 0);   /* sealed */
    ls_board_free(mine);
    ls_board_free(NULL);
}

static int open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* A copy of a board's file with `bytes` at `offset` set to `value`, of `size` bytes. */
static int forged(const ls_board *board, off_t size, off_t offset, int value, size_t bytes)
{
    static char copy[1 << 20];
    ssize_t     got = pread(ls_board_fd(board), copy, sizeof copy, 0);
    int         fd  = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK(got > 0 && got < (ssize_t)sizeof copy && fd >= 0);
    memset(copy + offset, value, bytes);
    CHECK(pwrite(fd, copy, (size_t)got, 0) == got && !ftruncate(fd, size));
    CHECK(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    return fd;
}

static void no_boards(void)
{
    ls_board   *board, *other;
    struct stat about;

    TEST_ROW("the copy of a board is one");
    if (!CHECK_OK(ls_board_new(2, &board)) || !CHECK(!fstat(ls_board_fd(board), &about)))
        return;
    off_t size = about.st_size;
    int   good = forged(board, size, 0, 0, 0);
    CHECK_OK(ls_board_open(good, &other));
    ls_board_free(other);
    close(good);
    const struct {
        const char *name;
        off_t       size, offset;
        int         value;
        size_t      bytes;
        const char *text;
    } rows[] = {
        {"magic", size, 0, 'x', 8, "does not start as one"},
        {"version", size, 8, 9, 4, "version"},
        {"no ranks", size, 12, 0, 4, "0 ranks"},
        {"too many ranks", size, 12, 0xff, 4, "ranks"},
        {"more ranks than bytes", size, 12, 3, 1, "3 ranks"},
        {"slot size", size, 16, 1, 1, "bytes a rank"},
        {"short", size - 1, 0, 0, 0, "bytes, want"},
        {"long", size + 1, 0, 0, 0, "bytes, want"},
        {"empty", 0, 0, 0, 0, "does not start as one"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        int fd = forged(board, rows[i].size, rows[i].offset, rows[i].value, rows[i].bytes);
        CHECK_FAILS(ls_board_open(fd, &other), LS_EINVAL, rows[i].text);
        CHECK(!other);
        close(fd);
    }
    ls_board_free(board);
}

static void not_even_files(void)
{
    ls_board *board;
    int       ends[2], unsealed = memfd_create("unsealed", MFD_CLOEXEC);

    TEST_ROW("other descriptors");
    CHECK_FAILS(ls_board_open(-1, &board), LS_EINVAL, "descriptor -1");
    CHECK(!pipe(ends));
    CHECK_FAILS(ls_board_open(ends[0], &board), LS_EINVAL, "is not one");
    CHECK_FAILS(ls_board_open(unsealed, &board), LS_EINVAL, "is not one");
    close(ends[0]);
    close(ends[1]);
    close(unsealed);
    CHECK_FAILS(ls_board_new(0, &board), LS_EINVAL, "0 ranks");
    CHECK_FAILS(ls_board_new(-5, &board), LS_EINVAL, "-5 ranks");
}

static void no_memory(void)
{
    ls_board *board, *other;

    TEST_ROW("out of memory");
    ls_alloc_fail_after(0);
    CHECK_FAILS(ls_board_new(2, &board), LS_ENOMEM, "");
    CHECK(!board);
    CHECK_OK(ls_board_new(2, &board));
    ls_alloc_fail_after(0);
    CHECK_FAILS(ls_board_open(ls_board_fd(board), &other), LS_ENOMEM, "");
    ls_alloc_fail_after(-1);
    ls_board_free(board);
}

int main(void)
{
    int before = open_files();

    ranks_die();
    two_mappings();
    no_boards();
    not_even_files();
    no_memory();
    TEST_ROW("descriptors");
    CHECK(open_files() == before);
    return test_summary("board");
}

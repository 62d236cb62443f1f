/*
 * ranks.h - runs a body as N ranks: processes (shm, tcp, mixed) or threads of this process.
 *
 *     static void body(ls_comm *world, void *context) { CHECK_OK(ls_comm_barrier(world)); }
 *
 *     ranks_opts opts = {.backend = "shm", .n = 4};
 *     CHECK(ranks_run(&opts, body, NULL) == 0);
 *
 * The parent makes a mesh of sockets and the job's board, starts the ranks, reaps them, and
 * publishes on the board how each ended.  A rank is a failed one when it could not join, when
 * a check of test.h failed in it, when a signal or a sanitizer ended it, or when the time was
 * over: then it is named, its flight recorder printed, and all are killed.  Ranks that are
 * stopped (SIGSTOP) are killed when no other is left.  Nothing stays behind, also when the
 * test itself is killed.
 *
 * Checks of all ranks count in the parent's summary.  Ranks report to the parent in memory of
 * ranks_shared(), which they inherit.
 */
#ifndef LS_TESTS_RANKS_H
#define LS_TESTS_RANKS_H

#include <signal.h>
#include <sys/types.h>

#include "dist/comm/join.h"
#include "test.h"

typedef struct ranks_job ranks_job;

/* Zero is the default of every member but n. */
typedef struct {
    const char  *backend; /* "shm" (NULL), "tcp", "threads"; "mixed": as many hosts, by name */
    int          n;       /* ranks */
    int          hosts;   /* of mixed: rank r is on "host-<r * hosts / n>"; 0: 2 */
    const char  *control; /* the mesh: NULL Unix sockets, else TCP on "127.0.0.1" or "::1" */
    ls_algorithm algorithm;
    bool         fast;
    double       timeout_s; /* of the ranks' waits; 0: 20 */
    int          limit_s;   /* of the whole run; 0: 60 */
    int64_t      fault;     /* the n-th exchange of fault_rank goes wrong ... */
    int          fault_kind, fault_rank;

    /* As in ls_join_opts, with the body's context. */
    void (*event)(void *context, ls_comm_event event, const char *text);

    /* Changes what a rank joins with, after the members above were applied. */
    void (*join)(ls_join_opts *opts, void *context);

    /* The body runs also where the rank could not join, with world NULL and the message of the
     * failure in ls_error_message(). */
    bool unjoined;

    /* Runs in the parent, on a thread of its own, while the ranks do. */
    void (*meanwhile)(ranks_job *job, void *context);

    int *ended; /* [n] the status of waitpid() of each rank (threads: 0 or 1 << 8); or NULL */
} ranks_opts;

/* Frees nothing: the harness frees the world afterwards. */
typedef void (*ranks_body)(ls_comm *world, void *context);

/* For meanwhile(): sends a signal to a rank; false where it has ended, or is a thread. */
bool ranks_kill(ranks_job *job, int rank, int signal_number);

/* The job's board, for meanwhile(). */
ls_board *ranks_board(ranks_job *job);

/* The number of this rank, also where it has not joined; -1 outside of a body. */
int ranks_me(void);

/* Zeroed memory that this process and the ranks it starts later share; NULL: none left. */
void *ranks_shared(size_t bytes);
void  ranks_unshare(void *memory, size_t bytes); /* NULL is allowed */

/* What checks came to: in the thread, and in the process. */
typedef struct {
    int here, checks, failures;
} ranks_tally;

/* What ranks.c needs of a test's own test.h. */
typedef struct {
    ranks_tally (*tally)(void);
    void (*row)(const char *name);
    ranks_body  body;
    void       *context;
    const char *name; /* of the row */
} ranks_test;

/* ranks_run() without the counting; adds what processes counted to sum. */
int ranks__run(const ranks_opts *opts, const ranks_test *test, ranks_tally *sum);

static inline ranks_tally ranks__tally(void)
{
    return (ranks_tally){test_thread_failures, test_checks, test_failures};
}

static inline void ranks__row(const char *name)
{
    TEST_ROW(name);
}

/* The number of ranks that failed; n when they could not be started. */
static inline int ranks_run(const ranks_opts *opts, ranks_body body, void *context)
{
    ranks_test  test   = {ranks__tally, ranks__row, body, context, test_row};
    ranks_tally sum    = {0};
    int         failed = ranks__run(opts, &test, &sum);

    test_checks += sum.checks;
    test_failures += sum.failures;
    return failed;
}

#endif

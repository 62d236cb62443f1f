#define _GNU_SOURCE /* MAP_ANONYMOUS, syscall: Linux's own */
/*
 * test_control_deaths.c - ranks that die, fail, leave and ask, seen by the others over control
 * connections: forked processes that die in every way while the parent reaps them.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "control_ends.h"

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

static bool all_ready(void *context)
{
    shared *s = context;

    for (int r = 0; r < RANKS; r++)
        if (!atomic_load(&s->of[r].ready))
            return false;
    return true;
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
        atomic_fetch_add(&e->shared->helper, 1);
        CHECK(wait_for(zero_left, e, 5000));
        ls_sleep_ns(150 * MS);
        CHECK_OK(ls_guard_check(e->world));
        CHECK(atomic_load(&e->shared->of[e->rank].wakes) > 0);
        CHECK(atomic_load(&e->shared->of[e->rank].reports) == 0);
    }
    while (e->rank == 0 && atomic_load(&e->shared->helper) < RANKS - 1)
        ls_sleep_ns(MS); /* until the others have seen it there */
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

int main(void)
{
    test_processes();
    return test_summary("control_deaths");
}

/*
 * test_leave.c - ranks that come late, never, leave early, or give up.
 *
 *   late      named in a warning at a third of the time-out; the operation succeeds
 *   never     all others fail at the time-out, naming it and the operation; it fails when it
 * comes first     rank 0 leaves right after the last operation: nobody else notices normally
 * one operation more than the one that left: fails at once give up   ls_comm_abort() from
 * another thread: everybody fails in 0.3 s, in all groups
 */
#define _GNU_SOURCE /* memfd_create: where standard error goes */
#include "outcome.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_RANKS = 8, FLOATS = 100000 };

typedef struct {
    outcome     of[MOST_RANKS], second[MOST_RANKS];
    atomic_int  warned[MOST_RANKS], failures[MOST_RANKS];
    char        warning[MOST_RANKS][480];
    atomic_long given_up_at;
} findings;

typedef struct {
    int       n, who;
    unsigned  late_ms;
    findings *f;
} job;

static void note_event(void *context, ls_comm_event event, const char *text)
{
    const job *j = context;
    int        r = ranks_me();

    (void)text;
    if (r < 0 || r >= MOST_RANKS) /* the watch thread of a rank that is a thread */
        return;
    if (event == LS_EVENT_WARNING) {
        j->f->warned[r]++;
        snprintf(j->f->warning[r], sizeof j->f->warning[r], "%s", text);
    } else {
        j->f->failures[r]++;
    }
}

static ls_status sum(ls_comm *world, float *x)
{
    *x = 1;
    return ls_comm_all_reduce(world, x, x, 1, LS_F32, LS_SUM);
}

/* ---- late ---- */

static void run_late(ls_comm *world, void *context)
{
    job *j = context;
    int  r = ls_comm_rank(world);

    CHECK_OK(ls_comm_barrier(world));
    int64_t start = ls_now_ns();
    if (r == j->who)
        ls_sleep_ns(j->late_ms * MS);
    float     x      = 0;
    ls_status status = sum(world, &x);
    outcome_note(&j->f->of[r], status, start);
    if (!status)
        CHECK(x == (float)j->n);
    outcome_note_again(&j->f->of[r], ls_comm_barrier(world));
}

static void late(const char *backend, findings *f)
{
    double     timeout_s = 1.5 * OUTCOME_SLOW;
    job        j         = {.n = 3, .late_ms = (unsigned)(1000 * OUTCOME_SLOW), .f = f};
    ranks_opts opts = {.backend = backend, .n = 3, .timeout_s = timeout_s, .event = note_event};

    for (j.who = 0; j.who < 3; j.who += 2) {
        char who[32];
        TEST_ROW("late");
        snprintf(who, sizeof who, "rank %d (pid ", j.who);
        memset(f, 0, sizeof *f);
        CHECK(ranks_run(&opts, run_late, &j) == 0);
        for (int r = 0; r < 3; r++) {
            CHECK(f->of[r].noted && f->of[r].status == LS_OK && f->of[r].again == LS_OK);
            CHECK(f->failures[r] == 0);
            CHECK(f->warned[r] == (r != j.who));
            if (r != j.who && !(CHECK(strstr(f->warning[r], who)) &&
                                CHECK(strstr(f->warning[r], "has not come")) &&
                                CHECK(strstr(f->warning[r], "all_reduce #2"))))
                printf("     rank %d was warned: \"%s\"\n", r, f->warning[r]);
        }
    }
}

static void never(const char *backend, findings *f)
{
    job        j    = {.n = 3, .late_ms = 2000 * OUTCOME_SLOW, .f = f};
    ranks_opts opts = {
        .backend = backend, .n = 3, .timeout_s = OUTCOME_SLOW, .event = note_event};

    for (j.who = 0; j.who < 3; j.who += 2) {
        char           who[32];
        outcome_wanted want = {.status = LS_ETIMEOUT,
                               .parts  = {"all_reduce #2 ", who, "has not come"}};
        TEST_ROW("never");
        snprintf(who, sizeof who, "rank %d (pid ", j.who);
        memset(f, 0, sizeof *f);
        CHECK(ranks_run(&opts, run_late, &j) == 0);
        outcome_judge(f->of, 3, &want);
        for (int r = 0; r < 3; r++)
            if (r != j.who)
                CHECK(f->of[r].took < 1600 * MS * OUTCOME_SLOW);
    }
}

/* ---- leaving ---- */

static void fill(float *x, int n, int value)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(value + i % 100);
}

/* The last operation hands on what rank 0 has; it leaves while others may still be reading. */
static void run_first(ls_comm *world, void *context)
{
    job   *j = context;
    int    r = ls_comm_rank(world), n = ls_comm_size(world);
    bool   heap  = j->who % 2;
    size_t size  = (size_t)FLOATS * sizeof(float) * (size_t)n;
    float *x     = heap ? ls_comm_alloc(world, size) : calloc(1, size);
    float *y     = heap ? ls_comm_alloc(world, size) : calloc(1, size);
    int    count = j->who % 3 == 0 ? 10 : FLOATS;

    fill(x, n * count, r);
    switch (j->who % 5) {
    case 0:
        CHECK_OK(ls_comm_broadcast(world, x, count, LS_F32, 0));
        CHECK(x[count - 1] == (float)((count - 1) % 100));
        break;
    case 1:
        CHECK_OK(ls_comm_all_gather(world, y, x, count, LS_F32));
        CHECK(y[count - 1] == (float)((count - 1) % 100));
        break;
    case 2:
        CHECK_OK(ls_comm_all_reduce(world, y, x, count, LS_F32, LS_MIN));
        CHECK(y[count - 1] == (float)((count - 1) % 100));
        break;
    case 3:
        CHECK_OK(ls_comm_scatter(world, y, x, count, LS_F32, 0));
        CHECK(y[0] == (float)(r * count % 100));
        break;
    default:
        CHECK_OK(ls_comm_barrier(world));
    }
    if (r)
        ls_sleep_ns((j->who ? 10 : 1000) * MS);
    CHECK_OK(ls_comm_check(world));
    if (heap) {
        ls_comm_release(world, x);
        ls_comm_release(world, y);
    } else {
        free(x);
        free(y);
    }
}

static void first(const char *backend, findings *f)
{
    job         j    = {.f = f};
    ranks_opts  opts = {.backend = backend, .n = 3, .event = note_event};
    int         err = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
    struct stat found;

    TEST_ROW("rank 0 leaves first");
    memset(f, 0, sizeof *f);
    if (!CHECK(err >= 0 && file >= 0))
        return;
    dup2(file, STDERR_FILENO);
    for (j.who = 0; j.who < 50; j.who++)
        CHECK(ranks_run(&opts, run_first, &j) == 0);
    dup2(err, STDERR_FILENO);
    for (int r = 0; r < 3; r++)
        CHECK(!f->failures[r] && !f->warned[r]);
    CHECK(!fstat(file, &found) && found.st_size == 0);
    close(file);
    close(err);
}

static void run_normally(ls_comm *world, void *context)
{
    job *j = context;
    int  r = ls_comm_rank(world);

    CHECK_OK(ls_comm_barrier(world));
    if (r == j->who)
        return;
    ls_sleep_ns(100 * MS); /* all are through the barrier, which the failure would end too */
    int64_t start = ls_now_ns();
    float   x;
    outcome_note(&j->f->of[r], sum(world, &x), start);
    outcome_note_again(&j->f->of[r], ls_comm_barrier(world));
}

static void normally(const char *backend, findings *f)
{
    job        j    = {.f = f};
    ranks_opts opts = {.backend = backend, .n = 4};

    for (j.who = 0; j.who < 4; j.who += 3) {
        char           who[32];
        outcome_wanted want = {.status  = LS_EPEER,
                               .parts   = {who, "left normally before all_reduce #2"},
                               .most_ns = 500 * MS,
                               .except  = j.who + 1};
        TEST_ROW("one operation more than the one that left");
        snprintf(who, sizeof who, "rank %d (pid ", j.who);
        memset(f, 0, sizeof *f);
        CHECK(ranks_run(&opts, run_normally, &j) == 0);
        outcome_judge(f->of, 4, &want);
    }
}

/* ---- giving up ---- */

typedef struct {
    ls_comm  *comm[2];
    findings *f;
} giving_up;

static void *give_up(void *context)
{
    giving_up *g = context;

    ls_sleep_ns(100 * MS);
    atomic_store(&g->f->given_up_at, ls_now_ns());
    for (int i = 0; i < 2; i++)
        if (g->comm[i])
            ls_comm_abort(g->comm[i], "enough of it");
    ls_comm_abort(g->comm[0], "again");
    return NULL;
}

static int64_t given_up(const findings *f)
{
    return atomic_load(&f->given_up_at);
}

/* One rank never enters what the others are in. */
static void run_abort(ls_comm *world, void *context)
{
    job      *j = context;
    int       r = ls_comm_rank(world);
    giving_up g = {{world, NULL}, j->f};
    pthread_t thread;
    ls_status status = LS_OK;
    float     x;

    CHECK_OK(ls_comm_barrier(world));
    if (r == j->who) {
        CHECK(!pthread_create(&thread, NULL, give_up, &g));
        while (!status)
            status = ls_comm_check(world);
    } else {
        status = sum(world, &x);
    }
    outcome_note(&j->f->of[r], status, given_up(j->f));
    outcome_note_again(&j->f->of[r], ls_comm_barrier(world));
    if (r == j->who)
        pthread_join(thread, NULL);
}

/* Works are pending in two groups; the rank that gives both up waits in neither. */
static void run_two_groups(ls_comm *world, void *context)
{
    enum { WORKS = 5 };
    job      *j = context;
    int       r = ls_comm_rank(world);
    giving_up g = {.f = j->f};
    pthread_t thread;
    ls_work  *work[2][WORKS];
    float     x[2][WORKS] = {{0}};

    for (int i = 0; i < 2; i++) {
        CHECK_OK(ls_comm_split(world, 0, i ? -r : r, &g.comm[i]));
        for (int k = 0; k < WORKS && r != j->who; k++) {
            ls_call c = {.kind  = LS_ALL_REDUCE,
                         .in    = &x[i][k],
                         .out   = &x[i][k],
                         .count = 1,
                         .dtype = LS_F32};
            CHECK_OK(ls_comm_start(g.comm[i], &c, &work[i][k]));
        }
    }
    if (r == j->who) {
        CHECK(!pthread_create(&thread, NULL, give_up, &g));
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < 2; i++) {
        outcome  *o      = i ? &j->f->second[r] : &j->f->of[r];
        ls_status status = r == j->who ? ls_comm_check(g.comm[i]) : LS_OK;
        for (int k = 0; k < WORKS && r != j->who; k++) {
            status = ls_work_wait(work[i][k]);
            CHECK(status == LS_EPEER);
        }
        outcome_note(o, status, given_up(j->f));
        outcome_note_again(o, ls_comm_check(g.comm[i]));
    }
    CHECK_OK(ls_comm_check(world));
    CHECK_OK(ls_comm_barrier(world)); /* the world is sound */
    ls_comm_free(g.comm[0]);
    ls_comm_free(g.comm[1]);
}

static void gives_up(const char *backend, findings *f)
{
    job            j    = {.f = f};
    ranks_opts     opts = {.backend = backend, .n = 4};
    char           who[64];
    outcome_wanted want = {.status = LS_EPEER, .parts = {who}, .most_ns = 300 * MS};

    for (j.who = 0; j.who < 4; j.who += 3) {
        TEST_ROW("abort");
        snprintf(who, sizeof who, "rank %d gave up: enough of it", j.who);
        memset(f, 0, sizeof *f);
        CHECK(ranks_run(&opts, run_abort, &j) == 0);
        outcome_judge(f->of, 4, &want);
        TEST_ROW("abort of two groups");
        memset(f, 0, sizeof *f);
        CHECK(ranks_run(&opts, run_two_groups, &j) == 0);
        outcome_judge(f->of, 4, &want);
        snprintf(who, sizeof who, "rank %d gave up: enough of it", 3 - j.who); /* its keys */
        outcome_judge(f->second, 4, &want);
    }
}

int main(int argc, char **argv)
{
    const char *backends[] = {"threads", "shm", "tcp", "mixed"};
    findings   *f          = ranks_shared(sizeof *f);

    for (int b = 0; b < 4; b++)
        if (argc < 2 || !strcmp(argv[1], backends[b])) {
            if (b > 0) { /* whose event is it, among threads? */
                late(backends[b], f);
                never(backends[b], f);
            }
            first(backends[b], f);
            normally(backends[b], f);
            gives_up(backends[b], f);
        }
    ranks_unshare(f, sizeof *f);
    return test_summary("leave");
}

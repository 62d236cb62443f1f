#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
/*
 * test_comm_life.c - how groups come and go: forks, a thousand groups, worlds one after
 * another.
 *
 * What a process holds is counted from /proc/self: descriptors, mappings, resident memory.
 */
#include "ranks.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"

/* A sanitizer's shadow and quarantine grow, and it looks for leaks at the exit of a child too.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static void nap(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void check_sum(ls_comm *group, int64_t count)
{
    enum { MOST = 50000 };
    static _Thread_local int32_t x[MOST];
    int                          n = ls_comm_size(group), r = ls_comm_rank(group);

    for (int64_t i = 0; i < count; i++)
        x[i] = (int32_t)i + r;
    CHECK_OK(ls_comm_all_reduce(group, x, x, count, LS_I32, LS_SUM));
    for (int64_t i = 0; i < count; i++)
        if (x[i] != n * (int32_t)i + n * (n - 1) / 2) {
            CHECK(!"the sum");
            return;
        }
    CHECK(true);
}

/* ---- fork ---- */

#define REFUSED(call) CHECK_FAILS((call), LS_ESTATE, "forked child")

/* Every call of comm.h, in a child. */
static void use_everything(ls_comm *world, ls_work *started)
{
    float     x[16] = {0}, y[16] = {0};
    char      text[100];
    ls_work  *work  = NULL;
    ls_comm  *group = NULL;
    ls_call   call  = {.kind = LS_ALL_REDUCE, .in = x, .out = y, .count = 1};
    const int peer  = (ls_comm_rank(world) + 1) % ls_comm_size(world);

    CHECK(ls_comm_size(world) > 1 && ls_comm_transport(world)[0]);
    REFUSED(ls_comm_barrier(world));
    REFUSED(ls_comm_broadcast(world, y, 1, LS_F32, 0));
    REFUSED(ls_comm_reduce(world, y, x, 1, LS_F32, LS_SUM, 0));
    REFUSED(ls_comm_all_reduce(world, y, x, 1, LS_F32, LS_SUM));
    REFUSED(ls_comm_all_gather(world, y, x, 1, LS_F32));
    REFUSED(ls_comm_reduce_scatter(world, y, x, 1, LS_F32, LS_SUM));
    REFUSED(ls_comm_gather(world, y, x, 1, LS_F32, 0));
    REFUSED(ls_comm_scatter(world, y, x, 1, LS_F32, 0));
    REFUSED(ls_comm_all_to_all(world, y, x, 1, LS_F32));
    REFUSED(ls_comm_send(world, x, 1, LS_F32, peer));
    REFUSED(ls_comm_recv(world, y, 1, LS_F32, peer));
    REFUSED(ls_comm_run(world, &call));
    REFUSED(ls_comm_start(world, &call, &work));
    REFUSED(ls_comm_split(world, 0, 0, &group));
    REFUSED(ls_comm_explain(world, &call, text, sizeof text));
    REFUSED(ls_comm_check(world));
    CHECK(!work && !group && !ls_comm_alloc(world, 100));
    ls_comm_abort(world, "a child may not");
    CHECK(ls_comm_counted(world, LS_BARRIER).calls == 0);
    if (started) {
        CHECK(ls_work_test(started));
        REFUSED(ls_work_wait(started));
    }
}

/* In a child, whose checks go to nobody: its exit status tells. */
static void be_a_child(ls_comm *world, ls_work *started, void *heap, bool by_exit)
{
    int before = test_thread_failures;

    use_everything(world, started);
    ls_comm_release(world, heap);
    ls_comm_free(world);
    bool failed = test_thread_failures != before;
    if (by_exit)
        exit(failed);
    fflush(stdout);
    _exit(failed);
}

static void see_child(pid_t child)
{
    int status = -1;

    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

/* Children while the group is idle, and while works are queued and running; 100 operations go
 * on beside and after them. */
static void forks(ls_comm *world, void *context)
{
    bool  threads = context != NULL; /* all ranks are one process: their locks forbid exit() */
    void *heap    = ls_comm_alloc(world, 1000);

    check_sum(world, 100);
    for (int round = 0; round < 6; round++) {
        enum { WORKS = 5, FLOATS = 20000 };
        static _Thread_local float x[WORKS][FLOATS];
        ls_work                   *work[WORKS] = {NULL};
        int                        works       = round % 2 ? WORKS : 0;
        for (int i = 0; i < works; i++)
            CHECK_OK(ls_comm_start(world,
                                   &(ls_call){.kind  = LS_ALL_REDUCE,
                                              .in    = x[i],
                                              .out   = x[i],
                                              .count = FLOATS,
                                              .dtype = LS_F32},
                                   &work[i]));
        pid_t child = threads && ls_comm_rank(world) ? 0 : fork();
        if (child == 0 && !(threads && ls_comm_rank(world)))
            be_a_child(world, work[0], heap, !threads && !SANITIZED && round < 3);
        for (int i = 0; i < 100 / 6; i++)
            check_sum(world, 1 + i * 1000);
        for (int i = 0; i < works; i++)
            CHECK_OK(ls_work_wait(work[i]));
        if (child > 0)
            see_child(child);
        check_sum(world, 100);
    }
    ls_comm_release(world, heap);
    CHECK_OK(ls_comm_check(world));
}

/* ---- a parent that dies before its child ---- */

typedef struct {
    atomic_int seen; /* peers that have noticed */
    bool       no_board, by_exit;
} orphanage;

static void without_board(ls_join_opts *opts, void *context)
{
    orphanage *o = context;

    if (o->no_board)
        opts->board = NULL;
}

/* Holds copies of all the sockets that its parent had. */
static void outlive_parent(orphanage *o, int peers)
{
    for (int ms = 0; ms < 15000 && atomic_load(&o->seen) < peers; ms += 5)
        nap(5);
    _exit(0);
}

static void orphaned(ls_comm *world, void *context)
{
    orphanage *o    = context;
    int        last = ls_comm_size(world) - 1;

    check_sum(world, 100);
    if (ls_comm_rank(world) == last) {
        if (fork() == 0)
            outlive_parent(o, last);
        nap(50);
        if (o->by_exit)
            _exit(3);
        raise(SIGKILL);
    }
    char      rank[20];
    int64_t   start  = ls_now_ns();
    ls_status status = LS_OK;
    snprintf(rank, sizeof rank, "rank %d ", last);
    while (!status)
        status = ls_comm_barrier(world);
    CHECK_FAILS(status, LS_EPEER, rank);
    CHECK(ls_now_ns() - start < INT64_C(3000000000));
    CHECK_FAILS(ls_comm_barrier(world), LS_EPEER, rank);
    atomic_fetch_add(&o->seen, 1);
}

/* ---- what a process holds ---- */

typedef struct {
    int     descriptors, mappings;
    int64_t resident_kb, charged;
} holdings;

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  n   = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static int count_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    int   n    = 0, c;

    while (file && (c = getc(file)) != EOF)
        n += c == '\n';
    if (file)
        fclose(file);
    return n;
}

static int64_t resident(void)
{
    FILE     *file = fopen("/proc/self/status", "re");
    char      line[200];
    long long kb = 0;

    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmRSS: %lld", &kb);
    if (file)
        fclose(file);
    return kb;
}

static holdings hold(void)
{
    return (holdings){.descriptors = count_descriptors(),
                      .mappings    = count_lines("/proc/self/maps"),
                      .resident_kb = resident(),
                      .charged     = ls_mem_get_stats().current[LS_MEM_COMM]};
}

enum { LEFT = 1 << 20 };

static void check_flat(holdings before, holdings after, const char *what)
{
    bool ok = CHECK(after.descriptors == before.descriptors);

    ok &= CHECK(after.charged <= before.charged + LEFT); /* freed when the others are done */
    if (!SANITIZED) {
        ok &= CHECK(after.mappings <= before.mappings + 2);
        ok &= CHECK(after.resident_kb <= before.resident_kb + 512);
    }
    if (!ok)
        printf("     %s: descriptors %d -> %d, mappings %d -> %d, resident %lld -> %lld kB, "
               "charged %lld -> %lld\n",
               what, before.descriptors, after.descriptors, before.mappings, after.mappings,
               (long long)before.resident_kb, (long long)after.resident_kb,
               (long long)before.charged, (long long)after.charged);
}

/* ---- a thousand groups ---- */

/* In turn: idle, used in place, used by messages, used by its worker. */
static void use_group(ls_comm *group, int i)
{
    float    x = 1;
    ls_work *work;

    if (i % 4 == 1)
        check_sum(group, 30);
    if (i % 4 == 2)
        check_sum(group, 5000);
    if (i % 4 != 3)
        return;
    CHECK_OK(ls_comm_start(
        group, &(ls_call){.kind = LS_ALL_REDUCE, .in = &x, .out = &x, .count = 1}, &work));
    CHECK_OK(ls_work_wait(work));
    CHECK(x == (float)ls_comm_size(group));
}

/* `several` groups at a time, freed in the same or the opposite order. */
static void make_groups(ls_comm *world, int several, int from, int to)
{
    enum { MOST = 10 };
    ls_comm *group[MOST];

    for (int i = from; i < to; i += several) {
        for (int k = 0; k < several; k++) {
            int colour = (i + k) % 5 == 4 ? ls_comm_rank(world) / 2 : 0;
            CHECK_OK(ls_comm_split(world, colour, (i + k) % 2 ? -ls_comm_rank(world) : 0,
                                   &group[k]));
            if (!group[k])
                return;
        }
        for (int k = 0; k < several; k++)
            use_group(group[k], i + k);
        for (int k = 0; k < several; k++)
            ls_comm_free(group[i % 20 ? k : several - 1 - k]);
    }
}

static void thousand_groups(ls_comm *world, void *context)
{
    bool counts = context == NULL; /* threads share one process, whose numbers move */

    make_groups(world, 10, 0, 50);
    make_groups(world, 1, 50, 100);
    CHECK_OK(ls_comm_barrier(world));
    holdings before = hold();
    make_groups(world, 10, 100, 550);
    make_groups(world, 1, 550, 1000);
    CHECK_OK(ls_comm_barrier(world));
    if (counts)
        check_flat(before, hold(), "1000 groups");
    check_sum(world, 100);
}

/* ---- worlds one after another ---- */

enum { CYCLES = 50, MOST_N = 4 };

typedef struct {
    const char *backend;
    int         n;
    int         ends[CYCLES][MOST_N][MOST_N]; /* [rank] is its row of sockets */
} meshes;

static void make_meshes(meshes *m)
{
    for (int k = 0; k < CYCLES; k++)
        for (int r = 0; r < m->n; r++) {
            m->ends[k][r][r] = -1;
            for (int s = r + 1; s < m->n; s++) {
                int pair[2] = {-1, -1};
                CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
                m->ends[k][r][s] = pair[0];
                m->ends[k][s][r] = pair[1];
            }
        }
}

/* All rows but that of `keep`. */
static void close_meshes(const meshes *m, int keep)
{
    for (int k = 0; k < CYCLES; k++)
        for (int r = 0; r < m->n; r++)
            for (int s = 0; s < m->n && r != keep; s++)
                if (r != s)
                    close(m->ends[k][r][s]);
}

static void one_cycle(const meshes *m, int rank, int k)
{
    char     identity[20];
    bool     mixed = !strcmp(m->backend, "mixed");
    ls_comm *world, *group;

    snprintf(identity, sizeof identity, "host-%d", rank * 2 / m->n);
    CHECK_OK(ls_join(&(ls_join_opts){.rank      = rank,
                                     .world     = m->n,
                                     .control   = m->ends[k][rank],
                                     .backend   = mixed ? "auto" : m->backend,
                                     .identity  = mixed ? identity : NULL,
                                     .timeout_s = 20},
                     &world));
    if (!world)
        return;
    void *heap = ls_comm_alloc(world, 100000);
    check_sum(world, 1000);
    CHECK_OK(ls_comm_split(world, 0, 0, &group));
    if (group)
        use_group(group, k);
    ls_comm_release(world, heap);
    ls_comm_free(group);
    ls_comm_free(world);
}

/* Each world closes n - 1 sockets that were there before. */
static void worlds(ls_comm *outer, void *context)
{
    const meshes *m    = context;
    int           rank = ls_comm_rank(outer), warm = 10;
    bool          processes = strcmp(m->backend, "threads") != 0;
    holdings      before    = {0};

    if (processes)
        close_meshes(m, rank);
    for (int k = 0; k < CYCLES; k++) {
        one_cycle(m, rank, k);
        if (k == warm - 1)
            before = hold();
    }
    before.descriptors -= (CYCLES - warm) * (m->n - 1);
    if (processes)
        check_flat(before, hold(), "50 worlds");
    check_sum(outer, 1000);
}

/* ---- */

static void run_orphans(const char *backend)
{
    for (int i = 0; i < 3; i++) {
        char       name[80];
        int        ended[4];
        bool       mixed = !strcmp(backend, "mixed");
        orphanage *o     = ranks_shared(sizeof *o);
        ranks_opts opts  = {.backend = backend,
                            .n       = mixed ? 4 : 3,
                            .join    = without_board,
                            .ended   = ended,
                            .limit_s = 30};

        o->no_board = i == 1;
        o->by_exit  = i == 2;
        snprintf(name, sizeof name, "orphan, %s, %s%s", backend,
                 o->by_exit ? "exit" : "SIGKILL", o->no_board ? ", no board" : "");
        TEST_ROW(name);
        CHECK(ranks_run(&opts, orphaned, o) == 1);
        CHECK(ended[0] == 0 && ended[opts.n - 1] == (o->by_exit ? 3 << 8 : SIGKILL));
        CHECK(atomic_load(&o->seen) == opts.n - 1);
        ranks_unshare(o, sizeof *o);
    }
}

static void run_worlds(const char *backend, int n)
{
    meshes     m    = {.backend = backend, .n = n};
    ranks_opts opts = {.backend = backend, .n = n};

    make_meshes(&m);
    CHECK(ranks_run(&opts, worlds, &m) == 0);
    if (strcmp(backend, "threads") != 0)
        close_meshes(&m, -1);
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "shm";
    bool        threads = !strcmp(backend, "threads");
    ranks_opts  opts    = {.backend = backend, .n = 3, .limit_s = 100};

    TEST_ROW("fork after the join");
    CHECK(ranks_run(&opts, forks, threads ? &opts : NULL) == 0);
    if (!threads)
        run_orphans(backend);
    TEST_ROW("1000 groups");
    CHECK(ranks_run(&opts, thousand_groups, threads ? &opts : NULL) == 0);
    TEST_ROW("50 worlds");
    run_worlds(backend, 3);
    return test_summary("comm_life");
}

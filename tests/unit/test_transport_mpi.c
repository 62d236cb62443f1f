/*
 * test_transport_mpi.c - the MPI transport, run by mpirun on any number of ranks; alone, a rank
 * exchanges with itself.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/transport_mpi.h"
#include "test.h"

enum {
    GUARD       = 64, /* bytes around a buffer that must stay as they are */
    LARGE       = (8 << 20) + 3,
    TAG_MEET    = 1, /* tags of the groups below */
    TAG_SIZES   = 10,
    TAG_THREADS = 40,
    TAG_REFUSED = 60,
    TAG_STEP    = 80,
    TAG_LATE    = 90
};

static int rank, world;

static ls_descriptor operation(uint64_t sequence, uint64_t count)
{
    return (ls_descriptor){.sequence  = sequence,
                           .count     = count,
                           .kind      = LS_ALL_REDUCE,
                           .dtype     = LS_U8,
                           .algorithm = LS_RING};
}

static ls_transport *group(int tag, int64_t largest)
{
    int           members[64];
    ls_transport *t = NULL;

    for (int i = 0; i < world; i++)
        members[i] = i;
    if (!CHECK_OK(ls_transport_mpi(members, rank, world, tag, largest, &t)))
        exit(1);
    return t;
}

/* The wait of wait.h, in short; a group that is stuck has ETIMEOUT. */
static ls_status finish(ls_transport *t, double seconds)
{
    int64_t   until = ls_now_ns() + (int64_t)(seconds * 1e9);
    bool      moved, done = false;
    ls_status status = LS_OK;

    while (!status && !done) {
        status = t->ops->progress(t, &moved, &done);
        if (!status && !done && ls_now_ns() > until)
            return LS_ETIMEOUT;
        if (!status && !done && !moved)
            t->ops->sleep(t, 100000000);
    }
    return status;
}

static ls_status exchange(ls_transport *t, ls_descriptor what, ls_outgoing out, ls_incoming in)
{
    ls_status status = t->ops->begin(t, &what, out, in);
    return status ? status : finish(t, 30);
}

/* All ranks have come here: a token goes round twice. */
static void meet(void)
{
    ls_transport *t   = group(TAG_MEET, 0);
    ls_incoming   in  = {(rank + world - 1) % world, NULL, 0};
    ls_outgoing   out = {(rank + 1) % world, NULL, 0};

    for (uint64_t round = 0; round < 2 && world > 1; round++) {
        if (rank)
            CHECK_OK(exchange(t, operation(round, 0), (ls_outgoing){LS_NO_PEER, 0, 0}, in));
        CHECK_OK(exchange(t, operation(round, 0), out, (ls_incoming){LS_NO_PEER, 0, 0}));
        if (!rank)
            CHECK_OK(exchange(t, operation(round, 0), (ls_outgoing){LS_NO_PEER, 0, 0}, in));
    }
    t->ops->close(t);
}

/* --- buffers ------------------------------------------------------------------------------ */

static unsigned char pattern(int from, size_t i, size_t seed)
{
    return (unsigned char)((i * 31 + i / 251 + seed * 7 + (size_t)from * 101) & 255);
}

static unsigned char *outgoing_new(int from, size_t bytes, size_t seed)
{
    unsigned char *block = malloc(bytes + 1);

    for (size_t i = 0; i < bytes; i++)
        block[i] = pattern(from, i, seed);
    return block;
}

/* The buffer is at block + GUARD + 1: an odd address. */
static unsigned char *incoming_new(size_t bytes)
{
    unsigned char *block = malloc(bytes + 2 * GUARD + 1);
    memset(block, 0xa5, bytes + 2 * GUARD + 1);
    return block;
}

static bool guards_stand(const unsigned char *block, size_t bytes)
{
    bool ok = true;

    for (size_t i = 0; i < GUARD; i++)
        ok = ok && block[i + 1] == 0xa5 && block[GUARD + 1 + bytes + i] == 0xa5;
    return ok;
}

static bool holds(const unsigned char *data, int from, size_t bytes, size_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != pattern(from, i, seed))
            return false;
    return true;
}

static bool untouched(const unsigned char *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (block[GUARD + 1 + i] != 0xa5)
            return false;
    return guards_stand(block, bytes);
}

/* --- what arrives ------------------------------------------------------------------------- */

/* Sends to one rank while receiving from another. */
static bool pass_on(ls_transport *t, ls_descriptor what, int to, int from, size_t bytes)
{
    unsigned char *out = outgoing_new(rank, bytes, what.sequence), *in = incoming_new(bytes);
    ls_status      status = exchange(t, what, (ls_outgoing){to, out, bytes},
                                     (ls_incoming){from, in + GUARD + 1, bytes});
    bool ok = CHECK_OK(status) && CHECK(holds(in + GUARD + 1, from, bytes, what.sequence)) &&
              CHECK(guards_stand(in, bytes));

    free(out);
    free(in);
    return ok;
}

/* From rank 0 to the last, who gives nothing back. */
static void one_way(ls_transport *t, ls_descriptor what, size_t bytes)
{
    unsigned char *out = outgoing_new(0, bytes, what.sequence), *in = incoming_new(bytes);

    if (rank == 0)
        CHECK_OK(exchange(t, what, (ls_outgoing){world - 1, out, bytes},
                          (ls_incoming){LS_NO_PEER, NULL, 0}));
    if (rank == world - 1) {
        CHECK_OK(exchange(t, what, (ls_outgoing){LS_NO_PEER, NULL, 0},
                          (ls_incoming){0, in + GUARD + 1, bytes}));
        CHECK(holds(in + GUARD + 1, 0, bytes, what.sequence));
        CHECK(guards_stand(in, bytes));
    }
    free(out);
    free(in);
}

static const size_t sizes[] = {0, 1, 952, 953, 1000, 8191, 8192, 8193, 65536, LARGE};

/* largest: all in one piece; the shortest there is; the edge of small messages. */
static const int64_t largest[] = {0, 1000, 48, 8192 + 48};

enum { SIZES = sizeof sizes / sizeof *sizes, LARGESTS = sizeof largest / sizeof *largest };

static void all_sizes(int tag, int64_t most)
{
    ls_transport *t    = group(tag, most);
    int64_t       sent = 0;

    for (uint64_t i = 0; i < SIZES; i++) {
        char row[64];

        if (sizes[i] > 100000 && most && most < 1000) /* some 170,000 messages */
            continue;
        snprintf(row, sizeof row, "%zu bytes in messages of %lld", sizes[i], (long long)most);
        TEST_ROW(row);
        for (int distance = 1; distance < world || distance == 1; distance++) {
            pass_on(t, operation(i, sizes[i]), (rank + distance) % world,
                    (rank + world * 2 - distance) % world, sizes[i]);
            sent += (int64_t)sizes[i];
        }
        if (world > 1)
            one_way(t, operation(i + 100, sizes[i]), sizes[i]);
        sent += world > 1 && rank == 0 ? (int64_t)sizes[i] : 0;
        CHECK(t->sent == sent);
        TEST_ROW("");
    }
    t->ops->close(t);
}

/* In one operation, several times between the same two. */
static void many_steps(void)
{
    ls_transport *t = group(TAG_SIZES + LARGESTS, 0);

    TEST_ROW("many exchanges of one operation");
    for (int i = 0; i < 200; i++)
        pass_on(t, operation(5, 7), (rank + 1) % world, (rank + world - 1) % world,
                (size_t)(i * 97));
    t->ops->close(t);
}

typedef struct {
    int           tag;
    int64_t       largest;
    unsigned char seen;
} thread_args;

static void *run_group(void *context)
{
    thread_args  *a     = context;
    ls_transport *t     = group(a->tag, a->largest);
    size_t        bytes = 1;

    a->seen = 1;
    for (uint64_t i = 0; i < 300; i++) {
        unsigned char *out = outgoing_new(rank, bytes, i), *in = incoming_new(bytes);
        int            from = (rank + world - 1) % world;
        ls_status      status =
            exchange(t, operation(i, bytes), (ls_outgoing){(rank + 1) % world, out, bytes},
                     (ls_incoming){from, in + GUARD + 1, bytes});

        a->seen = a->seen && !status && holds(in + GUARD + 1, from, bytes, i) &&
                  guards_stand(in, bytes);
        bytes = (bytes * 7 + (size_t)a->tag) % 30000;
        free(out);
        free(in);
    }
    t->ops->close(t);
    return NULL;
}

static void two_threads(void)
{
    thread_args args[2] = {{TAG_THREADS, 0, 0}, {TAG_THREADS + 1, 2000, 0}};
    pthread_t   threads[2];

    TEST_ROW("two groups from two threads");
    for (int i = 0; i < 2; i++) /* half of the ranks start the other one first */
        pthread_create(&threads[i], NULL, run_group, &args[(i + rank) % 2]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(args[0].seen && args[1].seen);
}

/* --- what does not ------------------------------------------------------------------------ */

typedef struct {
    const char *name;
    uint64_t    sequence[2], count[2]; /* of ranks 0 and 1 */
    size_t      bytes[2];
    const char *text; /* of rank 0's failure */
} refusal;

static const refusal refusals[] = {
    {"count", {3, 3}, {1000, 1001}, {1000, 1000}, "1001"},
    {"sequence", {3, 4}, {1000, 1000}, {1000, 1000}, "#4"},
    {"size", {3, 3}, {9, 9}, {1000, 500}, "rank 1 sent 500 bytes where 1000 were due"},
    {"size, long", {3, 3}, {9, 9}, {LARGE, 500}, "rank 1 sent 500 bytes where 8388611 were"},
    {"size, long on both", {3, 3}, {9, 9}, {LARGE, 90000}, "rank 1 sent 90000 bytes where"},
    {"nothing", {3, 3}, {9, 9}, {1, 0}, "rank 1 sent 0 bytes where 1 were due"},
    {"count, long", {3, 3}, {LARGE, 1}, {LARGE, LARGE}, "8388611"},
};

enum { REFUSALS = sizeof refusals / sizeof *refusals };

/* Both refuse what the other sends, and their buffers stay as they were. */
static void refuse(const refusal *row, int tag)
{
    ls_transport  *t     = group(tag, 0);
    size_t         bytes = row->bytes[rank];
    unsigned char *out = outgoing_new(rank, bytes, 1), *in = incoming_new(bytes);
    int64_t        since;

    CHECK_FAILS(exchange(t, operation(row->sequence[rank], row->count[rank]),
                         (ls_outgoing){!rank, out, bytes},
                         (ls_incoming){!rank, in + GUARD + 1, bytes}),
                LS_EMISMATCH, rank ? "rank 0" : row->text);
    CHECK(untouched(in, bytes));
    since = ls_now_ns();
    t->ops->close(t);
    CHECK(ls_now_ns() - since < 1000000000);
    free(out);
    free(in);
}

/* A receiver that refuses; the sender waits in vain, and can close. */
static void refuse_one_way(int tag)
{
    ls_transport  *t   = group(tag, 0);
    unsigned char *out = outgoing_new(rank, LARGE, 1), *in = incoming_new(LARGE);
    int64_t        since;

    TEST_ROW("a sender that is refused");
    if (rank) {
        CHECK_FAILS(exchange(t, operation(1, 1), (ls_outgoing){LS_NO_PEER, NULL, 0},
                             (ls_incoming){0, in + GUARD + 1, LARGE}),
                    LS_EMISMATCH, "rank 0");
        CHECK(untouched(in, LARGE));
    } else {
        ls_descriptor what = operation(1, 2);

        CHECK_OK(t->ops->begin(t, &what, (ls_outgoing){1, out, LARGE},
                               (ls_incoming){LS_NO_PEER, NULL, 0}));
        CHECK(finish(t, 0.1) == LS_ETIMEOUT);
    }
    since = ls_now_ns();
    t->ops->close(t);
    CHECK(ls_now_ns() - since < 1000000000);
    free(out);
    free(in);
}

/* A rank that begins anew where the other one goes on. */
static void lost_step(void)
{
    ls_transport *t    = group(TAG_STEP, 0);
    unsigned char byte = 0;

    TEST_ROW("a step too few");
    for (int i = 0; i < 2 && rank == 0; i++)
        CHECK_OK(exchange(t, operation(1, 1), (ls_outgoing){1, &byte, 1},
                          (ls_incoming){LS_NO_PEER, NULL, 0}));
    for (int i = 0; i < 2 && rank == 1; i++) {
        ls_status status = exchange(t, operation(1, 1), (ls_outgoing){LS_NO_PEER, NULL, 0},
                                    (ls_incoming){0, &byte, 1});

        if (i == 0)
            CHECK_OK(status);
        else
            CHECK_FAILS(status, LS_EMISMATCH, "rank 0 sent its message 1 where 0 was due");
        t->ops->close(t);
        t = group(TAG_STEP, 0);
    }
    t->ops->close(t);
}

/* What is given up while nobody sends can be taken back, and is not delivered later. */
static void receive_nothing(void)
{
    ls_transport  *t    = group(TAG_LATE, 0);
    unsigned char *in   = incoming_new(100);
    ls_descriptor  what = operation(1, 1);

    TEST_ROW("a receiver that gives up");
    if (rank == 1) {
        CHECK_OK(t->ops->begin(t, &what, (ls_outgoing){LS_NO_PEER, NULL, 0},
                               (ls_incoming){0, in + GUARD + 1, 100}));
        CHECK(finish(t, 0.05) == LS_ETIMEOUT);
        t->ops->close(t);
        t = group(TAG_LATE, 0);
    }
    meet();
    pass_on(t, what, (rank + 1) % world, (rank + world - 1) % world, 100);
    CHECK(untouched(in, 100));
    t->ops->close(t);
    free(in);
}

static void refuse_all(void)
{
    if (world < 2)
        return;
    for (int i = 0; i < REFUSALS && rank < 2; i++) {
        TEST_ROW(refusals[i].name);
        refuse(&refusals[i], TAG_REFUSED + i);
    }
    if (rank < 2)
        refuse_one_way(TAG_REFUSED + REFUSALS);
    if (rank < 2)
        lost_step();
    meet();
    receive_nothing();
}

/* --- waiting ------------------------------------------------------------------------------ */

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_for_late(void)
{
    ls_transport *t = group(TAG_LATE + 1, 0);
    double        before;

    TEST_ROW("a rank that is a second late");
    meet();
    before = cpu_seconds();
    if (rank == 0)
        ls_sleep_ns(1000000000);
    pass_on(t, operation(1, 1), (rank + 1) % world, (rank + world - 1) % world, 100000);
    if (!CHECK(cpu_seconds() - before < 0.05))
        printf("     rank %d used %.3f s of a core\n", rank, cpu_seconds() - before);
    t->ops->close(t);
}

static void *wake_later(void *context)
{
    ls_transport *t = context;

    ls_sleep_ns(30000000);
    t->ops->wake(t);
    return NULL;
}

static void wake(void)
{
    ls_transport *t     = group(TAG_LATE + 2, 0);
    int64_t       since = ls_now_ns();
    pthread_t     thread;

    TEST_ROW("wake");
    t->ops->wake(t);
    t->ops->sleep(t, 5000000000);
    CHECK(ls_now_ns() - since < 1000000000);
    since = ls_now_ns();
    t->ops->sleep(t, 50000000);
    CHECK(ls_now_ns() - since >= 50000000);
    since = ls_now_ns();
    pthread_create(&thread, NULL, wake_later, t);
    t->ops->sleep(t, 5000000000);
    CHECK(ls_now_ns() - since < 1000000000);
    pthread_join(thread, NULL);
    t->ops->close(t);
}

/* --- bad arguments ------------------------------------------------------------------------ */

static void bad_arguments(void)
{
    int           own[2] = {rank, world}, twice[3] = {rank, rank, rank};
    ls_transport *t = NULL;

    TEST_ROW("bad arguments");
    CHECK_FAILS(ls_transport_mpi(own, 0, 2, 1, 0, &t), LS_EINVAL, "member 1 is MPI rank");
    CHECK_FAILS(ls_transport_mpi(twice, 0, 3, 1, 0, &t), LS_EINVAL, "members 0 and 1 are both");
    CHECK_FAILS(ls_transport_mpi(own, 1, 1, 1, 0, &t), LS_EINVAL, "rank 1 of 1 is not this");
    CHECK_FAILS(ls_transport_mpi(own, 0, 1, -1, 0, &t), LS_EINVAL, "tag -1");
    CHECK_FAILS(ls_transport_mpi(own, 0, 1, 1, 47, &t), LS_EINVAL, "messages of 47 bytes");
    CHECK_FAILS(ls_transport_mpi(own, 0, 1, 1, 1LL << 31, &t), LS_EINVAL, "2147483648");
    CHECK(!t);
}

static void out_of_memory(void)
{
    int           own = rank, failures = 0;
    ls_transport *t = NULL;

    TEST_ROW("out of memory");
    for (int64_t n = 0; !t && n < 20; n++) {
        ls_status status;

        ls_alloc_fail_after(n);
        status = ls_transport_mpi(&own, 0, 1, 1, 0, &t);
        CHECK(status == (t ? LS_OK : LS_ENOMEM));
        failures += !t;
    }
    ls_alloc_fail_after(-1);
    CHECK(failures == 5);
    if (CHECK(t))
        t->ops->close(t);
}

/* --- start and end ------------------------------------------------------------------------ */

static void start(void)
{
    int again_rank = -1, again_world = -1, own = 0;

    ls_transport *t;

    TEST_ROW("start");
    CHECK_FAILS(ls_transport_mpi(&own, 0, 1, 1, 0, &t), LS_ESTATE, "before ls_mpi_start()");
    if (!CHECK_OK(ls_mpi_start(&rank, &world)))
        exit(1);
    CHECK_OK(ls_mpi_start(&again_rank, &again_world));
    CHECK(again_rank == rank && again_world == world && rank < world && world <= 64);
}

static void end(void)
{
    int again_rank, again_world;

    TEST_ROW("end");
    meet();
    ls_mpi_end();
    ls_mpi_end();
    CHECK_FAILS(ls_mpi_start(&again_rank, &again_world), LS_ESTATE, "has been finalised");
}

int main(void)
{
    alarm(100); /* nothing stays behind, whatever ends mpirun */
    start();
    for (int i = 0; i < LARGESTS; i++)
        all_sizes(TAG_SIZES + i, largest[i]);
    many_steps();
    two_threads();
    refuse_all();
    if (world > 1)
        wait_for_late();
    wake();
    bad_arguments();
    out_of_memory();
    end();
    return test_summary("transport_mpi");
}

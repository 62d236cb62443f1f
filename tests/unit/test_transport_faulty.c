/*
 * test_transport_faulty.c - which exchange or meeting goes wrong, and how, over two ranks in
 * one thread whose transport is a mailbox in memory.
 */
#include <stddef.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/meet.h"
#include "dist/comm/transport_faulty.h"
#include "test.h"

enum { MESSAGE = 8, ROUNDS = 4, PAYLOAD = 16 };

/* --- the mailbox -------------------------------------------------------------------------- */

/* What the two ranks share. */
typedef struct {
    char       bytes[2][ROUNDS][MESSAGE]; /* of a rank, by its messages */
    size_t     size[2][ROUNDS];
    int        sent[2], received[2];
    ls_posting posting[2][ROUNDS];
    char       payload[2][ROUNDS][PAYLOAD];
    int        posts[2], phases[2];
    int        open, wakes;
    int64_t    slept_ns; /* asked for, last */
    bool       post_fails;
} mailbox;

typedef struct {
    ls_transport base;
    ls_meet      meet;
    mailbox     *box;
    ls_incoming  in;
    bool         waits; /* for `in` */
} plain;

static ls_status plain_begin(ls_transport *base, const ls_descriptor *what, ls_outgoing out,
                             ls_incoming in)
{
    plain   *t   = (plain *)base;
    mailbox *box = t->box;

    (void)what;
    if (out.peer != LS_NO_PEER) {
        int k = box->sent[base->rank]++;

        memcpy(box->bytes[base->rank][k], out.data, out.bytes);
        box->size[base->rank][k] = out.bytes;
        base->sent += (int64_t)out.bytes;
    }
    t->in    = in;
    t->waits = in.peer != LS_NO_PEER;
    return LS_OK;
}

static ls_status plain_progress(ls_transport *base, bool *moved, bool *done)
{
    plain   *t    = (plain *)base;
    mailbox *box  = t->box;
    int      peer = !base->rank, k = box->received[base->rank];

    *moved = t->waits && box->sent[peer] > k;
    if (*moved) {
        if (box->size[peer][k] != t->in.bytes)
            return ls_fail(LS_EMISMATCH, "%zu bytes where %zu were due", box->size[peer][k],
                           t->in.bytes);
        memcpy(t->in.data, box->bytes[peer][k], t->in.bytes);
        box->received[base->rank]++;
        t->waits = false;
    }
    *done = !t->waits;
    return LS_OK;
}

static void plain_sleep(ls_transport *base, int64_t ns)
{
    ((plain *)base)->box->slept_ns = ns;
    ls_sleep_ns(ns < 10000000 ? ns : 10000000);
}

static void plain_wake(ls_transport *base)
{
    ((plain *)base)->box->wakes++;
}

static void plain_close(ls_transport *base)
{
    ((plain *)base)->box->open--;
    free(base);
}

static const ls_transport_ops plain_ops = {"plain",     plain_begin, plain_progress,
                                           plain_sleep, plain_wake,  plain_close};

static plain *of_meet(ls_meet *m)
{
    return (plain *)(void *)((char *)m - offsetof(plain, meet));
}

static ls_status plain_post(ls_meet *m, const ls_posting *mine, const void *payload,
                            size_t bytes)
{
    plain *t = of_meet(m);
    int    r = t->base.rank, k = t->box->posts[r]++;

    if (t->box->post_fails)
        return ls_fail(LS_EIO, "no posting");
    t->box->posting[r][k] = *mine;
    memcpy(t->box->payload[r][k], payload, bytes);
    return LS_OK;
}

static const ls_posting *plain_posted(ls_meet *m, int rank)
{
    plain *t = of_meet(m);
    int    k = t->box->posts[t->base.rank];

    return k && t->box->posts[rank] >= k ? &t->box->posting[rank][k - 1] : NULL;
}

static const void *plain_payload(ls_meet *m, int rank)
{
    plain *t = of_meet(m);
    return t->box->payload[rank][t->box->posts[t->base.rank] - 1];
}

static ls_status plain_advance(ls_meet *m)
{
    of_meet(m)->box->phases[of_meet(m)->base.rank]++;
    return LS_OK;
}

static bool plain_advanced(ls_meet *m, int rank)
{
    plain *t = of_meet(m);
    return t->box->phases[rank] >= t->box->phases[t->base.rank];
}

static uint64_t plain_place(ls_meet *m, const void *p, size_t bytes)
{
    (void)m;
    return (uint64_t)(uintptr_t)p + bytes;
}

static void *plain_address(ls_meet *m, int rank, uint64_t place, size_t bytes)
{
    (void)m;
    (void)rank;
    return (void *)(uintptr_t)(place - bytes);
}

static const ls_meet_ops plain_meet_ops = {plain_post,    plain_posted,   plain_payload,
                                           plain_advance, plain_advanced, plain_place,
                                           plain_address};

static ls_transport *plain_new(mailbox *box, int rank)
{
    plain *t = calloc(1, sizeof *t);

    t->base = (ls_transport){.ops = &plain_ops, .rank = rank, .size = 2, .meet = &t->meet};
    t->meet = (ls_meet){&plain_meet_ops, PAYLOAD};
    t->box  = box;
    box->open++;
    return &t->base;
}

/* Rank 0 is the one that goes wrong. */
static void pair(mailbox *box, ls_transport *t[2], int64_t n, ls_fault fault)
{
    *box = (mailbox){0};
    CHECK_OK(ls_transport_faulty(plain_new(box, 0), n, fault, &t[0]));
    t[1] = plain_new(box, 1);
}

static void close_pair(mailbox *box, ls_transport *t[2])
{
    t[0]->ops->close(t[0]);
    t[1]->ops->close(t[1]);
    CHECK(box->open == 0);
}

static ls_descriptor operation(uint64_t sequence)
{
    return (ls_descriptor){.sequence = sequence, .count = MESSAGE, .kind = LS_ALL_REDUCE};
}

/* --- exchanges ---------------------------------------------------------------------------- */

typedef struct {
    ls_status status[2];
    bool      done[2];
    int64_t   ns;
    char      got[2][MESSAGE];
} outcome;

static void look(ls_transport *t, outcome *o, int rank)
{
    bool moved, done = false;

    if (o->status[rank] || o->done[rank])
        return;
    o->status[rank] = t->ops->progress(t, &moved, &done);
    o->done[rank]   = done;
}

/* Each sends to the other; seconds: when to give up. */
static outcome swap(ls_transport *t[2], int round, size_t bytes, double seconds)
{
    static const char text[2][MESSAGE + 1] = {"of rank0", "of rank1"};
    ls_descriptor     what                 = operation((uint64_t)round);
    outcome           o                    = {0};
    int64_t           since                = ls_now_ns();

    for (int r = 0; r < 2; r++)
        o.status[r] = t[r]->ops->begin(t[r], &what, (ls_outgoing){!r, text[r], bytes},
                                       (ls_incoming){!r, o.got[r], bytes});
    while ((o.ns = ls_now_ns() - since) < (int64_t)(seconds * 1e9) &&
           !((o.status[0] || o.done[0]) && (o.status[1] || o.done[1]))) {
        look(t[0], &o, 0);
        look(t[1], &o, 1);
        if (!o.status[0] && !o.done[0])
            t[0]->ops->sleep(t[0], 100000000);
    }
    return o;
}

static bool went_well(const outcome *o)
{
    return o->done[0] && o->done[1] && !memcmp(o->got[0], "of rank1", MESSAGE) &&
           !memcmp(o->got[1], "of rank0", MESSAGE);
}

static void wrong(const outcome *o, ls_fault fault, const mailbox *box, int n)
{
    static const char nothing[MESSAGE] = {0};

    if (fault == LS_FAULT_FAIL)
        CHECK(o->status[0] == LS_EIO && box->sent[0] == n - 1);
    if (fault == LS_FAULT_DELAY)
        CHECK(went_well(o) && o->ns >= 500000000 && o->ns < 5000000000);
    if (fault == LS_FAULT_TRUNCATE)
        CHECK(o->status[1] == LS_EMISMATCH && box->size[0][n - 1] == MESSAGE - 1);
    if (fault == LS_FAULT_CUT)
        CHECK(!o->done[0] && !o->done[1] && !o->status[0] && box->sent[0] == n - 1);
    if (fault != LS_FAULT_DELAY)
        CHECK(!memcmp(o->got[1], nothing, MESSAGE));
}

typedef struct {
    const char *name;
    ls_fault    fault;
} row;

static const row rows[] = {
    {"fail", LS_FAULT_FAIL},
    {"delay", LS_FAULT_DELAY},
    {"truncate", LS_FAULT_TRUNCATE},
    {"cut", LS_FAULT_CUT},
};

enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS == (int)LS_FAULT_COUNT, "a row for each");

/* Exactly the n-th goes wrong; what follows is well again after a delay, and never after a cut.
 */
static void exchanges(ls_fault fault, int n)
{
    mailbox       box;
    ls_transport *t[2];
    outcome       o;

    pair(&box, t, n, fault);
    for (int round = 1; round < n; round++) {
        o = swap(t, round, MESSAGE, 1);
        CHECK(went_well(&o) && o.ns < 400000000);
    }
    o = swap(t, n, MESSAGE, fault == LS_FAULT_DELAY ? 5 : 0.05);
    wrong(&o, fault, &box, n);
    if (fault == LS_FAULT_DELAY || fault == LS_FAULT_CUT) {
        o = swap(t, n + 1, MESSAGE, fault == LS_FAULT_DELAY ? 1 : 0.05);
        CHECK(fault == LS_FAULT_DELAY ? went_well(&o) && o.ns < 400000000
                                      : !o.done[0] && !o.status[0]);
        CHECK(t[0]->sent == MESSAGE * (fault == LS_FAULT_DELAY ? n + 1 : n - 1));
    }
    close_pair(&box, t);
}

/* Nothing to shorten: cut. */
static void truncate_nothing(void)
{
    mailbox       box;
    ls_transport *t[2];
    ls_descriptor what = operation(1);
    char          byte = 0;
    bool          moved, done;
    outcome       o;

    TEST_ROW("truncate an empty message");
    pair(&box, t, 1, LS_FAULT_TRUNCATE);
    o = swap(t, 1, 0, 0.05);
    CHECK(!o.done[0] && !o.done[1] && box.sent[0] == 0);
    close_pair(&box, t);
    TEST_ROW("truncate where nothing is sent");
    pair(&box, t, 1, LS_FAULT_TRUNCATE);
    CHECK_OK(t[1]->ops->begin(t[1], &what, (ls_outgoing){0, &byte, 1},
                              (ls_incoming){LS_NO_PEER, NULL, 0}));
    CHECK_OK(t[0]->ops->begin(t[0], &what, (ls_outgoing){LS_NO_PEER, NULL, 0},
                              (ls_incoming){1, &byte, 1}));
    CHECK_OK(t[0]->ops->progress(t[0], &moved, &done));
    CHECK(!moved && !done);
    close_pair(&box, t);
}

/* --- meetings ----------------------------------------------------------------------------- */

/* Both post, and rank 1 sees what rank 0 posted (NULL: nothing in time). */
static const ls_posting *meet(ls_transport *t[2], uint64_t count, double seconds)
{
    ls_posting        mine  = {{.count = count}, 1, 2};
    int64_t           until = ls_now_ns() + (int64_t)(seconds * 1e9);
    const ls_posting *seen[2];
    ls_meet          *m[2] = {t[0]->meet, t[1]->meet};

    CHECK_OK(m[1]->ops->post(m[1], &mine, "rank 1", 6));
    CHECK_OK(m[0]->ops->post(m[0], &mine, "rank 0", 6));
    do {
        for (int r = 0; r < 2; r++)
            seen[r] = m[r]->ops->posted(m[r], !r);
        if (!seen[0])
            t[0]->ops->sleep(t[0], 100000000);
    } while (!(seen[0] && seen[1]) && ls_now_ns() < until);
    return seen[1];
}

static void meet_well(ls_transport *t[2])
{
    ls_meet          *m[2] = {t[0]->meet, t[1]->meet};
    const ls_posting *seen = meet(t, 10, 5);

    CHECK(seen && seen->what.count == 10 && seen->in == 1 && seen->out == 2);
    CHECK(!memcmp(m[0]->ops->payload(m[0], 1), "rank 1", 6));
    CHECK(!memcmp(m[1]->ops->payload(m[1], 0), "rank 0", 6));
    CHECK_OK(m[0]->ops->advance(m[0]));
    CHECK(!m[0]->ops->advanced(m[0], 1));
    CHECK_OK(m[1]->ops->advance(m[1]));
    CHECK(m[0]->ops->advanced(m[0], 1) && m[1]->ops->advanced(m[1], 0));
}

static void meet_wrong(mailbox *box, ls_transport *t[2], ls_fault fault)
{
    ls_meet          *m     = t[0]->meet;
    int64_t           now   = ls_now_ns();
    const ls_posting *seen  = NULL;
    int               posts = box->posts[0], phases = box->phases[0];

    if (fault == LS_FAULT_FAIL) {
        ls_posting mine = {{.count = 10}, 1, 2};

        CHECK_FAILS(m->ops->post(m, &mine, "rank 0", 6), LS_EIO, "rank 0: meeting");
        return;
    }
    if (fault == LS_FAULT_DELAY) {
        meet_well(t);
        CHECK(ls_now_ns() - now >= 500000000 && ls_now_ns() - now < 5000000000);
        return;
    }
    seen = meet(t, 10, 0.05);
    if (fault == LS_FAULT_TRUNCATE) {
        CHECK(seen && seen->what.count == 9);
        return;
    }
    CHECK(!seen && !m->ops->posted(m, 0) && !m->ops->posted(m, 1));
    CHECK_OK(m->ops->advance(m));
    CHECK(!m->ops->advanced(m, 1));
    CHECK_OK(m->ops->post(m, &(ls_posting){.in = 1}, "rank 0", 6));
    CHECK(box->posts[0] == posts && box->phases[0] == phases);
}

/* Exchanges count as well: every second turn is a meeting. */
static void meetings(ls_fault fault, int n)
{
    mailbox       box;
    ls_transport *t[2];
    ls_meet      *m;

    pair(&box, t, n, fault);
    m = t[0]->meet;
    CHECK(m && m->payload_limit == PAYLOAD);
    CHECK(m->ops->place(m, &box, 5) == (uint64_t)(uintptr_t)&box + 5);
    CHECK(m->ops->address(m, 1, m->ops->place(m, &box, 5), 5) == &box);
    for (int turn = 1; turn < n; turn++) {
        outcome o;

        if (turn % 2) {
            o = swap(t, turn, MESSAGE, 1);
            CHECK(went_well(&o));
        } else {
            meet_well(t);
        }
    }
    meet_wrong(&box, t, fault);
    if (fault == LS_FAULT_DELAY)
        meet_well(t);
    close_pair(&box, t);
}

static void meet_nothing(void)
{
    mailbox       box;
    ls_transport *t[2];

    TEST_ROW("truncate a meeting without elements");
    pair(&box, t, 1, LS_FAULT_TRUNCATE);
    CHECK(!meet(t, 0, 0.05) && box.posts[0] == 0);
    close_pair(&box, t);
    TEST_ROW("a late posting that cannot be put up");
    pair(&box, t, 1, LS_FAULT_DELAY);
    CHECK_OK(t[0]->meet->ops->post(t[0]->meet, &(ls_posting){.in = 1}, NULL, 0));
    box.post_fails = true;
    ls_sleep_ns(510000000);
    CHECK(!t[0]->meet->ops->posted(t[0]->meet, 1));
    CHECK(!t[0]->meet->ops->advanced(t[0]->meet, 1));
    close_pair(&box, t);
}

/* --- the rest ----------------------------------------------------------------------------- */

static void sleep_and_wake(void)
{
    mailbox       box;
    ls_transport *t[2];
    ls_descriptor what = operation(1);

    TEST_ROW("sleep and wake");
    pair(&box, t, 1, LS_FAULT_DELAY);
    CHECK(t[0]->rank == 0 && t[0]->size == 2);
    t[0]->ops->wake(t[0]);
    CHECK(box.wakes == 1);
    t[0]->ops->sleep(t[0], 5000000);
    CHECK(box.slept_ns == 5000000);
    CHECK_OK(t[0]->ops->begin(t[0], &what, (ls_outgoing){1, "x", 1},
                              (ls_incoming){LS_NO_PEER, NULL, 0}));
    t[0]->ops->sleep(t[0], 3600000000000);
    CHECK(box.slept_ns > 0 && box.slept_ns <= 500000000);
    t[0]->ops->sleep(t[0], 0);
    CHECK(box.slept_ns == 0);
    close_pair(&box, t);
}

static void bad_arguments(void)
{
    mailbox       box = {0};
    ls_transport *t   = NULL;

    TEST_ROW("bad arguments");
    CHECK_FAILS(ls_transport_faulty(plain_new(&box, 0), 0, LS_FAULT_CUT, &t), LS_EINVAL,
                "count from 1");
    CHECK_FAILS(ls_transport_faulty(plain_new(&box, 0), 1, LS_FAULT_COUNT, &t), LS_EINVAL,
                "fault 4");
    CHECK(!t && box.open == 0);
    TEST_ROW("out of memory");
    for (int64_t n = 0; n < 2; n++) {
        ls_transport *inner = plain_new(&box, 0);

        ls_alloc_fail_after(n);
        CHECK(ls_transport_faulty(inner, 1, LS_FAULT_CUT, &t) == LS_ENOMEM);
        ls_alloc_fail_after(-1);
        CHECK(!t && box.open == 0);
    }
}

int main(void)
{
    for (int i = 0; i < ROWS; i++)
        for (int n = 1; n < ROUNDS; n++) {
            char name[64];

            snprintf(name, sizeof name, "%s, exchange %d", rows[i].name, n);
            TEST_ROW(name);
            exchanges(rows[i].fault, n);
            snprintf(name, sizeof name, "%s, meeting after %d others", rows[i].name, n - 1);
            meetings(rows[i].fault, n);
            TEST_ROW("");
        }
    truncate_nothing();
    meet_nothing();
    sleep_and_wake();
    bad_arguments();
    return test_summary("transport_faulty");
}

/*
 * test_transport_tcp.c - messages over TCP: sizes and shapes, what is checked before a byte is
 * believed, ends of connections, sleep and wake.  Groups and strangers: test_tcp_connect.c.
 */
#include <signal.h>
#include <sys/wait.h>

#include "tcp_group.h"

static const size_t sizes[] = {0,    1,    47,   48,    49,          1000, 8143,
                               8144, 8145, 8192, 65536, 8388608 + 3, 2,    0};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], GUARD = 64 };

static ls_descriptor what_of(uint64_t sequence)
{
    return (ls_descriptor){.sequence = sequence,
                           .count    = 1000,
                           .kind     = LS_ALL_REDUCE,
                           .dtype    = LS_F32,
                           .op       = LS_SUM};
}

static unsigned char byte_at(size_t i, unsigned seed)
{
    return (unsigned char)((i * 2654435761u >> 7) + seed);
}

/* Memory of bytes at an odd address, with guards around it. */
typedef struct {
    unsigned char *block, *data;
    size_t         bytes;
} piece;

static piece piece_new(size_t bytes)
{
    unsigned char *block = malloc(bytes + 2 * GUARD + 1);

    if (!block)
        abort();
    memset(block, 0xA5, bytes + 2 * GUARD + 1);
    return (piece){block, block + GUARD + 1, bytes};
}

static piece piece_filled(size_t bytes, unsigned seed)
{
    piece p = piece_new(bytes);

    for (size_t i = 0; i < bytes; i++)
        p.data[i] = byte_at(i, seed);
    return p;
}

/* Frees it and says whether it held what it should. */
static ls_status piece_end(piece p, unsigned seed, const char *name)
{
    ls_status status = LS_OK;

    for (size_t i = 0; i < p.bytes && !status; i++)
        if (p.data[i] != byte_at(i, seed))
            status = ls_fail(LS_ESTATE, "%s of %zu bytes: byte %zu is wrong", name, p.bytes, i);
    for (size_t i = 0; i <= GUARD && !status; i++)
        if (p.block[i] != 0xA5 || (i < GUARD && p.data[p.bytes + i] != 0xA5))
            status = ls_fail(LS_ESTATE, "%s of %zu bytes: written beside it", name, p.bytes);
    free(p.block);
    return status;
}

static bool untouched(piece p)
{
    for (size_t i = 0; i < p.bytes + 2 * GUARD + 1; i++)
        if (p.block[i] != 0xA5)
            return false;
    return true;
}

/* One exchange with peers `to` and `from` (either may be LS_NO_PEER); seed: the sender's rank.
 */
static ls_status trade(rank *r, const ls_descriptor *what, int to, size_t out, int from,
                       size_t in)
{
    piece       o = piece_filled(out, (unsigned)r->rank), i = piece_new(in);
    ls_incoming incoming = from == LS_NO_PEER ? nothing_in() : (ls_incoming){from, i.data, in};
    ls_outgoing outgoing = to == LS_NO_PEER ? nothing_out() : (ls_outgoing){to, o.data, out};
    ls_status   status   = exchange(r->t, what, outgoing, incoming), kept;

    kept = piece_end(o, (unsigned)r->rank, "outgoing");
    if (from == LS_NO_PEER || status) {
        free(i.block);
        return status ? status : kept;
    }
    status = piece_end(i, (unsigned)from, "incoming");
    return status ? status : kept;
}

/* Both directions at once, of every size against every other. */
static ls_status body_both_ways(rank *r)
{
    ls_status status = LS_OK;
    int64_t   sent   = 0;
    int       other  = 1 - r->rank;

    for (int i = 0; i < N_SIZES && !status; i++)
        for (int j = 0; j < N_SIZES && !status; j++) {
            if (sizes[i] > 1 << 20 && sizes[j] > 1000 && i != j)
                continue;
            size_t        out  = r->rank ? sizes[i] : sizes[j];
            size_t        in   = r->rank ? sizes[j] : sizes[i];
            ls_descriptor what = what_of((uint64_t)(i / 2)); /* several exchanges of one */
            status             = trade(r, &what, other, out, other, in);
            sent += (int64_t)out;
        }
    if (!status && sent != r->t->sent)
        status = ls_fail(LS_ESTATE, "%lld bytes sent, %lld counted", (long long)sent,
                         (long long)r->t->sent);
    return status;
}

static ls_status body_one_way(rank *r)
{
    ls_status status = LS_OK;

    for (int i = 0; i < 2 * N_SIZES && !status; i++) {
        ls_descriptor what = what_of((uint64_t)i);
        size_t        n    = sizes[i / 2];
        status             = i % 2 == r->rank ? trade(r, &what, 1 - r->rank, n, LS_NO_PEER, 0)
                                              : trade(r, &what, LS_NO_PEER, 0, 1 - r->rank, n);
    }
    return status;
}

/* To the right while from the left, then the other way round. */
static ls_status body_ring(rank *r)
{
    int       n = r->group->size, right = (r->rank + 1) % n, left = (r->rank + n - 1) % n;
    ls_status status = LS_OK;

    for (int i = 0; i < N_SIZES && !status; i++) {
        ls_descriptor what = what_of(100 + (uint64_t)i);
        status             = trade(r, &what, right, sizes[i], left, sizes[i]);
        if (!status)
            status = trade(r, &what, left, sizes[i], right, sizes[i]);
    }
    return status;
}

/* Everybody with everybody, and with nobody. */
static ls_status body_pairs(rank *r)
{
    ls_status     status = LS_OK;
    ls_descriptor what   = what_of(9);

    for (int round = 1; round < 4 && !status; round++)
        status = trade(r, &what, r->rank ^ round, 4711, r->rank ^ round, 4711);
    if (!status)
        status = trade(r, &what, LS_NO_PEER, 0, LS_NO_PEER, 0);
    return status;
}

static void test_shapes(void)
{
    TEST_ROW("both ways");
    group_all(2, "127.0.0.1", body_both_ways, NULL);
    TEST_ROW("one way");
    group_all(2, "127.0.0.1", body_one_way, NULL);
    TEST_ROW("ring of 3");
    group_all(3, "127.0.0.1", body_ring, NULL);
    TEST_ROW("ring of 4");
    group_all(4, "127.0.0.1", body_ring, NULL);
    TEST_ROW("pairs of 4");
    group_all(4, "127.0.0.1", body_pairs, NULL);
}

/* Ranks that disagree: what each brings, and what both must say. */
typedef struct {
    const char   *name;
    ls_descriptor what[2];
    size_t        out[2], in[2];
    const char   *text[2];
    const char   *more;
} disagreement;

static ls_status body_disagree(rank *r)
{
    const disagreement *row   = r->row;
    piece               out   = piece_filled(row->out[r->rank], 1);
    piece               in    = piece_new(row->in[r->rank]);
    int                 other = 1 - r->rank;
    ls_status           status =
        exchange(r->t, &row->what[r->rank], (ls_outgoing){other, out.data, out.bytes},
                 (ls_incoming){other, in.data, in.bytes});

    if (!untouched(in))
        status = ls_fail(LS_ESTATE, "the buffer was written to before the check");
    free(out.block);
    free(in.block);
    return status;
}

static void test_disagreement(void)
{
    static const ls_descriptor base = {17, 1000, LS_ALL_REDUCE, LS_F32, LS_SUM, 0, 0, 0};
    ls_descriptor              more = base, later = base;
    more.count                = 1001;
    later.sequence            = 18;
    const disagreement rows[] = {
        {"count",
         {base, more},
         {4000, 4004},
         {4000, 4004},
         {"count 1000", "count 1000"},
         "count 1001"},
        {"sequence", {base, later}, {10, 10}, {10, 10}, {"#17", "#17"}, "#18"},
        {"bytes",
         {base, base},
         {1000, 500},
         {1000, 500},
         {"rank 1 sent 500 bytes where 1000 were due (all_reduce #17",
          "rank 0 sent 1000 bytes where 500 were due (all_reduce #17"},
         "count 1000"},
        {"nothing against something",
         {base, base},
         {0, 100000},
         {0, 100000},
         {"rank 1 sent 100000 bytes where 0 were due",
          "rank 0 sent 0 bytes where 100000 were due"},
         "all_reduce"},
        {"large",
         {base, more},
         {8 << 20, 8 << 20},
         {8 << 20, 8 << 20},
         {"count 1000", "count 1000"},
         "count 1001"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        group g;
        rank  ranks[MAX_RANKS] = {0};
        TEST_ROW(rows[i].name);
        if (!group_open(&g, 2, "127.0.0.1"))
            return;
        group_run(&g, 0, ranks, body_disagree, &rows[i]);
        for (int r = 0; r < 2; r++) {
            rank_failed(&ranks[r], LS_EMISMATCH, rows[i].text[r]);
            rank_failed(&ranks[r], LS_EMISMATCH, rows[i].more);
        }
        group_close(&g, ranks);
    }
}

/* A pair of which rank 1 is a bare socket, let in by the letter that rank 1 would write. */
typedef struct {
    group g;
    rank  zero[MAX_RANKS];
    int   fd;
} half_bare;

static bool open_half_bare(half_bare *h)
{
    unsigned char answer[LETTER];

    *h = (half_bare){.fd = -1};
    if (!group_open(&h->g, 2, "127.0.0.1"))
        return false;
    ls_tcp_listener_close(&h->g.listeners[1]);
    h->zero[0] = (rank){.group = &h->g, .limit_ns = 10 * SECOND};
    pthread_create(&h->zero[0].thread, NULL, rank_main, &h->zero[0]);
    h->fd   = dial_bare(h->g.peers[0].port);
    bool ok = CHECK(write_bare(h->fd, true_letter, LETTER)) &&
              CHECK(read_bare(h->fd, answer, LETTER) == LETTER);
    pthread_join(h->zero[0].thread, NULL);
    return rank_went_well(&h->zero[0]) && h->zero[0].t && ok;
}

static void close_half_bare(half_bare *h)
{
    if (h->fd >= 0)
        close(h->fd);
    group_close(&h->g, h->zero);
}

/* What comes over the wire, from a peer that need not be one of us. */
typedef struct {
    const char *name;
    ls_header   header;
    size_t      due;         /* bytes that rank 0 expects */
    size_t      first, then; /* bytes of the wire that come at once, and a moment later */
    bool        close;       /* after that */
    ls_status   want;
    const char *text;
} wire_row;

#define COUNT(n)                                     \
    {                                                \
        3, n, LS_ALL_REDUCE, LS_F32, LS_SUM, 0, 0, 0 \
    }
#define CLOSED "rank 1: connection closed"

static const wire_row wire_rows[] = {
    {"whole at once", {COUNT(1000), 0, 100}, 100, 148, 0, false, LS_OK, ""},
    {"whole, then the end", {COUNT(1000), 0, 100}, 100, 148, 0, true, LS_OK, ""},
    {"large, then the end", {COUNT(1000), 0, 90000}, 90000, 48, 90000, true, LS_OK, ""},
    {"header in halves", {COUNT(1000), 0, 100}, 100, 20, 128, false, LS_OK, ""},
    {"header, then payload", {COUNT(1000), 0, 100}, 100, 48, 100, false, LS_OK, ""},
    {"header and some", {COUNT(1000), 0, 20000}, 20000, 60, 19988, false, LS_OK, ""},
    {"no payload", {COUNT(1000), 0, 0}, 0, 47, 1, false, LS_OK, ""},
    {"wrong step",
     {COUNT(1000), 1, 8},
     8,
     56,
     0,
     false,
     LS_EMISMATCH,
     "rank 1 is at step 1 where 0 was due (all_reduce #3"},
    {"wrong count", {COUNT(7), 0, 8}, 8, 56, 0, false, LS_EMISMATCH, "count 7"},
    {"too many bytes",
     {COUNT(1000), 0, UINT64_MAX},
     8,
     56,
     0,
     false,
     LS_EMISMATCH,
     "sent 18446744073709551615 bytes where 8 were due"},
    {"wrong, then the end", {COUNT(1000), 0, 9}, 8, 57, 0, true, LS_EMISMATCH, "sent 9 bytes"},
    {"ends before the header", {COUNT(1000), 0, 8}, 8, 0, 0, true, LS_EPEER, CLOSED},
    {"ends in the header", {COUNT(1000), 0, 8}, 8, 30, 0, true, LS_EPEER, CLOSED},
    {"ends after the header", {COUNT(1000), 0, 8}, 8, 48, 0, true, LS_EPEER, CLOSED},
    {"ends in the payload",
     {COUNT(1000), 0, 90000},
     90000,
     5000,
     60000,
     true,
     LS_EPEER,
     CLOSED},
};

/* Looks at the first part, with time for it to arrive; then the second part comes. */
static ls_status receive_wire(half_bare *h, const wire_row *row, const unsigned char *wire)
{
    ls_transport *t     = h->zero[0].t;
    bool          moved = false, done = false;
    ls_status     status = LS_OK;

    CHECK(write_bare(h->fd, wire, row->first));
    for (int looks = 0; looks < 10 && !status && !done; looks++) {
        status = t->ops->progress(t, &moved, &done);
        t->ops->sleep(t, SECOND / 500);
    }
    CHECK(!done || !row->then);
    CHECK(write_bare(h->fd, wire + row->first, row->then));
    if (row->close) {
        close(h->fd);
        h->fd = -1;
    }
    return status || done ? status : finish(t);
}

static void check_wire(half_bare *h, const wire_row *row)
{
    piece         in     = piece_new(row->due);
    piece         wire   = piece_filled(sizeof row->header + row->first + row->then, 0);
    ls_header     header = row->header;
    ls_descriptor what   = header.what;
    ls_transport *t      = h->zero[0].t;

    memcpy(wire.data, &header, sizeof header);
    for (size_t i = sizeof header; i < wire.bytes; i++)
        wire.data[i] = byte_at(i - sizeof header, 5);
    what.count = 1000; /* what rank 0 is about, whatever the wire says */
    CHECK_OK(t->ops->begin(t, &what, nothing_out(), (ls_incoming){1, in.data, in.bytes}));
    ls_status status = receive_wire(h, row, wire.data);
    CHECK(status == row->want);
    CHECK(!status || strstr(ls_error_message(), row->text));
    if (status == LS_EMISMATCH)
        CHECK(untouched(in));
    if (!status)
        CHECK(!piece_end(in, 5, "incoming"));
    else
        free(in.block);
    free(wire.block);
}

static void test_wire(void)
{
    for (size_t i = 0; i < sizeof wire_rows / sizeof wire_rows[0]; i++) {
        half_bare h;
        TEST_ROW(wire_rows[i].name);
        if (open_half_bare(&h))
            check_wire(&h, &wire_rows[i]);
        close_half_bare(&h);
    }
}

/* Messages that come together are still apart; steps count from 0 in each operation. */
static void test_many_at_once(void)
{
    static const int sequence[] = {1, 1, 1, 2, 2}, step[] = {0, 1, 2, 0, 1};
    enum { N = 5, BYTES = 10, ALL = (int)sizeof(ls_header) + BYTES };
    unsigned char wire[N][ALL], in[BYTES] = {0};
    half_bare     h;

    TEST_ROW("many at once");
    for (int i = 0; i < N; i++) {
        ls_header header = {what_of((uint64_t)sequence[i]), (uint64_t)step[i], BYTES};
        memcpy(wire[i], &header, sizeof header);
        memset(wire[i] + sizeof header, i, BYTES);
    }
    if (open_half_bare(&h)) {
        CHECK(write_bare(h.fd, wire, sizeof wire));
        for (int i = 0; i < N; i++) {
            ls_descriptor what = what_of((uint64_t)sequence[i]);
            CHECK_OK(exchange(h.zero[0].t, &what, nothing_out(), (ls_incoming){1, in, BYTES}));
            CHECK(in[0] == i && in[BYTES - 1] == i);
        }
    }
    close_half_bare(&h);
}

static void *hang_up_main(void *context)
{
    ls_sleep_ns(SECOND / 20);
    close(*(int *)context);
    return NULL;
}

/* Peers that hang up while we have something to send and nothing to receive. */
static void test_hangs_up(void)
{
    half_bare     h;
    pthread_t     thread = 0;
    ls_descriptor what   = what_of(1);
    piece         data   = piece_filled(64 << 20, 0);

    TEST_ROW("hangs up while we send");
    if (open_half_bare(&h)) {
        CHECK(!pthread_create(&thread, NULL, hang_up_main, &h.fd));
        CHECK_FAILS(
            exchange(h.zero[0].t, &what, (ls_outgoing){1, data.data, data.bytes}, nothing_in()),
            LS_EPEER, CLOSED);
        pthread_join(thread, NULL);
        h.fd = -1;
    }
    close_half_bare(&h);
    free(data.block);
}

static void test_has_hung_up(void)
{
    half_bare     h;
    ls_descriptor what   = what_of(1);
    ls_status     status = LS_OK;

    TEST_ROW("has hung up");
    if (open_half_bare(&h)) {
        close(h.fd);
        h.fd = -1;
        for (int i = 0; i < 100 && !status; i++) {
            status =
                exchange(h.zero[0].t, &what, (ls_outgoing){1, "12345678", 8}, nothing_in());
            ls_sleep_ns(SECOND / 1000);
        }
        CHECK(status == LS_EPEER && strstr(ls_error_message(), CLOSED));
    }
    close_half_bare(&h);
}

/* What was handed over before the close arrives, however large. */
static ls_status body_last_word(rank *r)
{
    ls_descriptor what   = what_of(1);
    ls_status     status = r->rank ? trade(r, &what, 0, 3 << 20, LS_NO_PEER, 0)
                                   : trade(r, &what, LS_NO_PEER, 0, 1, 3 << 20);

    if (r->rank) {
        r->t->ops->close(r->t);
        r->t = NULL;
    } else if (!status) {
        unsigned char byte;
        status = exchange(r->t, &what, nothing_out(), (ls_incoming){1, &byte, 1});
    }
    return status;
}

static void test_last_word(void)
{
    group g;
    rank  ranks[MAX_RANKS] = {0};

    TEST_ROW("closes after its message");
    if (!group_open(&g, 2, "127.0.0.1"))
        return;
    group_run(&g, 0, ranks, body_last_word, NULL);
    rank_went_well(&ranks[1]);
    rank_failed(&ranks[0], LS_EPEER, "rank 1: connection closed");
    group_close(&g, ranks);
}

static void *wake_main(void *context)
{
    ls_transport *t = context;

    ls_sleep_ns(SECOND / 20);
    t->ops->wake(t);
    return NULL;
}

static int64_t sleep_takes(ls_transport *t, int64_t ns)
{
    int64_t start = ls_now_ns();

    t->ops->sleep(t, ns);
    return ls_now_ns() - start;
}

static void check_sleep(ls_transport *t, int peer)
{
    pthread_t     thread = 0;
    ls_descriptor what   = what_of(1);
    char          byte   = 0;

    CHECK(sleep_takes(t, SECOND / 20) >= SECOND / 20);
    t->ops->wake(t);
    t->ops->wake(t);
    CHECK(sleep_takes(t, 10 * SECOND) < 5 * SECOND);
    CHECK(sleep_takes(t, SECOND / 20) >= SECOND / 20); /* both wakes are used up */
    CHECK_OK(t->ops->begin(t, &what, nothing_out(), (ls_incoming){1, &byte, 1}));
    CHECK(sleep_takes(t, SECOND / 20) >= SECOND / 20);
    CHECK(!pthread_create(&thread, NULL, wake_main, t));
    CHECK(sleep_takes(t, 10 * SECOND) < 5 * SECOND);
    pthread_join(thread, NULL);
    CHECK(write_bare(peer, "x", 1));
    CHECK(sleep_takes(t, 10 * SECOND) < 5 * SECOND); /* something came */
    CHECK(sleep_takes(t, 0) < SECOND && sleep_takes(t, -1) < SECOND);
}

static void test_sleep(void)
{
    half_bare h;

    TEST_ROW("sleep and wake");
    if (open_half_bare(&h))
        check_sleep(h.zero[0].t, h.fd);
    close_half_bare(&h);
}

/* A child that holds the sockets neither ends a connection nor keeps it open. */
static void check_fork(rank *zero, rank *one)
{
    ls_descriptor what  = what_of(1);
    char          byte  = 1;
    pid_t         child = fork();

    if (!child) {
        zero->t->ops->close(zero->t);
        alarm(10);
        pause();
        _exit(0);
    }
    ls_sleep_ns(SECOND / 20);
    CHECK_OK(exchange(zero->t, &what, (ls_outgoing){1, &byte, 1}, nothing_in()));
    CHECK_OK(exchange(one->t, &what, nothing_out(), (ls_incoming){0, &byte, 1}));
    one->t->ops->close(one->t);
    one->t = NULL;
    CHECK_FAILS(exchange(zero->t, &what, nothing_out(), (ls_incoming){1, &byte, 1}), LS_EPEER,
                CLOSED);
    if (CHECK(child > 0)) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

static void test_fork(void)
{
    group g;
    rank  ranks[MAX_RANKS] = {0};

    TEST_ROW("fork");
    if (!group_open(&g, 2, "127.0.0.1"))
        return;
    group_run(&g, 0, ranks, NULL, NULL);
    if (rank_went_well(&ranks[0]) && rank_went_well(&ranks[1]) && ranks[0].t && ranks[1].t)
        check_fork(&ranks[0], &ranks[1]);
    group_close(&g, ranks);
}

int main(void)
{
    if (!record_letter())
        return test_summary("transport_tcp");
    test_shapes();
    test_disagreement();
    test_wire();
    test_many_at_once();
    test_hangs_up();
    test_has_hung_up();
    test_last_word();
    test_sleep();
    test_fork();
    return test_summary("transport_tcp");
}

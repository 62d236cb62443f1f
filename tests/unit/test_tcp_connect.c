/*
 * test_tcp_connect.c - how groups over TCP find together: ports, addresses, members that are
 * missing, strangers that are not wanted, and nothing left over.
 */
#include <stdatomic.h>
#include <sys/resource.h>

#include "core/alloc.h"
#include "tcp_group.h"

static void test_ports(void)
{
    ls_tcp_listener a, b, c;
    char            text[64];

    TEST_ROW("ports");
    if (!CHECK_OK(ls_tcp_listen("127.0.0.1", 0, 0, &a)))
        return;
    int port = (int)a.port;
    CHECK(a.fd >= 0 && port > 0 && !strcmp(a.address, "127.0.0.1"));
    snprintf(text, sizeof text, "127.0.0.1:%d: Address already in use", port);
    CHECK_FAILS(ls_tcp_listen("127.0.0.1", port, port, &b), LS_EIO, text);
    CHECK(b.fd == -1);
    if (port <= 65000 && !ls_tcp_listen("127.0.0.1", port, port + 500, &b)) {
        CHECK((int)b.port > port && (int)b.port <= port + 500);
        if ((int)b.port == port + 1) {
            snprintf(text, sizeof text, "no port of %d to %d is free", port, port + 1);
            CHECK_FAILS(ls_tcp_listen("127.0.0.1", port, port + 1, &c), LS_EIO, text);
            CHECK(strstr(ls_error_message(), "127.0.0.1"));
            CHECK(strstr(ls_error_message(), "Address already in use"));
        }
        ls_tcp_listener_close(&b);
    }
    ls_tcp_listener_close(&a);
    CHECK(a.fd == -1);
}

/* A port on which an earlier run was the first to hang up can be had again at once. */
static void test_port_again(void)
{
    ls_tcp_listener l;

    TEST_ROW("port again");
    if (!CHECK_OK(ls_tcp_listen("127.0.0.1", 0, 0, &l)))
        return;
    int port = (int)l.port, accepted = -1;
    ls_tcp_listener_close(&l);
    if (!CHECK_OK(ls_tcp_listen("127.0.0.1", port, port, &l)))
        return;
    int fd = dial_bare(l.port);
    for (int tries = 0; accepted < 0 && tries < 1000; tries++) {
        accepted = accept(l.fd, NULL, NULL);
        ls_sleep_ns(SECOND / 1000);
    }
    close(accepted);
    close(fd);
    ls_tcp_listener_close(&l);
    if (CHECK_OK(ls_tcp_listen("127.0.0.1", port, port, &l)))
        ls_tcp_listener_close(&l);
}

static void test_bad_addresses(void)
{
    static const struct {
        const char *name, *address;
        int         first, last;
        const char *text;
    } rows[] = {
        {"name", "localhost", 0, 0, "\"localhost\" is not a numeric IPv4 or IPv6 address"},
        {"empty", "", 0, 0, "\"\" is not a numeric"},
        {"port above", "127.0.0.1", 65535, 65536, "65535 to 65536"},
        {"port below", "127.0.0.1", -1, 5, "ports -1 to 5"},
        {"backwards", "127.0.0.1", 9, 8, "ports 9 to 8"},
        {"from zero", "127.0.0.1", 0, 8, "ports 0 to 8"},
        {"too long",
         "1111111111111111111111111111111111111111111111111111111111111111111111111111", 0, 0,
         "too long"},
    };
    ls_tcp_listener l;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        TEST_ROW(rows[i].name);
        CHECK_FAILS(ls_tcp_listen(rows[i].address, rows[i].first, rows[i].last, &l), LS_EINVAL,
                    rows[i].text);
        CHECK(l.fd == -1);
    }
    TEST_ROW("address of another host");
    CHECK_FAILS(ls_tcp_listen("192.0.2.1", 0, 0, &l), LS_EIO, "192.0.2.1");
    CHECK(strstr(ls_error_message(), "any port: "));
}

/* A byte from everybody to everybody that needs a connection. */
static ls_status body_hello(rank *r)
{
    ls_descriptor what   = {.sequence = 1, .kind = LS_BARRIER};
    ls_status     status = LS_OK;

    for (int round = 1; round < 4 && !status; round++) {
        int           peer = r->rank ^ round;
        unsigned char mine = (unsigned char)(10 + r->rank), theirs = 0;
        if (peer >= r->group->size || !r->group->peers[peer].needed)
            continue;
        status = exchange(r->t, &what, (ls_outgoing){peer, &mine, 1},
                          (ls_incoming){peer, &theirs, 1});
        if (!status && theirs != 10 + peer)
            status = ls_fail(LS_ESTATE, "rank %d is not the one at the other end", peer);
    }
    return status;
}

static void test_groups(void)
{
    ls_tcp_listener probe;

    TEST_ROW("alone");
    group_all(1, "127.0.0.1", body_hello, NULL);
    TEST_ROW("two");
    group_all(2, "127.0.0.1", body_hello, NULL);
    TEST_ROW("four");
    group_all(4, "127.0.0.1", body_hello, NULL);
    TEST_ROW("IPv6");
    if (ls_tcp_listen("::1", 0, 0, &probe)) {
        printf("skipped: IPv6 (%s)\n", ls_error_message());
        return;
    }
    int port = (int)probe.port;
    CHECK_FAILS(ls_tcp_listen("::1", port, port, &(ls_tcp_listener){0}), LS_EIO, "[::1]:");
    ls_tcp_listener_close(&probe);
    group_all(4, "::1", body_hello, NULL);
}

/* Only some pairs are connected: here 0-1 and 2-3, each seen from its own rank. */
typedef struct {
    group g[4];
    rank  ranks[4];
} islands;

static void test_islands(void)
{
    static islands s;
    group          g;
    ls_descriptor  what = {.kind = LS_BARRIER};

    TEST_ROW("islands");
    if (!group_open(&g, 4, "127.0.0.1"))
        return;
    for (int r = 0; r < 4; r++) {
        s.g[r] = g;
        for (int p = 0; p < 4; p++)
            s.g[r].peers[p].needed = p == (r ^ 1);
        s.ranks[r] =
            (rank){.group = &s.g[r], .rank = r, .body = body_hello, .limit_ns = 10 * SECOND};
        pthread_create(&s.ranks[r].thread, NULL, rank_main, &s.ranks[r]);
    }
    for (int r = 0; r < 4; r++) {
        pthread_join(s.ranks[r].thread, NULL);
        if (!rank_went_well(&s.ranks[r]))
            continue;
        ls_transport *t = s.ranks[r].t;
        CHECK_FAILS(t->ops->begin(t, &what, (ls_outgoing){(r + 2) % 4, NULL, 0}, nothing_in()),
                    LS_EINVAL, "has no connection to rank");
        CHECK_FAILS(t->ops->begin(t, &what, nothing_out(), (ls_incoming){4, NULL, 0}),
                    LS_EINVAL, "has no connection to rank 4");
        t->ops->close(t);
    }
}

/* One rank of a pair waits for one that never comes. */
static void test_missing(void)
{
    group         g;
    ls_transport *t;
    char          text[64];

    TEST_ROW("nobody to dial");
    if (!group_open(&g, 3, "127.0.0.1"))
        return;
    snprintf(text, sizeof text, "127.0.0.1:%u in time: Connection refused",
             (unsigned)g.peers[0].port);
    ls_tcp_listener_close(&g.listeners[0]);
    ls_tcp_listener_close(&g.listeners[1]);
    int64_t start = ls_now_ns();
    CHECK_FAILS(group_connect(&g, 2, SECOND / 5, &t), LS_ETIMEOUT, text);
    CHECK(ls_now_ns() - start >= SECOND / 5 && ls_now_ns() - start < 5 * SECOND);
    CHECK(strstr(ls_error_message(), "rank 0 (and 1 more ranks) could not be reached"));
    CHECK(!t && g.listeners[2].fd == -1);

    TEST_ROW("nobody comes");
    if (!group_open(&g, 2, "127.0.0.1"))
        return;
    snprintf(text, sizeof text, "rank 1 did not connect to rank 0 at 127.0.0.1:%u in time",
             (unsigned)g.peers[0].port);
    CHECK_FAILS(group_connect(&g, 0, SECOND / 5, &t), LS_ETIMEOUT, text);

    TEST_ROW("somebody else listens"); /* takes the call and says nothing */
    g.listeners[0].fd = -1;
    if (!CHECK_OK(ls_tcp_listen("127.0.0.1", 0, 0, &g.listeners[0])))
        return;
    g.peers[0].port = g.listeners[0].port;
    CHECK_FAILS(group_connect(&g, 1, SECOND / 5, &t), LS_ETIMEOUT, "in time: no answer");
    ls_tcp_listener_close(&g.listeners[0]);

    TEST_ROW("no listener");
    CHECK_FAILS(group_connect(&g, 0, SECOND / 5, &t), LS_EINVAL, "no socket to listen on");
    TEST_ROW("bad peer address");
    strcpy(g.peers[0].address, "node-7");
    CHECK_FAILS(group_connect(&g, 1, SECOND / 5, &t), LS_EINVAL, "rank 0: address \"node-7\"");
}

/* Takes every call, answers 48 bytes that are not the answer, until its socket is shut down. */
static void *impostor_main(void *context)
{
    int           listener = *(int *)context, fd;
    unsigned char letter[LETTER];

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        read_bare(fd, letter, LETTER);
        write_bare(fd, letter, LETTER);
        close(fd);
    }
    return NULL;
}

static void test_impostor(void)
{
    group              g;
    ls_transport      *t;
    pthread_t          thread;
    struct sockaddr_in at     = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t          length = sizeof at;
    int                fd     = socket(AF_INET, SOCK_STREAM, 0);

    TEST_ROW("an echo instead of an answer");
    if (!group_open(&g, 2, "127.0.0.1"))
        return;
    ls_tcp_listener_close(&g.listeners[0]);
    CHECK(!bind(fd, (struct sockaddr *)&at, length) && !listen(fd, 9) &&
          !getsockname(fd, (struct sockaddr *)&at, &length));
    g.peers[0].port = ntohs(at.sin_port);
    pthread_create(&thread, NULL, impostor_main, &fd);
    CHECK_FAILS(group_connect(&g, 1, SECOND / 5, &t), LS_ETIMEOUT, "in time: Protocol error");
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(fd);
}

/* Strangers: what they send before the group connects; `flip` is a byte of the true letter. */
typedef struct {
    const char *name;
    int         count; /* of them */
    int         bytes; /* of the letter that each sends */
    int         flip;  /* -1: none */
    bool        noise; /* random bytes instead */
    bool        close; /* hangs up at once */
    bool        slow;  /* goes on, byte after byte, while the group connects */
} stranger_row;

static const stranger_row stranger_rows[] = {
    {"silence", 1, 0, -1, false, false, false},
    {"gone", 1, 0, -1, false, true, false},
    {"noise", 1, 48, -1, true, false, false},
    {"half a letter", 1, 24, -1, false, false, false},
    {"half a letter and gone", 1, 24, -1, false, true, false},
    {"slow", 1, 1, 47, false, false, true},
    {"wrong magic", 1, 48, 0, false, false, false},
    {"wrong group", 1, 48, 8, false, false, false},
    {"wrong version", 1, 48, 16, false, false, false},
    {"wrong rank", 1, 48, 24, false, false, false},
    {"rank of 2^31", 1, 48, 27, false, false, false},
    {"to another", 1, 48, 28, false, false, false},
    {"wrong token", 1, 48, 32, false, false, false},
    {"wrong last byte", 1, 48, 47, false, false, false},
    {"a crowd of them", 200, 10, -1, false, false, false},
    {"a crowd of fakes", 200, 48, 40, false, false, false},
};

enum { CROWD = 200 };

typedef struct {
    int           fd[CROWD];
    unsigned char letter[LETTER];
    atomic_bool   stop;
} strangers;

static void strangers_come(strangers *s, const stranger_row *row, uint32_t port)
{
    for (int i = 0; i < LETTER && row->noise; i++)
        s->letter[i] = (unsigned char)(37 * i + 11);
    if (row->flip >= 0)
        s->letter[row->flip] ^= 0x80;
    for (int i = 0; i < row->count; i++) {
        s->fd[i] = dial_bare(port);
        CHECK(s->fd[i] >= 0 && write_bare(s->fd[i], s->letter, (size_t)row->bytes));
        if (row->close) {
            close(s->fd[i]);
            s->fd[i] = -1;
        }
    }
}

static void *slow_main(void *context)
{
    strangers *s = context;

    for (int i = 1; i < LETTER && !atomic_load(&s->stop); i++) {
        write_bare(s->fd[0], s->letter + i, 1);
        ls_sleep_ns(SECOND / 200);
    }
    return NULL;
}

static void check_strangers(const stranger_row *row)
{
    static strangers s;
    group            g;
    rank             ranks[MAX_RANKS] = {0};
    pthread_t        slow             = 0;
    int              before           = open_descriptors();

    TEST_ROW(row->name);
    if (!group_open(&g, 3, "127.0.0.1"))
        return;
    memcpy(s.letter, true_letter, LETTER);
    atomic_store(&s.stop, false);
    strangers_come(&s, row, g.peers[0].port);
    if (row->slow)
        pthread_create(&slow, NULL, slow_main, &s);
    int64_t start = ls_now_ns();
    group_run(&g, 0, ranks, body_hello, NULL);
    CHECK(ls_now_ns() - start < 5 * SECOND);
    atomic_store(&s.stop, true);
    if (row->slow)
        pthread_join(slow, NULL);
    for (int r = 0; r < 3; r++)
        rank_went_well(&ranks[r]);
    group_close(&g, ranks);
    for (int i = 0; i < row->count; i++)
        if (s.fd[i] >= 0)
            close(s.fd[i]);
    CHECK(open_descriptors() == before);
}

/* The recorded letter itself is let in, so the rows above fail for what they name alone. */
static void test_true_letter(void)
{
    group         g;
    rank          zero = {.group = &g, .limit_ns = 5 * SECOND};
    unsigned char answer[LETTER];

    TEST_ROW("true letter");
    if (!group_open(&g, 2, "127.0.0.1"))
        return;
    ls_tcp_listener_close(&g.listeners[1]);
    pthread_create(&zero.thread, NULL, rank_main, &zero);
    int fd = dial_bare(g.peers[0].port);
    CHECK(write_bare(fd, true_letter, LETTER) && read_bare(fd, answer, LETTER) == LETTER);
    CHECK(!memcmp(answer + 32, g.peers[1].token, 16)); /* the answer is proved too */
    pthread_join(zero.thread, NULL);
    rank_went_well(&zero);
    if (zero.t)
        zero.t->ops->close(zero.t);
    close(fd);
}

/* A stranger who says nothing is shown the door while the group still waits. */
static void test_patience(void)
{
    group g;
    rank  zero = {.group = &g, .limit_ns = 3 * SECOND};
    char  byte;

    TEST_ROW("patience");
    if (!group_open(&g, 2, "127.0.0.1"))
        return;
    ls_tcp_listener_close(&g.listeners[1]);
    int     fd    = dial_bare(g.peers[0].port);
    int64_t start = ls_now_ns();
    pthread_create(&zero.thread, NULL, rank_main, &zero);
    CHECK(recv(fd, &byte, 1, 0) == 0);
    CHECK(ls_now_ns() - start < 2800 * (SECOND / 1000));
    pthread_join(zero.thread, NULL);
    rank_failed(&zero, LS_ETIMEOUT, "no call came, 1 strangers turned away");
    close(fd);
}

/* Takes descriptors until none is left below the limit, but one; returns how many. */
static int take_descriptors(int *taken, int most)
{
    int n = 0;

    while (n < most && (taken[n] = dup(0)) >= 0)
        n++;
    if (CHECK(n > 0 && n < most))
        close(taken[--n]);
    return n;
}

/* Out of descriptors when a member knocks: it is let in once there are some. */
static void test_no_descriptors(void)
{
    enum { LIMIT = 200 };
    group         g;
    rank          zero = {.group = &g, .limit_ns = 10 * SECOND};
    struct rlimit before, low;
    int           taken[LIMIT];

    TEST_ROW("out of descriptors");
    if (!group_open(&g, 2, "127.0.0.1"))
        return;
    ls_tcp_listener_close(&g.listeners[1]);
    int fd = dial_bare(g.peers[0].port);
    CHECK(write_bare(fd, true_letter, LETTER) && !getrlimit(RLIMIT_NOFILE, &before));
    low          = before;
    low.rlim_cur = LIMIT;
    CHECK(!setrlimit(RLIMIT_NOFILE, &low));
    int n = take_descriptors(taken, LIMIT); /* one is left, for the eventfd */
    pthread_create(&zero.thread, NULL, rank_main, &zero);
    ls_sleep_ns(SECOND / 10);
    while (n)
        close(taken[--n]);
    CHECK(!setrlimit(RLIMIT_NOFILE, &before));
    pthread_join(zero.thread, NULL);
    rank_went_well(&zero);
    if (zero.t)
        zero.t->ops->close(zero.t);
    close(fd);

    TEST_ROW("never any descriptors");
    if (!group_open(&g, 2, "127.0.0.1"))
        return;
    zero.limit_ns = SECOND / 5;
    zero.t        = NULL;
    ls_tcp_listener_close(&g.listeners[1]);
    fd = dial_bare(g.peers[0].port);
    CHECK(!setrlimit(RLIMIT_NOFILE, &low));
    n = take_descriptors(taken, LIMIT);
    rank_main(&zero);
    rank_failed(&zero, LS_ETIMEOUT, "in time: Too many open files");
    while (n)
        close(taken[--n]);
    CHECK(!setrlimit(RLIMIT_NOFILE, &before));
    close(fd);
}

static void test_nothing_left(void)
{
    group         g;
    rank          ranks[MAX_RANKS];
    ls_transport *t;
    int           before = 0;

    TEST_ROW("200 groups");
    for (int i = 0; i < 200; i++) {
        memset(ranks, 0, sizeof ranks);
        if (!group_open(&g, 2, "127.0.0.1"))
            return;
        group_run(&g, 0, ranks, body_hello, NULL);
        rank_went_well(&ranks[0]);
        rank_went_well(&ranks[1]);
        group_close(&g, ranks);
        if (!i)
            before = open_descriptors();
    }
    CHECK(open_descriptors() == before);

    TEST_ROW("n-th allocation fails");
    for (int n = 0; n < 8; n++) {
        if (!group_open(&g, 1, "127.0.0.1"))
            return;
        ls_alloc_fail_after(n);
        ls_status status = group_connect(&g, 0, SECOND, &t);
        ls_alloc_fail_after(-1);
        CHECK(n < 4 ? status == LS_ENOMEM && !t : !status);
        if (!status)
            t->ops->close(t);
    }
    CHECK(open_descriptors() == before);
}

int main(void)
{
    test_ports();
    test_port_again();
    test_bad_addresses();
    test_groups();
    test_islands();
    test_missing();
    test_impostor();
    if (!record_letter())
        return test_summary("tcp_connect");
    test_true_letter();
    for (size_t i = 0; i < sizeof stranger_rows / sizeof stranger_rows[0]; i++)
        check_strangers(&stranger_rows[i]);
    test_patience();
    test_no_descriptors();
    test_nothing_left();
    return test_summary("tcp_connect");
}

/*
 * tcp_group.h - groups over TCP for tests: ranks are threads, or bare sockets.
 *
 * A rank's thread runs a body and leaves its status and message in its ls_rank; checks are made
 * by the main thread, after all have been joined.
 */
#ifndef LS_TESTS_TCP_GROUP_H
#define LS_TESTS_TCP_GROUP_H

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "dist/comm/transport_tcp.h"
#include "test.h"

enum { MAX_RANKS = 4 };
#define GROUP_ID UINT64_C(77)
#define SECOND INT64_C(1000000000)

typedef struct {
    int             size;
    ls_tcp_listener listeners[MAX_RANKS];
    ls_tcp_peer     peers[MAX_RANKS];
} group;

typedef struct rank rank;

struct rank {
    group        *group;
    int           rank;
    ls_transport *t;
    ls_status (*body)(rank *r);
    const void *row; /* of the test's table */
    int64_t     limit_ns;
    ls_status   status;
    char        text[512];
    pthread_t   thread;
};

static inline bool group_open(group *g, int size, const char *address)
{
    *g = (group){.size = size};
    for (int r = 0; r < size; r++) {
        g->peers[r] = (ls_tcp_peer){.token = {0x1234567 + (uint64_t)r, 0x7654321 - (uint64_t)r},
                                    .needed = true};
        if (!CHECK_OK(ls_tcp_listen(address, 0, 0, &g->listeners[r])))
            return false;
        strcpy(g->peers[r].address, address);
        g->peers[r].port = g->listeners[r].port;
    }
    return true;
}

static inline ls_status group_connect(group *g, int r, int64_t limit_ns, ls_transport **t)
{
    return ls_transport_tcp(&g->listeners[r], GROUP_ID, r, g->size, g->peers,
                            ls_now_ns() + limit_ns, t);
}

static inline void *rank_main(void *context)
{
    rank *r = context;

    r->status = group_connect(r->group, r->rank, r->limit_ns, &r->t);
    if (!r->status && r->body)
        r->status = r->body(r);
    if (r->status)
        snprintf(r->text, sizeof r->text, "%s", ls_error_message());
    return NULL;
}

/* Runs all ranks of g from `first` on, connect and body; their transports stay open. */
static inline void group_run(group *g, int first, rank *ranks, ls_status (*body)(rank *),
                             const void *row)
{
    for (int r = first; r < g->size; r++) {
        ranks[r] =
            (rank){.group = g, .rank = r, .body = body, .row = row, .limit_ns = 10 * SECOND};
        CHECK(!pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]));
    }
    for (int r = first; r < g->size; r++)
        pthread_join(ranks[r].thread, NULL);
}

static inline void group_close(const group *g, rank *ranks)
{
    for (int r = 0; r < g->size; r++)
        if (ranks[r].t)
            ranks[r].t->ops->close(ranks[r].t);
}

static inline bool rank_went_well(const rank *r)
{
    bool ok = CHECK(r->status == LS_OK);
    if (!ok)
        printf("     rank %d: %s: %s\n", r->rank, ls_status_text(r->status), r->text);
    return ok;
}

static inline bool rank_failed(const rank *r, ls_status status, const char *text)
{
    bool ok = CHECK(r->status == status && strstr(r->text, text));
    if (!ok)
        printf("     rank %d: %s: \"%s\", want %s: \"%s\"\n", r->rank,
               ls_status_text(r->status), r->text, ls_status_text(status), text);
    return ok;
}

/* Connects, runs the body, and checks that it went well everywhere. */
static inline void group_all(int size, const char *address, ls_status (*body)(rank *),
                             const void *row)
{
    group g;
    rank  ranks[MAX_RANKS] = {0};

    if (!group_open(&g, size, address))
        return;
    group_run(&g, 0, ranks, body, row);
    for (int r = 0; r < size; r++)
        rank_went_well(&ranks[r]);
    group_close(&g, ranks);
}

/* Until the exchange under way is done; ETIMEOUT after 10 s. */
static inline ls_status finish(ls_transport *t)
{
    int64_t   deadline = ls_now_ns() + 10 * SECOND;
    bool      moved, done = false;
    ls_status status = LS_OK;

    while (!status && !done) {
        status = t->ops->progress(t, &moved, &done);
        if (!status && !done && !moved)
            t->ops->sleep(t, SECOND);
        if (!status && ls_now_ns() > deadline)
            status = ls_fail(LS_ETIMEOUT, "an exchange of the test");
    }
    return status;
}

static inline ls_status exchange(ls_transport *t, const ls_descriptor *what, ls_outgoing out,
                                 ls_incoming in)
{
    if (!t)
        return ls_fail(LS_ESTATE, "no transport");
    ls_status status = t->ops->begin(t, what, out, in);
    return status ? status : finish(t);
}

static inline ls_outgoing nothing_out(void)
{
    return (ls_outgoing){.peer = LS_NO_PEER};
}

static inline ls_incoming nothing_in(void)
{
    return (ls_incoming){.peer = LS_NO_PEER};
}

static inline int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  n   = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* A bare connection to a port of this host (IPv4), -1 where there is none. */
static inline int dial_bare(uint32_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port   = htons((uint16_t)port),
                             .sin_addr   = {htonl(INADDR_LOOPBACK)}};
    int                fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Blocking: reads until `bytes` have come, or the end; returns how many came. */
static inline size_t read_bare(int fd, void *to, size_t bytes)
{
    size_t  got = 0;
    ssize_t n   = 1;

    while (got < bytes && (n = recv(fd, (char *)to + got, bytes - got, 0)) > 0)
        got += (size_t)n;
    return got;
}

static inline bool write_bare(int fd, const void *from, size_t bytes)
{
    return send(fd, from, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

enum { LETTER = 48 };

static inline void *dial_main(void *context)
{
    rank *r   = context;
    r->status = group_connect(r->group, r->rank, r->limit_ns, &r->t);
    return NULL;
}

/*
 * The letter with which rank 1 of a group asks to be let in at rank 0, as it really writes it:
 * rank 1 dials a listener of ours that takes the letter and hangs up.  It is the same for all
 * groups of group_open().
 */
static unsigned char true_letter[LETTER];

static inline bool record_letter(void)
{
    group g;
    rank  one   = {.group = &g, .rank = 1, .limit_ns = SECOND};
    bool  whole = false;
    int   fd    = -1;

    if (!group_open(&g, 2, "127.0.0.1"))
        return false;
    pthread_create(&one.thread, NULL, dial_main, &one);
    for (int tries = 0; fd < 0 && tries < 1000; tries++) {
        fd = accept(g.listeners[0].fd, NULL, NULL);
        if (fd < 0)
            ls_sleep_ns(SECOND / 1000);
    }
    ls_tcp_listener_close(&g.listeners[0]);
    if (fd >= 0) {
        whole = read_bare(fd, true_letter, LETTER) == LETTER;
        close(fd);
    }
    pthread_join(one.thread, NULL);
    CHECK(one.status == LS_ETIMEOUT && !one.t);
    return CHECK(whole);
}

#endif

/*
 * control_watch.c - the watch thread: sleeps in poll(), receives frames, acts.
 *
 * One pass: every frame that has come is handled, of all peers; then ends of connections are
 * noted; then suspects are judged.  So what a peer said before it ended counts first.
 *
 * No frame is trusted.  One that makes no sense (not ours, of no known kind) leaves a stream
 * whose later bytes mean nothing either: that peer is given up, by name.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/comm/control_impl.h"

enum { JUDGE_MS = 5 }; /* between looks at suspects */

static ls_guard *find(ls_control *c, uint64_t id)
{
    ls_guard *g = c->guards;

    while (g && g->id != id)
        g = g->next;
    return g;
}

static void keep(ls_control *c, int from, const ls__frame *f)
{
    ls__kept *k = &c->kept[c->next_kept++ % LS__KEPT];

    *k = (ls__kept){.group = f->group, .from = from, .status = (ls_status)f->status};
    ls__text_copy(k->text, f->text);
}

/* Also a claim, which this rank is to decide: see Note [one text]. */
static void on_notice(ls_control *c, int from, const ls__frame *f)
{
    bool any = false;

    pthread_mutex_lock(&c->lock);
    ls_guard *g = find(c, f->group);
    if (!g)
        keep(c, from, f);
    else if (ls__guard_index(g, from) >= 0 && f->kind == LS__CLAIM)
        any = ls__guard_claimed(g, from, (ls_status)f->status, f->text);
    else if (ls__guard_index(g, from) >= 0)
        any = ls__guard_adopt(g, (ls_status)f->status, f->text);
    pthread_mutex_unlock(&c->lock);
    if (any) {
        char text[LS_GUARD_TEXT];
        ls__text_copy(text, f->text);
        ls__control_report(c, text);
    }
}

static void on_ask(ls_control *c, int from, const ls__frame *f)
{
    ls__frame answer = {
        .magic = LS__FRAME_MAGIC, .kind = LS__ANSWER, .group = f->group, .number = f->number};

    pthread_mutex_lock(&c->lock);
    ls_guard *g = find(c, f->group);
    if (g) {
        answer.left    = atomic_load(&g->left);
        answer.entered = atomic_load(&g->entered);
    }
    pthread_mutex_unlock(&c->lock);
    ls__control_send(c, from, &answer);
}

static void on_answer(ls_control *c, int from, const ls__frame *f)
{
    pthread_mutex_lock(&c->lock);
    ls_guard *g = find(c, f->group);
    if (g)
        ls__guard_answer(g, from, f);
    pthread_mutex_unlock(&c->lock);
}

static void on_death(ls_control *c, const ls__frame *f)
{
    char text[LS_GUARD_TEXT];

    ls__text_copy(text, f->text);
    ls__death_told(c, f->culprit, text);
}

/* Who waits for it is to look again. */
static void on_goodbye(ls_control *c, int from)
{
    ls__peer *p = &c->peer[from];

    p->suspected = 0;
    p->deaf      = true;
    pthread_mutex_lock(&c->lock);
    atomic_store(&p->left, true);
    for (ls_guard *g = c->guards; g; g = g->next)
        if (g->wake && ls__guard_index(g, from) >= 0)
            g->wake(g->context);
    pthread_mutex_unlock(&c->lock);
}

static bool makes_sense(const ls_control *c, const ls__frame *f)
{
    if (f->magic != LS__FRAME_MAGIC || f->kind >= LS__FRAME_KINDS)
        return false;
    if (f->kind == LS__NOTICE || f->kind == LS__CLAIM)
        return f->status > LS_OK && f->status < LS_STATUS_COUNT;
    return f->kind != LS__DEATH || (f->culprit >= 0 && f->culprit < c->world);
}

static void act(ls_control *c, int from, const ls__frame *f)
{
    switch ((ls__frame_kind)f->kind) {
    case LS__NOTICE:
    case LS__CLAIM:
        on_notice(c, from, f);
        break;
    case LS__DEATH:
        on_death(c, f);
        break;
    case LS__ASK:
        on_ask(c, from, f);
        break;
    case LS__ANSWER:
        on_answer(c, from, f);
        break;
    case LS__GOODBYE:
        on_goodbye(c, from);
        break;
    case LS__FRAME_KINDS:
        break;
    }
}

static void end_of(ls_control *c, int peer, int64_t pass, const char *reason)
{
    c->peer[peer].deaf = true;
    ls__death_suspect(c, peer, pass, reason);
}

static void take_frame(ls_control *c, int peer, int64_t pass)
{
    ls__peer *p = &c->peer[peer];

    p->got = 0;
    if (makes_sense(c, &p->in))
        act(c, peer, &p->in);
    else
        end_of(c, peer, pass, "sent a control message that makes no sense");
}

static const char *reason_of(ssize_t n, int error)
{
    if (n == 0 || error == ECONNRESET || error == EPIPE)
        return "is gone: connection closed";
    return error == ETIMEDOUT ? "is gone: its host does not answer"
                              : "is gone: connection lost";
}

/* All that has come from it, to the end if that has come as well. */
static void listen_to(ls_control *c, int peer, int64_t pass)
{
    ls__peer *p = &c->peer[peer];

    while (!p->deaf && p->fd >= 0) {
        ssize_t n = recv(p->fd, (char *)&p->in + p->got, sizeof p->in - p->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            end_of(c, peer, pass, reason_of(n, errno));
        else if ((p->got += (size_t)n) == sizeof p->in)
            take_frame(c, peer, pass);
    }
}

static bool has_unsent(ls__peer *p)
{
    pthread_mutex_lock(&p->lock);
    bool unsent = p->unsent > 0;
    pthread_mutex_unlock(&p->lock);
    return unsent;
}

static struct pollfd watched(int fd, short events)
{
    return (struct pollfd){.fd = fd, .events = events}; /* poll() skips -1 */
}

/* [the eventfd | the sockets | the pidfds] */
static void fill(ls_control *c)
{
    c->polled[0] = watched(c->event, POLLIN);
    for (int r = 0; r < c->world; r++) {
        ls__peer *p                 = &c->peer[r];
        short     events            = (short)(POLLIN | (has_unsent(p) ? POLLOUT : 0));
        bool      over              = p->died || p->suspected || atomic_load(&p->left);
        c->polled[1 + r]            = watched(p->deaf ? -1 : p->fd, events);
        c->polled[1 + c->world + r] = watched(over ? -1 : p->pidfd, POLLIN);
    }
}

static void flush(ls__peer *p)
{
    pthread_mutex_lock(&p->lock);
    ls__peer_flush(p);
    pthread_mutex_unlock(&p->lock);
}

static void one_pass(ls_control *c, int64_t pass)
{
    const struct pollfd *socket = c->polled + 1, *process = socket + c->world;
    uint64_t             count;

    while (c->polled[0].revents && read(c->event, &count, sizeof count) > 0)
        ;
    for (int r = 0; r < c->world; r++) {
        listen_to(c, r, pass);
        if (socket[r].revents & POLLOUT)
            flush(&c->peer[r]);
    }
    for (int r = 0; r < c->world; r++)
        if (process[r].revents)
            ls__death_suspect(c, r, pass, "is gone: its process ended");
}

static void *watch(void *context)
{
    ls_control *c    = context;
    bool        calm = true;

    for (int64_t pass = 1; !atomic_load(&c->stop); pass++) {
        fill(c);
        poll(c->polled, (nfds_t)(1 + 2 * c->world), calm ? -1 : JUDGE_MS);
        one_pass(c, pass);
        calm = ls__death_judge(c);
    }
    return NULL;
}

/* The program's signals are for its own threads. */
static int start_thread(ls_control *c)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&c->thread, NULL, watch, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

ls_status ls_control_start(ls_control *c, void (*failed)(void *context, const char *text),
                           void       *context)
{
    pthread_mutex_lock(&c->lock);
    c->failed  = failed;
    c->context = context;
    pthread_mutex_unlock(&c->lock);
    for (int r = 0; r < c->world; r++)
        c->peer[r].got = 0; /* of the last hello; now of a frame */
    if (c->world > 1) {
        int error = start_thread(c);
        if (error)
            return ls_fail(LS_EIO, "rank %d: no watch thread: %s", c->rank, strerror(error));
    }
    c->started = true;
    c->watched = c->world > 1;
    return LS_OK;
}

void ls__control_end_watch(ls_control *c)
{
    atomic_store(&c->stop, true);
    ls__control_wake(c);
    pthread_join(c->thread, NULL);
}

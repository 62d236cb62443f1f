/*
 * guard.c - groups that fail once, for one reason.
 *
 *     ls_guard_fail ──> told to members ──> text ──> failed ──> wake
 *        │                                             ^
 *        └ claim ─> the first member decides           │
 *                                │                     │
 *     watch thread (a notice <───┘, a death) ── text ──┘
 *
 * Note [one text]
 * Of one mistake several members find different sides in the same microsecond.  So a member
 * that finds a failure claims it from the first one that can hear, whose watch thread decides
 * for the first claim and tells all; only where no answer comes does the finder tell all
 * itself.  And a member that leaves a failed group tells the reason before it says goodbye, for
 * its goodbye may overtake what others have told.
 *
 * `failed` is the last thing written, so whoever sees it has the text.  Where the group is
 * (turn, what) is kept in two slots that take turns: a reader that finds the turn changed under
 * it looks again, and the writer never waits.
 */
#include "dist/comm/guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/control_impl.h"

enum { WORDS = sizeof(ls_descriptor) / sizeof(uint64_t), PATIENCE_MS = 300, CLAIM_MS = 150 };

int ls__guard_index(const ls_guard *g, int rank)
{
    for (int i = 0; i < g->size; i++)
        if (g->member[i] == rank)
            return i;
    return -1;
}

static void set_failure(ls_guard *g, ls_status status, const char *text)
{
    ls__text_copy(g->text, text);
    atomic_store(&g->failed, (int)status);
    pthread_cond_broadcast(&g->changed);
}

/* The first of the members' deaths, else the first notice that came before the group. */
static void fail_at_birth(ls_guard *g)
{
    ls_control *c     = g->control;
    int         first = 0;

    for (int i = 0; i < g->size; i++) {
        const ls__peer *p = &c->peer[g->member[i]];
        if (p->died && (!first || p->died < first)) {
            first = p->died;
            set_failure(g, LS_EPEER, p->death);
        }
    }
    for (unsigned i = 0; i < LS__KEPT && !first; i++) {
        const ls__kept *k = &c->kept[(c->next_kept + i) % LS__KEPT];
        if (k->status != LS_OK && k->group == g->id && ls__guard_index(g, k->from) >= 0) {
            set_failure(g, k->status, k->text);
            return;
        }
    }
}

static void enlist(ls_guard *g)
{
    ls_control *c = g->control;

    pthread_mutex_lock(&c->lock);
    fail_at_birth(g);
    g->link = &c->guards;
    g->next = c->guards;
    if (g->next)
        g->next->link = &g->next;
    c->guards = g;
    pthread_mutex_unlock(&c->lock);
    if (ls_guard_failed(g))
        ls__control_report(c, g->text);
}

static bool init_locks(ls_guard *g)
{
    pthread_condattr_t attr;

    if (pthread_mutex_init(&g->lock, NULL))
        return false;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int error = pthread_cond_init(&g->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (error)
        pthread_mutex_destroy(&g->lock);
    return !error;
}

ls_guard *ls_guard_new(ls_control *control, uint64_t id, const int *members, int size,
                       void (*wake)(void *context), void *context)
{
    ls_guard *g = ls_calloc(1, sizeof *g);

    if (!g)
        return NULL;
    *g = (ls_guard){
        .control = control, .id = id, .size = size, .wake = wake, .context = context};
    g->member = ls_calloc((size_t)size, sizeof *g->member);
    g->answer = ls_calloc((size_t)size, sizeof *g->answer);
    if (!g->member || !g->answer)
        goto out_free;
    if (!init_locks(g)) {
        ls_fail(LS_ENOMEM, "guard: no lock: %s", strerror(errno));
        goto out_free;
    }
    memcpy(g->member, members, (size_t)size * sizeof *members);
    if (control)
        enlist(g);
    return g;

out_free:
    free(g->answer);
    free(g->member);
    free(g);
    return NULL;
}

static void tell_failure(ls_guard *g);

static void delist(ls_guard *g)
{
    *g->link = g->next;
    if (g->next)
        g->next->link = g->link;
}

void ls_guard_free(ls_guard *g)
{
    if (!g)
        return;
    /* In a child of fork() a lock may have been held by a thread that it does not have. */
    if (g->control && ls__control_mine(g->control)) {
        if (ls_guard_failed(g))
            tell_failure(g);
        pthread_mutex_lock(&g->control->lock);
        delist(g);
        pthread_mutex_unlock(&g->control->lock);
    } else if (g->control) {
        delist(g);
    }
    if (!g->control || ls__control_mine(g->control)) {
        pthread_cond_destroy(&g->changed);
        pthread_mutex_destroy(&g->lock);
    }
    free(g->answer);
    free(g->member);
    free(g);
}

bool ls_guard_failed(const ls_guard *g)
{
    return atomic_load_explicit(&g->failed, memory_order_acquire) != LS_OK;
}

ls_status ls_guard_check(ls_guard *g)
{
    int failed = atomic_load_explicit(&g->failed, memory_order_acquire);

    return failed == LS_OK ? LS_OK : ls_fail((ls_status)failed, "%s", g->text);
}

static void tell(ls_guard *g, const ls__frame *frame)
{
    if (!g->control)
        return;
    for (int i = 0; i < g->size; i++)
        ls__control_send(g->control, g->member[i], frame);
}

static ls__frame frame_of(const ls_guard *g, ls__frame_kind kind)
{
    return (ls__frame){.magic = LS__FRAME_MAGIC, .kind = kind, .group = g->id};
}

static ls__frame failure_frame(const ls_guard *g, ls__frame_kind kind, ls_status status,
                               const char *text)
{
    ls__frame frame = frame_of(g, kind);

    frame.status = (int32_t)status;
    ls__text_copy(frame.text, text);
    return frame;
}

static void tell_failure(ls_guard *g)
{
    ls__frame notice =
        failure_frame(g, LS__NOTICE, (ls_status)atomic_load(&g->failed), g->text);

    tell(g, &notice);
}

static bool try_fail(ls_guard *g, ls_status status, const char *text)
{
    ls__frame notice = failure_frame(g, LS__NOTICE, status, text);

    pthread_mutex_lock(&g->lock);
    bool first = !ls_guard_failed(g);
    if (first) {
        tell(g, &notice);
        set_failure(g, status, text);
    }
    pthread_mutex_unlock(&g->lock);
    return first;
}

bool ls__guard_claimed(ls_guard *g, int from, ls_status status, const char *text)
{
    bool first = try_fail(g, status, text);

    if (first && g->wake) {
        g->wake(g->context);
    } else if (!first) {
        ls__frame notice =
            failure_frame(g, LS__NOTICE, (ls_status)atomic_load(&g->failed), g->text);
        ls__control_send(g->control, from, &notice);
    }
    return first;
}

/* The world rank of the first member that can hear: it lives, and has answered when it was
 * asked. */
static int first_to_hear(ls_guard *g)
{
    ls_control *c     = g->control;
    uint64_t    asked = atomic_load(&g->asked);
    int         first = c->rank;

    pthread_mutex_lock(&c->lock);
    for (int i = g->size - 1; i >= 0; i--) {
        int r = g->member[i];
        if (r == c->rank || (!c->peer[r].died && !atomic_load(&c->peer[r].left) &&
                             ls_guard_answered(g, i).asked >= asked))
            first = r;
    }
    pthread_mutex_unlock(&c->lock);
    return first;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* Until the watch thread has failed the group, if it does. */
static void await_failure(ls_guard *g, int64_t ms)
{
    struct timespec end = timespec_of(ls_now_ns() + ms * 1000000);

    pthread_mutex_lock(&g->lock);
    while (!ls_guard_failed(g))
        if (pthread_cond_timedwait(&g->changed, &g->lock, &end))
            break;
    pthread_mutex_unlock(&g->lock);
}

/* See Note [one text]. */
static void claim(ls_guard *g, ls_status status, const char *text)
{
    int       first = first_to_hear(g);
    ls__frame frame = failure_frame(g, LS__CLAIM, status, text);

    if (first == g->control->rank || ls_guard_failed(g))
        return;
    ls__control_send(g->control, first, &frame);
    await_failure(g, CLAIM_MS);
}

ls_status ls_guard_fail(ls_guard *g, ls_status status, const char *text)
{
    if (g->control && !ls__control_mine(g->control))
        return ls_fail(LS_ESTATE, "a child of fork() cannot use a group of its parent");
    if (g->control && g->control->watched)
        claim(g, status, text);
    if (try_fail(g, status, text)) {
        if (g->wake)
            g->wake(g->context);
        if (g->control)
            ls__control_report(g->control, g->text);
    }
    return ls_guard_check(g);
}

bool ls__guard_adopt(ls_guard *g, ls_status status, const char *text)
{
    pthread_mutex_lock(&g->lock);
    bool first = !ls_guard_failed(g);
    if (first)
        set_failure(g, status, text);
    pthread_mutex_unlock(&g->lock);
    if (first && g->wake)
        g->wake(g->context);
    return first;
}

ls_status ls_guard_lost(ls_guard *g, const char *text)
{
    if (g->control && ls__control_mine(g->control))
        await_failure(g, PATIENCE_MS);
    return ls_guard_fail(g, LS_EPEER, text);
}

/* Every store releases: a reader that meets a newer word also meets the turn before it. */
void ls_guard_enter(ls_guard *g, const ls_descriptor *what)
{
    uint64_t turn = (atomic_load_explicit(&g->turn, memory_order_relaxed) + 1) | 1;
    uint64_t word[WORDS];

    memcpy(word, what, sizeof word);
    for (int i = 0; i < WORDS; i++)
        atomic_store_explicit(&g->what[turn / 2 % 2][i], word[i], memory_order_release);
    if (!ls_collective_is_paired(what->kind))
        atomic_store_explicit(&g->entered, what->sequence, memory_order_release);
    atomic_store_explicit(&g->turn, turn, memory_order_release);
}

static ls_descriptor what_in(const ls_guard *g, uint64_t turn)
{
    uint64_t      word[WORDS] = {0};
    ls_descriptor what;

    for (int i = 0; i < WORDS; i++)
        word[i] = atomic_load_explicit(&g->what[turn / 2 % 2][i], memory_order_acquire);
    memcpy(&what, word, sizeof what);
    return what;
}

void ls_guard_leave(ls_guard *g, uint64_t sequence)
{
    uint64_t      turn = atomic_load_explicit(&g->turn, memory_order_relaxed);
    ls_descriptor what = what_in(g, turn);

    if (!ls_collective_is_paired(what.kind))
        atomic_store_explicit(&g->left, sequence, memory_order_release);
    atomic_store_explicit(&g->turn, (turn + 1) & ~UINT64_C(1), memory_order_release);
}

bool ls__guard_now(const ls_guard *g, ls_descriptor *what)
{
    uint64_t turn;

    do {
        turn  = atomic_load_explicit(&g->turn, memory_order_acquire);
        *what = what_in(g, turn);
    } while (atomic_load_explicit(&g->turn, memory_order_acquire) != turn);
    return turn & 1;
}

uint64_t ls_guard_ask(ls_guard *g)
{
    ls__frame ask = frame_of(g, LS__ASK);

    if (!g->control)
        return 0;
    ask.number = atomic_fetch_add(&g->asked, 1) + 1;
    if (ls__control_mine(g->control))
        tell(g, &ask);
    return ask.number;
}

void ls__guard_answer(ls_guard *g, int from, const ls__frame *frame)
{
    int i = ls__guard_index(g, from);

    if (i < 0 || frame->number > atomic_load(&g->asked))
        return;
    pthread_mutex_lock(&g->lock);
    if (frame->number > g->answer[i].asked)
        g->answer[i] = (ls_guard_answer){
            .asked = frame->number, .entered = frame->entered, .left = frame->left};
    pthread_mutex_unlock(&g->lock);
    if (g->wake)
        g->wake(g->context);
}

ls_guard_answer ls_guard_answered(ls_guard *g, int member)
{
    if (g->control && g->member[member] == g->control->rank)
        return (ls_guard_answer){.asked   = atomic_load(&g->asked),
                                 .entered = atomic_load(&g->entered),
                                 .left    = atomic_load(&g->left)};
    pthread_mutex_lock(&g->lock);
    ls_guard_answer answer = g->answer[member];
    pthread_mutex_unlock(&g->lock);
    return answer;
}

bool ls_guard_member_left(const ls_guard *g, int member)
{
    return g->control && atomic_load(&g->control->peer[g->member[member]].left);
}

const char *ls_guard_member_text(const ls_guard *g, int member, char *text, size_t size)
{
    if (g->control)
        return ls__control_name(g->control, g->member[member], text, size);
    snprintf(text, size, "rank %d", g->member[member]);
    return text;
}

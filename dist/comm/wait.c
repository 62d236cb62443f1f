/*
 * wait.c - see wait.h.
 */
#include "dist/comm/wait.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/thread.h"

enum { LOOK_AT_CLOCK_EVERY = 16 };

static const int64_t SECOND = 1000000000, ANSWER_NS = 200000000, NOTICE_NS = 60000000,
                     ON_ITS_WAY_NS = 2000000000, LEFT_LOOK_NS = 1000000, CROWDED_NS = 500000,
                     CROWDED_FOR_NS = 200000000;

/*
 * Being woken from a sleep takes some tens of microseconds, so a spin of that length at most
 * doubles the time of a wait.  Longer ones take the core from whoever is waited for, or from a
 * product of this very rank.
 */
ls_wait_policy ls_wait_policy_for(int local_ranks, double timeout_s)
{
    ls_wait_policy p = {.spin_ns = 20000, .yield_ns = 30000};

    if (local_ranks > ls_cpu_count())
        p.spin_ns = 0;
    p.timeout_ns = (int64_t)((timeout_s > 0 ? timeout_s : 60) * (double)SECOND);
    p.warn_ns    = p.timeout_ns / 3;
    return p;
}

ls_waiter ls_wait_begin(ls_running *running)
{
    return (ls_waiter){.running = running, .peer = LS_NO_PEER};
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Rank m has not come, as far as anybody knows. */
static bool is_late(const ls_running *run, int m, uint64_t asked, bool *silent)
{
    ls_guard_answer a = ls_guard_answered(run->guard, m);

    *silent = a.asked < asked;
    return *silent || run->paired || a.entered < run->what.sequence;
}

/* Between two ranks, and where nobody can be asked, it is the peer of this very wait. */
static bool is_awaited(const ls_waiter *w, uint64_t asked, int m)
{
    const ls_running *run = w->running;

    return run->paired || !asked ? m == w->peer : m != run->transport->rank;
}

/* "rank 2 (pid 7, host h) has not come" or "... does not answer", of all that are late. */
static bool late_text(const ls_waiter *w, uint64_t asked, char *text, size_t size)
{
    const ls_running *run   = w->running;
    size_t            n     = 0;
    bool              first = true;

    for (int m = 0; m < run->transport->size; m++) {
        bool silent;
        char who[160];
        if (!is_awaited(w, asked, m) || !is_late(run, m, asked, &silent) || n + 1 >= size)
            continue;
        int wrote = snprintf(text + n, size - n, "%s%s %s", first ? "" : ", ",
                             ls_guard_member_text(run->guard, m, who, sizeof who),
                             silent        ? "does not answer (stopped?)"
                             : run->paired ? "has not answered the call"
                                           : "has not come");
        n += wrote > 0 ? (size_t)wrote : 0;
        first = false;
    }
    return !first;
}

static void told_late(const ls_waiter *w, uint64_t asked, int64_t after_ns, char *text,
                      size_t size)
{
    char what[LS_DESCRIPTOR_TEXT], late[300];

    if (!late_text(w, asked, late, sizeof late))
        snprintf(late, sizeof late, "all ranks have come, but it does not end");
    snprintf(text, size, "%s: after %.3g s %s", ls_descriptor_text(what, &w->running->what),
             (double)after_ns / (double)SECOND, late);
}

static bool all_answered(const ls_running *run, uint64_t asked)
{
    for (int m = 0; m < run->transport->size; m++)
        if (m != run->transport->rank && ls_guard_answered(run->guard, m).asked < asked)
            return false;
    return true;
}

/* Asks where the others are, and gives them a moment to answer. */
static uint64_t ask_and_listen(ls_running *run)
{
    uint64_t asked = ls_guard_ask(run->guard);
    int64_t  until = ls_now_ns() + ANSWER_NS;

    while (asked && !all_answered(run, asked) && !ls_guard_failed(run->guard) &&
           ls_now_ns() < until)
        ls_sleep_ns(ANSWER_NS / 40);
    return asked;
}

/* Several ranks reach the deadline together: the lowest of those that have come speaks for all.
 */
static void let_lower_speak(const ls_waiter *w, uint64_t asked)
{
    const ls_running *run   = w->running;
    int64_t           until = ls_now_ns() + NOTICE_NS;
    bool              silent, first = true;

    for (int m = 0; m < run->transport->rank; m++)
        first = first && (!is_awaited(w, asked, m) || is_late(run, m, asked, &silent));
    while (!first && !ls_guard_failed(run->guard) && ls_now_ns() < until)
        ls_sleep_ns(NOTICE_NS / 20);
}

static ls_status expire(ls_waiter *w)
{
    ls_running *run   = w->running;
    uint64_t    asked = ask_and_listen(run);
    char        text[LS_GUARD_TEXT];

    let_lower_speak(w, asked);
    told_late(w, asked, run->policy->timeout_ns, text, sizeof text);
    return ls_guard_fail(run->guard, LS_ETIMEOUT, text);
}

/* Asks first, and warns a moment later with what was answered; the wait goes on meanwhile. */
static void warn(ls_waiter *w, int64_t now)
{
    ls_running *run = w->running;
    char        text[LS_GUARD_TEXT];

    if (!run->asked) {
        run->asked   = ls_guard_ask(run->guard);
        run->warn_at = now + ANSWER_NS;
        return;
    }
    run->warn_at = INT64_MAX;
    told_late(w, run->asked, run->policy->warn_ns, text, sizeof text);
    if (run->policy->warn)
        run->policy->warn(run->policy->context, text);
}

/* Of members a and b (or LS_NO_PEER), one that said goodbye; else LS_NO_PEER. */
static int who_left(const ls_running *run, int a, int b)
{
    if (a != LS_NO_PEER && ls_guard_member_left(run->guard, a))
        return a;
    return b != LS_NO_PEER && ls_guard_member_left(run->guard, b) ? b : LS_NO_PEER;
}

static void left_text(const ls_running *run, int peer, char text[LS_GUARD_TEXT])
{
    char who[160], what[LS_DESCRIPTOR_TEXT];

    snprintf(text, LS_GUARD_TEXT, "%s left normally before %s",
             ls_guard_member_text(run->guard, peer, who, sizeof who),
             ls_descriptor_text(what, &run->what));
}

/*
 * A peer that said goodbye.  What it put up in memory before is seen by the next look; what it
 * sent may be on its way for longer than the goodbye, which took another connection.
 */
static ls_status check_left(ls_waiter *w, int64_t now)
{
    ls_running *run = w->running;
    char        text[LS_GUARD_TEXT];

    if (w->peer == LS_NO_PEER || !ls_guard_member_left(run->guard, w->peer))
        return LS_OK;
    if (!w->left_since)
        w->left_since = now;
    if (now - w->left_since <= (run->transport->meet ? 0 : ON_ITS_WAY_NS))
        return LS_OK;
    left_text(run, w->peer, text);
    return ls_guard_fail(run->guard, LS_EPEER, text);
}

static ls_status look_around(ls_waiter *w, int64_t now)
{
    ls_running *run = w->running;

    if (ls_guard_failed(run->guard))
        return ls_guard_check(run->guard);
    if (now >= run->deadline)
        return expire(w);
    if (now >= run->warn_at)
        warn(w, now);
    return check_left(w, now);
}

/* Somebody who has left wakes nobody. */
static int64_t sleep_for(const ls_waiter *w, int64_t ns)
{
    int64_t most = w->left_since ? LEFT_LOOK_NS : INT64_MAX;

    ns = ns < most ? ns : most;
    return ns > 0 ? ns : 1;
}

/*
 * A yield that takes long has handed the core to a stranger for a whole slice of the
 * scheduler's time; being woken from a sleep comes sooner.  So the group does without yields
 * for a while.
 */
static bool yield_was_short(ls_waiter *w)
{
    int64_t before = ls_now_ns();

    sched_yield();
    int64_t now = ls_now_ns();
    if (now - before > CROWDED_NS)
        *w->running->crowded_until = now + CROWDED_FOR_NS;
    return now - before <= CROWDED_NS &&
           now - w->started <= w->running->policy->spin_ns + w->running->policy->yield_ns;
}

/* Spinning, then yielding, for the policy's times; true once both are over. */
static bool is_long(ls_waiter *w)
{
    const ls_wait_policy *policy = w->running->policy;
    int                   look   = w->looks++;

    if (!w->started)
        w->started = ls_now_ns();
    if (!look)
        w->since = w->started;
    if (w->long_since)
        return true;
    if (policy->spin_ns && !w->yields) {
        pause_briefly();
        if (look % LOOK_AT_CLOCK_EVERY == LOOK_AT_CLOCK_EVERY - 1)
            w->yields = ls_now_ns() - w->started > policy->spin_ns;
        return false;
    }
    w->yields     = true;
    w->long_since = ls_now_ns() < *w->running->crowded_until || !yield_was_short(w);
    return w->long_since;
}

ls_status ls_wait_more(ls_waiter *w)
{
    ls_running *run = w->running;

    if (!is_long(w))
        return ls_guard_failed(run->guard) ? ls_guard_check(run->guard) : LS_OK;
    int64_t   now    = ls_now_ns();
    ls_status status = look_around(w, now);
    if (status)
        return status;
    int64_t next = run->warn_at < run->deadline ? run->warn_at : run->deadline;
    w->slept     = true;
    run->transport->ops->sleep(run->transport, sleep_for(w, next - now));
    return LS_OK;
}

void ls_wait_end(ls_waiter *w)
{
    ls_running *run = w->running;

    if (w->slept)
        run->transport->ops->sleep(run->transport, 0);
    if (w->looks)
        run->wait_ns += ls_now_ns() - w->since;
}

/* What went wrong in the transport becomes the failure of the group; it names its ranks, but
 * where this one is short of memory. */
static ls_status spread(ls_running *run, ls_status status)
{
    char text[LS_GUARD_TEXT], who[24] = "";

    if (status == LS_ENOMEM)
        snprintf(who, sizeof who, "rank %d: ", run->transport->rank);
    snprintf(text, sizeof text, "%s%s", who, ls_error_message());
    return ls_guard_fail(run->guard, status, text);
}

/* From now on it is this rank. */
static void wait_for(ls_waiter *w, int peer)
{
    if (peer != w->peer)
        w->left_since = 0;
    w->peer = peer;
}

/* Whose message is to come; then, who is to take this rank's.  The other may leave. */
static int awaited(const ls_transport *t, int to, int from)
{
    return from == LS_NO_PEER || t->received ? to : from;
}

/*
 * A connection to a or b ended.  The goodbye is a moment behind; it settles the matter when
 * there is nobody else whom the end may be of.
 */
static ls_status lost(ls_running *run, int a, int b)
{
    enum { LOOKS = 10 };
    char text[LS_GUARD_TEXT];
    int  left = LS_NO_PEER;

    snprintf(text, sizeof text, "%s", ls_error_message());
    for (int i = 0; i < LOOKS && !ls_guard_failed(run->guard); i++) {
        left = who_left(run, a, b);
        if (left != LS_NO_PEER)
            break;
        ls_sleep_ns(ANSWER_NS / 100);
    }
    if (left != LS_NO_PEER)
        left_text(run, left, text);
    bool sure = left != LS_NO_PEER && (a == LS_NO_PEER || b == LS_NO_PEER || a == b);
    return sure ? ls_guard_fail(run->guard, LS_EPEER, text) : ls_guard_lost(run->guard, text);
}

ls_status ls_exchange(ls_running *run, ls_outgoing out, ls_incoming in)
{
    ls_transport *t     = run->transport;
    ls_waiter     w     = ls_wait_begin(run);
    bool          moved = false, done = false;
    ls_status     status = t->ops->begin(t, &run->what, out, in);

    while (!status) {
        status = t->ops->progress(t, &moved, &done);
        if (status || done)
            break;
        wait_for(&w, awaited(t, out.peer, in.peer));
        if (moved) {
            w.left_since = w.started = 0;
            w.yields = w.long_since = false;
        }
        if (!moved && (status = ls_wait_more(&w)))
            goto out_failed; /* the group's failure already */
    }
    if (status)
        status = status == LS_EPEER ? lost(run, in.peer, out.peer) : spread(run, status);
out_failed:
    ls_wait_end(&w);
    return status;
}

/* ---- meetings ---- */

/*
 * All have come: also when the group has failed meanwhile, of what somebody did after it came
 * here.
 */
static ls_status meet_all(ls_running *run, bool (*there)(ls_meet *m, int rank))
{
    ls_transport *t      = run->transport;
    ls_waiter     w      = ls_wait_begin(run);
    ls_status     status = LS_OK;

    for (int r = 0; r < t->size && !status; r++)
        while (r != t->rank && !there(t->meet, r) && !status) {
            wait_for(&w, r);
            status = ls_wait_more(&w);
            if (status && there(t->meet, r))
                status = LS_OK;
        }
    ls_wait_end(&w);
    return status;
}

static bool has_posted(ls_meet *m, int rank)
{
    return m->ops->posted(m, rank) != NULL;
}

static bool has_advanced(ls_meet *m, int rank)
{
    return m->ops->advanced(m, rank);
}

/* All say the same as rank 0, else the first that does not is named, by every rank. */
static ls_status compare_all(ls_running *run)
{
    ls_meet             *m      = run->transport->meet;
    const ls_descriptor *zero   = &m->ops->posted(m, 0)->what;
    ls_status            status = LS_OK;

    for (int r = 1; r < run->transport->size && !status; r++)
        status = ls_descriptor_compare(zero, 0, &m->ops->posted(m, r)->what, r);
    return status ? spread(run, status) : LS_OK;
}

ls_status ls_meet_begin(ls_running *run, uint64_t in, uint64_t out, const void *payload,
                        size_t bytes)
{
    ls_meet   *m      = run->transport->meet;
    ls_posting mine   = {run->what, in, out};
    ls_status  status = m->ops->post(m, &mine, payload, bytes);

    if (status)
        return spread(run, status);
    status = meet_all(run, has_posted);
    return status ? status : compare_all(run);
}

ls_status ls_meet_sync(ls_running *run)
{
    ls_meet  *m      = run->transport->meet;
    ls_status status = m->ops->advance(m);

    return status ? spread(run, status) : meet_all(run, has_advanced);
}

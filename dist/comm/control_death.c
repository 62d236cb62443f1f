/*
 * control_death.c - who died, of what, and who is told.
 *
 * The end of a connection makes a peer a suspect.  It is declared dead a moment later, because
 * another may be the cause: a rank that leaves with an error tells why before its socket
 * closes, and that message may still be under way.  Nor does the end of a socket say how the
 * process ended; the parent publishes that on the board after it has reaped it.
 *
 *     suspected ──── grace ──── the board says how, or patience is over ──── dead, all are told
 *         └──────────── another rank tells of this death ─────────────────── dead
 *
 * Suspects are declared in the order in which they were found, so effects come after causes.
 * Where the board says nothing, each rank would describe what it saw itself; so the lowest rank
 * that lives speaks first, and the others take over its text.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "dist/comm/control_impl.h"

enum {
    GRACE_MS = 20,  /* for messages under way */
    BOARD_MS = 200, /* for the parent to publish */
    LEAD_MS  = 40,  /* of the rank that speaks first */
};

void ls__death_suspect(ls_control *c, int rank, int64_t pass, const char *reason)
{
    ls__peer *p = &c->peer[rank];

    if (p->suspected || p->died || atomic_load(&p->left))
        return;
    p->suspected = pass;
    p->since     = ls_now_ns();
    snprintf(p->reason, sizeof p->reason, "%s", reason);
}

static bool how_ended(const ls_control *c, int rank, int *status)
{
    return c->board && rank < ls_board_world(c->board) &&
           ls_board_how_ended(c->board, rank, status);
}

static bool speaks_first(const ls_control *c)
{
    for (int r = 0; r < c->rank; r++) {
        const ls__peer *p = &c->peer[r];
        if (!p->died && !p->suspected && !atomic_load(&p->left))
            return false;
    }
    return true;
}

static bool is_ripe(const ls_control *c, int rank)
{
    int64_t age = (ls_now_ns() - c->peer[rank].since) / 1000000, patience;
    int     status;

    if (how_ended(c, rank, &status))
        return age >= GRACE_MS;
    patience = c->board ? BOARD_MS : GRACE_MS;
    return age >= patience + (speaks_first(c) ? 0 : LEAD_MS);
}

/* Of two that were found in one pass, one that was killed is rather the cause. */
static bool comes_before(const ls_control *c, int a, int b)
{
    int64_t pass_a = c->peer[a].suspected, pass_b = c->peer[b].suspected;
    int     how_a = 0, how_b = 0;

    if (pass_a != pass_b)
        return pass_a < pass_b;
    bool killed_a = how_ended(c, a, &how_a) && WIFSIGNALED(how_a);
    bool killed_b = how_ended(c, b, &how_b) && WIFSIGNALED(how_b);
    return killed_a != killed_b ? killed_a : a < b;
}

static int first_suspect(const ls_control *c)
{
    int first = -1;

    for (int r = 0; r < c->world; r++)
        if (c->peer[r].suspected && (first < 0 || comes_before(c, r, first)))
            first = r;
    return first;
}

/* "was killed by signal 9 (Killed)" */
static void say_how(const ls_control *c, int rank, char *text, size_t size)
{
    int status;

    if (!how_ended(c, rank, &status))
        snprintf(text, size, "%s", c->peer[rank].reason);
    else if (WIFSIGNALED(status))
        snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "exited with status %d", WEXITSTATUS(status));
}

static bool own_operation(ls_control *c, int with, ls_descriptor *what)
{
    bool found = false;

    pthread_mutex_lock(&c->lock);
    for (ls_guard *g = c->guards; g && !found; g = g->next)
        found = ls__guard_index(g, with) >= 0 && ls__guard_now(g, what);
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* " during all_reduce #17 (F32, sum, count 1000)", by the dead rank's own recorder if it can be
 * had, else by what this rank is doing; or "". */
static void say_when(ls_control *c, int rank, bool clause, char *text, size_t size)
{
    char          operation[LS_DESCRIPTOR_TEXT];
    const char   *comma = clause ? "," : "";
    ls_record     last;
    ls_descriptor what;

    text[0] = '\0';
    if (c->board && rank < ls_board_world(c->board) &&
        ls_recorder_last(ls_board_recorder(c->board, rank), &last))
        snprintf(text, size, "%s %s %s", comma,
                 last.state == LS_RECORD_RUNNING  ? "during"
                 : last.state == LS_RECORD_QUEUED ? "before"
                                                  : "after",
                 ls_descriptor_text(operation, &last.what));
    else if (own_operation(c, rank, &what))
        snprintf(text, size, ", seen in %s", ls_descriptor_text(operation, &what));
}

static void describe(ls_control *c, int rank, char text[LS_GUARD_TEXT])
{
    char name[128], how[128], when[LS_DESCRIPTOR_TEXT + 16];
    int  status;

    ls__control_name(c, rank, name, sizeof name);
    say_how(c, rank, how, sizeof how);
    say_when(c, rank, !how_ended(c, rank, &status), when, sizeof when);
    snprintf(text, LS_GUARD_TEXT, "%s %s%s", name, how, when);
}

static void tell_all(ls_control *c, int rank, const char *text)
{
    ls__frame death = {.magic = LS__FRAME_MAGIC, .kind = LS__DEATH, .culprit = rank};

    ls__text_copy(death.text, text);
    for (int r = 0; r < c->world; r++)
        ls__control_send(c, r, &death);
}

/* Under the lock; true when a group failed of it. */
static bool fail_groups(ls_control *c, int rank, const char *text)
{
    bool any = false;

    for (ls_guard *g = c->guards; g; g = g->next)
        if (ls__guard_index(g, rank) >= 0 && ls__guard_adopt(g, LS_EPEER, text))
            any = true;
    return any;
}

static void declare(ls_control *c, int rank, const char *text)
{
    ls__peer *p = &c->peer[rank];

    pthread_mutex_lock(&c->lock);
    p->died = ++c->deaths;
    ls__text_copy(p->death, text);
    bool any = fail_groups(c, rank, p->death);
    pthread_mutex_unlock(&c->lock);
    p->suspected = 0;
    if (any)
        ls__control_report(c, p->death);
}

bool ls__death_judge(ls_control *c)
{
    int rank;

    while ((rank = first_suspect(c)) >= 0) {
        char text[LS_GUARD_TEXT];
        if (!is_ripe(c, rank))
            return false;
        describe(c, rank, text);
        tell_all(c, rank, text);
        declare(c, rank, text);
    }
    return true;
}

void ls__death_told(ls_control *c, int rank, const char *text)
{
    if (!c->peer[rank].died && !atomic_load(&c->peer[rank].left))
        declare(c, rank, text);
}

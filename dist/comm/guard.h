/*
 * guard.h - the health of one group: sound, or failed for a reason that all ranks share.
 *
 * The first failure wins and sticks: a group that failed is dead.  Whoever finds a failure (a
 * wait past its deadline, a descriptor that differs, the watch thread of control.h that sees a
 * peer die) calls ls_guard_fail(), which tells the other members through the control
 * connections; they take over the text, so every survivor names the same culprit.
 */
#ifndef LS_DIST_COMM_GUARD_H
#define LS_DIST_COMM_GUARD_H

#include <stdatomic.h>

#include "dist/comm/call.h"

enum { LS_GUARD_TEXT = 480 };

typedef struct ls_control ls_control;
typedef struct ls_guard   ls_guard;

/* What a member last said of itself (see ls_guard_ask). */
typedef struct {
    uint64_t asked;   /* the question it answers; 0: none answered yet */
    uint64_t entered; /* sequence number of the last operation that it entered in this group */
    uint64_t left;    /* ... and of the last that it completed */
} ls_guard_answer;

/*
 * A guard for the group `id` (the same on all members, different from all other groups' since
 * the join) of `size` world ranks, copied.  control may be NULL: then nobody is told and
 * nobody can be asked.  It has failed already where a member is dead, or where the members have
 * told of a failure before this rank made it.  NULL: ENOMEM.
 *
 * wake(context) is called, from any thread, when the group fails, and also when a member
 * answers or leaves.  It must not call back into guards.
 */
ls_guard *ls_guard_new(ls_control *control, uint64_t id, const int *members, int size,
                       void (*wake)(void *context), void *context);
void      ls_guard_free(ls_guard *guard); /* NULL is allowed */

/* Cheap: one atomic load. */
bool ls_guard_failed(const ls_guard *guard);

/* The failure, with its text as this thread's error message; LS_OK while the group is sound. */
LS_MUST_CHECK ls_status ls_guard_check(ls_guard *guard);

/*
 * From any thread, at any time: fails the group with this text, tells the members, wakes this
 * rank; returns the status of the failure that won (this one, or one that came before) with its
 * text as the error message.
 */
ls_status ls_guard_fail(ls_guard *guard, ls_status status, const char *text);

/*
 * For a connection that was found closed: gives the watch thread up to 300 ms to say why (who
 * died and of what signal), and fails the group with `text` if it says nothing.
 */
ls_status ls_guard_lost(ls_guard *guard, const char *text);

/*
 * Where this rank is; answered by the watch thread when members ask.  One operation at a time.
 * send and recv count in pairs of ranks, not in the group: they show in texts, and leave the
 * numbers of ls_guard_answer as they were.  Both calls cost some plain stores.
 */
void ls_guard_enter(ls_guard *guard, const ls_descriptor *what);
void ls_guard_leave(ls_guard *guard, uint64_t sequence);

/* Asks all members where they are; answers arrive while the caller waits.  Returns the
 * question's number, 0 where nobody can be asked.  A member that has not made the group yet
 * answers with zeros. */
uint64_t        ls_guard_ask(ls_guard *guard);
ls_guard_answer ls_guard_answered(ls_guard *guard, int member);

/*
 * Has a member said goodbye?  The group is sound then, and what the member sent before may
 * still be on its way; but an operation that needs more of it will never end.
 */
bool ls_guard_member_left(const ls_guard *guard, int member);

/* "rank 2 (pid 123, host node-7)", by the member's world rank, into text; returns text. */
const char *ls_guard_member_text(const ls_guard *guard, int member, char *text, size_t size);

#endif

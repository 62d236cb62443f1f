/*
 * control_impl.h - what control*.c and guard.c share.
 *
 *     control.c         sockets: made, freed, frames sent
 *     control_hello.c   before the watch thread: hellos and file descriptors, blocking
 *     control_watch.c   the watch thread: poll, frames received and acted upon
 *     control_death.c   who died, of what, and who is told
 *     guard.c           the groups
 *
 * Locks, in the order in which they are taken:
 *
 *     ls_control.lock      the list of guards, the dead, kept notices, reported failures
 *     ls_guard.lock        the failure of a group, the answers of its members
 *     ls__peer.lock        the writing half of a socket
 *
 * A failure is sent before it is shown: a thread that finds its group failed may end the
 * process at once, and the others must have the reason before they see that end.
 */
#ifndef LS_DIST_COMM_CONTROL_IMPL_H
#define LS_DIST_COMM_CONTROL_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "dist/comm/control.h"

typedef enum {
    LS__NOTICE, /* a group has failed: status, text */
    LS__DEATH,  /* a rank is dead: culprit, text */
    LS__ASK,    /* where are you?  number */
    LS__ANSWER, /* number, entered, left */
    LS__GOODBYE,
    LS__CLAIM, /* the sender's group should fail: status, text; the receiver decides */
    LS__FRAME_KINDS
} ls__frame_kind;

#define LS__FRAME_MAGIC UINT32_C(0x6c73666d)

typedef struct {
    uint32_t magic, kind;
    uint64_t group; /* of NOTICE, ASK, ANSWER */
    uint64_t number, entered, left;
    int32_t  status, culprit;
    char     text[LS_GUARD_TEXT];
} ls__frame;

_Static_assert(sizeof(ls__frame) == 48 + LS_GUARD_TEXT, "no padding on the wire");

typedef struct {
    int         fd;        /* -1: own entry */
    int         pidfd;     /* -1: none */
    pid_t       pid;       /* as the kernel gives it to this process; 0: not known */
    size_t      sent, got; /* of the message in the blocking phase; got: of `in`, later */
    ls__frame   in;
    atomic_bool left; /* said goodbye */

    pthread_mutex_t lock;
    ls__frame       out; /* a frame that the socket took in part: its end is unsent */
    size_t          unsent;

    /* The watch thread's. */
    bool    deaf;       /* nothing more comes: the end, or what is no frame, was read */
    int64_t suspected;  /* the pass in which its end was found; 0: it is not suspected */
    int64_t since;      /* ls_now_ns() of that */
    char    reason[96]; /* "is gone: connection closed", ... */

    /* Under ls_control.lock. */
    int  died; /* 0: alive; else the how manieth death it was */
    char death[LS_GUARD_TEXT];
} ls__peer;

typedef struct {
    uint64_t  group;
    int       from;
    ls_status status; /* LS_OK: free */
    char      text[LS_GUARD_TEXT];
} ls__kept;

enum { LS__KEPT = 32, LS__REPORTED = 64 };

struct ls_control {
    int       rank, world;
    pid_t     creator;
    ls_board *board;
    ls_hello *hello; /* [world] */
    ls__peer *peer;  /* [world] */

    int            event; /* eventfd: ends a sleep of the watch thread */
    pthread_t      thread;
    bool           started, watched; /* watched: there is a thread */
    atomic_bool    stop;
    struct pollfd *polled; /* [1 + 2 * world] */

    pthread_mutex_t lock;
    ls_guard       *guards;
    int             deaths;
    ls__kept        kept[LS__KEPT]; /* notices of groups that this rank has not made, a ring */
    unsigned        next_kept;
    uint64_t        reported[LS__REPORTED]; /* hashes of texts, a ring */
    unsigned        next_reported;
    void (*failed)(void *context, const char *text);
    void *context;
};

struct ls_guard {
    ls_control *control;
    uint64_t    id;
    int         size;
    int        *member; /* [size] world ranks */
    void (*wake)(void *context);
    void     *context;
    ls_guard *next, **link; /* in the control's list; link points at what points here */

    pthread_mutex_t  lock;
    pthread_cond_t   changed;
    atomic_int       failed; /* ls_status; set once, after text */
    char             text[LS_GUARD_TEXT];
    ls_guard_answer *answer; /* [size] */

    /* Written by the thread that runs the group's operation; see ls__guard_now(). */
    _Atomic uint64_t turn; /* odd inside an operation */
    _Atomic uint64_t what[2][sizeof(ls_descriptor) / sizeof(uint64_t)];
    _Atomic uint64_t entered, left, asked;
};

/* control.c */

/* Is this the process that made it, and no child of it? */
bool        ls__control_mine(const ls_control *c);
/* Never waits: gives a frame up when the socket takes nothing. */
void        ls__control_send(ls_control *c, int peer, const ls__frame *frame);
/* Sends what a frame has left, under the peer's lock; true when nothing is left. */
bool        ls__peer_flush(ls__peer *p);
void        ls__control_wake(ls_control *c);
/* "rank 2 (pid 123, host h)" */
const char *ls__control_name(const ls_control *c, int rank, char *text, size_t size);
/* Tells the user of a failure unless this text has been told.  No lock is held. */
void        ls__control_report(ls_control *c, const char *text);
/* A text of another process or thread, cut to size and made printable. */
void        ls__text_copy(char to[LS_GUARD_TEXT], const char *from);

/* control_watch.c: ends the thread. */
void ls__control_end_watch(ls_control *c);

/* control_death.c; on the watch thread. */

/* Its end was found in this pass.  Peers that are dead or have left are no suspects. */
void ls__death_suspect(ls_control *c, int rank, int64_t pass, const char *reason);
/* Declares dead who can be; false when suspects remain. */
bool ls__death_judge(ls_control *c);
/* A peer says it; of this rank too, whose groups are then given up by the others. */
void ls__death_told(ls_control *c, int rank, const char *text);

/* guard.c; under ls_control.lock. */

/* Index of a world rank, -1: no member. */
int  ls__guard_index(const ls_guard *g, int rank);
/* Fails it without telling members; false when it had failed. */
bool ls__guard_adopt(ls_guard *g, ls_status status, const char *text);
/* Fails it and tells all members, or tells the one that claims a failure why it had failed;
 * false when it had. */
bool ls__guard_claimed(ls_guard *g, int from, ls_status status, const char *text);
void ls__guard_answer(ls_guard *g, int from, const ls__frame *frame);
/* The operation in which the group is; false when in none. */
bool ls__guard_now(const ls_guard *g, ls_descriptor *what);

#endif

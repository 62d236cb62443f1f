/*
 * save.h - checkpoints while training goes on.
 *
 *     begin   rank 0 makes the folder; all take a snapshot        the only wait of training
 *     write   a thread of each rank writes and syncs its file     training goes on
 *     commit  a thread of rank 0: manifest, rename, latest, prune
 *
 * Ranks never wait for each other's disks: at the end of each step they look together
 * (ls_saver_poll), by one small sum, whether all have written, whether one has failed, whether
 * the deadline is over.  So all know of a save's end in the same step, and a slow or broken
 * disk fails the save and not the group.  Whatever fails, the checkpoints that were there stay.
 *
 *     ls_saver_begin(saver, &facts, &ended);
 *     ... every step: ls_saver_poll(saver, &ended);  if (ended.step) ...
 *     ls_saver_wait(saver, &ended);                   before the next begin, and at the end
 *
 * All ranks call these in the same order.  What they return is a failure of the group, after
 * which nothing goes on; how a save went is in ls_save_end.
 */
#ifndef LS_CHECKPOINT_SAVE_H
#define LS_CHECKPOINT_SAVE_H

#include "checkpoint/rows.h"
#include "dist/comm/comm.h"

typedef struct ls_saver ls_saver;

typedef struct {
    const char *store; /* the folder of checkpoints (store.h), the same for all ranks */
    ls_comm    *comm;  /* borrowed; NULL: one process */
    int         keep;  /* checkpoints; 0: 3 */
    bool        best;  /* and the one with the lowest val_loss in its state */
    bool        async; /* snapshot and go on; else begin returns at the end */
    bool        compressed;
    double      timeout_s; /* of one save; 0: 600 */
    bool no_thread; /* the caller's thread writes: no deadline, nothing goes on meanwhile */
} ls_saver_opts;

/* What a checkpoint says beside its tensors; borrowed, JSON texts. */
typedef struct {
    int64_t     step;
    const char *strategy, *state, *config, *tokenizer;
    bool        wait; /* nothing goes on meanwhile: no snapshot, and begin returns at the end */
} ls_save_facts;

/* How a save ended; step 0: none has. */
typedef struct {
    int64_t   step;
    ls_status status; /* the same on all ranks, as is the text */
    char      text[600];
    double    seconds, stall_s; /* from begin to here; of that, in begin */
    uint64_t  bytes;            /* of all tensors */
    bool      no_snapshot;      /* there was no memory for one: it was saved before going on */
} ls_save_end;

/*
 * A saver of these tensors, borrowed as the options' texts are.  Rank 0 makes the store and
 * removes what an interrupted process has left there.
 */
LS_MUST_CHECK ls_status ls_saver_new(const ls_saver_opts *opts, const ls_stored_tensor *list,
                                     size_t n, ls_saver **saver);

/* Gives up what is under way; a thread that hangs in the system is left behind.  NULL allowed.
 */
void ls_saver_free(ls_saver *s);

/*
 * Asks the system for a snapshot's memory and gives it back to the allocator's cache, on a
 * thread of its own, so that the first snapshot takes no longer than later ones.  Once, before
 * the first save; each rank for itself.
 */
void ls_saver_warm(ls_saver *s);

/* ESTATE where one is under way.  A save that fails here, or is not asynchronous, ends here. */
LS_MUST_CHECK ls_status ls_saver_begin(ls_saver *s, const ls_save_facts *facts,
                                       ls_save_end *end);

/* Cheap, and no communication, where none is under way. */
LS_MUST_CHECK ls_status ls_saver_poll(ls_saver *s, ls_save_end *end);

/* Until it has ended. */
LS_MUST_CHECK ls_status ls_saver_wait(ls_saver *s, ls_save_end *end);

#endif

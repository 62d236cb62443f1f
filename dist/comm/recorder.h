/*
 * recorder.h - the flight recorder: the last 256 operations of a rank.
 *
 * A ring of fixed entries in plain memory, written without locks by the threads of one rank
 * and read at any time, by a launcher from the board of a rank that crashed for instance.
 * The state is written last: an entry that is being filled is empty to a reader.  An operation
 * that is still going on when 256 more have come loses its entry to a newer one.
 */
#ifndef LS_DIST_COMM_RECORDER_H
#define LS_DIST_COMM_RECORDER_H

#include <stdatomic.h>
#include <stdio.h>

#include "dist/comm/call.h"

enum { LS_RECORDER_ENTRIES = 256 };

typedef enum {
    LS_RECORD_NONE,
    LS_RECORD_QUEUED,
    LS_RECORD_RUNNING,
    LS_RECORD_DONE,
    LS_RECORD_FAILED
} ls_record_state;

typedef struct {
    ls_descriptor    what;
    uint64_t         group;                  /* its id */
    int64_t          bytes;                  /* payload: count times the element's size */
    int64_t          queued, started, ended; /* ls_now_ns(); 0 where not yet */
    _Atomic uint32_t state;                  /* ls_record_state */
    _Atomic uint32_t size;                   /* ranks in the group */
} ls_record;

/* Zeroed memory is an empty recorder. */
typedef struct {
    _Atomic uint64_t next; /* entries so far; entry k is record[k % LS_RECORDER_ENTRIES] */
    ls_record        record[LS_RECORDER_ENTRIES];
} ls_recorder;

/* Adds an entry, QUEUED now; the caller sets its state as it goes on.  From any thread. */
ls_record *ls_recorder_add(ls_recorder *r, const ls_descriptor *what, uint64_t group, int size,
                           int64_t bytes);
void       ls_record_start(ls_record *record);
void       ls_record_end(ls_record *record, ls_status status);

/* The newest entry that is running, else the newest; false when there is none. */
bool ls_recorder_last(const ls_recorder *r, ls_record *entry);

/* Prints the newest `most` entries, oldest first, a line each: operation, sequence, bytes,
 * state, times in milliseconds before `now` (ls_now_ns). */
void ls_recorder_print(const ls_recorder *r, FILE *file, int most, int64_t now);

#endif

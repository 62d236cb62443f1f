/*
 * tfevents.h - scalars over steps in the file that TensorBoard reads.
 *
 *     file    record record ...           events.out.tfevents.<seconds>.<host>.<pid>.<number>
 *     record  length u64 | masked CRC-32C of it | event | masked CRC-32C of the event
 *     event   a protocol buffer: wall_time, step, and file_version or summary {tag, value}...
 *
 * All little-endian (github.com/tensorflow/tensorboard: record_writer.py, event.proto,
 * summary.proto).
 *
 * Invariant: a record goes out by one write, so that a run that is killed leaves whole records
 * and at most one torn one, behind which readers stop.  Therefore a run that goes on opens a
 * file of its own; a session log in front tells TensorBoard to forget later steps of earlier
 * files.
 */
#ifndef LS_CORE_TFEVENTS_H
#define LS_CORE_TFEVENTS_H

#include "core/error.h"

#include <stdint.h>

#define LS_TFEVENTS_PREFIX "events.out.tfevents."

typedef struct ls_tfevents ls_tfevents;

typedef struct {
    const char *tag;
    double      value; /* stored as float */
} ls_tfscalar;

/*
 * A new file in dir, of steps beyond `from`: 0 for a run from its start.  EIO, naming the file.
 */
LS_MUST_CHECK ls_status ls_tfevents_open(const char *dir, int64_t from, ls_tfevents **events);
void                    ls_tfevents_close(ls_tfevents *events); /* NULL is allowed */

/* One event of n scalars, now; NULL does nothing. */
void ls_tfevents_add(ls_tfevents *events, int64_t step, const ls_tfscalar *scalars, int n);

/* The same at a time in seconds since 1970. */
void ls_tfevents_add_at(ls_tfevents *events, double wall_time, int64_t step,
                        const ls_tfscalar *scalars, int n);

/* EIO or ENOMEM, once, after an event could not be written; the file was given up then. */
LS_MUST_CHECK ls_status ls_tfevents_check(ls_tfevents *events);

#endif

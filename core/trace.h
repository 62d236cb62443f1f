/*
 * trace.h - what the ranks of a job did when, as a time line that Perfetto and chrome://tracing
 * open.
 *
 * A rank notes spans of time in memory of a fixed size; one of them writes those of all, from
 * time to time:
 *
 *     ls_trace                      ls_trace_file
 *     spans of rank 0  ─────────┐
 *     spans of rank 1  ─────────┴─> trace.json, an array of events, one a line
 *
 * Each rank is a process of the time line (pid = rank) with its tracks:
 *
 *     0 compute   step > forward, backward, wait, agree, update; evaluation
 *     1 comm      all_reduce or all_gather, while it runs; from its launch on as an
 *                 asynchronous event
 *     2 comm      reduce_scatter, likewise
 *
 * Spans of a track nest.  An arrow (flow) leads from the rank that came last to an operation to
 * each that waited for it there.
 */
#ifndef LS_CORE_TRACE_H
#define LS_CORE_TRACE_H

#include <stdint.h>

#include "core/error.h"

typedef enum {
    LS_SPAN_STEP,
    LS_SPAN_FORWARD,
    LS_SPAN_BACKWARD,
    LS_SPAN_WAIT,   /* for operations that were to overlap with backward */
    LS_SPAN_AGREE,  /* losses, signals and failures of all ranks */
    LS_SPAN_UPDATE, /* clipping and optimizer */
    LS_SPAN_EVALUATION,
    LS_SPAN_ALL_REDUCE,
    LS_SPAN_ALL_GATHER,
    LS_SPAN_REDUCE_SCATTER,
    LS_SPAN_COUNT
} ls_span_kind;

/* Times are ls_now_ns(). */
typedef struct {
    int64_t  start, end;
    int64_t  launched; /* of an operation: when it was handed over */
    int64_t  bytes;    /* of an operation */
    uint64_t sequence; /* of an operation: its number, the same on all ranks */
    int64_t  step;     /* from 1 */
    int32_t  index;    /* micro-batch of forward and backward, bucket of an operation */
    int32_t  kind;     /* ls_span_kind */
} ls_span;

typedef struct ls_trace ls_trace;

enum { LS_TRACE_CAPACITY = 1 << 16 };

/* Belongs to one thread.  NULL: out of memory. */
ls_trace *ls_trace_new(void);
void      ls_trace_free(ls_trace *trace); /* NULL is allowed */

/*
 * Adds a span, or one from start until now; trace NULL: does nothing.  The trace's step is
 * filled in.  A span beyond the capacity is lost, and counted.
 */
void ls_trace_add(ls_trace *trace, const ls_span *span);
void ls_trace_until_now(ls_trace *trace, ls_span_kind kind, int64_t start, int64_t index);

/* The step of the spans to come; trace NULL: does nothing. */
void ls_trace_set_step(ls_trace *trace, int64_t step);

/*
 * What was added since the last clear, in the trace's own memory; the LS_TRACE_CAPACITY spans
 * from there on may be read.
 */
ls_span *ls_trace_spans(ls_trace *trace, int64_t *n);
void     ls_trace_clear(ls_trace *trace);
int64_t  ls_trace_lost(const ls_trace *trace); /* since the start */

/* How many were added since the last clear, waits apart: the same number on all ranks, where
 * each waits for what was not there in time. */
int64_t ls_trace_alike(const ls_trace *trace);

typedef struct ls_trace_file ls_trace_file;

/* A new file for so many ranks; `origin` is time 0.  EIO. */
LS_MUST_CHECK ls_status ls_trace_file_open(const char *path, int ranks, int64_t origin,
                                           ls_trace_file **file);

/*
 * Writes the spans of all ranks: n[r] of rank r, one rank's behind the other's.  All have the
 * clock of `origin`.  Arrows need the operations of all ranks in the same call.
 */
void ls_trace_file_add(ls_trace_file *file, const ls_span *spans, const int64_t *n);

/* Ends the array, so that the file is JSON; nothing can be added any more. */
void ls_trace_file_end(ls_trace_file *file);

/* EIO, once, after the file could not be written; it has been given up. */
LS_MUST_CHECK ls_status ls_trace_file_check(ls_trace_file *file);

void ls_trace_file_close(ls_trace_file *file); /* ends it before; NULL is allowed */

#endif

/*
 * tracing.h - log.trace: the time line of a run on all its ranks, in trace.json of run.dir.
 *
 * Every rank keeps its spans (core/trace.h).  After a step that made them many, all ranks send
 * them to rank 0, which writes: memory stays the same however long the run is.
 *
 * Invariant: all ranks have equally many spans after a step, one for each phase, micro-batch
 * and bucket; so each knows for itself that it is time to send.
 *
 * Clocks.  Ranks of one system (the same boot) share a clock; of another system's the offset
 * to rank 0's is measured at the start, as far as a barrier tells, and taken off.
 */
#ifndef LS_CLI_TRACING_H
#define LS_CLI_TRACING_H

#include "cli/ranks.h"
#include "core/trace.h"

typedef struct ls_tracing ls_tracing;

/* All ranks call it; ranks are borrowed.  EIO where rank 0 cannot make the file, on all. */
LS_MUST_CHECK ls_status ls_tracing_open(const char *dir, const ls_ranks *ranks,
                                        ls_tracing **tracing);
void                    ls_tracing_close(ls_tracing *tracing); /* NULL is allowed */

ls_trace *ls_tracing_spans(ls_tracing *tracing); /* where this rank's go; NULL for NULL */

/*
 * After a step, on all ranks; `last`: all that is left, and the end of the file.  Failures are
 * those of collectives and ENOMEM; of the file ls_tracing_check() tells.  NULL does nothing.
 */
LS_MUST_CHECK ls_status ls_tracing_collect(ls_tracing *tracing, bool last);

/* EIO, once, after the file could not be written.  NULL: LS_OK. */
LS_MUST_CHECK ls_status ls_tracing_check(ls_tracing *tracing);

/* Spans of this rank that found no place. */
int64_t ls_tracing_lost(const ls_tracing *tracing);

#endif

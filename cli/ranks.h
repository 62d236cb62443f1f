/*
 * ranks.h - what this process is in its job: one rank of several, or alone.
 *
 * Only rank 0 prints and writes files.  All ranks decide alike, because what they decide on has
 * been agreed: sums of losses, signals, failures.
 */
#ifndef LS_CLI_RANKS_H
#define LS_CLI_RANKS_H

#include "cli/config.h"
#include "core/exact_sum.h"
#include "dist/comm/comm.h"

typedef struct {
    ls_comm *world; /* NULL for one process that is no rank */
    int      rank, size;
    int      local; /* ranks of this host; all where the launcher does not say */
} ls_ranks;

/* One process that is no rank. */
extern const ls_ranks ls_ranks_alone;

/*
 * Joins the job that the environment names; without one it is alone, or with
 * parallel.strategy "ddp" or "fsdp" the only rank of a world of its own.  ECONFIG where the
 * config does not allow more than one rank, EWORLD (exit 3) where this number of ranks does not
 * fit the batch, with the numbers that would.
 */
LS_MUST_CHECK ls_status ls_ranks_join(const ls_config *cfg, ls_ranks *ranks);

/*
 * Leaves it; `well` where all ranks do so after a run without failure: MPI wants its end to be
 * said by all, and by none of a job that fails, which mpirun then ends.
 */
void ls_ranks_leave(ls_ranks *ranks, bool well);

/*
 * Before the calling thread reports the failure that ends this rank.  Where the watch thread
 * was first, which ends the process when it has reported, this does not return: one rank, one
 * line.
 */
void ls_ranks_tell(const ls_ranks *ranks);

/* The checks of the above for a world of `size`. */
LS_MUST_CHECK ls_status ls_ranks_check(const ls_config *cfg, int size);

/* Have this host's ranks, each with its threads and one for communication, too few cores? */
bool ls_ranks_are_crowded(const ls_config *cfg, const ls_ranks *ranks);

enum { LS_RANKS_FLAGS = 8 };

/* Over all ranks: the sum of s, and of each flag. */
LS_MUST_CHECK ls_status ls_ranks_sum(const ls_ranks *ranks, ls_exact_sum *s, int64_t *flags,
                                     int n);

/* Over all ranks: the largest of each value. */
LS_MUST_CHECK ls_status ls_ranks_max(const ls_ranks *ranks, int64_t *values, int n);

/*
 * Over all ranks: the failure of the lowest rank that has one becomes everybody's, with its
 * text, behind "rank R: " unless it is the failure of all.  LS_OK where none has.
 */
LS_MUST_CHECK ls_status ls_ranks_agree(const ls_ranks *ranks, ls_status own);

/*
 * Over all ranks: is the text, lines of `name value`, that of rank 0?  ECONFIG, on all, names
 * the first line that is not, the rank, and both values.
 */
LS_MUST_CHECK ls_status ls_ranks_compare(const ls_ranks *ranks, const char *text);

/*
 * Rank 0's bytes to all: on the others *data becomes fresh memory (free()) of *bytes and a NUL
 * behind, in place of what was there.  Rank 0's own may be NULL where it found no memory; then
 * all fail.
 */
LS_MUST_CHECK ls_status ls_ranks_share(const ls_ranks *ranks, char **data, size_t *bytes);

#endif

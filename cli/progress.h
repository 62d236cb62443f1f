/*
 * progress.h - what a person sees of a run.
 *
 * On a terminal the last line lives: it is rewritten as steps pass, and a line an evaluation or
 * warning scrolls above it.  Elsewhere (or with log.progress "plain") it is a line a logged
 * step. All lines but the living one go to log.txt too, through the log.
 */
#ifndef LS_CLI_PROGRESS_H
#define LS_CLI_PROGRESS_H

#include <stdbool.h>

#include "cli/metrics.h"
#include "core/log.h"

typedef struct {
    ls_log *log;
    bool    silent;      /* log.progress "none" */
    bool    live;        /* stderr is a terminal that takes a living line */
    bool    standing;    /* a living line stands on the terminal */
    int64_t first, last; /* the steps of this run */
    double  step_flops;  /* of one step */
    double  peak_flops;  /* sgemm's, a second, with the same threads; 0: unknown */
    double  started;     /* seconds, monotonic */
    double  drawn;       /* when the living line was last drawn */
} ls_progress;

/* Seconds on a clock that never jumps. */
double ls_now(void);

/* Flops a second of a side^3 sgemm on the pool in use: the best of some rounds; 0: no memory.
 */
double ls_measure_sgemm(int side, int rounds);

/* A step is done; logged says that its line belongs to the log. */
void ls_progress_step(ls_progress *p, const ls_metrics_line *line, bool logged);

/* Takes the living line away, before anything else is printed. */
void ls_progress_clear(ls_progress *p);

#endif

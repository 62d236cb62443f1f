/*
 * metrics.h - metrics.jsonl, TensorBoard's scalars and summary.json.
 *
 * Numbers are printed so that they read back to the same bits.  A line is written whole.  When
 * a file cannot be written (disk full) it is given up, the run goes on, and
 * ls_metrics_check() tells once.
 */
#ifndef LS_CLI_METRICS_H
#define LS_CLI_METRICS_H

#include "cli/trainer.h"
#include "core/alloc.h"

typedef struct ls_metrics ls_metrics;

typedef struct {
    bool    jsonl;       /* append to dir/metrics.jsonl */
    bool    tensorboard; /* a new dir/events.out.tfevents.* (core/tfevents.h) */
    int64_t from;        /* the last step that earlier files have; 0: a run from its start */
} ls_metrics_opts;

/* EIO. */
LS_MUST_CHECK ls_status ls_metrics_open(const char *dir, const ls_metrics_opts *opts,
                                        ls_metrics **metrics);

/* Before: takes away the lines of dir/metrics.jsonl from the first one on that is of a later
 * step, or that is not whole.  EIO; a file that is not there is fine. */
LS_MUST_CHECK ls_status ls_metrics_cut(const char *dir, int64_t step);
void                    ls_metrics_close(ls_metrics *m); /* NULL is allowed */

typedef struct {
    ls_step_result step;
    int64_t        tokens;       /* since step 1 */
    double         tokens_per_s; /* since the line before */
    double         step_ms;      /* mean of the steps since the line before */
    ls_mem_stats   mem;
    int64_t        rss; /* bytes resident */
} ls_metrics_line;

void ls_metrics_step(ls_metrics *m, const ls_metrics_line *line);
/* accuracy: NAN for none. */
void ls_metrics_validation(ls_metrics *m, int64_t step, double loss, double accuracy);

/* EIO, once, after a line could not be written. */
LS_MUST_CHECK ls_status ls_metrics_check(ls_metrics *m);

typedef struct {
    int64_t     steps;
    double      final_loss;
    bool        has_validation;
    double      val_loss, val_accuracy; /* the latter NAN for none */
    int64_t     world_size;
    const char *strategy;
    char        state_sha256[LS_SHA256_HEX], params_sha256[LS_SHA256_HEX];
    double      seconds;
    int64_t     tokens;
} ls_summary;

LS_MUST_CHECK ls_status ls_summary_write(const char *dir, const ls_summary *s);

/* Bytes of this process that are resident; 0 where the system does not tell. */
int64_t ls_resident_bytes(void);

#endif

/*
 * resume.h - which checkpoint a run goes on from, and whether it may.
 *
 *     find     before anything is made: rank 0 chooses, all ranks look at the same manifest;
 *              config and data files must be those of the checkpoint
 *     load     when the trainer stands: tensors, counters, place in the data
 *
 * A newest checkpoint that is damaged gives way to the next older one, at either point; a named
 * one that is damaged is an error.  What was passed over is told by `refused`.
 */
#ifndef LS_CLI_RESUME_H
#define LS_CLI_RESUME_H

#include "cli/args.h"
#include "cli/checkpoints.h"
#include "cli/train_state.h"
#include "core/strbuf.h"

/* As on the command line; all zero is the default. */
typedef struct {
    const char *resume;  /* NULL or "auto", "never", a path */
    int64_t     stop_at; /* a step; 0: run.steps */
    ls_arg_list allow;   /* keys that may differ */
    bool        new_data;
} ls_train_opts;

typedef struct {
    ls_config           *cfg; /* its schedule becomes the checkpoint's */
    const ls_train_opts *opts;
    const ls_ranks      *ranks;
    ls_candidates        candidates;
    int                  at;              /* of them, the one that is open */
    ls_safetensors      *view;            /* NULL: from the start */
    ls_train_state       state;           /* of it */
    bool                 in_place;        /* it is one of run.dir's own */
    bool                 other_data;      /* than it was written with */
    bool                 keeps_tokenizer; /* of its characters, whatever the data hold */
    ls_data_prints       prints;          /* of cfg's data, on all ranks */
    ls_strbuf            refused;         /* a line each */
} ls_resume;

/* All ranks.  To be closed, in failure too.  ECONFIG for a checkpoint of another training, or a
 * path that is not there. */
LS_MUST_CHECK ls_status ls_resume_find(ls_config *cfg, const ls_train_opts *opts,
                                       const ls_ranks *ranks, ls_resume *r);

/* The one that the trainer is to be made with: the checkpoint's; NULL: the config's. */
const char *ls_resume_tokenizer(const ls_resume *r);

/* Fills the trainer, which was made with cfg as find left it. */
LS_MUST_CHECK ls_status ls_resume_load(ls_resume *r, ls_trainer *trainer);
void                    ls_resume_close(ls_resume *r);

#endif

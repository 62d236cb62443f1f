/*
 * store.h - the folder of a run's checkpoints.
 *
 *     checkpoints/step-00000100/          one checkpoint: manifest.json and the files it names
 *                 latest                  "step-00000100\n", for people and scripts
 *                 .tmp-step-00000200-1/   one that is being written
 *                 .trash-...              one that is being removed
 *
 * A checkpoint is there when its folder has its name: it gets it by one rename, when everything
 * in it is on the disk, and loses it by another one before anything of it is removed.  `latest`
 * is a hint that nothing depends on.  One process changes a store at a time (rank 0, which has
 * the run's lock).
 */
#ifndef LS_CHECKPOINT_STORE_H
#define LS_CHECKPOINT_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

/* "step-00000100" */
typedef struct {
    char text[32];
} ls_step_name;
const char *ls_store_step_name(int64_t step, ls_step_name *name);

/* Paths, freed with free(); NULL: ENOMEM. */
char *ls_store_path(const char *store, int64_t step);
char *ls_store_temporary(const char *store, int64_t step, int attempt);

/* Steps of all checkpoints by their names, the largest first; *steps is freed with free().  A
 * store that is not there is empty.  EIO, ENOMEM. */
LS_MUST_CHECK ls_status ls_store_list(const char *store, int64_t **steps, int *n);

/* Makes the store where it is missing, and removes what an interrupted process left in it. */
LS_MUST_CHECK ls_status ls_store_open(const char *store);

/* Room for so many bytes; EIO says how much is missing. */
LS_MUST_CHECK ls_status ls_store_check_space(const char *store, uint64_t bytes);

/* A fresh folder for a checkpoint to be. */
LS_MUST_CHECK ls_status ls_store_begin(const char *temporary);
void                    ls_store_abandon(const char *temporary);

/*
 * The commit: gives the folder its name, in place of another checkpoint of that step, and syncs
 * the store.  A failure after the rename leaves the new one in place.
 */
LS_MUST_CHECK ls_status ls_store_commit(const char *store, const char *temporary, int64_t step);

LS_MUST_CHECK ls_status ls_store_set_latest(const char *store, int64_t step);

/*
 * Removes the checkpoints before `step` but for the newest keep - 1 that are complete, and with
 * `best` the one whose state says the lowest "val_loss".  Never the one of `step`, never later
 * ones.
 */
LS_MUST_CHECK ls_status ls_store_prune(const char *store, int64_t step, int keep, bool best);

/* Has a manifest that holds and files of the sizes that it says?  EIO, EFORMAT say what not. */
LS_MUST_CHECK ls_status ls_store_check(const char *checkpoint);

#endif

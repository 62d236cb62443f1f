/*
 * host_data.h - the data of a run on several ranks: read once a host, the same on all.
 *
 * Of the ranks of a host that name the same files the lowest reads them and makes tokens; the
 * others see these in its memory, and its failure as theirs.  A rank that cannot (another
 * container), or whose files are others, reads for itself.
 */
#ifndef LS_CLI_HOST_DATA_H
#define LS_CLI_HOST_DATA_H

#include "cli/ranks.h"
#include "data/dataset.h"

typedef struct ls_shared ls_shared;

/*
 * All ranks call it and fail alike.  *memory, to be freed with ls_shared_free() after the
 * dataset, is where the tokens lie; NULL: in the dataset's own.  ECONFIG where ranks have other
 * data, with what differs; else as ls_dataset_load().
 */
LS_MUST_CHECK ls_status ls_host_data_load(const ls_ranks *ranks, const ls_dataset_opts *opts,
                                          ls_shared **memory, ls_dataset *dataset);

#endif

/*
 * dataset_share.h - one process of a host loads a dataset, the others see its tokens.
 *
 * Memory and waiting are those of core/shared_parts.h; here is what lies in it.
 */
#ifndef LS_DATA_DATASET_SHARE_H
#define LS_DATA_DATASET_SHARE_H

#include "core/sha256.h"
#include "core/shared_parts.h"
#include "data/dataset.h"

/*
 * Would two processes of a host load the same: a hash of the options and of which files they
 * name (device, inode, size, time).  "" where a file is missing or none that can be read twice
 * (a pipe): then everybody loads for himself.
 */
LS_MUST_CHECK ls_status ls_dataset_identity(const ls_dataset_opts *opts,
                                            char                   hex[LS_SHA256_HEX]);

enum { LS_FINGERPRINT_BYTES = 400 };

/* What ranks must hold alike: lines `name value` with vocabulary, lengths and hashes. */
LS_MUST_CHECK ls_status ls_dataset_fingerprint(const ls_dataset *dataset,
                                               char              text[LS_FINGERPRINT_BYTES]);

/* Fills s with a dataset, whose tokens then are views of it: s must outlive it.  ENOMEM, and
 * the dataset is as it was. */
LS_MUST_CHECK ls_status ls_dataset_publish(ls_dataset *dataset, const char *fingerprint,
                                           ls_shared *s);

/* The same out of s, which is filled.  The loader's failure, or ENOMEM; then there is nothing
 * to close. */
LS_MUST_CHECK ls_status ls_dataset_take(ls_shared *s, ls_dataset *dataset,
                                        char fingerprint[LS_FINGERPRINT_BYTES]);

#endif

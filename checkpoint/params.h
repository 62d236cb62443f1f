/*
 * params.h - files of parameters: named tensors saved to and loaded from safetensors.
 *
 * Loading is strict and all or nothing: every name, dtype and shape is compared, and the values
 * too where the file carries their hash, before the first tensor is written.
 */
#ifndef LS_CHECKPOINT_PARAMS_H
#define LS_CHECKPOINT_PARAMS_H

#include "checkpoint/safetensors.h"
#include "core/sha256.h"
#include "core/tensor.h"

/* The key of __metadata__ under which a file carries the hash of its own tensors. */
#define LS_PARAMS_SHA256_KEY "params_sha256"

/*
 * Writes n contiguous tensors, each in its own dtype, with {"format": "pt", "params_sha256"}
 * and the pairs given as metadata.  On failure the old file is unchanged (safetensors.h).
 *
 * Of sharded tensors (core/tensor.h) this and the hashes below are collective: all ranks of
 * their group call it, in the same order; rank 0 writes, with the others' rows, and has the
 * hashes; the others give path NULL.
 */
LS_MUST_CHECK ls_status ls_params_save(const char *path, const ls_named_tensor *list, size_t n,
                                       const ls_st_metadata *pairs, size_t n_pairs);

/*
 * Fills n contiguous, materialised tensors.  LS_ESHAPE, with one message that lists what is
 * missing, unexpected or of another shape or dtype; LS_EFORMAT for a malformed or damaged file;
 * LS_EIO.  On failure no tensor is changed, unless a read fails that worked a moment before. Of
 * sharded tensors the rank's own rows are read.
 */
LS_MUST_CHECK ls_status ls_params_load(const char *path, const ls_named_tensor *list, size_t n);

/* The same of a file that is open. */
LS_MUST_CHECK ls_status ls_params_load_open(const ls_safetensors  *file,
                                            const ls_named_tensor *list, size_t n);

/*
 * The hash by which states are compared, whatever wrote them: SHA-256 over the tensors in the
 * bytewise order of their names; for each the name, a NUL, the dtype's name, a NUL, each
 * dimension as u64, then the values, row-major; all little-endian.
 */
LS_MUST_CHECK ls_status ls_params_sha256(const ls_named_tensor *list, size_t n,
                                         char hex[LS_SHA256_HEX]);

/*
 * The hash of a whole training state: the parameters as above, then the optimizer's tensors
 * ("exp_avg.<name>", ...) in the same way, then the step as a scalar I64 named "step".
 */
typedef struct {
    const ls_named_tensor *parameters;
    size_t                 n_parameters;
    const ls_named_tensor *optimizer;
    size_t                 n_optimizer;
    int64_t                step;
} ls_training_state;
LS_MUST_CHECK ls_status ls_state_sha256(const ls_training_state *state,
                                        char                     hex[LS_SHA256_HEX]);

/* ls_params_sha256 of an open file, whatever its dtypes; reads all of it, through a buffer of 1
 * MiB. */
LS_MUST_CHECK ls_status ls_params_file_sha256(const ls_safetensors *file,
                                              char                  hex[LS_SHA256_HEX]);

/* LS_EFORMAT when the hash in the file's metadata is not `hex`; LS_OK when it has none. */
LS_MUST_CHECK ls_status ls_params_file_check(const ls_safetensors *file, const char *hex);

#endif

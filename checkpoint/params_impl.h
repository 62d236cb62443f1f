/*
 * params_impl.h - what params.c and params_match.c share.
 */
#ifndef LS_CHECKPOINT_PARAMS_IMPL_H
#define LS_CHECKPOINT_PARAMS_IMPL_H

#include "checkpoint/params.h"

/* A copy in the bytewise order of names, freed with free(); NULL (ENOMEM). */
ls_named_tensor *ls__params_sorted(const ls_named_tensor *list, size_t n);

/* LS_ESHAPE, with every difference in one message, unless file and list hold the same tensors.
 */
LS_MUST_CHECK ls_status ls__params_match(const ls_safetensors  *file,
                                         const ls_named_tensor *list, size_t n);

/*
 * Both hashes of a file that holds a whole state, sorted by name: is(file, entry, kind) says
 * which entries are parameters and which the optimizer's (ls_tensor_kind).
 */
LS_MUST_CHECK ls_status ls__params_view_sha256(
    const ls_safetensors *file, bool (*is)(const void *, const ls_st_entry *, int),
    int64_t step, char params[LS_SHA256_HEX], char state[LS_SHA256_HEX]);

#endif

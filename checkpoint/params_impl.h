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

#endif

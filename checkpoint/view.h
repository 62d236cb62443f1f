/*
 * view.h - a checkpoint's folder as if it were one safetensors file.
 *
 * What lists, compares, loads or converts files of tensors so takes checkpoints too: the
 * entries are the logical tensors, the metadata "config", "tokenizer", "state", "step",
 * "strategy" and "world_size"; reads go to the chunks.
 */
#ifndef LS_CHECKPOINT_VIEW_H
#define LS_CHECKPOINT_VIEW_H

#include "checkpoint/chunk_io.h"
#include "checkpoint/safetensors.h"
#include "core/sha256.h"

typedef enum {
    LS_VIEW_PARAMETERS, /* those alone, as in a file of parameters */
    LS_VIEW_STATE       /* all tensors */
} ls_view_of;

/* Takes the checkpoint, also on failure.  It is not verified: ls_checkpoint_verify(). */
LS_MUST_CHECK ls_status ls_view_new(ls_checkpoint *checkpoint, ls_view_of what,
                                    ls_safetensors **file);

/* The checkpoint behind a file; NULL where it is an ordinary one. */
ls_checkpoint *ls_view_checkpoint(const ls_safetensors *file);

/* Is the entry of that kind?  True for any entry of an ordinary file as a parameter. */
bool ls_view_is(const ls_safetensors *file, const ls_st_entry *entry, ls_tensor_kind kind);

/* Takes the entries of other kinds out of a checkpoint's view. */
void ls_view_keep(ls_safetensors *file, ls_tensor_kind kind);

/* params_sha256 and state_sha256 (checkpoint/params.h) of a view of the whole state. */
LS_MUST_CHECK ls_status ls_view_hashes(const ls_safetensors *file, char params[LS_SHA256_HEX],
                                       char state[LS_SHA256_HEX]);

#endif

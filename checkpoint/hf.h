/*
 * hf.h - a GPT as a directory that Hugging Face's transformers loads, and back.
 *
 *     config.json                    model_type "gpt2" or "llama"
 *     generation_config.json
 *     model.safetensors              or, above a size, model-00001-of-0000N.safetensors and
 *                                    model.safetensors.index.json, which says where what is
 *     tokenizer.json, tokenizer_config.json; read also: vocab.json and merges.txt
 *
 * GPT-2 has learned positions, layer norms, gelu, biases everywhere and one key head for each
 * query head; Llama has rope, RMS norms, swiglu, biases in all of attention and MLP or in none.
 * Other models, and keys of a config.json that would make them compute something else, are
 * refused by name: LS_EUNSUPPORTED.  Names and layouts are in hf_names.c.
 */
#ifndef LS_CHECKPOINT_HF_H
#define LS_CHECKPOINT_HF_H

#include "core/tensor.h"
#include "data/tokenizer.h"
#include "nn/gpt.h"

typedef struct {
    const ls_gpt_opts     *opts;
    const ls_named_tensor *list; /* all parameters of such a GPT, contiguous and materialised */
    size_t                 n;
    const ls_tokenizer    *tokenizer;
    uint64_t               shard_bytes; /* largest file of parameters, if more than a tensor */
    const ls_ends         *ends;        /* eos_token_id; NULL: none */
} ls_hf_model;

/*
 * Writes the directory, which must be new or empty: whole or not at all.  EUNSUPPORTED for a
 * model that is neither; EIO, ENOMEM.
 */
LS_MUST_CHECK ls_status ls_hf_export(const char *directory, const ls_hf_model *model);

/* The model of a directory's config.json.  EUNSUPPORTED, EFORMAT, EIO, naming file and key. */
LS_MUST_CHECK ls_status ls_hf_read_config(const char *directory, ls_gpt_opts *opts);

/*
 * Fills the parameters of a GPT of these options; values in BF16 and F16 are widened, which
 * changes none.  ESHAPE for what is missing, unexpected or of another shape; EFORMAT, also for
 * an index that names files outside of the directory; EIO.  On failure some may be filled.
 */
LS_MUST_CHECK ls_status ls_hf_read_parameters(const char *directory, const ls_hf_model *model);

/* The tokenizer's file, freed with free(): tokenizer.json, else GPT-2's vocab.json, else NULL.
 */
LS_MUST_CHECK ls_status ls_hf_find_tokenizer(const char *directory, char **path);

/*
 * The tokenizer of a directory, *tokenizer NULL where it has none.  EUNSUPPORTED for kinds that
 * are not ours, by name.
 */
LS_MUST_CHECK ls_status ls_hf_read_tokenizer(const char *directory, ls_tokenizer **tokenizer);

/*
 * The tokens at which the model ends a text, of those below vocab_size: its eos_token_id, else
 * the token that its tokenizer_config.json names.  EFORMAT; EUNSUPPORTED for too many.
 */
LS_MUST_CHECK ls_status ls_hf_read_end_of_text(const char         *directory,
                                               const ls_tokenizer *tokenizer,
                                               int64_t vocab_size, ls_ends *ends);

#endif

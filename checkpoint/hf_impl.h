/*
 * hf_impl.h - what the parts of hf.h share.
 */
#ifndef LS_CHECKPOINT_HF_IMPL_H
#define LS_CHECKPOINT_HF_IMPL_H

#include "checkpoint/hf.h"
#include "core/json.h"
#include "core/strbuf.h"

typedef enum { LS__HF_GPT2, LS__HF_LLAMA } ls__hf_style;

#define LS__HF_ONE_FILE "model.safetensors"
#define LS__HF_INDEX "model.safetensors.index.json"

/* Which of the two a model is; EUNSUPPORTED with the option that fits neither. */
LS_MUST_CHECK ls_status ls__hf_style_of(const ls_gpt_opts *opts, ls__hf_style *style);

/* One of their tensors: rows [row, row + rows) of one of ours, perhaps transposed. */
typedef struct {
    char                  *name; /* theirs, owned */
    const ls_named_tensor *ours;
    int64_t                row, rows;
    bool                   transposed;
    ls_shape               shape; /* theirs */
} ls__hf_piece;

typedef struct {
    ls__hf_piece *piece; /* in the bytewise order of their names */
    size_t        n;
} ls__hf_pieces;

/* All of a model's; to be freed in failure too.  EINVAL for a parameter with no name there. */
LS_MUST_CHECK ls_status ls__hf_pieces_of(const ls_hf_model *model, ls__hf_style style,
                                         ls__hf_pieces *pieces);
void                    ls__hf_pieces_free(ls__hf_pieces *pieces);

/* The piece of that name, NULL for none. */
const ls__hf_piece *ls__hf_piece_find(const ls__hf_pieces *pieces, const char *name);

/* Address of a piece's first value among ours. */
void *ls__hf_values(const ls__hf_piece *piece);

/* config.json, generation_config.json, tokenizer.json, tokenizer_config.json. */
void ls__hf_print_config(ls_strbuf *text, const ls_hf_model *model, ls__hf_style style);
void ls__hf_print_generation(ls_strbuf *text, const ls_hf_model *model);
void ls__hf_print_tokenizer(ls_strbuf *text, const ls_tokenizer *tokenizer);
void ls__hf_print_tokenizer_config(ls_strbuf *text, const ls_gpt_opts *opts);

/* A parsed file of a directory; *path, for messages, is freed by the caller in failure too. */
LS_MUST_CHECK ls_status ls__hf_read_json(const char *directory, const char *name, char **path,
                                         ls_json_doc **doc);

#endif

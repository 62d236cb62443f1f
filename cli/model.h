/*
 * model.h - from a config to a model, its optimizer and its data.
 */
#ifndef LS_CLI_MODEL_H
#define LS_CLI_MODEL_H

#include "cli/config.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "nn/gpt.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

/* Of a config of type gpt. */
ls_gpt_opts ls_gpt_opts_of(const ls_config *cfg, int64_t vocab_size);

/* The model of cfg with a vocabulary, without values; NULL on failure. */
ls_module *ls_model_new(const ls_config *cfg, int64_t vocab_size);

/*
 * Values for the model: initial ones by run.seed, or those of model.init's file.  Parameters
 * are a list of ls_module_list().  ECONFIG where the file says of a token that it stands for
 * something else than tokenizer does, which texts are read by (NULL: none is).
 */
LS_MUST_CHECK ls_status ls_model_fill(const ls_config *cfg, ls_module *model,
                                      const ls_named_tensor *parameters, int n,
                                      const ls_tokenizer *tokenizer);

/*
 * A parameter file, with config, tokenizer and step in its metadata; where they are known
 * end_of_text, a list of tokens; and, where a run has trained them, strategy and world size.
 */
typedef struct {
    const ls_config       *cfg;
    const ls_tokenizer    *tokenizer; /* NULL for an mlp */
    const ls_named_tensor *parameters;
    int                    n;
    int64_t                step;
    bool                   trained;
    const ls_ends         *ends; /* at which it ends a text; NULL: the tokenizer tells */
} ls_model_file;

/*
 * Saves it, in place of no other kind of file (ECONFIG), and prints a line with params_sha256
 * and path on stdout.
 */
LS_MUST_CHECK ls_status ls_model_save_and_tell(const ls_model_file *m, const char *path);

/* Vocabulary without looking at data, or 0 where only the data tells it (char, auto). */
int64_t ls_model_vocab_size(const ls_config *cfg);

ls_optimizer_opts ls_optimizer_opts_of(const ls_config *cfg);
ls_schedule       ls_schedule_of(const ls_config *cfg);
ls_dataset_opts   ls_dataset_opts_of(const ls_config *cfg);
const char       *ls_tokenizer_path(const ls_config *cfg); /* of a tokenizer.json, NULL: none */
ls_order          ls_order_of(const ls_config *cfg);

/* Multiply-adds times two of one training step: 6 tokens weights + 6 L B T^2 C. */
double ls_model_step_flops(const ls_config *cfg, int64_t vocab_size);

#endif

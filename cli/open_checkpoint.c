/*
 * open_checkpoint.c - config, tokenizer, model, values.
 */
#include "cli/open_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/params.h"
#include "cli/files.h"
#include "cli/model.h"
#include "cli/train.h"
#include "core/alloc.h"
#include "core/json.h"
#include "core/thread.h"

static ls_status copy_metadata(const ls_safetensors *file, const char *key, char **out)
{
    const char *value = ls_safetensors_metadata(file, key);

    if (!value)
        return ls_fail(LS_EFORMAT,
                       "%s: no \"%s\" in its metadata; it was not written by lockstep",
                       file->path, key);
    *out = ls_strdup(value);
    return *out ? LS_OK : LS_ENOMEM;
}

/* The stored config, with the threads of this machine. */
static ls_status read_metadata(const ls_safetensors *file, ls_opened_model *m)
{
    char        threads[48];
    const char *set    = threads;
    char       *config = NULL;
    ls_status   status = copy_metadata(file, "config", &config);

    snprintf(threads, sizeof threads, "run.threads=%d", ls_cpu_count());
    if (!status)
        status = ls_config_parse(&m->cfg, config, file->path, &set, 1);
    free(config);
    if (!status)
        status = copy_metadata(file, "tokenizer", &m->tokenizer_json);
    if (!status && m->cfg.model.type == LS_CFG_MODEL_GPT)
        status = ls_tokenizer_from_json(m->tokenizer_json, &m->tokenizer);
    if (status && m->tokenizer_json)
        status = ls_fail_in(status, "%s", file->path);
    m->path = ls_strdup(file->path);
    return status || m->path ? status : LS_ENOMEM;
}

static void find_vocab_size(ls_opened_model *m)
{
    m->vocab_size = !m->tokenizer             ? ls_model_vocab_size(&m->cfg)
                    : m->cfg.model.vocab_size ? m->cfg.model.vocab_size
                                              : ls_tokenizer_vocab_size(m->tokenizer);
}

/* end_of_text of the metadata, which an imported model has; else what the tokenizer calls so.
 */
static ls_status find_ends(ls_opened_model *m, const ls_safetensors *file)
{
    const char  *list = ls_safetensors_metadata(file, "end_of_text");
    ls_json_doc *doc  = NULL;

    if (m->tokenizer && !list)
        m->ends = ls_tokenizer_ends(m->tokenizer);
    if (!m->tokenizer || !list)
        return LS_OK;
    ls_status      status = ls_json_parse(list, strlen(list), "end_of_text", &doc);
    const ls_json *root   = status ? NULL : ls_json_root(doc);
    bool           good   = root && root->kind == LS_JSON_ARRAY;
    for (const ls_json *t = good ? root->child : NULL; t && good; t = t->next)
        good = t->integer && t->whole >= 0 && t->whole < m->vocab_size &&
               ls_ends_add(&m->ends, (int32_t)t->whole);
    ls_json_free(doc);
    if (!status && !good)
        status = ls_fail(LS_EFORMAT, "end_of_text is %.40s, wanted a list of tokens", list);
    return status ? ls_fail_in(status, "%s", file->path) : LS_OK;
}

static ls_status fill_model(ls_opened_model *m, const ls_safetensors *file)
{
    int n;

    m->model              = ls_model_new(&m->cfg, m->vocab_size);
    ls_named_tensor *list = m->model ? ls_module_list(m->model, false, &n) : NULL;
    if (!list)
        return LS_ENOMEM;
    ls_status status = ls_module_init(m->model, 0);
    if (!status)
        status = ls_params_load_open(file, list, (size_t)n);
    free(list);
    return status;
}

ls_status ls_opened_model_load(const char *checkpoint, ls_opened_model *m)
{
    ls_safetensors *file = NULL;
    ls_status       status;

    *m     = (ls_opened_model){0};
    status = ls_checkpoint_open(checkpoint, &file);
    if (status)
        return status;
    status = read_metadata(file, m);
    if (!status) {
        find_vocab_size(m);
        status = find_ends(m, file);
        if (!status)
            status = ls_start_compute(&m->cfg);
    }
    if (!status)
        status = fill_model(m, file);
    ls_safetensors_close(file);
    return status;
}

void ls_opened_model_close(ls_opened_model *m)
{
    ls_module_free(m->model);
    ls_tokenizer_free(m->tokenizer);
    free(m->tokenizer_json);
    free(m->path);
    ls_config_free(&m->cfg);
    ls_stop_compute();
}

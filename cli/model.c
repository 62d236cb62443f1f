/*
 * model.c - the config's names turned into the library's options.
 */
#include "cli/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/params.h"
#include "cli/files.h"
#include "nn/mlp.h"

ls_gpt_opts ls_gpt_opts_of(const ls_config *cfg, int64_t vocab_size)
{
    static const ls_mlp_kind mlp[] = {[LS_CFG_MLP_GELU]      = LS_MLP_GELU,
                                      [LS_CFG_MLP_GELU_TANH] = LS_MLP_GELU_TANH,
                                      [LS_CFG_MLP_SWIGLU]    = LS_MLP_SWIGLU};

    return (ls_gpt_opts){
        .vocab_size     = vocab_size,
        .n_layer        = cfg->model.n_layer,
        .n_head         = cfg->model.n_head,
        .n_kv_head      = cfg->model.n_kv_head,
        .d_model        = cfg->model.d_model,
        .d_ff           = cfg->model.d_ff,
        .context        = cfg->model.context,
        .dropout        = cfg->model.dropout,
        .bias           = cfg->model.bias,
        .tie_embeddings = cfg->model.tie_embeddings,
        .norm           = cfg->model.norm == LS_CFG_NORM_RMSNORM ? LS_NORM_RMS : LS_NORM_LAYER,
        .norm_eps       = cfg->model.norm_eps,
        .mlp            = mlp[cfg->model.mlp],
        .rope           = cfg->model.position == LS_CFG_POSITION_ROPE,
        .rope_base      = cfg->model.rope_base,
        .recompute      = cfg->model.recompute,
    };
}

static ls_module *new_mlp(const ls_config *cfg)
{
    static const ls_mlp_activation activation[] = {[LS_CFG_ACTIVATION_RELU] = LS_MLP_RELU,
                                                   [LS_CFG_ACTIVATION_GELU] = LS_MLP_ERF_GELU,
                                                   [LS_CFG_ACTIVATION_TANH] = LS_MLP_TANH};

    return ls_mlp_new(&(ls_mlp_opts){.n_sizes    = (int)cfg->model.sizes.count,
                                     .sizes      = cfg->model.sizes.item,
                                     .activation = activation[cfg->model.activation]});
}

ls_module *ls_model_new(const ls_config *cfg, int64_t vocab_size)
{
    if (cfg->model.type == LS_CFG_MODEL_MLP)
        return new_mlp(cfg);
    ls_gpt_opts opts = ls_gpt_opts_of(cfg, vocab_size);
    return ls_gpt_new(&opts);
}

/* Embeddings mean what their tokens stand for. */
static ls_status compare_meanings(const ls_tokenizer *now, const ls_tokenizer *then,
                                  const char *path)
{
    char    a[LS_TOKEN_LONGEST], b[LS_TOKEN_LONGEST];
    int32_t n = ls_tokenizer_vocab_size(now), m = ls_tokenizer_vocab_size(then);

    for (int32_t i = 0; i < n && i < m; i++) {
        size_t bytes = ls_tokenizer_decode(now, i, a), others = ls_tokenizer_decode(then, i, b);
        if (bytes != others || memcmp(a, b, bytes) != 0)
            return ls_fail(LS_ECONFIG,
                           "%s: its token %d stands for '%.*s', that of this run's tokenizer "
                           "(data.tokenizer) for '%.*s'",
                           path, (int)i, (int)others, b, (int)bytes, a);
    }
    return LS_OK;
}

static ls_status compare_tokenizers(const ls_config *cfg, const ls_tokenizer *now,
                                    const ls_safetensors *file)
{
    const char   *json = ls_safetensors_metadata(file, "tokenizer");
    ls_tokenizer *then = NULL;

    if (!now || cfg->data.format != LS_CFG_FORMAT_TEXT || !json || !strcmp(json, "null"))
        return LS_OK;
    ls_status status = ls_tokenizer_from_json(json, &then);
    if (!status)
        status = compare_meanings(now, then, file->path);
    ls_tokenizer_free(then);
    return status;
}

ls_status ls_model_fill(const ls_config *cfg, ls_module *model,
                        const ls_named_tensor *parameters, int n, const ls_tokenizer *tokenizer)
{
    ls_status status = ls_module_init(model, (uint64_t)cfg->run.seed);

    if (status || !strcmp(cfg->model.init, "random"))
        return status;
    ls_safetensors *file;
    status = ls_checkpoint_open(cfg->model.init, &file);
    if (!status)
        status = ls_params_load_open(file, parameters, (size_t)n);
    if (!status)
        status = compare_tokenizers(cfg, tokenizer, file);
    ls_safetensors_close(file);
    return status ? ls_fail_in(status, "model.init") : LS_OK;
}

/* A JSON list. */
static ls_status print_ends(ls_strbuf *t, const ls_ends *ends)
{
    for (int i = 0; ends && i < ends->n; i++)
        ls_strbuf_format(t, "%s%d", i ? "," : "[", (int)ends->token[i]);
    ls_strbuf_format(t, ends && ends->n ? "]" : "[]");
    return ls_strbuf_status(t);
}

static ls_status save_model(const ls_model_file *m, const char *path)
{
    char     *config = ls_config_json(m->cfg), *tokenizer = ls_tokenizer_to_json(m->tokenizer);
    char     *step   = ls_sprintf("%lld", (long long)m->step);
    ls_strbuf ends   = {0};
    ls_status status = print_ends(&ends, m->ends);

    if (!status && !(config && tokenizer && step))
        status = LS_ENOMEM;
    if (!status) {
        ls_st_metadata pairs[6] = {
            {"config", config}, {"tokenizer", tokenizer}, {"step", step}};
        size_t n = 3;
        if (m->ends && m->ends->n)
            pairs[n++] = (ls_st_metadata){"end_of_text", ends.data};
        if (m->trained) {
            pairs[n++] = (ls_st_metadata){"strategy", "single"};
            pairs[n++] = (ls_st_metadata){"world_size", "1"};
        }
        status = ls_params_save(path, m->parameters, (size_t)m->n, pairs, n);
    }
    ls_strbuf_free(&ends);
    free(step);
    free(tokenizer);
    free(config);
    return status;
}

/* A slip of the hand costs no text. */
static ls_status refuse_other_file(const char *path)
{
    ls_safetensors *there = NULL;
    struct stat     info;

    if (stat(path, &info) || !S_ISREG(info.st_mode) || !info.st_size)
        return LS_OK;
    ls_status status = ls_safetensors_open(path, &there);
    ls_safetensors_close(there);
    return status != LS_EFORMAT
               ? LS_OK
               : ls_fail(LS_ECONFIG,
                         "%s is there and is no safetensors file; it is not replaced", path);
}

ls_status ls_model_save_and_tell(const ls_model_file *m, const char *path)
{
    char      hex[LS_SHA256_HEX];
    ls_status status = refuse_other_file(path);

    if (!status)
        status = save_model(m, path);

    if (!status)
        status = ls_params_sha256(m->parameters, (size_t)m->n, hex);
    if (!status)
        printf("%s  %s\n", hex, path);
    return status;
}

int64_t ls_model_vocab_size(const ls_config *cfg)
{
    const ls_cfg_ints *sizes = &cfg->model.sizes;

    if (cfg->model.type == LS_CFG_MODEL_MLP)
        return sizes->item[sizes->count - 1];
    if (cfg->model.vocab_size)
        return cfg->model.vocab_size;
    return strcmp(cfg->data.tokenizer, "byte") ? 0 : 256;
}

ls_optimizer_opts ls_optimizer_opts_of(const ls_config *cfg)
{
    return (ls_optimizer_opts){.type         = cfg->optim.type,
                               .lr           = cfg->optim.lr,
                               .beta1        = cfg->optim.betas[0],
                               .beta2        = cfg->optim.betas[1],
                               .eps          = cfg->optim.eps,
                               .momentum     = cfg->optim.momentum,
                               .weight_decay = cfg->optim.weight_decay};
}

ls_schedule ls_schedule_of(const ls_config *cfg)
{
    static const ls_schedule_type type[] = {[LS_CFG_SCHEDULE_COSINE]   = LS_SCHEDULE_COSINE,
                                            [LS_CFG_SCHEDULE_CONSTANT] = LS_SCHEDULE_CONSTANT,
                                            [LS_CFG_SCHEDULE_LINEAR]   = LS_SCHEDULE_LINEAR};

    return (ls_schedule){.type   = type[cfg->optim.schedule.type],
                         .lr     = cfg->optim.lr,
                         .min_lr = cfg->optim.schedule.min_lr,
                         .warmup = cfg->optim.schedule.warmup,
                         .steps  = cfg->optim.schedule.steps};
}

static ls_paths paths_of(const ls_cfg_paths *p)
{
    return (ls_paths){(const char *const *)p->item, (int)p->count};
}

const char *ls_tokenizer_path(const ls_config *cfg)
{
    const char *name = cfg->data.tokenizer;

    return strcmp(name, "byte") && strcmp(name, "char") ? name : NULL;
}

ls_dataset_opts ls_dataset_opts_of(const ls_config *cfg)
{
    static const ls_data_format format[] = {[LS_CFG_FORMAT_TEXT]       = LS_FORMAT_TEXT,
                                            [LS_CFG_FORMAT_TOKENS_U16] = LS_FORMAT_TOKENS_U16,
                                            [LS_CFG_FORMAT_LLMC]       = LS_FORMAT_LLMC,
                                            [LS_CFG_FORMAT_CSV]        = LS_FORMAT_CSV,
                                            [LS_CFG_FORMAT_IDX]        = LS_FORMAT_IDX};

    const ls_cfg_ints *sizes = &cfg->model.sizes;
    ls_table_shape     shape = {0};

    if (cfg->model.type == LS_CFG_MODEL_MLP)
        shape = (ls_table_shape){sizes->item[0], (int32_t)sizes->item[sizes->count - 1]};
    return (ls_dataset_opts){.format       = format[cfg->data.format],
                             .shape        = shape,
                             .train        = paths_of(&cfg->data.train),
                             .val          = paths_of(&cfg->data.val),
                             .val_fraction = cfg->data.val_fraction,
                             .kind = strcmp(cfg->data.tokenizer, "char") ? LS_TOKENIZER_BYTE
                                                                         : LS_TOKENIZER_CHAR,
                             .tokenizer_path = ls_tokenizer_path(cfg),
                             .vocab_size     = (int32_t)cfg->model.vocab_size,
                             .context        = cfg->model.context};
}

ls_order ls_order_of(const ls_config *cfg)
{
    return cfg->data.order == LS_CFG_ORDER_SEQUENTIAL ? LS_ORDER_SEQUENTIAL : LS_ORDER_SHUFFLE;
}

/* Of an MLP: weights between its layers. */
static double mlp_weights(const ls_cfg_ints *sizes)
{
    double sum = 0;

    for (int64_t i = 0; i + 1 < sizes->count; i++)
        sum += (double)sizes->item[i] * (double)sizes->item[i + 1];
    return sum;
}

double ls_model_step_flops(const ls_config *cfg, int64_t vocab_size)
{
    if (cfg->model.type == LS_CFG_MODEL_MLP)
        return 6 * (double)cfg->batch.global * mlp_weights(&cfg->model.sizes);
    ls_gpt_opts o       = ls_gpt_opts_of(cfg, vocab_size);
    double      tokens  = (double)cfg->batch.global * (double)o.context;
    double      weights = (double)ls_gpt_matmul_weights(&o);

    return 6 * tokens * weights +
           6 * (double)o.n_layer * tokens * (double)o.context * (double)o.d_model;
}

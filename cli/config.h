/*
 * config.h - the config of a run: an open struct, filled from JSON by one table.
 *
 * cli/config_table.c names every key with its type, default, range and meaning; that table
 * checks configs, fills this struct, prints it back, and generates docs/config.md and
 * docs/config.schema.json.  Loading resolves every default, so that all fields have their
 * values (of the model's keys, those of its type).
 */
#ifndef LS_CLI_CONFIG_H
#define LS_CLI_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"
#include "dist/comm/join.h"
#include "dist/strategy.h"
#include "optim/optimizer.h"

/* The choices, in the order in which the table lists their names. */
typedef enum { LS_CFG_DETERMINISM_LOCKSTEP, LS_CFG_DETERMINISM_FAST } ls_cfg_determinism;
typedef enum { LS_CFG_MODEL_GPT, LS_CFG_MODEL_MLP } ls_cfg_model;
typedef enum { LS_CFG_NORM_LAYERNORM, LS_CFG_NORM_RMSNORM } ls_cfg_norm;
typedef enum { LS_CFG_MLP_GELU, LS_CFG_MLP_GELU_TANH, LS_CFG_MLP_SWIGLU } ls_cfg_mlp;
typedef enum { LS_CFG_POSITION_LEARNED, LS_CFG_POSITION_ROPE } ls_cfg_position;
typedef enum {
    LS_CFG_ACTIVATION_RELU,
    LS_CFG_ACTIVATION_GELU,
    LS_CFG_ACTIVATION_TANH
} ls_cfg_activation;
typedef enum { LS_CFG_ORDER_SHUFFLE, LS_CFG_ORDER_SEQUENTIAL } ls_cfg_order;
typedef enum {
    LS_CFG_FORMAT_TEXT,
    LS_CFG_FORMAT_TOKENS_U16,
    LS_CFG_FORMAT_LLMC,
    LS_CFG_FORMAT_CSV,
    LS_CFG_FORMAT_IDX
} ls_cfg_format;
typedef enum {
    LS_CFG_SCHEDULE_COSINE,
    LS_CFG_SCHEDULE_CONSTANT,
    LS_CFG_SCHEDULE_LINEAR
} ls_cfg_schedule;
typedef enum {
    LS_CFG_STRATEGY_AUTO,
#define X(STRATEGY, name) LS_CFG_STRATEGY_##STRATEGY,
    LS_STRATEGY_LIST(X)
#undef X
} ls_cfg_strategy;
typedef enum {
#define X(BACKEND, name) LS_CFG_BACKEND_##BACKEND,
    LS_BACKEND_LIST(X)
#undef X
} ls_cfg_backend;
typedef enum {
    LS_CFG_ALGORITHM_AUTO,
    LS_CFG_ALGORITHM_DIRECT,
    LS_CFG_ALGORITHM_TREE,
    LS_CFG_ALGORITHM_HALVING,
    LS_CFG_ALGORITHM_RING
} ls_cfg_algorithm;
typedef enum { LS_CFG_COMPRESS_NONE, LS_CFG_COMPRESS_BF16 } ls_cfg_compress;
typedef enum { LS_CFG_SHARD_FULL, LS_CFG_SHARD_GRADIENTS, LS_CFG_SHARD_OPTIMIZER } ls_cfg_shard;
typedef enum { LS_CFG_ACCUMULATE_SHARDED, LS_CFG_ACCUMULATE_LOCAL } ls_cfg_accumulate;
typedef enum { LS_CFG_DTYPE_F32, LS_CFG_DTYPE_BF16 } ls_cfg_dtype;
typedef enum { LS_CFG_ON_ERROR_WARN, LS_CFG_ON_ERROR_STOP } ls_cfg_on_error;
typedef enum {
    LS_CFG_PROGRESS_AUTO,
    LS_CFG_PROGRESS_PLAIN,
    LS_CFG_PROGRESS_NONE
} ls_cfg_progress;

typedef struct {
    char  **item;
    int64_t count;
} ls_cfg_paths;

typedef struct {
    int64_t *item;
    int64_t  count;
} ls_cfg_ints;

typedef struct ls_config {
    struct {
        char              *name, *dir;
        int64_t            steps, seed;
        ls_cfg_determinism determinism;
        int64_t            threads;
        int64_t            memory_mb; /* 0: no limit */
    } run;
    struct {
        ls_cfg_model      type;
        int64_t           vocab_size; /* 0: auto, from the tokenizer */
        int64_t           n_layer, n_head, n_kv_head, d_model, d_ff, context;
        double            dropout;
        bool              bias, tie_embeddings;
        ls_cfg_norm       norm;
        ls_cfg_mlp        mlp;
        ls_cfg_position   position;
        double            norm_eps, rope_base;
        bool              recompute;
        char             *init;  /* "random" or a path */
        ls_cfg_ints       sizes; /* mlp: in, ..., out */
        ls_cfg_activation activation;
    } model;
    struct {
        ls_cfg_paths  train, val; /* val.count 0: none */
        double        val_fraction;
        char         *tokenizer; /* "byte", "char" or a path */
        ls_cfg_order  order;
        ls_cfg_format format;
    } data;
    struct {
        int64_t global, micro; /* sequences */
    } batch;
    struct {
        ls_optim_type type;
        double        lr, betas[2], eps, weight_decay, momentum;
        double        clip_norm; /* 0: off */
        struct {
            ls_cfg_schedule type;
            int64_t         steps, warmup;
            double          min_lr;
            bool            steps_given, min_lr_given; /* by the config, not by default */
        } schedule;
    } optim;
    struct {
        ls_cfg_strategy   strategy;
        ls_cfg_backend    backend;
        ls_cfg_algorithm  algorithm;
        double            timeout_s;
        int64_t           check_every; /* steps; 0: never */
        char             *interface;   /* NULL: none */
        ls_cfg_ints       port_range;  /* first, last; count 0: none */
        double            bucket_mb;
        bool              overlap, find_unused;
        ls_cfg_compress   compress;
        ls_cfg_shard      shard;
        bool              reshard_after_forward;
        int64_t           prefetch;
        ls_cfg_accumulate accumulate;
        int64_t           unit_blocks;
        ls_cfg_dtype      param_dtype, reduce_dtype;
    } parallel;
    struct {
        int64_t         every; /* steps; 0: at the end only */
        int64_t         keep;
        bool            async, compress, save_at_end, best;
        double          timeout_s;
        ls_cfg_on_error on_error;
    } checkpoint;
    struct {
        int64_t every;   /* steps; 0: never */
        int64_t batches; /* 0: all */
    } eval;
    struct {
        int64_t         every; /* steps */
        bool            jsonl, tensorboard, trace;
        ls_cfg_progress progress;
    } log;
} ls_config;

/*
 * Loads the file at path, lets each of the n_sets texts "key.path=value" replace a value (the
 * later ones win; a value is JSON if it parses as JSON, else a string), checks everything and
 * fills cfg.  ECONFIG with all problems found, one a line (capped); EUNSUPPORTED where only
 * values stand that this version does not have; ENOMEM.  On failure cfg holds nothing.
 */
LS_MUST_CHECK ls_status ls_config_load(ls_config *cfg, const char *path,
                                       const char *const *sets, int n_sets);

/* The same from a text; name stands for the file in messages and in run.name's default. */
LS_MUST_CHECK ls_status ls_config_parse(ls_config *cfg, const char *text, const char *name,
                                        const char *const *sets, int n_sets);

/* Frees what cfg holds and zeroes it.  A zeroed cfg is fine. */
void ls_config_free(ls_config *cfg);

/*
 * The resolved config as JSON, every key that belongs to the model's type in the table's
 * order; loading it gives the same config again.  Freed with free(); NULL (ENOMEM).
 */
char *ls_config_json(const ls_config *cfg);

/*
 * What all ranks of a job must have alike, one line `key value` for each such key.  Freed with
 * free(); NULL (ENOMEM).
 */
char *ls_config_shared(const ls_config *cfg);

/* docs/config.md and docs/config.schema.json (JSON Schema 2020-12). */
void ls_config_write_markdown(FILE *file);
void ls_config_write_schema(FILE *file);

#endif

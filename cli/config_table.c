/*
 * config_table.c - every key of a config, once.
 *
 * All else follows from this table: the checks, the struct's values, the resolved config, the
 * reference in docs/config.md and the schema.  A key at its default is never refused; `later`
 * marks keys whose other values are not in this version (`also` excepted).
 */
#include <string.h>

#include "cli/config_impl.h"

#define AT(field) offsetof(ls_config, field)
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The names of a list X(ENUM, name). */
#define NAME_OF(ENUM, name) #name,
#define NAMES_OF(LIST) ((const char *const[]){LIST(NAME_OF) NULL})

#define STRATEGIES(X) X(AUTO, auto) LS_STRATEGY_LIST(X)

/* Upper ends: a C int, a count of steps, the integers that double holds, any sane number. */
#define INT_END 2147483647.0
#define STEPS_END 1e12
#define EXACT_END 9007199254740992.0
#define NUMBER_END 1e30

const config_section ls__config_sections[] = {
    {"run", "The run as a whole."},
    {"model", "What is trained. `vocab_size` to `recompute` belong to `gpt`, `sizes` and "
              "`activation` to `mlp`; a config has only the keys of its type."},
    {"data", "What it is trained on."},
    {"batch", "Sequences per step and how they are cut into micro-batches."},
    {"optim", "The optimizer."},
    {"optim.schedule", "The learning rate over the steps."},
    {"parallel", "How ranks share the work. Keys of another strategy are checked and have no "
                 "effect, so one config serves all."},
    {"checkpoint", "What is saved, and when."},
    {"eval", "Validation during training."},
    {"log", "What the run reports."},
};
const int ls__config_n_sections = sizeof ls__config_sections / sizeof *ls__config_sections;

const config_key ls__config_keys[] = {
    {"run.name", KEY_TEXT, AT(run.name),
     .computed = "the config file's name without folder and `.json`", .own = true,
     .doc = "Name of the run; not empty, no `/`."},
    {"run.dir", KEY_TEXT, AT(run.dir), .computed = "`runs/<name>`", .own = true,
     .doc = "Folder that the run's files go to."},
    {"run.steps", KEY_INT, AT(run.steps), .min = 1, .max = STEPS_END,
     .doc = "Optimizer steps to train for."},
    {"run.seed", KEY_INT, AT(run.seed), "1337", .max = EXACT_END,
     .doc = "Seed of every random draw: initial values, order of the data, dropout."},
    {"run.determinism", KEY_CHOICE, AT(run.determinism), "\"lockstep\"",
     .choices = NAMES("lockstep", "fast"),
     .doc = "`lockstep`: the same bits for every strategy and world size; `fast` gives up the "
            "canonical order of sums for speed."},
    {"run.threads", KEY_INT, AT(run.threads),
     .computed =
         "the cores that the process may use, by affinity mask and cgroup quota, divided by "
         "the ranks of this host",
     .min = 1, .max = 4096, .own = true,
     .doc = "Threads of one rank. Their number changes no bit."},
    {"run.memory_mb", KEY_INT, AT(run.memory_mb), "0", .max = STEPS_END, .own = true,
     .doc =
         "Memory that a rank may have in use, in MiB; 0 is no limit. An allocation beyond it "
         "is an error."},

    {"model.type", KEY_CHOICE, AT(model.type), .choices = NAMES("gpt", "mlp"),
     .doc =
         "`gpt`: a Transformer decoder; `mlp`: a multi-layer perceptron for classification."},
    {"model.vocab_size", KEY_INT_OR_AUTO, AT(model.vocab_size), "\"auto\"", .only = "gpt",
     .min = 1, .max = INT_END,
     .doc = "Rows of the token embedding. `auto` takes the tokenizer's; more are allowed."},
    {"model.n_layer", KEY_INT, AT(model.n_layer), .only = "gpt", .min = 1, .max = 65536,
     .doc = "Transformer blocks."},
    {"model.n_head", KEY_INT, AT(model.n_head), .only = "gpt", .min = 1, .max = 65536,
     .doc = "Attention heads; they divide d_model."},
    {"model.n_kv_head", KEY_INT, AT(model.n_kv_head), .computed = "`n_head`", .only = "gpt",
     .min = 1, .max = 65536,
     .doc = "Key and value heads; fewer than n_head is grouped-query attention. They divide "
            "n_head."},
    {"model.d_model", KEY_INT, AT(model.d_model), .only = "gpt", .min = 1, .max = 1048576,
     .doc = "Channels of the residual stream."},
    {"model.d_ff", KEY_INT, AT(model.d_ff),
     .computed = "`4 * d_model`; for swiglu `8/3 * d_model` rounded up to a multiple of 64",
     .only = "gpt", .min = 1, .max = 16777216, .doc = "Channels inside the MLP of a block."},
    {"model.context", KEY_INT, AT(model.context), .only = "gpt", .min = 1, .max = 16777216,
     .doc = "Tokens of a sequence."},
    {"model.dropout", KEY_NUMBER, AT(model.dropout), "0", .only = "gpt", .max = 1,
     .below = true,
     .doc = "Probability of dropout after the embeddings, on attention weights, and at the end "
            "of each residual branch."},
    {"model.bias", KEY_BOOL, AT(model.bias), "true", .only = "gpt",
     .doc = "Biases in linear layers and layer norms."},
    {"model.tie_embeddings", KEY_BOOL, AT(model.tie_embeddings), "true", .only = "gpt",
     .doc = "The output head shares the token embedding's weight."},
    {"model.norm", KEY_CHOICE, AT(model.norm), "\"layernorm\"", .only = "gpt",
     .choices = NAMES("layernorm", "rmsnorm"), .doc = "Normalization before each branch."},
    {"model.mlp", KEY_CHOICE, AT(model.mlp), "\"gelu\"", .only = "gpt",
     .choices = NAMES("gelu", "gelu_tanh", "swiglu"),
     .doc     = "The MLP of a block: gelu in its erf form, gelu in its tanh form, or swiglu."},
    {"model.position", KEY_CHOICE, AT(model.position), "\"learned\"", .only = "gpt",
     .choices = NAMES("learned", "rope"),
     .doc = "Positions as a learned embedding or as rotations of queries and keys (halves, as "
            "Hugging Face; needs an even head size)."},
    {"model.norm_eps", KEY_NUMBER, AT(model.norm_eps), "1e-5", .only = "gpt", .max = 1,
     .above = true, .doc = "Added to the variance in norms."},
    {"model.rope_base", KEY_NUMBER, AT(model.rope_base), "10000", .only = "gpt",
     .max = NUMBER_END, .above = true, .doc = "Base of the rotation's wave lengths."},
    {"model.recompute", KEY_BOOL, AT(model.recompute), "false", .only = "gpt",
     .doc =
         "Blocks compute their forward again in backward instead of keeping it: less memory, "
         "about a third more time."},
    {"model.sizes", KEY_INTS, AT(model.sizes), .only = "mlp", .min = 1, .max = INT_END,
     .doc = "Sizes of the layers: in, ..., out."},
    {"model.activation", KEY_CHOICE, AT(model.activation), "\"relu\"", .only = "mlp",
     .choices = NAMES("relu", "gelu", "tanh"), .doc = "Between the layers."},
    {"model.init", KEY_TEXT, AT(model.init), "\"random\"", .choices = NAMES("random"),
     .own = true,
     .doc = "`random`, or the path of a file of parameters to start from (step 0, new "
            "optimizer)."},

    {"data.train", KEY_PATHS, AT(data.train), .own = true,
     .doc = "Training data: a path or a list of paths, read one behind the other; text may be "
            "`.gz`."},
    {"data.val", KEY_PATHS_NULL, AT(data.val), "null", .own = true,
     .doc = "Validation data: a path or a list of paths. Excludes val_fraction."},
    {"data.val_fraction", KEY_NUMBER, AT(data.val_fraction), "0", .max = 1, .below = true,
     .doc = "The last part of the training data, set aside for validation."},
    {"data.tokenizer", KEY_TEXT, AT(data.tokenizer), "\"byte\"",
     .choices = NAMES("byte", "char"), .own = true,
     .doc = "`byte` (a token is a byte, 256 of them), `char` (the characters of the training "
            "data), or the path of a tokenizer.json."},
    {"data.order", KEY_CHOICE, AT(data.order), "\"shuffle\"",
     .choices = NAMES("shuffle", "sequential"),
     .doc     = "Sequences in a new permutation each epoch, or as they stand."},
    {"data.format", KEY_CHOICE, AT(data.format), "\"text\"",
     .choices = NAMES("text", "tokens_u16", "llmc", "csv", "idx"),
     .doc     = "What the files are: text, 16-bit tokens (nanoGPT's, llm.c's), rows of numbers "
                "with a class, MNIST's. `csv` and `idx` are for `mlp`, the others for `gpt`."},

    {"batch.global", KEY_INT, AT(batch.global), .min = 1, .max = INT_END,
     .doc = "Sequences of one step, over all ranks."},
    {"batch.micro", KEY_INT, AT(batch.micro), .computed = "`global / gcd(global, 4)`", .min = 1,
     .max = INT_END,
     .doc = "Sequences of a micro-batch, the unit of computation and of rounding; it divides "
            "global."},

    {"optim.type", KEY_CHOICE, AT(optim.type), "\"adamw\"", .choices = NAMES_OF(LS_OPTIM_LIST),
     .doc = "The optimizer, as PyTorch's of that name."},
    {"optim.lr", KEY_NUMBER, AT(optim.lr), .max = NUMBER_END, .doc = "Highest learning rate."},
    {"optim.betas", KEY_NUMBER_PAIR, AT(optim.betas), "[0.9, 0.95]", .max = 1, .below = true,
     .doc = "Decay of Adam's averages of the gradient and of its square."},
    {"optim.eps", KEY_NUMBER, AT(optim.eps), "1e-8", .max = 1,
     .doc = "Added to the root in Adam's denominator."},
    {"optim.weight_decay", KEY_NUMBER, AT(optim.weight_decay),
     .computed = "0.1 for adamw, else 0", .max = NUMBER_END,
     .doc = "Decoupled in adamw, added to the gradient in adam and sgd; never on 1-D "
            "parameters."},
    {"optim.momentum", KEY_NUMBER, AT(optim.momentum), "0", .max = 1, .below = true,
     .doc = "Momentum of sgd; for sgd alone."},
    {"optim.clip_norm", KEY_NUMBER, AT(optim.clip_norm), "1.0", .max = NUMBER_END,
     .doc = "Largest norm of the gradient; a longer one is scaled down to it. 0 is off."},
    {"optim.schedule.type", KEY_CHOICE, AT(optim.schedule.type), "\"cosine\"",
     .choices = NAMES("cosine", "constant", "linear"),
     .doc     = "Shape of the learning rate after the warm-up."},
    {"optim.schedule.steps", KEY_INT, AT(optim.schedule.steps), .computed = "`run.steps`",
     .min = 1, .max = STEPS_END, .doc = "Step at which the schedule reaches min_lr."},
    {"optim.schedule.warmup", KEY_INT, AT(optim.schedule.warmup), "0", .max = STEPS_END,
     .doc = "Steps of linear warm-up; below the schedule's steps."},
    {"optim.schedule.min_lr", KEY_NUMBER, AT(optim.schedule.min_lr), .computed = "`lr / 10`",
     .max = NUMBER_END, .doc = "Learning rate at the schedule's end."},

    {"parallel.strategy", KEY_CHOICE, AT(parallel.strategy), "\"auto\"",
     .choices = NAMES_OF(STRATEGIES),
     .doc     = "How ranks share the work; `auto` is `single` with one rank, `ddp` with more "
                "where the replicas fit in memory, else `fsdp`."},
    {"parallel.backend", KEY_CHOICE, AT(parallel.backend), "\"auto\"",
     .choices = NAMES_OF(LS_BACKEND_LIST), .doc = "How bytes move between ranks."},
    {"parallel.algorithm", KEY_CHOICE, AT(parallel.algorithm), "\"auto\"",
     .choices = NAMES("auto", "direct", "tree", "halving", "ring"),
     .doc = "The algorithm of collectives; `ring` does not keep the canonical order of sums."},
    {"parallel.timeout_s", KEY_NUMBER, AT(parallel.timeout_s), "60", .max = 1e9, .above = true,
     .own = true,
     .doc = "Longest wait for another rank, in seconds; to connect, ranks that have "
            "met may take 10 s even so."},
    {"parallel.check_every", KEY_INT, AT(parallel.check_every), "100", .max = STEPS_END,
     .doc = "Steps between checks that all ranks hold the same parameters; 0 is never."},
    {"parallel.interface", KEY_TEXT_NULL, AT(parallel.interface), "null", .own = true,
     .doc = "Network interface to use instead of the one that routes to the master."},
    {"parallel.port_range", KEY_INT_PAIR, AT(parallel.port_range), "null", .min = 1,
     .max = 65535, .own = true, .doc = "First and last TCP port that ranks may listen on."},
    {"parallel.bucket_mb", KEY_NUMBER, AT(parallel.bucket_mb), "25", .max = 1e6, .above = true,
     .doc = "ddp: size of a bucket of gradients in MiB."},
    {"parallel.overlap", KEY_BOOL, AT(parallel.overlap), "true",
     .doc = "ddp: communicate while backward goes on."},
    {"parallel.find_unused", KEY_BOOL, AT(parallel.find_unused), "false",
     .doc = "ddp and fsdp: accept parameters that a step does not use."},
    {"parallel.compress", KEY_CHOICE, AT(parallel.compress), "\"none\"",
     .choices = NAMES("none", "bf16"),
     .doc = "ddp: form of gradients on the wire; `bf16` halves the bytes and gives up the bits "
            "of one process."},
    {"parallel.shard", KEY_CHOICE, AT(parallel.shard), "\"full\"",
     .choices = NAMES("full", "gradients", "optimizer"),
     .doc     = "fsdp: what is sharded: all (ZeRO-3), gradients and optimizer (ZeRO-2), or the "
                "optimizer alone (ZeRO-1; sums of gradients leave as rows there too)."},
    {"parallel.reshard_after_forward", KEY_BOOL, AT(parallel.reshard_after_forward), "true",
     .doc = "fsdp: drop a unit's parameters between forward and backward."},
    {"parallel.prefetch", KEY_INT, AT(parallel.prefetch), "1", .max = 1024,
     .doc = "fsdp: units gathered ahead of the one that computes."},
    {"parallel.accumulate", KEY_CHOICE, AT(parallel.accumulate), "\"sharded\"",
     .choices = NAMES("sharded", "local"),
     .doc = "fsdp: sum micro-batches as shards, or locally with one reduce_scatter a step."},
    {"parallel.unit_blocks", KEY_INT, AT(parallel.unit_blocks), "1", .min = 1, .max = 65536,
     .doc = "fsdp: Transformer blocks of one unit."},
    {"parallel.param_dtype", KEY_CHOICE, AT(parallel.param_dtype), "\"f32\"",
     .choices = NAMES("f32", "bf16"),
     .doc     = "Type of parameters in gather and compute, under every strategy; bf16: "
                "docs/mixed_precision.md."},
    {"parallel.reduce_dtype", KEY_CHOICE, AT(parallel.reduce_dtype), "\"f32\"",
     .choices = NAMES("f32", "bf16"),
     .doc = "fsdp: type of gradients on the wire; `bf16` gives up the bits of one process."},

    {"checkpoint.every", KEY_INT, AT(checkpoint.every), "0", .max = STEPS_END,
     .doc = "Steps between checkpoints; 0 is at the end only."},
    {"checkpoint.keep", KEY_INT, AT(checkpoint.keep), "3", .min = 1, .max = INT_END,
     .doc = "How many of the newest to keep."},
    {"checkpoint.async", KEY_BOOL, AT(checkpoint.async), "true", .own = true,
     .doc = "Write while training goes on."},
    {"checkpoint.compress", KEY_BOOL, AT(checkpoint.compress), "false",
     .doc = "Compress the files."},
    {"checkpoint.save_at_end", KEY_BOOL, AT(checkpoint.save_at_end), "true",
     .doc = "Save at the end of the run."},
    {"checkpoint.best", KEY_BOOL, AT(checkpoint.best), "false",
     .doc = "Keep the one with the lowest validation loss."},
    {"checkpoint.timeout_s", KEY_NUMBER, AT(checkpoint.timeout_s), "600", .max = 1e9,
     .above = true, .own = true, .doc = "Longest time that saving may take, in seconds."},
    {"checkpoint.on_error", KEY_CHOICE, AT(checkpoint.on_error), "\"warn\"",
     .choices = NAMES("warn", "stop"), .doc = "What a failed save does."},

    {"eval.every", KEY_INT, AT(eval.every), "0", .max = STEPS_END,
     .doc = "Steps between evaluations; 0 is never."},
    {"eval.batches", KEY_INT, AT(eval.batches), "20", .max = INT_END,
     .doc = "Batches of batch.global sequences, from the start of the validation data; 0 is "
            "all."},

    {"log.every", KEY_INT, AT(log.every), "10", .min = 1, .max = STEPS_END,
     .doc = "Steps between lines of the log and of the metrics."},
    {"log.jsonl", KEY_BOOL, AT(log.jsonl), "true", .own = true, .doc = "Write metrics.jsonl."},
    {"log.tensorboard", KEY_BOOL, AT(log.tensorboard), "false", .own = true,
     .doc = "Write events.out.tfevents.*, scalars that TensorBoard reads."},
    {"log.trace", KEY_BOOL, AT(log.trace), "false",
     .doc = "Write trace.json, a time line of all ranks that Perfetto opens."},
    {"log.progress", KEY_CHOICE, AT(log.progress), "\"auto\"",
     .choices = NAMES("auto", "plain", "none"), .own = true,
     .doc =
         "Progress on the terminal: a line that renews itself where that works, plain lines, "
         "or none."},
};
const int ls__config_n_keys = sizeof ls__config_keys / sizeof *ls__config_keys;

int ls__config_find(const char *path)
{
    for (int i = 0; i < ls__config_n_keys; i++) {
        if (!strcmp(ls__config_keys[i].path, path))
            return i;
    }
    return -1;
}

bool ls__config_required(const config_key *key)
{
    return !key->standard && !key->computed;
}

bool ls__config_belongs(const config_key *key, const ls_config *cfg)
{
    const char *type = cfg->model.type == LS_CFG_MODEL_GPT ? "gpt" : "mlp";
    return !key->only || !strcmp(key->only, type);
}

int ls__config_choice(const config_key *key, const char *name)
{
    for (int i = 0; key->choices && key->choices[i]; i++) {
        if (!strcmp(key->choices[i], name))
            return i;
    }
    return -1;
}

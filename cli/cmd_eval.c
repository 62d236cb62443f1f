/*
 * cmd_eval.c - lockstep eval: the mean loss of a checkpoint over a text.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/params.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/evaluate.h"
#include "cli/model.h"
#include "cli/open_checkpoint.h"
#include "cli/train.h"
#include "core/json.h"

static const char help[] =
    "usage: lockstep eval CHECKPOINT [--data FILE]\n"
    "\n"
    "Prints {\"loss\", \"perplexity\", \"tokens\"} over all whole "
    "sequences of FILE, or else of the\n"
    "validation data that the checkpoint's config names.  CHECKPOINT is "
    "a checkpoint's\n"
    "directory, a run directory (its newest valid one), or a .safetensors file of Lockstep's.\n"
    "\n"
    "  --data FILE   text, plain or .gz\n"
    "  -h, --help    this text\n";

typedef struct {
    const char *checkpoint, *data;
    bool        help;
} arguments;

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--data", 0, LS_ARG_VALUE, &a->data}};

    return ls_args_parse(&(ls_arg_table){.command    = "eval",
                                         .arg        = args,
                                         .n_args     = 1,
                                         .operand    = "CHECKPOINT",
                                         .operand_to = &a->checkpoint,
                                         .help       = &a->help},
                         argc, argv);
}

/* The tokens to evaluate: of --data, or the validation part of the config's data. */
typedef struct {
    ls_dataset       set;
    ls_tokens        own;
    const ls_tokens *tokens;
} eval_data;

static ls_status load_validation(const ls_opened_model *m, eval_data *d)
{
    ls_dataset_opts opts = ls_dataset_opts_of(&m->cfg);

    if (!opts.val.count && opts.val_fraction == 0)
        return ls_fail(LS_ECONFIG,
                       "%s: its config has no validation data; name a text with --data",
                       m->path);
    opts.tokenizer_json = m->tokenizer_json;
    d->tokens           = &d->set.val;
    return ls_blame_config(ls_dataset_load(&opts, &d->set));
}

static ls_status load_tokens(const ls_opened_model *m, const char *path, eval_data *d)
{
    if (!path)
        return load_validation(m, d);
    d->tokens = &d->own;
    return ls_blame_config(ls_dataset_load_tokens((ls_paths){&path, 1}, m->tokenizer,
                                                  (int32_t)m->vocab_size, &d->own));
}

static ls_status evaluate(const ls_opened_model *m, const eval_data *d)
{
    ls_evaluation e      = {.model   = m->model,
                            .tape    = ls_tape_new(),
                            .tokens  = d->tokens,
                            .context = m->cfg.model.context,
                            .micro   = m->cfg.batch.micro};
    double        loss   = 0;
    int64_t       tokens = 0;
    char          loss_text[LS_JSON_DOUBLE_BYTES], perplexity[LS_JSON_DOUBLE_BYTES];
    ls_status     status = e.tape ? ls_evaluate(&e, &loss, &tokens) : LS_ENOMEM;

    ls_tape_free(e.tape);
    if (status)
        return status;
    ls_json_print_double(loss_text, sizeof loss_text, loss);
    ls_json_print_double(perplexity, sizeof perplexity, exp(loss));
    printf("{\"loss\":%s,\"perplexity\":%s,\"tokens\":%lld}\n", loss_text, perplexity,
           (long long)tokens);
    return LS_OK;
}

static int run(const arguments *a)
{
    ls_opened_model m;
    eval_data       d      = {0};
    ls_status       status = ls_opened_model_load(a->checkpoint, &m);

    if (!status)
        status = load_tokens(&m, a->data, &d);
    if (!status)
        status = evaluate(&m, &d);
    ls_tokens_close(&d.own);
    ls_dataset_close(&d.set);
    ls_opened_model_close(&m);
    return ls_report(status);
}

int ls_cmd_eval(int argc, char **argv)
{
    arguments a      = {0};
    ls_status status = parse(&a, argc, argv);

    return status || a.help ? ls_report_help(status, help) : run(&a);
}

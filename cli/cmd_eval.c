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
#include "nn/working.h"

static const char help[] =
    "usage: lockstep eval CHECKPOINT [--data FILE]...\n"
    "\n"
    "Prints {\"loss\", \"perplexity\", \"tokens\"}, for an mlp also "
    "\"accuracy\", over all whole "
    "sequences of FILE, or else of the\n"
    "validation data that the checkpoint's config names.  CHECKPOINT is "
    "a checkpoint's\n"
    "directory, a run directory (its newest valid one), or a .safetensors file of Lockstep's.\n"
    "\n"
    "  --data FILE   instead of it, in the config's data.format; several "
    "are one text;\n"
    "                idx needs two: images, labels\n"
    "  -h, --help    this text\n";

typedef struct {
    const char *checkpoint;
    ls_arg_list data;
    bool        help;
} arguments;

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--data", 0, LS_ARG_LIST, &a->data}};

    return ls_args_parse(&(ls_arg_table){.command    = "eval",
                                         .arg        = args,
                                         .n_args     = 1,
                                         .operand    = "CHECKPOINT",
                                         .operand_to = &a->checkpoint,
                                         .help       = &a->help},
                         argc, argv);
}

/* What to evaluate: --data, or the validation part of the config's data; tokens or rows. */
typedef struct {
    ls_dataset       set;
    ls_tokens        own;
    ls_table         own_rows;
    const ls_tokens *tokens;
    const ls_table  *rows;
} eval_data;

static ls_status load_validation(const ls_opened_model *m, eval_data *d)
{
    ls_dataset_opts opts = ls_dataset_opts_of(&m->cfg);

    if (!opts.val.count && opts.val_fraction == 0)
        return ls_fail(LS_ECONFIG,
                       "%s: its config has no validation data; name a text with --data",
                       m->path);
    opts.tokenizer_json = m->tokenizer_json;
    if (m->cfg.model.type == LS_CFG_MODEL_MLP)
        d->rows = &d->set.val_rows;
    else
        d->tokens = &d->set.val;
    return ls_blame_config(ls_dataset_load(&opts, &d->set));
}

static ls_status load_data(const ls_opened_model *m, const ls_arg_list *files, eval_data *d)
{
    ls_dataset_opts opts  = ls_dataset_opts_of(&m->cfg);
    ls_paths        paths = {files->item, files->n};

    if (!paths.count)
        return load_validation(m, d);
    if (m->cfg.model.type == LS_CFG_MODEL_MLP) {
        d->rows = &d->own_rows;
        return ls_blame_config(ls_table_load(opts.format, paths, opts.shape, &d->own_rows));
    }
    d->tokens = &d->own;
    return ls_blame_config(
        ls_dataset_load_tokens(&opts, paths, m->tokenizer, (int32_t)m->vocab_size, &d->own));
}

static ls_status evaluate(const ls_opened_model *m, const eval_data *d)
{
    int64_t       correct = 0;
    ls_evaluation e       = {.model   = m->model,
                             .tape    = ls_tape_new(),
                             .tokens  = d->tokens,
                             .rows    = d->rows,
                             .correct = &correct,
                             .context = m->cfg.model.context,
                             .micro   = m->cfg.batch.micro};
    double        loss    = 0;
    int64_t       tokens  = 0;
    char          loss_text[LS_JSON_DOUBLE_BYTES], perplexity[LS_JSON_DOUBLE_BYTES];
    ls_status     status = e.tape ? ls_evaluate(&e, &loss, &tokens) : LS_ENOMEM;

    ls_tape_free(e.tape);
    if (status)
        return status;
    ls_json_print_double(loss_text, sizeof loss_text, loss);
    ls_json_print_double(perplexity, sizeof perplexity, exp(loss));
    printf("{\"loss\":%s,\"perplexity\":%s,\"tokens\":%lld", loss_text, perplexity,
           (long long)tokens);
    if (d->rows) {
        ls_json_print_double(loss_text, sizeof loss_text, (double)correct / (double)tokens);
        printf(",\"accuracy\":%s", loss_text);
    }
    printf("}\n");
    return LS_OK;
}

static int run(const arguments *a)
{
    ls_opened_model  m;
    eval_data        d       = {0};
    ls_working      *working = NULL;
    ls_status        status  = ls_opened_model_load(a->checkpoint, &m);
    int              n       = 0;
    ls_named_tensor *list    = status ? NULL : ls_module_list(m.model, false, &n);

    if (!status)
        status = list ? load_data(&m, &a->data, &d) : LS_ENOMEM;
    if (!status && m.cfg.parallel.param_dtype == LS_CFG_DTYPE_BF16)
        status = ls_working_new(list, n, &working);
    if (!status)
        status = evaluate(&m, &d);
    ls_working_free(working);
    free(list);
    ls_tokens_close(&d.own);
    ls_table_close(&d.own_rows);
    ls_dataset_close(&d.set);
    ls_opened_model_close(&m);
    return ls_report(status);
}

int ls_cmd_eval(int argc, char **argv)
{
    arguments a      = {0};
    ls_status status = parse(&a, argc, argv);

    int code = status || a.help ? ls_report_help(status, help) : run(&a);
    free(a.data.item);
    return code;
}

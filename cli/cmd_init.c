/*
 * cmd_init.c - lockstep init: the initial parameters of a config.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/train.h"

static const char help[] =
    "usage: lockstep init CONFIG -o FILE.safetensors [--set KEY.PATH=VALUE]...\n"
    "\n"
    "Writes the parameters with which a run of CONFIG would start, and prints their hash.\n"
    "They depend on run.seed and their names alone.\n"
    "\n"
    "  -o, --output FILE  where to\n"
    "  --set KEY=VALUE    replaces a value of the config\n"
    "  -h, --help         this text\n";

typedef struct {
    const char *config, *output;
    ls_arg_list sets;
    bool        help;
} arguments;

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--output", 'o', LS_ARG_VALUE, &a->output},
                           {"--set", 0, LS_ARG_LIST, &a->sets}};
    ls_status    status = ls_args_parse(&(ls_arg_table){.command    = "init",
                                                        .arg        = args,
                                                        .n_args     = 2,
                                                        .operand    = "CONFIG",
                                                        .operand_to = &a->config,
                                                        .help       = &a->help},
                                        argc, argv);

    if (!status && !a->help && !a->output)
        return ls_fail(LS_ECONFIG, "init: -o FILE.safetensors is missing");
    return status;
}

/* Vocabulary and tokenizer; the data is read only where nothing else tells them. */
static ls_status find_tokenizer(const ls_config *cfg, ls_tokenizer **tokenizer, int64_t *vocab)
{
    ls_dataset_opts opts = ls_dataset_opts_of(cfg);
    ls_dataset      data;

    *vocab = ls_model_vocab_size(cfg);
    if (cfg->model.type == LS_CFG_MODEL_MLP)
        return LS_OK;
    if (opts.tokenizer_path) {
        ls_status loaded = ls_tokenizer_load(opts.tokenizer_path, tokenizer);
        if (!loaded && !*vocab)
            *vocab = ls_tokenizer_vocab_size(*tokenizer);
        return loaded ? ls_blame_config(ls_fail_in(loaded, "data.tokenizer")) : LS_OK;
    }
    if (opts.kind == LS_TOKENIZER_BYTE)
        return ls_tokenizer_new(LS_TOKENIZER_BYTE, NULL, tokenizer);
    ls_status status = ls_dataset_load(&opts, &data);
    if (status)
        return ls_blame_config(status);
    *vocab         = data.vocab_size;
    *tokenizer     = data.tokenizer;
    data.tokenizer = NULL;
    ls_dataset_close(&data);
    return LS_OK;
}

static ls_status make_and_write(const ls_config *cfg, const char *path)
{
    ls_tokenizer    *tokenizer = NULL;
    int64_t          vocab;
    int              n      = 0;
    ls_status        status = find_tokenizer(cfg, &tokenizer, &vocab);
    ls_module       *model  = status ? NULL : ls_model_new(cfg, vocab);
    ls_named_tensor *list   = model ? ls_module_list(model, false, &n) : NULL;

    if (!status && !list)
        status = LS_ENOMEM;
    if (!status)
        status = ls_blame_config(ls_model_fill(cfg, model, list, n, tokenizer));
    if (!status)
        status = ls_model_save_and_tell(
            &(ls_model_file){.cfg = cfg, .tokenizer = tokenizer, .parameters = list, .n = n},
            path);
    free(list);
    ls_module_free(model);
    ls_tokenizer_free(tokenizer);
    return status;
}

static int run(const arguments *a)
{
    ls_config cfg;
    ls_status status = ls_config_load(&cfg, a->config, a->sets.item, a->sets.n);

    if (status)
        return ls_report(status);
    status = ls_start_compute(&cfg);
    if (!status)
        status = make_and_write(&cfg, a->output);
    ls_stop_compute();
    ls_config_free(&cfg);
    return ls_report(status);
}

int ls_cmd_init(int argc, char **argv)
{
    arguments a      = {0};
    ls_status status = parse(&a, argc, argv);
    int       code   = status || a.help ? ls_report_help(status, help) : run(&a);

    free(a.sets.item);
    return code;
}

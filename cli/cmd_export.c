/*
 * cmd_export.c - lockstep export: a checkpoint as one file, or as a Hugging Face directory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/hf.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/model.h"
#include "cli/open_checkpoint.h"

static const char help[] =
    "usage: lockstep export CHECKPOINT --format hf -o DIR [--max-shard-size SIZE]\n"
    "       lockstep export CHECKPOINT --format safetensors -o FILE\n"
    "\n"
    "hf: a directory that transformers loads, as GPT-2 or Llama; it must be new or empty.\n"
    "safetensors: one file of parameters with config and tokenizer in its metadata, which\n"
    "model.init and every command that takes a CHECKPOINT read.\n"
    "\n"
    "  --format FORMAT        hf or safetensors\n"
    "  -o, --output PATH      where to\n"
    "  --max-shard-size SIZE  bytes, or with KB, MB, GB; parameters beyond it go into several\n"
    "                         files and an index [5GB]\n"
    "  -h, --help             this text\n";

typedef struct {
    const char *checkpoint, *format, *output, *size;
    bool        help;
    uint64_t    shard_bytes;
} arguments;

/* "500000", "200MB": powers of ten, as Hugging Face counts. */
static ls_status parse_size(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        uint64_t    factor;
    } units[] = {{"", 1}, {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000}};
    char *end;

    errno                = 0;
    unsigned long long n = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    for (size_t i = 0; i < sizeof units / sizeof *units && n && !errno; i++)
        if (!strcmp(end, units[i].name) && n <= UINT64_MAX / units[i].factor) {
            *bytes = n * units[i].factor;
            return LS_OK;
        }
    return ls_fail(LS_ECONFIG,
                   "export: --max-shard-size %s, want bytes from 1 on, or with KB, MB, GB",
                   text);
}

static ls_status check(arguments *a)
{
    bool known = a->format && (!strcmp(a->format, "hf") || !strcmp(a->format, "safetensors"));

    if (!a->format)
        return ls_fail(LS_ECONFIG, "export: --format hf or --format safetensors is missing");
    if (!known)
        return ls_fail(LS_ECONFIG, "export: --format %s, want hf or safetensors", a->format);
    if (!a->output)
        return ls_fail(LS_ECONFIG, "export: -o PATH is missing");
    if (a->size && strcmp(a->format, "hf") != 0)
        return ls_fail(LS_ECONFIG, "export: --max-shard-size is for --format hf");
    return a->size ? parse_size(a->size, &a->shard_bytes) : LS_OK;
}

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--format", 0, LS_ARG_VALUE, &a->format},
                           {"--output", 'o', LS_ARG_VALUE, &a->output},
                           {"--max-shard-size", 0, LS_ARG_VALUE, &a->size}};
    ls_status    status = ls_args_parse(&(ls_arg_table){.command    = "export",
                                                        .arg        = args,
                                                        .n_args     = 3,
                                                        .operand    = "CHECKPOINT",
                                                        .operand_to = &a->checkpoint,
                                                        .help       = &a->help},
                                        argc, argv);

    return status || a->help ? status : check(a);
}

/* The step that a checkpoint's metadata tells, 0 where it tells none. */
static ls_status read_step(const char *checkpoint, int64_t *step)
{
    ls_safetensors *file;
    ls_status       status = ls_checkpoint_open(checkpoint, &file);

    if (status)
        return status;
    const char *text = ls_safetensors_metadata(file, "step");
    *step            = text ? strtoll(text, NULL, 10) : 0;
    ls_safetensors_close(file);
    return LS_OK;
}

static ls_status export_file(const arguments *a, const ls_opened_model *m,
                             const ls_named_tensor *list, int n)
{
    ls_model_file file   = {.cfg        = &m->cfg,
                            .tokenizer  = m->tokenizer,
                            .parameters = list,
                            .n          = n,
                            .ends       = &m->ends};
    ls_status     status = read_step(a->checkpoint, &file.step);

    return status ? status : ls_model_save_and_tell(&file, a->output);
}

static ls_status export_hf(const arguments *a, const ls_opened_model *m,
                           const ls_named_tensor *list, int n)
{
    if (m->cfg.model.type != LS_CFG_MODEL_GPT)
        return ls_fail(LS_EUNSUPPORTED,
                       "%s is an mlp, which Hugging Face's GPT-2 and Llama cannot express",
                       m->path);
    ls_gpt_opts opts   = ls_gpt_opts_of(&m->cfg, m->vocab_size);
    ls_status   status = ls_hf_export(a->output, &(ls_hf_model){.opts        = &opts,
                                                                .list        = list,
                                                                .n           = (size_t)n,
                                                                .tokenizer   = m->tokenizer,
                                                                .shard_bytes = a->shard_bytes,
                                                                .ends        = &m->ends});
    if (!status)
        printf("%s\n", a->output);
    return status;
}

static int run(const arguments *a)
{
    ls_opened_model  m;
    int              n      = 0;
    ls_named_tensor *list   = NULL;
    ls_status        status = ls_opened_model_load(a->checkpoint, &m);

    if (!status && !(list = ls_module_list(m.model, false, &n)))
        status = LS_ENOMEM;
    if (!status)
        status = (strcmp(a->format, "hf") ? export_file : export_hf)(a, &m, list, n);
    free(list);
    ls_opened_model_close(&m);
    return ls_report(status);
}

int ls_cmd_export(int argc, char **argv)
{
    arguments a      = {.shard_bytes = 5000000000};
    ls_status status = parse(&a, argc, argv);

    return status || a.help ? ls_report_help(status, help) : run(&a);
}

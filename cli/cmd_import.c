/*
 * cmd_import.c - lockstep import: a Hugging Face directory as a file of parameters.
 *
 * The file carries a config, so that eval, generate and export know the model; what Hugging
 * Face's config.json does not tell, data and optimizer, has values that only stand in.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/hf.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/train.h"
#include "core/json.h"
#include "core/strbuf.h"

static const char help[] =
    "usage: lockstep import DIR -o FILE.safetensors\n"
    "\n"
    "Reads a GPT-2 or Llama of Hugging Face (config.json, model.safetensors or its shards,\n"
    "tokenizer.json or GPT-2's vocab.json and merges.txt) and writes a checkpoint: for eval,\n"
    "generate and export, and for model.init of a config with the same model, which is\n"
    "printed on stderr.\n"
    "\n"
    "  -o, --output FILE  where to\n"
    "  -h, --help         this text\n";

typedef struct {
    const char *directory, *output;
    bool        help;
} arguments;

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--output", 'o', LS_ARG_VALUE, &a->output}};
    ls_status    status = ls_args_parse(&(ls_arg_table){.command    = "import",
                                                        .arg        = args,
                                                        .n_args     = 1,
                                                        .operand    = "DIR",
                                                        .operand_to = &a->directory,
                                                        .help       = &a->help},
                                        argc, argv);

    if (!status && !a->help && !a->output)
        return ls_fail(LS_ECONFIG, "import: -o FILE.safetensors is missing");
    return status;
}

static void print_double(ls_strbuf *t, const char *key, double x)
{
    char text[LS_JSON_DOUBLE_BYTES];

    ls_json_print_double(text, sizeof text, x);
    ls_strbuf_format(t, ",\"%s\":%s", key, text);
}

/* The section `model` of a config. */
static void print_model(ls_strbuf *t, const ls_gpt_opts *o)
{
    static const char *const mlp[] = {
        [LS_MLP_GELU] = "gelu", [LS_MLP_GELU_TANH] = "gelu_tanh", [LS_MLP_SWIGLU] = "swiglu"};

    ls_strbuf_format(t,
                     "{\"type\":\"gpt\",\"vocab_size\":%lld,\"n_layer\":%lld,\"n_head\":%lld,"
                     "\"n_kv_head\":%lld,\"d_model\":%lld,\"d_ff\":%lld,\"context\":%lld",
                     (long long)o->vocab_size, (long long)o->n_layer, (long long)o->n_head,
                     (long long)o->n_kv_head, (long long)o->d_model, (long long)o->d_ff,
                     (long long)o->context);
    ls_strbuf_format(t,
                     ",\"bias\":%s,\"tie_embeddings\":%s,\"norm\":\"%s\",\"mlp\":\"%s\","
                     "\"position\":\"%s\"",
                     o->bias ? "true" : "false", o->tie_embeddings ? "true" : "false",
                     o->norm == LS_NORM_RMS ? "rmsnorm" : "layernorm", mlp[o->mlp],
                     o->rope ? "rope" : "learned");
    print_double(t, "dropout", o->dropout);
    print_double(t, "norm_eps", o->norm_eps);
    print_double(t, "rope_base", o->rope_base);
    ls_strbuf_add(t, "}", 1);
}

/* data.tokenizer: its kind, or the directory's file. */
static ls_status print_tokenizer(ls_strbuf *t, const char *directory,
                                 const ls_tokenizer *tokenizer)
{
    ls_tokenizer_kind kind = ls_tokenizer_get_kind(tokenizer);
    const char       *name = ls_tokenizer_kind_name(kind);
    char             *path = NULL;

    if (kind == LS_TOKENIZER_BPE) {
        ls_status status = ls_hf_find_tokenizer(directory, &path);
        if (status)
            return status;
        name = path ? path : name;
    }
    ls_strbuf_json(t, name, strlen(name));
    free(path);
    return LS_OK;
}

static ls_status make_config(const char *directory, const ls_gpt_opts *o,
                             const ls_tokenizer *tokenizer, ls_config *cfg)
{
    ls_strbuf text = {0};

    ls_strbuf_format(&text, "{\"run\":{\"name\":\"imported\",\"steps\":1},\"model\":");
    print_model(&text, o);
    ls_strbuf_format(&text, ",\"data\":{\"train\":\"(imported)\",\"tokenizer\":");
    ls_status status = print_tokenizer(&text, directory, tokenizer);
    ls_strbuf_format(&text, "},\"batch\":{\"global\":4,\"micro\":1},\"optim\":{\"lr\":1e-4}}");
    if (!status)
        status = ls_strbuf_status(&text);
    if (!status)
        status = ls_config_parse(cfg, text.data, directory, NULL, 0);
    ls_strbuf_free(&text);
    return status;
}

/* Its own; bytes where the directory has none. */
static ls_status find_tokenizer(const arguments *a, ls_tokenizer **tokenizer)
{
    ls_status status = ls_hf_read_tokenizer(a->directory, tokenizer);

    if (status || *tokenizer)
        return status;
    fprintf(
        stderr,
        "warning: %s has no tokenizer.json or vocab.json; text will be taken byte by byte\n",
        a->directory);
    return ls_tokenizer_new(LS_TOKENIZER_BYTE, NULL, tokenizer);
}

static void tell_model(const ls_gpt_opts *opts)
{
    ls_strbuf text = {0};

    print_model(&text, opts);
    if (!ls_strbuf_status(&text))
        fprintf(stderr, "\"model\": %s\n", text.data);
    ls_strbuf_free(&text);
}

static ls_status convert(const arguments *a, const ls_gpt_opts *opts, const ls_config *cfg,
                         const ls_tokenizer *tokenizer)
{
    int              n     = 0;
    ls_module       *model = ls_gpt_new(opts);
    ls_named_tensor *list  = ls_module_list(model, false, &n);
    ls_ends          ends;
    ls_status        status = list ? ls_module_init(model, 0) : LS_ENOMEM;

    if (!status)
        status = ls_hf_read_parameters(
            a->directory, &(ls_hf_model){.opts = opts, .list = list, .n = (size_t)n});
    if (!status)
        status = ls_hf_read_end_of_text(a->directory, tokenizer, opts->vocab_size, &ends);
    if (!status)
        status = ls_model_save_and_tell(
            &(ls_model_file){
                .cfg = cfg, .tokenizer = tokenizer, .parameters = list, .n = n, .ends = &ends},
            a->output);
    if (!status)
        tell_model(opts);
    free(list);
    ls_module_free(model);
    return status;
}

static int run(const arguments *a)
{
    ls_gpt_opts   opts;
    ls_config     cfg       = {0};
    ls_tokenizer *tokenizer = NULL;
    ls_status     status    = ls_hf_read_config(a->directory, &opts);

    if (!status)
        status = find_tokenizer(a, &tokenizer);
    if (!status)
        status = make_config(a->directory, &opts, tokenizer, &cfg);
    if (!status)
        status = ls_start_compute(&cfg);
    if (!status)
        status = convert(a, &opts, &cfg, tokenizer);
    ls_stop_compute();
    ls_tokenizer_free(tokenizer);
    ls_config_free(&cfg);
    return ls_report(status);
}

int ls_cmd_import(int argc, char **argv)
{
    arguments a      = {0};
    ls_status status = parse(&a, argc, argv);

    return status || a.help ? ls_report_help(status, help) : run(&a);
}

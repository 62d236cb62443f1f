/*
 * cmd_generate.c - lockstep generate: a checkpoint goes on from a prompt.
 *
 * The model sees a window of the text: its last tokens, as many as the context holds.  When the
 * window is full it moves on by half, so that with a cache a token costs one position but for
 * one in every context / 2, which costs the other half anew.  Without the cache the window is
 * the same and computed whole for every token; the text is the same.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/numbers.h"
#include "cli/open_checkpoint.h"
#include "cli/sampling.h"
#include "cli/text_stream.h"
#include "cli/train.h"
#include "core/alloc.h"
#include "core/clock.h"

static const char help[] =
    "usage: lockstep generate CHECKPOINT [OPTION]...\n"
    "\n"
    "Writes the prompt and what the model makes of it to stdout, character by character.  The\n"
    "same seed gives the same text.  A prompt must fit into the model's context; beyond it "
    "the\n"
    "model sees the last half to whole context of the text.\n"
    "\n"
    "  --prompt TEXT      what to go on from [a new line, which is not written]\n"
    "  --tokens N         tokens to generate [256]\n"
    "  --temperature T    0 takes the likeliest token, 1 the model's own odds [0.8]\n"
    "  --top-k K          choose among the K likeliest tokens only [0 = all]\n"
    "  --top-p P          ... among the likeliest that make up the share P [1 = all]\n"
    "  --seed S           of the random choices [1337]\n"
    "  --stop TEXT        end before this text would be written\n"
    "  --ignore-eos       go on behind the tokenizer's or model's end of text, which is where\n"
    "                     the text ends otherwise, and write it\n"
    "  --no-cache         compute all positions for every token; slow, the same text\n"
    "  -h, --help         this text\n";

enum { MOST_TOKENS = 1000000000 };

typedef struct {
    const char *checkpoint, *prompt, *stop;
    const char *tokens_text, *temperature_text, *k_text, *p_text, *seed_text;
    bool        ignore_eos, no_cache, help;
    int64_t     tokens;
    ls_sampling sampling;
} arguments;

static ls_status read_numbers(arguments *a)
{
    int64_t   seed   = 1337;
    ls_status status = ls_number_int(&(ls_number_arg){"generate", "--tokens", a->tokens_text},
                                     0, MOST_TOKENS, &a->tokens);

    if (!status)
        status =
            ls_number_double(&(ls_number_arg){"generate", "--temperature", a->temperature_text},
                             0, 1e6, &a->sampling.temperature);
    if (!status)
        status = ls_number_int(&(ls_number_arg){"generate", "--top-k", a->k_text}, 0, INT32_MAX,
                               &a->sampling.top_k);
    if (!status)
        status = ls_number_double(&(ls_number_arg){"generate", "--top-p", a->p_text}, 0, 1,
                                  &a->sampling.top_p);
    if (!status)
        status = ls_number_int(&(ls_number_arg){"generate", "--seed", a->seed_text}, 0,
                               INT64_MAX, &seed);
    a->sampling.seed = (uint64_t)seed;
    return status;
}

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--prompt", 0, LS_ARG_VALUE, &a->prompt},
                           {"--tokens", 0, LS_ARG_VALUE, &a->tokens_text},
                           {"--temperature", 0, LS_ARG_VALUE, &a->temperature_text},
                           {"--top-k", 0, LS_ARG_VALUE, &a->k_text},
                           {"--top-p", 0, LS_ARG_VALUE, &a->p_text},
                           {"--seed", 0, LS_ARG_VALUE, &a->seed_text},
                           {"--stop", 0, LS_ARG_VALUE, &a->stop},
                           {"--ignore-eos", 0, LS_ARG_FLAG, &a->ignore_eos},
                           {"--no-cache", 0, LS_ARG_FLAG, &a->no_cache}};
    ls_status    status = ls_args_parse(&(ls_arg_table){.command = "generate",
                                                        .arg     = args,
                                                        .n_args  = sizeof args / sizeof *args,
                                                        .operand = "CHECKPOINT",
                                                        .operand_to = &a->checkpoint,
                                                        .help       = &a->help},
                                        argc, argv);

    return status || a->help ? status : read_numbers(a);
}

/* The text so far in tokens, and the part of it that the model sees. */
typedef struct {
    const ls_opened_model *model;
    const arguments       *args;
    ls_tape               *tape;
    ls_kv_cache           *cache; /* NULL with --no-cache */
    ls_candidate          *room;
    int64_t                choices; /* tokens that the model and the tokenizer both know */
    int32_t               *token;
    int64_t                n, first; /* tokens; the first of the window */
    ls_text_stream         stream;
} generation;

/* The tokens of the prompt; of a new line, or token 0, where there is none. */
static ls_status encode_prompt(generation *g)
{
    static const char *const name = "--prompt";

    bool                   given  = g->args->prompt && *g->args->prompt;
    const char            *prompt = given ? g->args->prompt : "\n";
    const ls_opened_model *m      = g->model;
    ls_text                text   = ls_text_view(&name, prompt, strlen(prompt));
    ls_tokens              tokens;
    ls_status              status =
        ls_tokenizer_encode(m->tokenizer, &text, (int32_t)m->vocab_size, &tokens);

    if (status && given)
        return ls_blame_config(status);
    int64_t count = status ? 0 : tokens.count;
    g->n          = count ? count : 1;
    g->token      = ls_calloc((size_t)(g->n + g->args->tokens), sizeof *g->token);
    if (g->token && count)
        ls_tokens_read(&tokens, 0, count, g->token);
    if (!status)
        ls_tokens_close(&tokens);
    if (!g->token)
        return LS_ENOMEM;
    if (g->n > m->cfg.model.context)
        return ls_fail(LS_ECONFIG,
                       "generate: the prompt has %lld tokens, the context of %s holds %lld",
                       (long long)g->n, m->path, (long long)m->cfg.model.context);
    return LS_OK;
}

static ls_status check_model(const ls_opened_model *m)
{
    if (m->cfg.model.type == LS_CFG_MODEL_GPT)
        return LS_OK;
    return ls_fail(LS_ECONFIG, "generate: %s is an mlp; text comes from a gpt", m->path);
}

static ls_status begin(generation *g)
{
    const ls_opened_model *m = g->model;

    ls_status   status = encode_prompt(g);
    ls_gpt_opts opts   = ls_gpt_opts_of(&m->cfg, m->vocab_size);
    if (status || !g->token)
        return status ? status : LS_ENOMEM;
    g->choices = ls_tokenizer_vocab_size(m->tokenizer);
    if (g->choices > m->vocab_size)
        g->choices = m->vocab_size;
    g->stream.stop = g->args->stop;
    g->stream.out  = stdout;
    g->tape        = ls_tape_new();
    g->room        = ls_calloc((size_t)g->choices, sizeof *g->room);
    if (!g->args->no_cache)
        g->cache = ls_kv_cache_new(&opts);
    return g->tape && g->room && (g->cache || g->args->no_cache) ? LS_OK : LS_ENOMEM;
}

static void end(generation *g)
{
    ls_text_stream_close(&g->stream);
    ls_kv_cache_free(g->cache);
    ls_tape_free(g->tape);
    free(g->room);
    free(g->token);
}

/* Moves the window on when it has outgrown the context, and returns its first new token. */
static int64_t move_window(generation *g)
{
    int64_t context = g->model->cfg.model.context;

    if (g->n - g->first > context) {
        g->first = g->n - (context > 1 ? context / 2 : 1);
        if (g->cache)
            ls_kv_cache_clear(g->cache);
    }
    return g->cache ? g->first + ls_kv_cache_length(g->cache) : g->first;
}

static ls_status choose(generation *g, uint64_t index, int32_t *token)
{
    int64_t from = move_window(g);

    ls_tape_reset(g->tape);
    ls_tensor *ids = ls_tape_input(g->tape, LS_I32, LS_SHAPE2(1, g->n - from), g->token + from);
    ls_tensor *logits = ls_gpt_next(g->model->model, g->tape, ids, g->cache);
    if (!logits)
        return ls_tape_status(g->tape);
    return ls_sample(&g->args->sampling, ls_reals(logits), g->choices, index, g->room, token);
}

static ls_status say(generation *g, int32_t token)
{
    char   bytes[LS_TOKEN_LONGEST];
    size_t n = ls_tokenizer_decode(g->model->tokenizer, token, bytes);

    return ls_text_stream_add(&g->stream, bytes, n);
}

/* A terminal's next prompt begins on a line of its own; a file gets the text alone. */
static void finish_line(void)
{
    if (isatty(STDOUT_FILENO))
        putchar('\n');
}

static ls_status generate(generation *g)
{
    int64_t   start = ls_now_ns(), i = 0;
    ls_status status = LS_OK;

    if (g->args->prompt && (fputs(g->args->prompt, stdout) < 0 || fflush(stdout)))
        return ls_fail(LS_EIO, "writing the text: %s", strerror(errno));
    for (; i < g->args->tokens && !status && !g->stream.stopped; i++) {
        int32_t token = 0;
        status        = choose(g, (uint64_t)i, &token);
        if (status || (!g->args->ignore_eos && ls_ends_has(&g->model->ends, token)))
            break;
        g->token[g->n++] = token;
        status           = say(g, token);
    }
    if (!status)
        status = ls_text_stream_end(&g->stream);
    if (status)
        return status;
    finish_line();
    double seconds = (double)(ls_now_ns() - start) * 1e-9;
    fprintf(stderr, "%lld tokens in %.3f s, %.1f tokens/s\n", (long long)i, seconds,
            seconds > 0 ? (double)i / seconds : 0.0);
    return LS_OK;
}

static int run(const arguments *a)
{
    ls_opened_model m;
    generation      g      = {.model = &m, .args = a};
    ls_status       status = ls_opened_model_load(a->checkpoint, &m);

    if (!status)
        status = check_model(&m);
    if (!status)
        status = begin(&g);
    if (!status)
        status = generate(&g);
    end(&g);
    ls_opened_model_close(&m);
    return ls_report(status);
}

int ls_cmd_generate(int argc, char **argv)
{
    arguments a      = {.tokens = 256, .sampling = {.temperature = 0.8, .top_p = 1}};
    ls_status status = parse(&a, argc, argv);

    return status || a.help ? ls_report_help(status, help) : run(&a);
}

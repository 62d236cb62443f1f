/*
 * config_rules.c - defaults that depend on other keys, rules between keys, nearest names.
 */
#include <stdarg.h>
#include <string.h>

#include "cli/config_impl.h"
#include "core/alloc.h"
#include "core/thread.h"
#include "dist/comm/rendezvous.h"

static bool given(const config_source *sources, const char *path)
{
    return sources[ls__config_find(path)].node != NULL;
}

static void place_of(char *place, size_t bytes, const char *name, const config_source *source)
{
    if (source && source->set)
        snprintf(place, bytes, "--set %.100s", source->set);
    else if (source && source->line)
        snprintf(place, bytes, "%.150s:%d:%d", name, source->line, source->column);
    else
        snprintf(place, bytes, "%.150s", name);
}

void ls__config_problem(config_problems *problems, const config_source *source, const char *fmt,
                        ...)
{
    char    place[200], what[500];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    place_of(place, sizeof place, problems->name, source);
    size_t n = strlen(place) + 2 + strlen(what) + (problems->used > 0);
    problems->count++;
    if (problems->hidden || problems->used + n >= sizeof problems->text) {
        problems->hidden++;
        return;
    }
    problems->used += (size_t)snprintf(problems->text + problems->used, n + 1, "%s%s: %s",
                                       problems->used ? "\n" : "", place, what);
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a            = b;
        b            = rest;
    }
    return a;
}

/* The file's name without folder and ".json". */
static char *name_of_file(const char *file)
{
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    size_t      n = strlen(base);

    if (n > 5 && !strcmp(base + n - 5, ".json"))
        n -= 5;
    return ls_sprintf("%.*s", (int)n, base);
}

/* Ranks of one host share its cores. */
static int cores_of_a_rank(void)
{
    ls_launch_env env;
    int           ranks = ls_launch_env_read(&env) || env.local_world < 1 ? 1 : env.local_world;

    return ls_cpu_count() > ranks ? ls_cpu_count() / ranks : 1;
}

static ls_status compute_run(ls_config *cfg, const config_source *sources, const char *name)
{
    if (!given(sources, "run.name") && !(cfg->run.name = name_of_file(name)))
        return LS_ENOMEM;
    if (!given(sources, "run.dir") && !(cfg->run.dir = ls_sprintf("runs/%s", cfg->run.name)))
        return LS_ENOMEM;
    if (!given(sources, "run.threads"))
        cfg->run.threads = cores_of_a_rank();
    return LS_OK;
}

static void compute_model(ls_config *cfg, const config_source *sources)
{
    int64_t wide = cfg->model.mlp == LS_CFG_MLP_SWIGLU
                       ? (8 * cfg->model.d_model + 191) / 192 * 64
                       : 4 * cfg->model.d_model;
    if (!given(sources, "model.n_kv_head"))
        cfg->model.n_kv_head = cfg->model.n_head;
    if (!given(sources, "model.d_ff"))
        cfg->model.d_ff = wide;
}

ls_status ls__config_compute(ls_config *cfg, const config_source *sources, const char *name)
{
    if (cfg->model.type == LS_CFG_MODEL_GPT)
        compute_model(cfg, sources);
    else
        cfg->model.context = 1; /* a row counts as one token */
    if (!given(sources, "batch.micro"))
        cfg->batch.micro = cfg->batch.global / gcd(cfg->batch.global, 4);
    if (!given(sources, "optim.weight_decay"))
        cfg->optim.weight_decay = ls_optim_usual_decay(cfg->optim.type);
    cfg->optim.schedule.steps_given  = given(sources, "optim.schedule.steps");
    cfg->optim.schedule.min_lr_given = given(sources, "optim.schedule.min_lr");
    if (!cfg->optim.schedule.steps_given)
        cfg->optim.schedule.steps = cfg->run.steps;
    if (!cfg->optim.schedule.min_lr_given)
        cfg->optim.schedule.min_lr = cfg->optim.lr / 10;
    return compute_run(cfg, sources, name);
}

/* The source of the first of two keys that was given, NULL where neither was. */
static const config_source *blame(const config_source *sources, const char *first,
                                  const char *second)
{
    if (given(sources, first))
        return &sources[ls__config_find(first)];
    return given(sources, second) ? &sources[ls__config_find(second)] : NULL;
}

static void check_gpt(const ls_config *cfg, const config_source *sources,
                      config_problems *problems)
{
    long long d = cfg->model.d_model, h = cfg->model.n_head, kv = cfg->model.n_kv_head;
    const config_source *at = blame(sources, "model.n_head", "model.d_model");

    if (d % h)
        ls__config_problem(problems, at,
                           "model.d_model %lld is not divisible by model.n_head %lld", d, h);
    else if (cfg->model.position == LS_CFG_POSITION_ROPE && d / h % 2)
        ls__config_problem(problems, at,
                           "model.position \"rope\" needs an even head size, found %lld "
                           "(model.d_model %lld / model.n_head %lld)",
                           d / h, d, h);
    at = blame(sources, "model.n_kv_head", "model.n_head");
    if (h % kv)
        ls__config_problem(problems, at,
                           "model.n_head %lld is not divisible by model.n_kv_head %lld", h, kv);
}

static void check_data(const ls_config *cfg, const config_source *sources,
                       config_problems *problems)
{
    static const char *const names[] = {"text", "tokens_u16", "llmc", "csv", "idx"};

    bool                 table = cfg->data.format >= LS_CFG_FORMAT_CSV;
    bool                 mlp   = cfg->model.type == LS_CFG_MODEL_MLP;
    const config_source *at    = blame(sources, "data.val_fraction", "data.val");

    if (cfg->data.val.count && cfg->data.val_fraction > 0)
        ls__config_problem(problems, at, "data.val and data.val_fraction exclude each other");
    at = blame(sources, "eval.every", "data.val");
    if (cfg->eval.every && !cfg->data.val.count && cfg->data.val_fraction <= 0)
        ls__config_problem(problems, at, "eval.every %lld needs data.val or data.val_fraction",
                           (long long)cfg->eval.every);
    at = blame(sources, "data.format", "model.type");
    if ((cfg->data.format == LS_CFG_FORMAT_TOKENS_U16 ||
         cfg->data.format == LS_CFG_FORMAT_LLMC) &&
        !strcmp(cfg->data.tokenizer, "char"))
        ls__config_problem(
            problems, blame(sources, "data.tokenizer", "data.format"),
            "data.tokenizer \"char\" is made of text, data.format \"%s\" has none",
            names[cfg->data.format]);
    if (table != mlp)
        ls__config_problem(problems, at,
                           "data.format \"%s\" does not fit model.type \"%s\", which reads %s",
                           names[cfg->data.format], mlp ? "mlp" : "gpt",
                           mlp ? "\"csv\" or \"idx\"" : "\"text\", \"tokens_u16\" or \"llmc\"");
}

static void check_optim(const ls_config *cfg, const config_source *sources,
                        config_problems *problems)
{
    const config_source *at = blame(sources, "batch.micro", "batch.global");

    if (cfg->batch.global % cfg->batch.micro)
        ls__config_problem(problems, at, "batch.micro %lld does not divide batch.global %lld",
                           (long long)cfg->batch.micro, (long long)cfg->batch.global);
    at = blame(sources, "optim.schedule.warmup", "optim.schedule.steps");
    if (cfg->optim.schedule.warmup >= cfg->optim.schedule.steps)
        ls__config_problem(
            problems, at, "optim.schedule.warmup %lld must be below the schedule's %lld steps",
            (long long)cfg->optim.schedule.warmup, (long long)cfg->optim.schedule.steps);
    at = blame(sources, "optim.momentum", "optim.type");
    if (cfg->optim.momentum > 0 && !ls_optim_has_momentum(cfg->optim.type))
        ls__config_problem(problems, at, "optim.momentum is for optim.type \"sgd\", not \"%s\"",
                           ls_optim_name(cfg->optim.type));
}

static void check_run(const ls_config *cfg, const config_source *sources,
                      config_problems *problems)
{
    const config_source *at   = blame(sources, "run.name", "run.dir");
    const char          *name = cfg->run.name;

    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        ls__config_problem(problems, at, "run.name \"%s\" is not the name of a folder", name);
    at = blame(sources, "parallel.port_range", "parallel.interface");
    if (cfg->parallel.port_range.count &&
        cfg->parallel.port_range.item[0] > cfg->parallel.port_range.item[1])
        ls__config_problem(problems, at,
                           "parallel.port_range: the first port is above the last");
}

void ls__config_check_rules(const ls_config *cfg, const config_source *sources,
                            config_problems *problems)
{
    check_run(cfg, sources, problems);
    if (cfg->model.type == LS_CFG_MODEL_GPT)
        check_gpt(cfg, sources, problems);
    check_data(cfg, sources, problems);
    check_optim(cfg, sources, problems);
}

enum { LONGEST_NAME = 48 };

/* Letters alone and in lower case, so that "d-model" and "dModel" are d_model. */
static size_t plain_name(char plain[LONGEST_NAME + 1], const char *name)
{
    size_t n = 0;

    for (; *name && n < LONGEST_NAME; name++) {
        char c = *name;
        if (c >= 'A' && c <= 'Z')
            c = (char)(c | 0x20);
        if (c != '_' && c != '-' && c != ' ')
            plain[n++] = c;
    }
    plain[n] = 0;
    return n;
}

/* Edits from a to b: insert, delete, replace, swap of neighbours (Damerau, restricted). */
static int edit_distance(const char *a, const char *b)
{
    char   x[LONGEST_NAME + 1], y[LONGEST_NAME + 1];
    int    d[LONGEST_NAME + 1][LONGEST_NAME + 1];
    size_t n = plain_name(x, a), m = plain_name(y, b);

    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = (int)(i + j);
                continue;
            }
            int best = d[i - 1][j - 1] + (x[i - 1] != y[j - 1]);
            best     = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best     = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

static const char *leaf_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Names that other trainers use for our keys. */
static const struct {
    const char *theirs, *ours;
} synonyms[] = {
    {"learning_rate", "optim.lr"},
    {"batch_size", "batch.global"},
    {"micro_batch_size", "batch.micro"},
    {"block_size", "model.context"},
    {"seq_len", "model.context"},
    {"n_embd", "model.d_model"},
    {"hidden_size", "model.d_model"},
    {"max_iters", "run.steps"},
    {"max_steps", "run.steps"},
    {"num_steps", "run.steps"},
    {"out_dir", "run.dir"},
    {"grad_clip", "optim.clip_norm"},
    {"warmup_steps", "optim.schedule.warmup"},
    {"eval_interval", "eval.every"},
    {"log_interval", "log.every"},
    {"num_layers", "model.n_layer"},
    {"num_heads", "model.n_head"},
    {"optimizer", "optim.type"},
};

/* Twice the edits in the last name, one more for another section; INT_MAX beyond a third. */
static int unlikeness(const char *path, const char *candidate)
{
    const char *leaf = leaf_of(path), *other = leaf_of(candidate);
    size_t      n     = strlen(leaf);
    int         edits = edit_distance(leaf, other);
    bool        same  = (size_t)(leaf - path) == (size_t)(other - candidate) &&
                !strncmp(path, candidate, (size_t)(leaf - path));

    if (n > LONGEST_NAME || edits > (int)((n + 1) / 3) + (same && n > 1))
        return 1000;
    return 2 * edits + !same;
}

const char *ls__config_nearest(const char *path, bool section)
{
    const char *nearest = NULL;
    int         least   = 1000;

    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms && !section; i++) {
        if (!strcmp(synonyms[i].theirs, leaf_of(path)))
            return synonyms[i].ours;
    }
    for (int i = 0; i < ls__config_n_sections; i++) {
        int distance = unlikeness(path, ls__config_sections[i].path);
        if (distance < least) {
            least   = distance;
            nearest = ls__config_sections[i].path;
        }
    }
    for (int i = 0; i < ls__config_n_keys && !section; i++) {
        int distance = unlikeness(path, ls__config_keys[i].path);
        if (distance < least) {
            least   = distance;
            nearest = ls__config_keys[i].path;
        }
    }
    return nearest;
}

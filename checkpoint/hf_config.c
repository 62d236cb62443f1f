/*
 * hf_config.c - config.json in both directions.
 *
 * Reading is about what a model computes: a key that would change that and has no counterpart
 * here is refused by its name and value; keys of training, generation and labels are passed
 * over.  Both forms of rope's parameters are read: rope_theta with rope_scaling, and, since
 * transformers 5, rope_parameters.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/hf_impl.h"
#include "core/gz.h"

/* ---- what a model is ---- */

static ls_status refuse_gpt2(const char *what, const char *has)
{
    return ls_fail(LS_EUNSUPPORTED,
                   "a model with learned positions is a GPT-2 for Hugging Face, which cannot "
                   "express %s: it has %s",
                   what, has);
}

static ls_status refuse_llama(const char *what, const char *has)
{
    return ls_fail(LS_EUNSUPPORTED,
                   "a model with rope is a Llama for Hugging Face, which cannot express %s: it "
                   "has %s",
                   what, has);
}

static ls_status check_gpt2(const ls_gpt_opts *o)
{
    if (o->norm != LS_NORM_LAYER)
        return refuse_gpt2("model.norm \"rmsnorm\"", "layer norms");
    if (o->mlp == LS_MLP_SWIGLU)
        return refuse_gpt2("model.mlp \"swiglu\"", "gelu");
    if (!o->bias)
        return refuse_gpt2("model.bias false", "biases everywhere");
    if (o->n_kv_head && o->n_kv_head != o->n_head)
        return refuse_gpt2("model.n_kv_head below n_head", "as many key heads as query heads");
    return LS_OK;
}

static ls_status check_llama(const ls_gpt_opts *o)
{
    if (o->norm != LS_NORM_RMS)
        return refuse_llama("model.norm \"layernorm\"", "RMS norms");
    if (o->mlp != LS_MLP_SWIGLU)
        return refuse_llama(
            o->mlp == LS_MLP_GELU ? "model.mlp \"gelu\"" : "model.mlp \"gelu_tanh\"", "swiglu");
    return LS_OK;
}

ls_status ls__hf_style_of(const ls_gpt_opts *o, ls__hf_style *style)
{
    *style = o->rope ? LS__HF_LLAMA : LS__HF_GPT2;
    return o->rope ? check_llama(o) : check_gpt2(o);
}

/* ---- writing ---- */

static void add_double(ls_strbuf *t, const char *key, double x)
{
    char text[LS_JSON_DOUBLE_BYTES];

    ls_json_print_double(text, sizeof text, x);
    ls_strbuf_format(t, "  \"%s\": %s,\n", key, text);
}

static void add_int(ls_strbuf *t, const char *key, int64_t x)
{
    ls_strbuf_format(t, "  \"%s\": %lld,\n", key, (long long)x);
}

static void add_text(ls_strbuf *t, const char *key, const char *value)
{
    ls_strbuf_format(t, "  \"%s\": \"%s\",\n", key, value);
}

static void add_bool(ls_strbuf *t, const char *key, bool value)
{
    ls_strbuf_format(t, "  \"%s\": %s,\n", key, value ? "true" : "false");
}

static void add_gpt2(ls_strbuf *t, const ls_gpt_opts *o)
{
    add_text(t, "model_type", "gpt2");
    ls_strbuf_format(t, "  \"architectures\": [\"GPT2LMHeadModel\"],\n");
    add_text(t, "activation_function", o->mlp == LS_MLP_GELU ? "gelu" : "gelu_new");
    add_double(t, "attn_pdrop", o->dropout);
    add_double(t, "embd_pdrop", o->dropout);
    add_double(t, "resid_pdrop", o->dropout);
    add_double(t, "layer_norm_epsilon", o->norm_eps);
    add_int(t, "n_ctx", o->context);
    add_int(t, "n_embd", o->d_model);
    add_int(t, "n_head", o->n_head);
    add_int(t, "n_inner", o->d_ff);
    add_int(t, "n_layer", o->n_layer);
    add_int(t, "n_positions", o->context);
}

static void add_llama(ls_strbuf *t, const ls_gpt_opts *o)
{
    add_text(t, "model_type", "llama");
    ls_strbuf_format(t, "  \"architectures\": [\"LlamaForCausalLM\"],\n");
    add_bool(t, "attention_bias", o->bias);
    add_double(t, "attention_dropout", o->dropout);
    add_int(t, "head_dim", o->d_model / o->n_head);
    add_text(t, "hidden_act", "silu");
    add_int(t, "hidden_size", o->d_model);
    add_int(t, "intermediate_size", o->d_ff);
    add_int(t, "max_position_embeddings", o->context);
    add_bool(t, "mlp_bias", o->bias);
    add_int(t, "num_attention_heads", o->n_head);
    add_int(t, "num_hidden_layers", o->n_layer);
    add_int(t, "num_key_value_heads", o->n_kv_head ? o->n_kv_head : o->n_head);
    add_double(t, "rms_norm_eps", o->norm_eps);
    ls_strbuf_format(t, "  \"rope_scaling\": null,\n");
    add_double(t, "rope_theta", o->rope_base);
}

/* A token, a list of them, or null. */
static void add_ends(ls_strbuf *t, const ls_ends *ends)
{
    int n = ends ? ends->n : 0;

    ls_strbuf_format(t, "  \"eos_token_id\": %s", n > 1 ? "[" : n ? "" : "null");
    for (int i = 0; i < n; i++)
        ls_strbuf_format(t, "%s%d", i ? ", " : "", (int)ends->token[i]);
    ls_strbuf_format(t, "%s,\n", n > 1 ? "]" : "");
}

void ls__hf_print_config(ls_strbuf *t, const ls_hf_model *m, ls__hf_style style)
{
    const ls_gpt_opts *o = m->opts;

    ls_strbuf_format(t, "{\n");
    if (style == LS__HF_GPT2)
        add_gpt2(t, o);
    else
        add_llama(t, o);
    ls_strbuf_format(t, "  \"bos_token_id\": null,\n");
    add_ends(t, m->ends);
    add_double(t, "initializer_range", 0.02);
    add_bool(t, "tie_word_embeddings", o->tie_embeddings);
    add_text(t, "torch_dtype", "float32");
    ls_strbuf_format(t, "  \"use_cache\": true,\n  \"vocab_size\": %lld\n}\n",
                     (long long)o->vocab_size);
}

void ls__hf_print_generation(ls_strbuf *t, const ls_hf_model *m)
{
    ls_strbuf_format(t, "{\n");
    add_ends(t, m->ends);
    ls_strbuf_format(t, "  \"do_sample\": true,\n  \"temperature\": 0.8\n}\n");
}

/* ---- reading ---- */

ls_status ls__hf_read_json(const char *directory, const char *name, char **path,
                           ls_json_doc **doc)
{
    ls_bytes bytes = {0};

    *doc  = NULL;
    *path = ls_sprintf("%s/%s", directory, name);
    if (!*path)
        return LS_ENOMEM;
    ls_status status = ls_gz_read_file(*path, &bytes);
    if (!status)
        status =
            ls_json_parse(bytes.data ? (const char *)bytes.data : "", bytes.size, *path, doc);
    ls_bytes_free(&bytes);
    if (!status && ls_json_root(*doc)->kind != LS_JSON_OBJECT)
        status = ls_fail(LS_EFORMAT, "%s: found %s, wanted an object", *path,
                         ls_json_kind_name(ls_json_root(*doc)));
    return status;
}

/* A config being read; the first failure sticks. */
typedef struct {
    const char    *path;
    const ls_json *root;
    ls_status      status;
} reader;

/* NULL where a key is missing or null. */
static const ls_json *find(const reader *r, const char *key)
{
    const ls_json *node = ls_json_find(r->root, key);
    return node && node->kind != LS_JSON_NULL ? node : NULL;
}

/* A size; fallback -1: the key must be there. */
static int64_t get_int(reader *r, const char *key, int64_t fallback)
{
    int64_t value = fallback;

    if (r->status || (!find(r, key) && fallback >= 0))
        return value;
    r->status = ls_json_get_int(r->root, key, 1, INT32_MAX, &value);
    return value;
}

static double get_double(reader *r, const char *key, double fallback)
{
    double value = fallback;

    if (!r->status && find(r, key))
        r->status = ls_json_get_double(r->root, key, &value);
    return value;
}

static bool get_bool(reader *r, const char *key, bool fallback)
{
    bool value = fallback;

    if (!r->status && find(r, key))
        r->status = ls_json_get_bool(r->root, key, &value);
    return value;
}

static const char *get_text(reader *r, const char *key, const char *fallback)
{
    const char *value = fallback;

    if (!r->status && find(r, key))
        r->status = ls_json_get_string(r->root, key, &value);
    return value;
}

/* Refuses a key by name and value; why says what it would mean here. */
static void refuse_key(reader *r, const char *key, const char *why)
{
    const ls_json *node = ls_json_find(r->root, key);

    if (!r->status)
        r->status = ls_fail(LS_EUNSUPPORTED, "%s %.*s: %s", key,
                            node && node->source_bytes < 60 ? (int)node->source_bytes : 60,
                            node ? node->source : "missing", why);
}

static void want_bool(reader *r, const char *key, bool wanted)
{
    if (get_bool(r, key, wanted) != wanted)
        refuse_key(r, key,
                   wanted ? "not in Lockstep's models; want true"
                          : "not in Lockstep's models; want false");
}

static ls_mlp_kind get_activation(reader *r, const char *key)
{
    static const struct {
        const char *name;
        ls_mlp_kind kind;
    } known[]        = {{"gelu", LS_MLP_GELU},
                        {"gelu_new", LS_MLP_GELU_TANH},
                        {"gelu_pytorch_tanh", LS_MLP_GELU_TANH}};
    const char *name = get_text(r, key, "gelu_new");

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name))
            return known[i].kind;
    refuse_key(r, key, "an unknown activation; want gelu, gelu_new or gelu_pytorch_tanh");
    return LS_MLP_GELU;
}

static void read_gpt2(reader *r, ls_gpt_opts *o)
{
    o->n_layer   = get_int(r, "n_layer", 12);
    o->n_head    = get_int(r, "n_head", 12);
    o->n_kv_head = o->n_head;
    o->d_model   = get_int(r, "n_embd", 768);
    o->d_ff      = get_int(r, "n_inner", 4 * o->d_model);
    o->context   = get_int(r, "n_positions", 1024);
    o->norm      = LS_NORM_LAYER;
    o->norm_eps  = get_double(r, "layer_norm_epsilon", 1e-5);
    o->mlp       = get_activation(r, "activation_function");
    o->bias      = true;
    o->dropout   = get_double(r, "resid_pdrop", 0.1);
    if (get_double(r, "attn_pdrop", 0.1) != o->dropout)
        refuse_key(r, "attn_pdrop",
                   "the three dropouts are one here; want resid_pdrop's value");
    if (get_double(r, "embd_pdrop", 0.1) != o->dropout)
        refuse_key(r, "embd_pdrop",
                   "the three dropouts are one here; want resid_pdrop's value");
    want_bool(r, "scale_attn_weights", true);
    want_bool(r, "scale_attn_by_inverse_layer_idx", false);
    want_bool(r, "add_cross_attention", false);
}

/* rope_scaling, or rope_parameters: anything but plain rope is refused by its type. */
static void read_rope(reader *r, ls_gpt_opts *o)
{
    const char *type = "default", *where = "rope_parameters";
    const char *key = "rope_parameters.rope_type";

    o->rope      = true;
    o->rope_base = get_double(r, "rope_theta", 10000);
    o->rope_base = get_double(r, "rope_parameters.rope_theta", o->rope_base);
    if (find(r, "rope_scaling")) {
        where = "rope_scaling";
        key =
            find(r, "rope_scaling.rope_type") ? "rope_scaling.rope_type" : "rope_scaling.type";
        type = "missing";
    }
    if (strcmp(get_text(r, key, type), "default") != 0)
        refuse_key(r, where,
                   "rope scaling is not in Lockstep's models; want null or \"default\"");
    if (get_double(r, "partial_rotary_factor", 1) != 1)
        refuse_key(r, "partial_rotary_factor", "all channels of a head rotate here; want 1");
    if (get_double(r, "rope_parameters.partial_rotary_factor", 1) != 1)
        refuse_key(r, "rope_parameters.partial_rotary_factor",
                   "all channels of a head rotate here; want 1");
}

static void read_llama(reader *r, ls_gpt_opts *o)
{
    o->n_layer   = get_int(r, "num_hidden_layers", -1);
    o->n_head    = get_int(r, "num_attention_heads", -1);
    o->n_kv_head = get_int(r, "num_key_value_heads", o->n_head > 0 ? o->n_head : 1);
    o->d_model   = get_int(r, "hidden_size", -1);
    o->d_ff      = get_int(r, "intermediate_size", -1);
    o->context   = get_int(r, "max_position_embeddings", 2048);
    o->norm      = LS_NORM_RMS;
    o->norm_eps  = get_double(r, "rms_norm_eps", 1e-6);
    o->mlp       = LS_MLP_SWIGLU;
    o->bias      = get_bool(r, "attention_bias", false);
    o->dropout   = get_double(r, "attention_dropout", 0);
    if (r->status)
        return;
    if (get_int(r, "head_dim", o->d_model / o->n_head) * o->n_head != o->d_model)
        refuse_key(r, "head_dim", "heads share d_model here; want hidden_size / heads");
    if (strcmp(get_text(r, "hidden_act", "silu"), "silu") != 0)
        refuse_key(r, "hidden_act", "an unknown activation; want silu");
    if (get_bool(r, "mlp_bias", false) != o->bias)
        refuse_key(r, "mlp_bias",
                   "attention and MLP both have biases here, or none; want "
                   "attention_bias's value");
    read_rope(r, o);
}

static void check_ranges(reader *r, const ls_gpt_opts *o)
{
    if (r->status)
        return;
    if (o->d_model % o->n_head || o->n_head % o->n_kv_head ||
        (o->rope && o->d_model / o->n_head % 2))
        r->status =
            ls_fail(LS_EFORMAT,
                    "%lld channels, %lld heads and %lld key heads do not fit each "
                    "other",
                    (long long)o->d_model, (long long)o->n_head, (long long)o->n_kv_head);
    else if (!(o->dropout >= 0 && o->dropout < 1) || !(o->norm_eps > 0 && o->norm_eps <= 1) ||
             (o->rope && !(o->rope_base > 0 && o->rope_base <= 1e30)))
        r->status = ls_fail(LS_EFORMAT, "dropout %g, epsilon %g or base %g is out of range",
                            o->dropout, o->norm_eps, o->rope_base);
}

static void read_model(reader *r, ls_gpt_opts *o)
{
    const char *type = "";

    r->status = ls_json_get_string(r->root, "model_type", &type);
    bool gpt2 = !strcmp(type, "gpt2");
    if (!gpt2 && strcmp(type, "llama") != 0)
        refuse_key(r, "model_type", "want \"gpt2\" or \"llama\"");
    o->vocab_size     = get_int(r, "vocab_size", -1);
    o->tie_embeddings = get_bool(r, "tie_word_embeddings", gpt2);
    if (r->status)
        return;
    if (gpt2)
        read_gpt2(r, o);
    else
        read_llama(r, o);
    check_ranges(r, o);
}

ls_status ls_hf_read_config(const char *directory, ls_gpt_opts *opts)
{
    char        *path;
    ls_json_doc *doc;
    ls_status    status = ls__hf_read_json(directory, "config.json", &path, &doc);

    *opts = (ls_gpt_opts){.rope_base = 10000};
    if (!status) {
        reader r = {.path = path, .root = ls_json_root(doc)};
        read_model(&r, opts);
        status = r.status ? ls_fail_in(r.status, "%s", path) : LS_OK;
    }
    ls_json_free(doc);
    free(path);
    return status;
}

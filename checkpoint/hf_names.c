/*
 * hf_names.c - which of our parameters is which of theirs.
 *
 * Weights are (out,in) here and in Llama.  GPT-2's blocks use a Conv1D, whose weights are
 * (in,out), so those are transposed.  Queries, keys and values are one tensor in our order in
 * GPT-2 (c_attn), and three in Llama: its rows cut in three.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/hf_impl.h"

/* Our name's part between "h.<i>." (where block is set) and ".weight" or ".bias". */
static const struct rule {
    const char *ours;
    bool        block;
    const char *theirs[2]; /* by ls__hf_style; NULL: it has none */
} rules[] = {
    {"wte", false, {"transformer.wte", "model.embed_tokens"}},
    {"wpe", false, {"transformer.wpe", NULL}},
    {"ln_f", false, {"transformer.ln_f", "model.norm"}},
    {"lm_head", false, {"lm_head", "lm_head"}},
    {"ln_1", true, {"ln_1", "input_layernorm"}},
    {"attn.qkv", true, {"attn.c_attn", "self_attn.%c_proj"}},
    {"attn.proj", true, {"attn.c_proj", "self_attn.o_proj"}},
    {"ln_2", true, {"ln_2", "post_attention_layernorm"}},
    {"mlp.fc", true, {"mlp.c_fc", NULL}},
    {"mlp.gate", true, {NULL, "mlp.gate_proj"}},
    {"mlp.up", true, {NULL, "mlp.up_proj"}},
    {"mlp.proj", true, {"mlp.c_proj", "mlp.down_proj"}},
};

static const char *const block_prefix[2] = {"transformer.h", "model.layers"};

/* "h.12.attn.qkv.weight": block 12, part of 8 bytes at "attn.qkv.weight", tail ".weight". */
typedef struct {
    const char *part, *tail;
    int         bytes;
    int64_t     block; /* -1: outside of the blocks */
} parsed;

static parsed parse_name(const char *name)
{
    const char *tail = strrchr(name, '.');
    parsed      p    = {.part = name, .tail = tail ? tail : name + strlen(name), .block = -1};
    char       *end;

    if (!strncmp(name, "h.", 2)) {
        p.block = strtoll(name + 2, &end, 10);
        p.part  = *end == '.' ? end + 1 : end;
    }
    p.bytes = p.tail > p.part ? (int)(p.tail - p.part) : 0;
    return p;
}

static const char *find_theirs(const parsed *p, ls__hf_style style)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].block == (p->block >= 0) && strlen(rules[i].ours) == (size_t)p->bytes &&
            !strncmp(rules[i].ours, p->part, (size_t)p->bytes))
            return rules[i].theirs[style];
    return NULL;
}

/* The name of a part; letter stands where the pattern has a %c. */
static char *print_name(const parsed *p, ls__hf_style style, const char *pattern, char letter)
{
    const char *hole = strchr(pattern, '%');
    char *part = hole ? ls_sprintf("%.*s%c%s", (int)(hole - pattern), pattern, letter, hole + 2)
                      : ls_strdup(pattern);
    char *name = NULL;

    if (part && p->block >= 0)
        name =
            ls_sprintf("%s.%lld.%s%s", block_prefix[style], (long long)p->block, part, p->tail);
    else if (part)
        name = ls_sprintf("%s%s", part, p->tail);
    free(part);
    return name;
}

static ls_shape shape_of(const ls_tensor *ours, int64_t rows, bool transposed)
{
    int64_t columns = ours->shape.ndim > 1 ? ours->shape.dim[1] : 1;

    if (ours->shape.ndim < 2)
        return LS_SHAPE1(rows);
    return transposed ? LS_SHAPE2(columns, rows) : LS_SHAPE2(rows, columns);
}

/* Rows [row, row + rows) of a parameter, as their tensor of that letter. */
typedef struct {
    char    letter;
    int64_t row, rows;
} part_of;

static ls_status add_piece(ls__hf_pieces *to, const ls_named_tensor *ours, ls__hf_style style,
                           const part_of *part)
{
    parsed      p       = parse_name(ours->name);
    const char *pattern = find_theirs(&p, style);
    bool transposed     = style == LS__HF_GPT2 && p.block >= 0 && ours->tensor->shape.ndim == 2;

    if (!pattern)
        return ls_fail(LS_EINVAL, "parameter %s has no name in Hugging Face's %s", ours->name,
                       style == LS__HF_GPT2 ? "GPT-2" : "Llama");
    char *name = print_name(&p, style, pattern, part->letter);
    if (!name)
        return LS_ENOMEM;
    to->piece[to->n++] =
        (ls__hf_piece){.name       = name,
                       .ours       = ours,
                       .row        = part->row,
                       .rows       = part->rows,
                       .transposed = transposed,
                       .shape      = shape_of(ours->tensor, part->rows, transposed)};
    return LS_OK;
}

/* A parameter whole, or Llama's q, k and v. */
static ls_status add_parameter(ls__hf_pieces *to, const ls_named_tensor *ours,
                               const ls_gpt_opts *o, ls__hf_style style)
{
    parsed    p    = parse_name(ours->name);
    int64_t   size = o->d_model / o->n_head;
    int64_t   q = o->n_head * size, kv = (o->n_kv_head ? o->n_kv_head : o->n_head) * size;
    part_of   part[] = {{'q', 0, q}, {'k', q, kv}, {'v', q + kv, kv}};
    ls_status status = LS_OK;

    if (style == LS__HF_GPT2 || strncmp(p.part, "attn.qkv.", 9) != 0)
        return add_piece(to, ours, style, &(part_of){0, 0, ours->tensor->shape.dim[0]});
    for (int i = 0; i < 3 && !status; i++)
        status = add_piece(to, ours, style, &part[i]);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ls__hf_piece *)a)->name, ((const ls__hf_piece *)b)->name);
}

ls_status ls__hf_pieces_of(const ls_hf_model *m, ls__hf_style style, ls__hf_pieces *pieces)
{
    ls_status status = LS_OK;

    *pieces = (ls__hf_pieces){.piece = ls_calloc(3 * m->n, sizeof *pieces->piece)};
    if (!pieces->piece)
        return LS_ENOMEM;
    for (size_t i = 0; i < m->n && !status; i++)
        status = add_parameter(pieces, &m->list[i], m->opts, style);
    if (!status)
        qsort(pieces->piece, pieces->n, sizeof *pieces->piece, by_name);
    return status;
}

const ls__hf_piece *ls__hf_piece_find(const ls__hf_pieces *pieces, const char *name)
{
    ls__hf_piece wanted = {.name = (char *)(uintptr_t)name};

    return pieces->n ? bsearch(&wanted, pieces->piece, pieces->n, sizeof wanted, by_name)
                     : NULL;
}

void ls__hf_pieces_free(ls__hf_pieces *pieces)
{
    for (size_t i = 0; i < pieces->n; i++)
        free(pieces->piece[i].name);
    free(pieces->piece);
    *pieces = (ls__hf_pieces){0};
}

void *ls__hf_values(const ls__hf_piece *p)
{
    const ls_tensor *t     = p->ours->tensor;
    int64_t          width = t->shape.ndim > 1 ? t->shape.dim[1] : 1;

    return (char *)ls_tensor_data(t) + (size_t)(p->row * width) * ls_dtype_bytes(t->dtype);
}

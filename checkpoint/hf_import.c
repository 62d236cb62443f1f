/*
 * hf_import.c - parameters out of a Hugging Face directory.
 *
 * The index is not trusted: it may name files beside it only, must agree with what is in them,
 * and every tensor of every file must be one of the model's, of its shape.  Three kinds of
 * others are passed over: the causal mask that older GPT-2 files carry, Llama's frequencies,
 * and a head that is tied, if it equals the embedding.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/hf_impl.h"
#include "checkpoint/safetensors.h"

typedef struct {
    const char      *directory;
    ls_safetensors **file;
    size_t           n;
    ls__hf_pieces    pieces;
} source;

/* ---- files ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* What a tensor's name has in front here, and may lack in a file: the model's. */
static const char *const prefixes[] = {"", "transformer.", "model."};

/* A name without the model's in front of it, NULL where it has none. */
static const char *short_name(const char *name)
{
    for (size_t i = 1; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return name + strlen(prefixes[i]);
    return NULL;
}

/* The file of that name, opened when it was not yet. */
static ls_status open_shard(source *s, const char *name, ls_safetensors **file)
{
    ls_status status = LS_OK;
    char     *path;

    if (strchr(name, '/') || name[0] == '.' || !ends_with(name, ".safetensors"))
        return ls_fail(LS_EFORMAT,
                       "\"%s\" is not the name of a .safetensors file in the same directory",
                       name);
    path = ls_sprintf("%s/%s", s->directory, name);
    if (!path)
        return LS_ENOMEM;
    *file = NULL;
    for (size_t i = 0; i < s->n && !*file; i++)
        if (!strcmp(s->file[i]->path, path))
            *file = s->file[i];
    if (!*file) {
        status = ls_safetensors_open(path, file);
        if (!status)
            s->file[s->n++] = *file;
    }
    free(path);
    return status;
}

/* Every tensor of the index is in the file it says. */
static ls_status open_indexed(source *s, const ls_json *map, const char *path)
{
    ls_safetensors *file = NULL;
    ls_status       status;
    size_t          in_files = 0;

    s->file = ls_calloc(map->count, sizeof *s->file);
    if (!s->file)
        return LS_ENOMEM;
    for (const ls_json *t = map->child; t; t = t->next) {
        if (t->kind != LS_JSON_STRING)
            return ls_fail(LS_EFORMAT, "%s: the file of tensor '%s' is %s, wanted a string",
                           path, t->key, ls_json_kind_name(t));
        status = open_shard(s, t->text, &file);
        if (status)
            return ls_fail_in(status, "%s: tensor '%s'", path, t->key);
        if (!ls_safetensors_find(file, t->key))
            return ls_fail(LS_EFORMAT, "%s: tensor '%s' is not in %s", path, t->key, t->text);
    }
    for (size_t i = 0; i < s->n; i++)
        in_files += s->file[i]->header.n_entries;
    if (in_files != map->count)
        return ls_fail(LS_EFORMAT, "%s: names %zu tensors, its files hold %zu", path,
                       map->count, in_files);
    return LS_OK;
}

static ls_status open_by_index(source *s)
{
    char        *path;
    ls_json_doc *doc;
    ls_status    status = ls__hf_read_json(s->directory, LS__HF_INDEX, &path, &doc);

    if (!status) {
        const ls_json *map = ls_json_find(ls_json_root(doc), "weight_map");
        if (!map || map->kind != LS_JSON_OBJECT || !map->count)
            status = ls_fail(LS_EFORMAT, "%s: weight_map is %s, wanted an object", path,
                             !map         ? "missing"
                             : map->count ? ls_json_kind_name(map)
                                          : "empty");
        else
            status = open_indexed(s, map, path);
    }
    ls_json_free(doc);
    free(path);
    return status;
}

static ls_status there(const char *directory, const char *name, bool *is_there)
{
    struct stat info;
    char       *path = ls_sprintf("%s/%s", directory, name);

    if (!path)
        return LS_ENOMEM;
    *is_there = stat(path, &info) == 0;
    free(path);
    return LS_OK;
}

static ls_status open_files(source *s)
{
    bool            one = false, index = false;
    ls_safetensors *file;
    ls_status       status = there(s->directory, LS__HF_ONE_FILE, &one);

    if (!status)
        status = there(s->directory, LS__HF_INDEX, &index);
    if (status)
        return status;
    if (!one && !index)
        return ls_fail(LS_EIO,
                       "%s: neither %s nor %s; parameters in other formats are not read",
                       s->directory, LS__HF_ONE_FILE, LS__HF_INDEX);
    if (index && !one)
        return open_by_index(s);
    s->file = ls_calloc(1, sizeof *s->file);
    return s->file ? open_shard(s, LS__HF_ONE_FILE, &file) : LS_ENOMEM;
}

/* ---- tensors ---- */

static const ls_st_entry *find_entry(const source *s, const ls__hf_piece *p,
                                     const ls_safetensors **file)
{
    const ls_st_entry *entry = NULL;
    const char        *brief = short_name(p->name);

    for (size_t i = 0; i < s->n && !entry; i++) {
        *file = s->file[i];
        entry = ls_safetensors_find(*file, p->name);
        if (!entry && brief)
            entry = ls_safetensors_find(*file, brief);
    }
    return entry;
}

static ls_status check_entry(const ls__hf_piece *p, const ls_safetensors *file,
                             const ls_st_entry *e)
{
    ls_st_shape_text found;
    ls_shape_text    wanted;
    ls_st_name_text  name;
    bool             same = e->ndim == p->shape.ndim;

    for (int i = 0; i < p->shape.ndim && same; i++)
        same = e->dim[i] == (uint64_t)p->shape.dim[i];
    if (!same)
        return ls_fail(LS_ESHAPE, "%s: tensor '%s' has shape %s, the config says %s",
                       file->path, ls_st_print_name(e->name, &name),
                       ls_st_print_shape(e->dim, e->ndim, &found),
                       ls_shape_print(&p->shape, &wanted));
    if (strcmp(e->dtype, "F32") != 0 && strcmp(e->dtype, "BF16") != 0 &&
        strcmp(e->dtype, "F16") != 0)
        return ls_fail(LS_EUNSUPPORTED, "%s: tensor '%s' is %s, want F32, BF16 or F16",
                       file->path, ls_st_print_name(e->name, &name), e->dtype);
    return LS_OK;
}

/* IEEE half: 1 sign, 5 exponent, 10 fraction bits. */
static float half_to_float(uint16_t x)
{
    int   exponent = x >> 10 & 31, fraction = x & 1023;
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                 : ldexpf((float)fraction, -24);

    return x >> 15 ? -value : value;
}

/* Value i of raw bytes of a dtype. */
static float value_at(const void *raw, const char *dtype, int64_t i)
{
    if (!strcmp(dtype, "F32"))
        return ((const float *)raw)[i];
    if (!strcmp(dtype, "BF16"))
        return ls_bf16_to_f32(((const uint16_t *)raw)[i]);
    return half_to_float(((const uint16_t *)raw)[i]);
}

static void fill(const ls__hf_piece *p, const void *raw, const char *dtype)
{
    ls_real *to      = ls__hf_values(p);
    int64_t  columns = p->shape.ndim > 1 ? p->shape.dim[p->transposed ? 0 : 1] : 1;

    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < columns; j++)
            to[i * columns + j] =
                value_at(raw, dtype, p->transposed ? j * p->rows + i : i * columns + j);
}

static ls_status read_piece(const source *s, const ls__hf_piece *p)
{
    const ls_safetensors *file  = NULL;
    const ls_st_entry    *entry = find_entry(s, p, &file);

    if (p->ours->tensor->dtype != LS_REAL)
        return ls_fail(LS_EINVAL, "parameter %s is %s, want %s", p->ours->name,
                       ls_dtype_name(p->ours->tensor->dtype), ls_dtype_name(LS_REAL));
    if (!entry)
        return ls_fail(LS_ESHAPE, "%s: tensor '%s' is missing", s->directory, p->name);
    ls_status status = check_entry(p, file, entry);
    if (status)
        return status;
    size_t bytes = (size_t)(entry->end - entry->begin);
    void  *raw   = ls_mem_alloc(bytes, LS_MEM_OTHER);
    status       = raw ? ls_safetensors_read(file, entry, 0, raw, bytes) : LS_ENOMEM;
    if (!status)
        fill(p, raw, entry->dtype);
    ls_mem_free(raw, bytes, LS_MEM_OTHER);
    return status;
}

/* ---- what is there besides ---- */

/* Whether one of the model's tensors has the name, itself or behind the model's. */
static bool is_piece(const source *s, const char *theirs)
{
    char full[LS_ST_MAX_NAME + sizeof "transformer."];
    bool found = false;

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !found; i++) {
        snprintf(full, sizeof full, "%s%s", prefixes[i], theirs);
        found = ls__hf_piece_find(&s->pieces, full) != NULL;
    }
    return found;
}

/* Constants that older versions saved with the parameters. */
static bool is_constant(const char *name)
{
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq");
}

/* A head in the files of a tied model: fine where it is the embedding again. */
static ls_status check_tied_head(const source *s, const ls_safetensors *file,
                                 const ls_st_entry *head)
{
    const ls__hf_piece *wte   = NULL;
    size_t              bytes = (size_t)(head->end - head->begin);

    for (size_t i = 0; i < s->pieces.n; i++)
        if (!strcmp(s->pieces.piece[i].ours->name, "wte.weight"))
            wte = &s->pieces.piece[i];
    ls_status status = wte ? check_entry(wte, file, head) : LS_EINVAL;
    void     *raw    = status ? NULL : ls_mem_alloc(bytes, LS_MEM_OTHER);
    if (status)
        return status;
    status                = raw ? ls_safetensors_read(file, head, 0, raw, bytes) : LS_ENOMEM;
    const ls_real *values = ls__hf_values(wte);
    for (int64_t i = 0; i < ls_shape_numel(&wte->shape) && !status; i++)
        if (value_at(raw, head->dtype, i) != (float)values[i])
            status = ls_fail(LS_ESHAPE,
                             "%s: tensor 'lm_head.weight' differs from the embedding, but the "
                             "config says tie_word_embeddings",
                             file->path);
    ls_mem_free(raw, bytes, LS_MEM_OTHER);
    return status;
}

static ls_status check_rest(const source *s, const ls_safetensors *file)
{
    ls_st_name_text name;
    ls_status       status = LS_OK;

    for (size_t i = 0; i < file->header.n_entries && !status; i++) {
        const ls_st_entry *e = &file->header.entry[i];
        if (is_piece(s, e->name) || is_constant(e->name))
            continue;
        if (!strcmp(e->name, "lm_head.weight"))
            status = check_tied_head(s, file, e);
        else
            status = ls_fail(LS_ESHAPE, "%s: tensor '%s' has no place in the model", file->path,
                             ls_st_print_name(e->name, &name));
    }
    return status;
}

ls_status ls_hf_read_parameters(const char *directory, const ls_hf_model *m)
{
    source       s = {.directory = directory};
    ls__hf_style style;
    ls_status    status = ls__hf_style_of(m->opts, &style);

    if (!status)
        status = ls__hf_pieces_of(m, style, &s.pieces);
    if (!status)
        status = open_files(&s);
    for (size_t i = 0; i < s.pieces.n && !status; i++)
        status = read_piece(&s, &s.pieces.piece[i]);
    for (size_t i = 0; i < s.n && !status; i++)
        status = check_rest(&s, s.file[i]);
    for (size_t i = 0; i < s.n; i++)
        ls_safetensors_close(s.file[i]);
    free(s.file);
    ls__hf_pieces_free(&s.pieces);
    return status;
}

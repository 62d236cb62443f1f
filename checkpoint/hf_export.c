/*
 * hf_export.c - the directory, file by file.
 *
 * A file of parameters takes tensors in the order of their names until the next one would make
 * it larger than allowed.  Rows of a parameter are written from where they are; only what is
 * transposed is copied, for one file at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/atomic_file.h"
#include "checkpoint/atomic_folder.h"
#include "checkpoint/hf_impl.h"
#include "checkpoint/safetensors.h"

static uint64_t piece_bytes(const ls__hf_piece *p)
{
    return (uint64_t)ls_shape_numel(&p->shape) * ls_dtype_bytes(p->ours->tensor->dtype);
}

/* to (columns,rows) = the transpose of from (rows,columns), elements of `size` bytes */
static void transpose(char *to, const char *from, int64_t rows, int64_t columns, size_t size)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            memcpy(to + (size_t)(j * rows + i) * size, from + (size_t)(i * columns + j) * size,
                   size);
}

/* The pieces first .. first + n - 1 as one file. */
typedef struct {
    const ls__hf_piece *piece;
    size_t              n;
    ls_st_source       *source;
    char               *copies; /* of what is transposed */
    size_t              copies_bytes;
} shard;

static void fill_source(shard *s, size_t i, char **copy)
{
    const ls__hf_piece *p = &s->piece[i];
    const ls_tensor    *t = p->ours->tensor;

    s->source[i] = (ls_st_source){.name  = p->name,
                                  .dtype = ls_dtype_name(t->dtype),
                                  .ndim  = p->shape.ndim,
                                  .data  = ls__hf_values(p)};
    for (int d = 0; d < p->shape.ndim; d++)
        s->source[i].dim[d] = (uint64_t)p->shape.dim[d];
    if (!p->transposed)
        return;
    transpose(*copy, ls__hf_values(p), p->rows, p->shape.dim[0], ls_dtype_bytes(t->dtype));
    s->source[i].data = *copy;
    *copy += piece_bytes(p);
}

static ls_status write_shard(const ls_atomic_folder *folder, const char *name, shard *s)
{
    char     *path   = ls_atomic_folder_file(folder, name), *copy;
    ls_status status = LS_ENOMEM;

    s->source = ls_calloc(s->n, sizeof *s->source);
    for (size_t i = 0; i < s->n; i++)
        s->copies_bytes += s->piece[i].transposed ? (size_t)piece_bytes(&s->piece[i]) : 0;
    copy = s->copies = ls_mem_alloc(s->copies_bytes, LS_MEM_OTHER);
    if (path && s->source && copy) {
        for (size_t i = 0; i < s->n; i++)
            fill_source(s, i, &copy);
        status = ls_safetensors_write(path, s->source, s->n, NULL, 0);
    }
    ls_mem_free(s->copies, s->copies_bytes, LS_MEM_OTHER);
    free(s->source);
    free(path);
    return status;
}

/* Pieces from `first` on that fit into one file; at least one. */
static size_t shard_length(const ls__hf_pieces *p, size_t first, uint64_t limit)
{
    uint64_t bytes = 0;
    size_t   n     = 0;

    while (first + n < p->n && (n == 0 || bytes + piece_bytes(&p->piece[first + n]) <= limit))
        bytes += piece_bytes(&p->piece[first + n++]);
    return n;
}

static size_t count_shards(const ls__hf_pieces *p, uint64_t limit)
{
    size_t count = 0;

    for (size_t first = 0; first < p->n; count++)
        first += shard_length(p, first, limit);
    return count;
}

static char *shard_name(size_t number, size_t count)
{
    if (count == 1)
        return ls_strdup(LS__HF_ONE_FILE);
    return ls_sprintf("model-%05zu-of-%05zu.safetensors", number, count);
}

static ls_status write_text(const ls_atomic_folder *folder, const char *name,
                            const ls_strbuf *text)
{
    ls_atomic_file f;
    char          *path   = ls_atomic_folder_file(folder, name);
    ls_status      status = path ? ls_strbuf_status(text) : LS_ENOMEM;

    if (!status)
        status = ls_atomic_begin(&f, path);
    free(path);
    if (status)
        return status;
    status = ls_atomic_write(&f, text->data, text->used);
    if (!status)
        status = ls_atomic_commit(&f);
    ls_atomic_abandon(&f);
    return status;
}

static void index_shard(ls_strbuf *index, const shard *s, const char *file)
{
    for (size_t i = 0; i < s->n; i++)
        ls_strbuf_format(index, "%s    \"%s\": \"%s\"", index->used ? ",\n" : "",
                         s->piece[i].name, file);
}

static ls_status write_index(const ls_atomic_folder *folder, const ls_strbuf *map,
                             const ls__hf_pieces *p)
{
    ls_strbuf text  = {0};
    uint64_t  total = 0;

    for (size_t i = 0; i < p->n; i++)
        total += piece_bytes(&p->piece[i]);
    ls_status status = ls_strbuf_status(map);
    if (status)
        return status;
    ls_strbuf_format(&text, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {\n",
                     (unsigned long long)total);
    ls_strbuf_add(&text, map->data, map->used);
    ls_strbuf_format(&text, "\n  }\n}\n");
    status = write_text(folder, LS__HF_INDEX, &text);
    ls_strbuf_free(&text);
    return status;
}

static ls_status write_parameters(const ls_atomic_folder *folder, const ls__hf_pieces *p,
                                  uint64_t limit)
{
    size_t    count = count_shards(p, limit), number = 1, n;
    ls_strbuf map    = {0};
    ls_status status = LS_OK;

    for (size_t first = 0; first < p->n && !status; first += n, number++) {
        n          = shard_length(p, first, limit);
        shard s    = {.piece = p->piece + first, .n = n};
        char *name = shard_name(number, count);
        status     = name ? write_shard(folder, name, &s) : LS_ENOMEM;
        if (!status)
            index_shard(&map, &s, name);
        free(name);
    }
    if (!status && count > 1)
        status = write_index(folder, &map, p);
    ls_strbuf_free(&map);
    return status;
}

static ls_status write_texts(const ls_atomic_folder *folder, const ls_hf_model *m,
                             ls__hf_style style)
{
    enum { N = 4 };
    static const char *const name[N] = {"config.json", "generation_config.json",
                                        "tokenizer.json", "tokenizer_config.json"};
    ls_strbuf                text[N] = {{0}};
    ls_status                status  = LS_OK;

    ls__hf_print_config(&text[0], m, style);
    ls__hf_print_generation(&text[1], m);
    ls__hf_print_tokenizer(&text[2], m->tokenizer);
    ls__hf_print_tokenizer_config(&text[3], m->opts);
    for (int i = 0; i < N; i++) {
        if (!status)
            status = write_text(folder, name[i], &text[i]);
        ls_strbuf_free(&text[i]);
    }
    return status;
}

ls_status ls_hf_export(const char *directory, const ls_hf_model *m)
{
    ls_atomic_folder folder = {0};
    ls__hf_pieces    pieces = {0};
    ls__hf_style     style;
    ls_status        status = ls__hf_style_of(m->opts, &style);

    if (!status)
        status = ls__hf_pieces_of(m, style, &pieces);
    if (!status)
        status = ls_atomic_folder_begin(&folder, directory);
    if (!status)
        status = write_parameters(&folder, &pieces, m->shard_bytes);
    if (!status)
        status = write_texts(&folder, m, style);
    if (!status)
        status = ls_atomic_folder_commit(&folder);
    ls_atomic_folder_abandon(&folder);
    ls__hf_pieces_free(&pieces);
    return status;
}

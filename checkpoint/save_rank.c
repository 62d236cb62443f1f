/*
 * save_rank.c - a rank's file: safetensors, or zlib streams in a container of their own.
 *
 *     container   8 bytes "LSZLIB1\n", step and rank as i64, little-endian; then the streams
 *
 * In the safetensors file a tensor's rows go by the tensor's name, with their own shape; where
 * they belong in the whole, the manifest says.  Step and rank in the header let the header's
 * checksum tell apart what other ranks or steps have written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/atomic_file.h"
#include "checkpoint/safetensors_write_impl.h"
#include "checkpoint/save_rank_impl.h"
#include "core/alloc.h"
#include "core/gz.h"
#include "core/thread.h"

enum { COMPRESSED_PIECE = 4 << 20, COPY_BYTES = 1 << 20 };

const char *ls__part_name(int rank, int size, bool compressed, ls__part_text *text)
{
    snprintf(text->text, sizeof text->text, "rank-%05d-of-%05d.%s", rank, size,
             compressed ? "zlib" : "safetensors");
    return text->text;
}

/* ---- plan ---- */

/* Rows of a piece: all where they go into a safetensors file, which has a name once. */
static uint64_t rows_of_piece(const ls__part *p, ls_row_range share, uint64_t row_bytes)
{
    uint64_t rows = COMPRESSED_PIECE / row_bytes;

    return p->compressed && rows < share.rows ? (rows ? rows : 1) : share.rows;
}

static void plan_tensor(ls__part *p, size_t i, bool count_only)
{
    const ls_tensor *t         = p->list[i].tensor;
    uint64_t         row_bytes = ls_row_bytes_of(t);
    ls_row_range     share     = ls_rows_share(t, p->rank, p->size);

    if (!share.rows || !row_bytes)
        return;
    uint64_t each = rows_of_piece(p, share, row_bytes);
    for (uint64_t at = 0; at < share.rows; at += each, p->n_pieces++) {
        uint64_t rows = share.rows - at < each ? share.rows - at : each;
        if (count_only)
            continue;
        p->piece[p->n_pieces] = (ls_manifest_chunk){.tensor = (uint32_t)i,
                                                    .first  = share.first + at,
                                                    .rows   = rows,
                                                    .bytes  = rows * row_bytes};
        p->data[p->n_pieces]  = ls_rows_at(t, share.first + at);
        p->bytes += rows * row_bytes;
    }
}

ls_status ls__part_plan(ls__part *p)
{
    for (size_t i = 0; i < p->n; i++) {
        ls_status status = ls_rows_check(&p->list[i]);
        if (status)
            return status;
        plan_tensor(p, i, true);
    }
    p->piece    = ls_calloc(p->n_pieces + 1, sizeof *p->piece);
    p->data     = ls_calloc(p->n_pieces + 1, sizeof *p->data);
    p->n_pieces = 0;
    if (!p->piece || !p->data)
        return LS_ENOMEM;
    for (size_t i = 0; i < p->n; i++)
        plan_tensor(p, i, false);
    return LS_OK;
}

/* ---- snapshot ---- */

typedef struct {
    char       *to;
    const char *from;
    uint64_t    bytes;
} copy;

static void copy_block(void *context, int64_t index)
{
    const copy *c     = context;
    ls_block    block = ls_block_at((int64_t)c->bytes, COPY_BYTES, index);

    memcpy(c->to + block.first, c->from + block.first, (size_t)(block.end - block.first));
}

/* Room for one piece, packed. */
static ls_status plan_packed(ls__part *p)
{
    uint64_t most = 0;

    for (size_t i = 0; i < p->n_pieces; i++)
        most = p->piece[i].bytes > most ? p->piece[i].bytes : most;
    p->packed = p->compressed ? ls_zlib_bound((size_t)most) : 0;
    return p->compressed && !p->packed ? LS_ENOMEM : LS_OK;
}

static size_t snapshot_bytes(const ls__part *p)
{
    return (size_t)p->bytes + p->packed;
}

ls_status ls__part_snapshot(ls__part *p)
{
    uint64_t  at     = 0;
    ls_status status = plan_packed(p);

    if (status)
        return status;
    p->snapshot = ls_mem_alloc(snapshot_bytes(p), LS_MEM_SNAPSHOT);
    if (!p->snapshot)
        return LS_ENOMEM;
    for (size_t i = 0; i < p->n_pieces; at += p->piece[i++].bytes) {
        copy c = {p->snapshot + at, p->data[i], p->piece[i].bytes};
        ls_parallel(ls_block_count((int64_t)c.bytes, COPY_BYTES), copy_block, &c);
        p->data[i] = c.to;
    }
    return LS_OK;
}

void ls__part_close(ls__part *p)
{
    ls_mem_free(p->snapshot, snapshot_bytes(p), LS_MEM_SNAPSHOT);
    free(p->piece);
    free(p->data);
    *p = (ls__part){0};
}

/* ---- safetensors ---- */

static ls_st_source source_of(const ls__part *p, size_t i)
{
    const ls_stored_tensor  *t = &p->list[p->piece[i].tensor];
    const ls_manifest_chunk *c = &p->piece[i];
    ls_st_source             s = {.name  = t->name,
                                  .dtype = ls_dtype_name(ls_rows_dtype(t->tensor)),
                                  .ndim  = t->tensor->shape.ndim,
                                  .data  = p->data[i]};

    for (int k = 0; k < s.ndim; k++)
        s.dim[k] = k ? (uint64_t)t->tensor->shape.dim[k] : c->rows;
    return s;
}

static ls_status write_safetensors(ls__part *p, const char *path, const atomic_int *stop)
{
    char           step[24], rank[12], size[12];
    ls_st_metadata pairs[] = {{"step", step}, {"rank", rank}, {"world_size", size}};
    ls_st_source  *sources = ls_calloc(p->n_pieces, sizeof *sources);
    ls_st_written  w       = {.offset = ls_calloc(p->n_pieces, sizeof *w.offset),
                              .crc    = ls_calloc(p->n_pieces, sizeof *w.crc),
                              .stop   = stop};
    ls_status      status  = sources && w.offset && w.crc ? LS_OK : LS_ENOMEM;

    snprintf(step, sizeof step, "%lld", (long long)p->step);
    snprintf(rank, sizeof rank, "%d", p->rank);
    snprintf(size, sizeof size, "%d", p->size);
    for (size_t i = 0; i < p->n_pieces && !status; i++)
        sources[i] = source_of(p, i);
    if (!status)
        status = ls__safetensors_write_checked(path, sources, p->n_pieces, pairs, 3, &w);
    for (size_t i = 0; i < p->n_pieces && !status; i++) {
        p->piece[i].offset = w.offset[i];
        p->piece[i].stored = p->piece[i].bytes;
        p->piece[i].crc    = w.crc[i];
    }
    p->file_bytes   = w.file_bytes;
    p->header_bytes = w.header_bytes;
    p->header_crc   = w.header_crc;
    free(sources);
    free(w.offset);
    free(w.crc);
    return status;
}

/* ---- the container ---- */

static ls_status write_stream(ls__part *p, size_t i, ls_atomic_file *f, ls_bytes *buffer,
                              const atomic_int *stop)
{
    ls_manifest_chunk *c = &p->piece[i];

    if (*stop)
        return ls_fail(LS_EINTERRUPTED, "%s: writing was given up", f->path);
    buffer->size     = 0;
    c->crc           = ls_crc32(0, p->data[i], (size_t)c->bytes);
    ls_status status = ls_zlib_deflate(p->data[i], (size_t)c->bytes, buffer);
    if (!status)
        status = ls_atomic_write(f, buffer->data, buffer->size);
    c->offset = p->file_bytes;
    c->stored = buffer->size;
    p->file_bytes += buffer->size;
    return status;
}

static ls_status write_streams(ls__part *p, ls_atomic_file *f, const atomic_int *stop)
{
    struct {
        char    magic[8];
        int64_t step, rank;
    } head           = {"LSZLIB1\n", p->step, p->rank};
    ls_bytes  buffer = {0};
    ls_status status = ls_atomic_write(f, &head, sizeof head);

    if (p->snapshot)
        buffer =
            (ls_bytes){.data = (unsigned char *)p->snapshot + p->bytes, .capacity = p->packed};

    p->file_bytes = p->header_bytes = sizeof head;
    p->header_crc                   = ls_crc32(0, &head, sizeof head);
    for (size_t i = 0; i < p->n_pieces && !status; i++)
        status = write_stream(p, i, f, &buffer, stop);
    if (!p->snapshot)
        ls_bytes_free(&buffer);
    return status ? status : ls_atomic_commit(f);
}

static ls_status write_container(ls__part *p, const char *path, const atomic_int *stop)
{
    ls_atomic_file f;
    ls_status      status = ls_atomic_begin(&f, path);

    if (!status) {
        status = write_streams(p, &f, stop);
        ls_atomic_abandon(&f);
    }
    return status;
}

ls_status ls__part_write(ls__part *p, const char *folder, const atomic_int *stop)
{
    ls__part_text name;

    if (!p->n_pieces)
        return LS_OK;
    char *path =
        ls_sprintf("%s/%s", folder, ls__part_name(p->rank, p->size, p->compressed, &name));
    ls_status status = path ? LS_OK : LS_ENOMEM;
    if (path)
        status =
            p->compressed ? write_container(p, path, stop) : write_safetensors(p, path, stop);
    free(path);
    return status;
}

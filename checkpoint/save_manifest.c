/*
 * save_manifest.c - what rank 0 makes of all ranks' tables.
 *
 * Two collectives: how many pieces each rank has written, then the pieces themselves, padded to
 * the most that a rank has.
 */
#include "checkpoint/save_manifest_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "dist/comm/verdict.h"

/* What a rank tells rank 0 of its file. */
typedef struct {
    int64_t  n_pieces;
    uint64_t file_bytes, header_bytes;
    uint32_t header_crc, unused;
} file_facts;

typedef struct {
    ls_comm        *comm;
    const ls__part *part;
    const char     *folder;
    ls_manifest    *manifest;
} gathering;

static ls_status add_tensors(const ls__part *p, ls_manifest *m)
{
    m->tensor = ls_calloc(p->n + 1, sizeof *m->tensor);
    for (size_t i = 0; i < p->n && m->tensor; i++) {
        const ls_stored_tensor *from = &p->list[i];
        ls_manifest_tensor     *t    = &m->tensor[i];
        *t                           = (ls_manifest_tensor){.name  = ls_strdup(from->name),
                                                            .kind  = from->kind,
                                                            .dtype = ls_rows_dtype(from->tensor),
                                                            .ndim  = from->tensor->shape.ndim};
        for (int k = 0; k < t->ndim; k++)
            t->dim[k] = (uint64_t)from->tensor->shape.dim[k];
        m->n_tensors++;
        if (!t->name)
            return LS_ENOMEM;
    }
    return m->tensor ? LS_OK : LS_ENOMEM;
}

/* Of rank r: its file, and its pieces as chunks of it. */
static ls_status add_rank(const ls__part *p, int r, const file_facts *f,
                          const ls_manifest_chunk *piece, ls_manifest *m)
{
    ls__part_text name;

    if (!f->n_pieces)
        return LS_OK;
    m->file[m->n_files] =
        (ls_manifest_file){.name  = ls_strdup(ls__part_name(r, p->size, p->compressed, &name)),
                           .bytes = f->file_bytes,
                           .header_bytes = f->header_bytes,
                           .header_crc   = f->header_crc};
    for (int64_t i = 0; i < f->n_pieces; i++) {
        m->chunk[m->n_chunks]        = piece[i];
        m->chunk[m->n_chunks++].file = (uint32_t)m->n_files;
    }
    return m->file[m->n_files++].name ? LS_OK : LS_ENOMEM;
}

/* ls_manifest_check() proves that the ranks' chunks make up every tensor. */
static ls_status make_manifest(const gathering *g, const file_facts *facts,
                               const ls_manifest_chunk *pieces, int64_t most)
{
    const ls__part *p     = g->part;
    ls_manifest    *m     = g->manifest;
    int             ranks = g->comm ? p->size : 1;
    size_t          total = 0;

    for (int r = 0; r < ranks; r++)
        total += (size_t)facts[r].n_pieces;
    m->file          = ls_calloc((size_t)ranks, sizeof *m->file);
    m->chunk         = ls_calloc(total + 1, sizeof *m->chunk);
    ls_status status = m->file && m->chunk ? add_tensors(p, m) : LS_ENOMEM;
    for (int r = 0; r < ranks && !status; r++)
        status = add_rank(p, r, &facts[r], pieces + r * most, m);
    return status ? status : ls_manifest_check(m, g->folder);
}

static ls_status gather_pieces(const gathering *g, const file_facts *all, int64_t most)
{
    const ls__part    *p      = g->part;
    int64_t            bytes  = most * (int64_t)sizeof *p->piece;
    size_t             ranks  = p->rank ? 1 : (size_t)p->size;
    ls_manifest_chunk *mine   = ls_calloc((size_t)most + 1, sizeof *mine);
    ls_manifest_chunk *pieces = ls_calloc((size_t)most * ranks + 1, sizeof *pieces);
    ls_status          status = ls_comm_agree(g->comm, mine && pieces ? LS_OK : LS_ENOMEM);

    if (!status && mine) {
        memcpy(mine, p->piece, p->n_pieces * sizeof *mine);
        status = ls_comm_gather(g->comm, pieces, mine, bytes, LS_U8, 0);
    }
    if (!status)
        status = ls_comm_agree(g->comm, p->rank ? LS_OK : make_manifest(g, all, pieces, most));
    free(mine);
    free(pieces);
    return status;
}

ls_status ls__manifest_gather(ls_comm *comm, const ls__part *p, const char *folder,
                              ls_manifest *m)
{
    gathering  g    = {comm, p, folder, m};
    file_facts mine = {.n_pieces     = (int64_t)p->n_pieces,
                       .file_bytes   = p->file_bytes,
                       .header_bytes = p->header_bytes,
                       .header_crc   = p->header_crc};
    int64_t    most = 0;

    if (!comm)
        return make_manifest(&g, &mine, p->piece, 0);
    file_facts *all    = ls_calloc((size_t)p->size, sizeof *all);
    ls_status   status = ls_comm_agree(comm, all ? LS_OK : LS_ENOMEM);
    if (!status)
        status = ls_comm_all_gather(comm, all, &mine, sizeof mine, LS_U8);
    for (int r = 0; r < p->size && !status && all; r++)
        most = all[r].n_pieces > most ? all[r].n_pieces : most;
    if (!status && all)
        status = gather_pieces(&g, all, most);
    free(all);
    return status;
}

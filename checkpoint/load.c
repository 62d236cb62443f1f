/*
 * load.c - reads, proves, then shares.
 *
 *     read     every rank its share, into place; a part of a chunk gives (chunk, from, bytes,
 * crc) prove    the parts of all ranks, sorted, joined with crc32_combine, against the manifest
 *     share    replicated tensors: each rank's share to all
 *
 * Every rank sees the same parts and so comes to the same verdict; the first two steps end in
 * an agreement, so that nobody waits for a rank that has failed.
 */
#include "checkpoint/load.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/params_impl.h"
#include "core/alloc.h"
#include "core/gz.h"
#include "dist/comm/verdict.h"

/* What a rank has read of a chunk. */
typedef struct {
    uint32_t chunk, crc; /* chunk: UINT32_MAX pads */
    uint64_t from, bytes;
} part;

typedef struct {
    ls_checkpoint          *checkpoint;
    const ls_stored_tensor *list;
    size_t                  n;
    ls_comm                *comm;
    int                     rank, size;
    part                   *parts;
    int64_t                 n_parts, room;
} loading;

/* ---- match ---- */

static ls_status match(const ls_safetensors *view, const loading *l)
{
    ls_named_tensor *named  = ls_calloc(l->n + 1, sizeof *named);
    ls_status        status = named ? LS_OK : LS_ENOMEM;

    for (size_t i = 0; i < l->n && !status; i++) {
        named[i] = (ls_named_tensor){l->list[i].name, l->list[i].tensor};
        status   = ls_rows_check(&l->list[i]);
    }
    if (!status)
        status = ls__params_match(view, named, l->n);
    free(named);
    return status;
}

/* ---- read ---- */

static ls_status note_part(loading *l, part p)
{
    if (l->n_parts == l->room) {
        int64_t more  = l->room ? 2 * l->room : 64;
        part   *grown = ls_calloc((size_t)more, sizeof *grown);
        if (!grown)
            return LS_ENOMEM;
        if (l->n_parts)
            memcpy(grown, l->parts, (size_t)l->n_parts * sizeof *grown);
        free(l->parts);
        l->parts = grown;
        l->room  = more;
    }
    l->parts[l->n_parts++] = p;
    return LS_OK;
}

/* The rows that a chunk and a share have in common. */
static ls_status read_chunk(loading *l, const ls_tensor *t, ls_row_range share, size_t i)
{
    const ls_manifest_chunk *c         = &l->checkpoint->manifest.chunk[i];
    uint64_t                 row_bytes = ls_row_bytes_of(t);
    uint64_t                 first     = c->first > share.first ? c->first : share.first;
    uint64_t end = c->first + c->rows < share.first + share.rows ? c->first + c->rows
                                                                 : share.first + share.rows;
    if (first >= end)
        return LS_OK;
    part      p = {.chunk = (uint32_t)i,
                   .from  = (first - c->first) * row_bytes,
                   .bytes = (end - first) * row_bytes};
    ls_status status =
        ls_chunk_read(l->checkpoint, c, p.from, ls_rows_at(t, first), p.bytes, &p.crc);
    return status ? status : note_part(l, p);
}

static ls_status read_share(loading *l)
{
    const ls_manifest *m      = &l->checkpoint->manifest;
    ls_status          status = LS_OK;

    for (size_t i = (size_t)l->rank; i < m->n_files && !status; i += (size_t)l->size)
        status = ls_checkpoint_check_file(l->checkpoint, i);
    for (size_t i = 0; i < l->n && !status; i++) {
        const ls_tensor          *t     = l->list[i].tensor;
        const ls_manifest_tensor *e     = ls_manifest_find(m, l->list[i].name);
        ls_row_range              share = ls_rows_share(t, l->rank, l->size);
        for (size_t k = 0; k < e->n_chunks && !status; k++)
            status = read_chunk(l, t, share, e->first_chunk + k);
    }
    return status;
}

/* ---- prove ---- */

static int by_place(const void *a, const void *b)
{
    const part *x = a, *y = b;

    if (x->chunk != y->chunk)
        return x->chunk < y->chunk ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Parts sorted by place.  A chunk that nobody has read whole cannot come from shares of tensors
 * that match. */
static ls_status judge(const loading *l, const part *p, int64_t n)
{
    const ls_manifest *m  = &l->checkpoint->manifest;
    int64_t            at = 0;

    for (size_t i = 0; i < m->n_chunks; i++) {
        uint64_t bytes = 0;
        uint32_t crc   = 0;
        for (; at < n && p[at].chunk == i; bytes += p[at++].bytes)
            crc = bytes ? ls_crc32_combine(crc, p[at].crc, p[at].bytes) : p[at].crc;
        if (bytes != m->chunk[i].bytes)
            return ls_fail(
                LS_ESTATE, "%s: the ranks have read %llu of the %llu bytes of a chunk of '%s'",
                l->checkpoint->path, (unsigned long long)bytes,
                (unsigned long long)m->chunk[i].bytes, m->tensor[m->chunk[i].tensor].name);
        ls_status status = ls_chunk_check(l->checkpoint, &m->chunk[i], crc);
        if (status)
            return status;
    }
    return LS_OK;
}

/* The parts of all ranks, those that are none at the end. */
static ls_status gather(loading *l, part **all, int64_t *n)
{
    int64_t   most   = l->n_parts;
    ls_status status = ls_comm_all_reduce(l->comm, &most, &most, 1, LS_I64, LS_MAX);

    if (status)
        return status;
    part *mine = ls_calloc((size_t)most + 1, sizeof *mine);
    *n         = most * l->size;
    *all       = ls_calloc((size_t)*n + 1, sizeof **all);
    status     = ls_comm_agree(l->comm, mine && *all ? LS_OK : LS_ENOMEM);
    if (!status && mine && *all) {
        for (int64_t i = 0; i < most; i++)
            mine[i] = i < l->n_parts ? l->parts[i] : (part){.chunk = UINT32_MAX};
        status = ls_comm_all_gather(l->comm, *all, mine, most * (int64_t)sizeof *mine, LS_U8);
    }
    free(mine);
    return status;
}

static ls_status prove(loading *l)
{
    part     *gathered = NULL;
    int64_t   n        = l->n_parts;
    ls_status status   = l->comm ? gather(l, &gathered, &n) : LS_OK;
    part     *all      = l->comm ? gathered : l->parts;

    if (!status && n)
        qsort(all, (size_t)n, sizeof *all, by_place);
    if (!status)
        status = judge(l, all, n);
    free(gathered);
    return ls_comm_agree(l->comm, status);
}

/* ---- share ---- */

static ls_status share_tensor(const loading *l, const ls_tensor *t)
{
    ls_status status = LS_OK;

    for (int r = 0; r < l->size && !status; r++) {
        ls_row_range part_of = ls_rows_share(t, r, l->size);
        uint64_t     bytes   = part_of.rows * ls_row_bytes_of(t);
        if (bytes)
            status = ls_comm_broadcast(l->comm, ls_rows_at(t, part_of.first), (int64_t)bytes,
                                       LS_U8, r);
    }
    return status;
}

static ls_status share(const loading *l)
{
    ls_status status = LS_OK;

    for (size_t i = 0; i < l->n && !status && l->size > 1; i++)
        if (!ls_tensor_is_spread(l->list[i].tensor))
            status = share_tensor(l, l->list[i].tensor);
    return status;
}

ls_status ls_checkpoint_load(const ls_safetensors *view, const ls_stored_tensor *list, size_t n,
                             ls_comm *comm)
{
    loading   l      = {.checkpoint = ls_view_checkpoint(view),
                        .list       = list,
                        .n          = n,
                        .comm       = comm,
                        .rank       = comm ? ls_comm_rank(comm) : 0,
                        .size       = comm ? ls_comm_size(comm) : 1};
    ls_status status = ls_comm_agree(comm, match(view, &l));

    if (!status)
        status = ls_comm_agree(comm, read_share(&l));
    if (!status)
        status = prove(&l);
    if (!status)
        status = share(&l);
    free(l.parts);
    return status;
}

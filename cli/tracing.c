/*
 * tracing.c - spans of all ranks on their way to trace.json.
 */
#include "cli/tracing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_dir.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/host.h"

enum { MANY = 2048, ROUNDS = 9 };

struct ls_tracing {
    const ls_ranks *ranks;
    ls_trace       *trace;
    ls_trace_file  *file;   /* of rank 0 */
    int64_t         offset; /* of this rank's clock to rank 0's */
    int64_t        *counts; /* [size] */
};

/* ---- clocks ---- */

static ls_status share_clock(const ls_ranks *ranks, bool *same)
{
    char      mine[LS_BOOT_BYTES], *all = ls_calloc((size_t)ranks->size, LS_BOOT_BYTES);
    ls_status status = ls_ranks_agree(ranks, all ? LS_OK : LS_ENOMEM);

    ls_boot_id(mine);
    *same = mine[0] != '\0';
    if (status || !all) {
        free(all);
        return status;
    }
    status = ls_comm_all_gather(ranks->world, all, mine, LS_BOOT_BYTES, LS_U8);
    for (int r = 0; r < ranks->size && !status; r++)
        *same = *same && !memcmp(all + (size_t)r * LS_BOOT_BYTES, mine, LS_BOOT_BYTES);
    free(all);
    return status;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* All leave a barrier at about the same time: the median of some tries. */
static ls_status measure_offset(const ls_ranks *ranks, int64_t *offset)
{
    int64_t   tries[ROUNDS];
    ls_status status = LS_OK;

    for (int i = 0; i < ROUNDS && !status; i++) {
        status       = ls_comm_barrier(ranks->world);
        int64_t mine = ls_now_ns(), first = mine;
        if (!status)
            status = ls_comm_broadcast(ranks->world, &first, 1, LS_I64, 0);
        tries[i] = mine - first;
    }
    if (status)
        return status;
    qsort(tries, ROUNDS, sizeof *tries, by_value);
    *offset = tries[ROUNDS / 2];
    return LS_OK;
}

static ls_status set_clock(ls_tracing *t)
{
    bool same;

    if (!t || !t->ranks->world)
        return LS_OK;
    ls_status status = share_clock(t->ranks, &same);
    return status || same ? status : measure_offset(t->ranks, &t->offset);
}

/* ---- open and close ---- */

static ls_status open_file(ls_tracing *t, const char *dir)
{
    if (t->ranks->rank)
        return LS_OK;
    char     *path = ls_run_dir_path(dir, "trace.json");
    ls_status status =
        path ? ls_trace_file_open(path, t->ranks->size, ls_now_ns(), &t->file) : LS_ENOMEM;
    free(path);
    return status;
}

ls_status ls_tracing_open(const char *dir, const ls_ranks *ranks, ls_tracing **tracing)
{
    ls_tracing *t      = ls_calloc(1, sizeof *t);
    ls_status   status = t ? LS_OK : LS_ENOMEM;

    *tracing = NULL;
    if (t) {
        t->ranks  = ranks;
        t->trace  = ls_trace_new();
        t->counts = ls_calloc((size_t)ranks->size, sizeof *t->counts);
        status    = t->trace && t->counts ? open_file(t, dir) : LS_ENOMEM;
    }
    status = ls_ranks_agree(ranks, status);
    if (!status)
        status = set_clock(t);
    if (status) {
        ls_tracing_close(t);
        return status;
    }
    *tracing = t;
    return LS_OK;
}

/* Of a run that failed, rank 0's last spans are all that there is. */
static void write_own(ls_tracing *t)
{
    int64_t        n;
    const ls_span *spans = ls_trace_spans(t->trace, &n);

    if (!t->counts)
        return;
    memset(t->counts, 0, (size_t)t->ranks->size * sizeof *t->counts);
    t->counts[0] = n;
    ls_trace_file_add(t->file, spans, t->counts);
    ls_trace_clear(t->trace);
}

void ls_tracing_close(ls_tracing *t)
{
    if (!t)
        return;
    if (t->file)
        write_own(t);
    ls_trace_file_close(t->file);
    ls_trace_free(t->trace);
    free(t->counts);
    free(t);
}

ls_trace *ls_tracing_spans(ls_tracing *t)
{
    return t ? t->trace : NULL;
}

/* ---- collect ---- */

/* This rank's spans by rank 0's clock. */
static const ls_span *own_spans(ls_tracing *t, int64_t *n)
{
    ls_span *spans = ls_trace_spans(t->trace, n);

    for (int64_t i = 0; i < *n && t->offset; i++) {
        spans[i].start -= t->offset;
        spans[i].end -= t->offset;
        spans[i].launched -= t->offset;
    }
    return spans;
}

/* Each rank sends as many as the one with most; rank 0 closes the gaps. */
static ls_status gather(ls_tracing *t, const ls_span *own, int64_t most, ls_span *all)
{
    int64_t   bytes  = most * (int64_t)sizeof *own;
    ls_status status = ls_comm_gather(t->ranks->world, all, own, bytes, LS_U8, 0);

    if (status || t->ranks->rank || !all)
        return status;
    ls_span *to = all;
    for (int r = 0; r < t->ranks->size; to += t->counts[r++])
        memmove(to, all + r * most, (size_t)t->counts[r] * sizeof *to);
    ls_trace_file_add(t->file, all, t->counts);
    return LS_OK;
}

static ls_status collect_ranks(ls_tracing *t)
{
    int            size = t->ranks->size;
    int64_t        n, most = 0;
    const ls_span *own    = own_spans(t, &n);
    ls_span       *all    = NULL;
    ls_status      status = ls_comm_all_gather(t->ranks->world, t->counts, &n, 1, LS_I64);

    for (int r = 0; r < size && !status; r++)
        most = t->counts[r] > most ? t->counts[r] : most;
    if (!status && !t->ranks->rank)
        all = ls_calloc((size_t)(size * most + 1), sizeof *all);
    if (!status)
        status = ls_ranks_agree(t->ranks, all || t->ranks->rank ? LS_OK : LS_ENOMEM);
    if (!status)
        status = gather(t, own, most, all);
    free(all);
    ls_trace_clear(t->trace);
    return status;
}

ls_status ls_tracing_collect(ls_tracing *t, bool last)
{
    ls_status status = LS_OK;

    if (!t)
        return LS_OK;
    if (last || ls_trace_alike(t->trace) >= MANY) { /* on all ranks in the same step */
        if (t->ranks->world)
            status = collect_ranks(t);
        else
            write_own(t);
    }
    if (last && t->file)
        ls_trace_file_end(t->file);
    return status;
}

ls_status ls_tracing_check(ls_tracing *t)
{
    return t && t->file ? ls_trace_file_check(t->file) : LS_OK;
}

int64_t ls_tracing_lost(const ls_tracing *t)
{
    return t ? ls_trace_lost(t->trace) : 0;
}

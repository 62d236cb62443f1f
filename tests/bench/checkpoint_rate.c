/*
 * checkpoint_rate.c - how fast a state of so many MiB is saved and loaded.
 *
 *     [lockstep run -n N --] checkpoint_rate DIR MIB
 *
 * Each rank holds all of it (as under DDP).  One line of JSON from rank 0: seconds to save and
 * sync, to load what the page cache holds, that an asynchronous save holds training up, that a
 * memcpy of the rank's share takes, and the largest memory beside the state, in MiB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "checkpoint/store.h"
#include "core/clock.h"
#include "dist/comm/rendezvous.h"

enum { TENSORS = 24, COLUMNS = 1024 };

typedef struct {
    ls_tensor        tensor[TENSORS];
    ls_stored_tensor list[TENSORS];
    char             name[TENSORS][16];
} state;

static ls_status make(state *s, int64_t mib)
{
    int64_t rows = (mib << 20) / TENSORS / COLUMNS / (int64_t)sizeof(float);

    for (int i = 0; i < TENSORS; i++) {
        snprintf(s->name[i], sizeof s->name[i], "t%d", i);
        s->tensor[i]     = ls_tensor_header(LS_F32, LS_SHAPE2(rows, COLUMNS));
        s->list[i]       = (ls_stored_tensor){s->name[i], &s->tensor[i], LS_KIND_PARAMETER};
        ls_status status = ls_tensor_materialize(&s->tensor[i], LS_MEM_PARAMS);
        if (status)
            return status;
        for (int64_t k = 0; k < rows * COLUMNS; k++)
            ls_reals(&s->tensor[i])[k] = (float)(k * 2654435761 % 1000003) / 1000;
    }
    return LS_OK;
}

static double since(int64_t start)
{
    return (double)(ls_now_ns() - start) / 1e9;
}

static double time_save(ls_saver *saver, int64_t step, double *stall)
{
    ls_save_end   end;
    ls_save_facts facts  = {step, "ddp", "{}", "{}", "{}", false};
    int64_t       start  = ls_now_ns();
    ls_status     status = ls_saver_begin(saver, &facts, &end);

    *stall = since(start);
    if (!status && !end.step)
        status = ls_saver_wait(saver, &end);
    if (status || end.status)
        fprintf(stderr, "save: %s\n", status ? ls_error_message() : end.text);
    return since(start);
}

static double time_load(const char *store, int64_t step, state *s, ls_comm *comm)
{
    int64_t         start = ls_now_ns();
    char           *path  = ls_store_path(store, step);
    ls_checkpoint  *c;
    ls_safetensors *view   = NULL;
    ls_status       status = ls_checkpoint_open_folder(path, &c);

    if (!status)
        status = ls_view_new(c, LS_VIEW_STATE, &view);
    if (!status)
        status = ls_checkpoint_load(view, s->list, TENSORS, comm);
    if (status)
        fprintf(stderr, "load: %s\n", ls_error_message());
    ls_safetensors_close(view);
    free(path);
    return since(start);
}

/* Into memory that was used before, as a snapshot's is, and all ranks at once, as snapshots
 * are. */
static double time_copy(const state *s, int rank, int size, ls_comm *comm)
{
    uint64_t bytes = 0, at = 0;

    for (int i = 0; i < TENSORS; i++)
        bytes += ls_rows_share(&s->tensor[i], rank, size).rows * ls_row_bytes_of(&s->tensor[i]);
    char *to = ls_mem_alloc(bytes, LS_MEM_OTHER);
    if (!to)
        return 0;
    memset(to, 1, bytes);
    if (comm && ls_comm_barrier(comm))
        return 0;
    int64_t start = ls_now_ns();
    for (int i = 0; i < TENSORS; i++) {
        ls_row_range share = ls_rows_share(&s->tensor[i], rank, size);
        uint64_t     part  = share.rows * ls_row_bytes_of(&s->tensor[i]);
        memcpy(to + at, ls_rows_at(&s->tensor[i], share.first), part);
        at += part;
    }
    double took = since(start);
    ls_mem_free(to, bytes, LS_MEM_OTHER);
    return took;
}

int main(int argc, char **argv)
{
    static state  s;
    ls_comm      *comm = NULL;
    ls_saver     *saver;
    ls_launch_env env;
    double        stall[3], save[3], load;

    if (argc < 3 || ls_launch_env_read(&env))
        return 2;
    if (env.world > 1 &&
        ls_world_join(&(ls_join_opts){.backend = "auto"}, &(ls_rendezvous_opts){0}, &comm))
        return fprintf(stderr, "%s\n", ls_error_message()), 1;
    int rank = comm ? ls_comm_rank(comm) : 0, size = comm ? ls_comm_size(comm) : 1;
    if (make(&s, atoll(argv[2])))
        return fprintf(stderr, "%s\n", ls_error_message()), 1;
    double        copy = time_copy(&s, rank, size, comm);
    ls_saver_opts opts = {.store = argv[1], .comm = comm, .keep = 1};
    if (ls_saver_new(&opts, s.list, TENSORS, &saver))
        return fprintf(stderr, "%s\n", ls_error_message()), 1;
    save[0] = time_save(saver, 1, &stall[0]);
    ls_saver_free(saver);
    opts.async = true;
    if (ls_saver_new(&opts, s.list, TENSORS, &saver))
        return fprintf(stderr, "%s\n", ls_error_message()), 1;
    int64_t before = ls_mem_get_stats().total;
    ls_saver_warm(saver);
    ls_sleep_ns(5000000000); /* steps of training, meanwhile */
    for (int i = 1; i < 3; i++)
        save[i] = time_save(saver, i + 1, &stall[i]);
    double extra = (double)(ls_mem_get_stats().total_peak - before) / (1 << 20);
    load         = time_load(argv[1], 3, &s, comm);
    if (!rank)
        printf(
            "{\"mib\":%s,\"ranks\":%d,\"save_s\":%.3f,\"async_save_s\":%.3f,\"load_s\":%.3f,"
            "\"stall_s\":%.3f,\"first_stall_s\":%.3f,\"memcpy_s\":%.3f,\"extra_mib\":%.0f}\n",
            argv[2], size, save[0], save[2], load, stall[2], stall[1], copy, extra);
    ls_saver_free(saver);
    ls_comm_free(comm);
    return 0;
}

/*
 * test_ddp_memory.c - what a rank of data parallelism has charged.
 *
 * P parameters, M micro-batches, N ranks:
 *
 *     4 P (3 + L) + activations + one bucket        bytes, L = max(1, log2(M/N))
 *
 * parameters and AdamW's two moments, L copies of the gradients with the buckets among them
 * (Note [first in the bucket] in dist/ddp.c), and room of one bucket for messages.  Activations
 * are those of one process that takes the same micro-batches.  Data is not counted.  Beyond
 * that at most
 *
 *     1.25 MiB + two parameters' gradients
 *
 * : pieces of messages or staging of what lies outside the symmetric heap, whatever the model,
 * and leaves that are on their way into the tree.
 */
#include <stdlib.h>

#include "cli/trainer.h"
#include "core/compute.h"
#include "ranks.h"
#include "temp_dir.h"

enum {
    STEPS                              = 2,
    LARGEST                            = 4 * 128 * 512,
    /* bytes of mlp.fc.weight */ SLACK = (5 << 18) + 2 * LARGEST
};

static const char config[] =
    "{\"run\": {\"steps\": 20, \"threads\": 1},"
    " \"model\": {\"type\": \"gpt\", \"n_layer\": 8, \"n_head\": 4, \"d_model\": 128,"
    " \"context\": 8, \"recompute\": %s},"
    " \"data\": {\"train\": \"%s\"},"
    " \"parallel\": {\"strategy\": \"%s\", \"bucket_mb\": %g, \"overlap\": %s},"
    " \"batch\": {\"global\": %d, \"micro\": 1}, \"optim\": {\"lr\": 1e-3}}";

typedef struct {
    const char *name, *backend;
    int         ranks, micros, copies; /* copies: L */
    double      bucket_mb;
    bool        overlap, recompute;
} row;

static const row rows[] = {
    {"one micro-batch each", "shm", 2, 2, 1, 0.25, true, false},
    {"two each", "shm", 2, 4, 1, 0.25, true, false},
    {"four each", "shm", 2, 8, 2, 0.25, true, false},
    {"eight each", "shm", 2, 16, 3, 0.25, true, false},
    {"one rank of four, all in one bucket", "shm", 4, 8, 1, 25, true, false},
    {"recompute, no overlap", "shm", 2, 8, 2, 1, false, true},
    {"tcp", "tcp", 2, 4, 1, 0.25, true, false},
    {"tcp, four ranks", "tcp", 4, 16, 2, 0.5, false, false},
};

/* What a rank tells: peaks of its steps, in bytes, and its parameters. */
typedef struct {
    ls_mem_stats mem;
    int64_t      parameters;
} figures;

static void measure(const row *r, const ls_ranks *ranks, figures *out)
{
    char           text[1024];
    ls_config      cfg;
    ls_trainer    *t;
    ls_step_result step;

    snprintf(text, sizeof text, config, r->recompute ? "true" : "false", temp_path("text.txt"),
             ranks->world ? "ddp" : "single", r->bucket_mb, r->overlap ? "true" : "false",
             r->micros);
    if (!CHECK_OK(ls_config_parse(&cfg, text, "memory.json", NULL, 0)))
        return;
    if (CHECK_OK(ls_trainer_new(&cfg, ranks, &t))) {
        ls_mem_reset_peaks();
        for (int i = 0; i < STEPS; i++)
            CHECK_OK(ls_trainer_step(t, 0, &step));
        *out = (figures){ls_mem_get_stats(), ls_trainer_parameter_count(t)};
        ls_trainer_free(t);
    }
    ls_config_free(&cfg);
}

typedef struct {
    const row *row;
    figures   *out; /* [ranks], shared */
} job;

static void rank(ls_comm *world, void *context)
{
    const job *j = context;
    ls_ranks   r = {world, ls_comm_rank(world), ls_comm_size(world), ls_comm_size(world)};

    CHECK_OK(ls_compute_start(1));
    measure(j->row, &r, &j->out[r.rank]);
    ls_compute_stop();
}

/* The largest: one is closed when it holds bucket_mb, so it may hold a parameter more. */
static int64_t bucket_bytes(const row *r, const figures *f)
{
    int64_t all = 4 * f->parameters, most = (int64_t)(r->bucket_mb * 1024 * 1024) + LARGEST;

    return most > all ? all : most;
}

static void check_rank(const row *r, const figures *f, const figures *alone)
{
    const int64_t *peak = f->mem.peak;
    int64_t        p = 4 * f->parameters, bucket = bucket_bytes(r, f);
    int64_t        total  = f->mem.total_peak - f->mem.current[LS_MEM_OTHER];
    int64_t        wanted = p * (3 + r->copies) + alone->mem.peak[LS_MEM_ACTIVATIONS] + bucket;
    bool           ok     = CHECK(total <= wanted + SLACK);

    ok = CHECK(f->parameters == alone->parameters && f->parameters > 1500000) && ok;
    ok = CHECK(peak[LS_MEM_PARAMS] == p && peak[LS_MEM_OPTIM] == 2 * p) && ok;
    ok = CHECK(peak[LS_MEM_GRADS] + peak[LS_MEM_COMM] <= p * r->copies + bucket + SLACK) && ok;
    ok = CHECK(peak[LS_MEM_ACTIVATIONS] <= alone->mem.peak[LS_MEM_ACTIVATIONS]) && ok;
    if (!ok)
        printf("     4P %lld, bucket %lld: params %lld, grads %lld, comm %lld, optim %lld, "
               "activations %lld (alone %lld), total %lld of %lld\n",
               (long long)p, (long long)bucket, (long long)peak[LS_MEM_PARAMS],
               (long long)peak[LS_MEM_GRADS], (long long)peak[LS_MEM_COMM],
               (long long)peak[LS_MEM_OPTIM], (long long)peak[LS_MEM_ACTIVATIONS],
               (long long)alone->mem.peak[LS_MEM_ACTIVATIONS], (long long)total,
               (long long)wanted);
}

static void run_row(const row *r)
{
    ranks_opts opts  = {.backend = r->backend, .n = r->ranks};
    size_t     bytes = (size_t)r->ranks * sizeof(figures);
    figures    alone = {0}, *out = ranks_shared(bytes);
    job        j = {r, out};

    TEST_ROW(r->name);
    measure(r, &ls_ranks_alone, &alone);
    CHECK(ranks_run(&opts, rank, &j) == 0);
    for (int i = 0; i < r->ranks; i++)
        check_rank(r, &out[i], &alone);
    ranks_unshare(out, bytes);
}

int main(void)
{
    static const char text[1000] = {'a', 'b'};

    temp_dir_make();
    temp_put(temp_path("text.txt"), text, sizeof text);
    CHECK_OK(ls_compute_start(1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_row(&rows[i]);
    ls_compute_stop();
    temp_dir_remove();
    return test_summary("ddp_memory");
}

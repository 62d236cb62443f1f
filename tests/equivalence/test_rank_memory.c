/*
 * test_rank_memory.c - what a rank has charged, by the formulas of docs/ddp.md and
 * docs/fsdp.md.
 *
 * P parameters, M micro-batches, N ranks, L = max(1, log2(M/N)); bytes, with AdamW:
 *
 *     ddp    4 P (3 + L) + activations + one bucket
 *     fsdp   4 P/N (3 + L) + whole forms + gradients that form and travel + activations
 *
 * Of DDP: parameters and two moments, L copies of the gradients with the buckets among them
 * (Note [first in the bucket] in dist/ddp.c), and room of one bucket for messages.  Of FSDP:
 * whole forms are prefetch + 1 units and the root, or, where the ranks share memory, nothing;
 * gradients form and travel in two units and the root.  ZeRO-2 and 1 keep all parameters whole
 * (shared: once a host, of which a rank is charged its rows).
 * "local" sums L whole gradients, and then a shard of them.
 *
 * Activations are those of one process that takes the same micro-batches.  Data is not counted.
 * Beyond the formula at most
 *
 *     ddp    1.25 MiB + two parameters' gradients
 *     fsdp   5 % + 1.25 MiB + two units on their way into the tree; over messages also two
 *            units that are packed there, one for each group, and pieces for the second one
 *
 * : pieces of messages or staging of what lies outside the symmetric heap, whatever the model,
 * and what is on its way into the tree.
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
    " \"parallel\": {\"strategy\": \"%s\"%s},"
    " \"batch\": {\"global\": %d, \"micro\": 1}, \"optim\": {\"lr\": 1e-3}}";

typedef struct {
    const char *name, *backend;
    int         ranks, micros, copies; /* copies: L */
    const char *parallel;              /* further keys */
    bool        recompute;
    double      bucket_mb; /* of ddp; 0: fsdp, with these: */
    int         prefetch;
    bool        kept, local; /* wholes; whole sums */
} row;

#define DDP(mb) ", \"bucket_mb\": " #mb

static const row rows[] = {
    {"one micro-batch each", "shm", 2, 2, 1, DDP(0.25), .bucket_mb = 0.25},
    {"two each", "shm", 2, 4, 1, DDP(0.25), .bucket_mb = 0.25},
    {"four each", "shm", 2, 8, 2, DDP(0.25), .bucket_mb = 0.25},
    {"eight each", "shm", 2, 16, 3, DDP(0.25), .bucket_mb = 0.25},
    {"one rank of four, all in one bucket", "shm", 4, 8, 1, DDP(25), .bucket_mb = 25},
    {"recompute, no overlap", "shm", 2, 8, 2, DDP(1) ", \"overlap\": false", true,
     .bucket_mb = 1},
    {"tcp", "tcp", 2, 4, 1, DDP(0.25), .bucket_mb = 0.25},
    {"tcp, four ranks", "tcp", 4, 16, 2, DDP(0.5) ", \"overlap\": false", .bucket_mb = 0.5},
    {"fsdp", "shm", 2, 2, 1, "", .prefetch = 1},
    {"fsdp, four ranks, four each", "shm", 4, 16, 2, "", .prefetch = 1},
    {"fsdp, recompute", "shm", 2, 8, 2, "", true, .prefetch = 1},
    {"fsdp, local", "shm", 2, 8, 2, ", \"accumulate\": \"local\"", .local = true},
    {"zero-2", "shm", 2, 4, 1, ", \"shard\": \"gradients\"", .prefetch = 0},
    {"zero-1", "shm", 2, 4, 1, ", \"shard\": \"optimizer\"", .prefetch = 0},
    {"fsdp, tcp", "tcp", 2, 4, 1, "", .prefetch = 1},
    {"fsdp, tcp, no prefetch", "tcp", 4, 8, 1, ", \"prefetch\": 0", .prefetch = 0},
    {"fsdp, tcp, prefetch 2", "tcp", 4, 8, 1, ", \"prefetch\": 2", .prefetch = 2},
    {"zero-2, tcp", "tcp", 2, 4, 1, ", \"shard\": \"gradients\"", .kept = true},
    {"zero-1, tcp", "tcp", 2, 4, 1, ", \"shard\": \"optimizer\"", .kept = true},
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
             !ranks->world      ? "single"
             : r->bucket_mb > 0 ? "ddp"
                                : "fsdp",
             r->parallel, r->micros);
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

static void check_ddp(const row *r, const figures *f, const figures *alone)
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

/* A block, and what is not in one: of the config above, d_model 128. */
enum { LAYERS = 8, UNIT = 4 * (12 * 128 * 128 + 13 * 128), ROOT = 4 * (256 + 8 + 2) * 128 };

static int64_t whole_forms(const row *r, int64_t p)
{
    if (!strcmp(r->backend, "shm"))
        return 0;
    return r->kept ? p - p / r->ranks : (r->prefetch + 1) * (int64_t)UNIT + ROOT;
}

static void check_fsdp(const row *r, const figures *f, const figures *alone)
{
    int64_t p = 4 * f->parameters, own = p / r->ranks;
    int64_t sums  = r->local ? r->copies * p + own : r->copies * own;
    int64_t form  = 2 * UNIT + ROOT;
    int64_t total = f->mem.total_peak - f->mem.current[LS_MEM_OTHER];
    int64_t wanted =
        3 * own + sums + whole_forms(r, p) + form + alone->mem.peak[LS_MEM_ACTIVATIONS];
    int64_t staged = !strcmp(r->backend, "shm") ? 0 : 2 * UNIT + (5 << 18);
    bool    ok     = CHECK((double)total <=
                           1.05 * (double)wanted + (5 << 18) + (double)(2 * UNIT / r->ranks + staged));

    ok = CHECK(f->parameters == alone->parameters && p == LAYERS * UNIT + ROOT) && ok;
    ok = CHECK(f->mem.peak[LS_MEM_OPTIM] <= 2 * own + UNIT / 8) && ok;
    if (!ok)
        printf("     4P %lld: params %lld, grads %lld, comm %lld, optim %lld, activations %lld "
               "(alone %lld), total %lld of %lld\n",
               (long long)p, (long long)f->mem.peak[LS_MEM_PARAMS],
               (long long)f->mem.peak[LS_MEM_GRADS], (long long)f->mem.peak[LS_MEM_COMM],
               (long long)f->mem.peak[LS_MEM_OPTIM], (long long)f->mem.peak[LS_MEM_ACTIVATIONS],
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
        (r->bucket_mb > 0 ? check_ddp : check_fsdp)(r, &out[i], &alone);
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
    return test_summary("rank_memory");
}

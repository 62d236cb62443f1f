/*
 * test_checkpoint.c - states that are saved by some ranks and loaded by others, and what a
 * store keeps.
 *
 * Every pair of {replicated, sharded} x {1 .. 4} ranks, compressed too; tensors of 0 to 50
 * rows, so that ranks have uneven and empty shares.  Shards are cut otherwise than rows.h
 * shares.
 */
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "checkpoint/store.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "ranks.h"
#include "temp_dir.h"

enum { MOST_RANKS = 4, TENSORS = 8 };

static const struct {
    const char    *name;
    ls_tensor_kind kind;
    ls_dtype       dtype;
    ls_shape       shape;
} specs[TENSORS] = {
    {"wte.weight", LS_KIND_PARAMETER, LS_F32, {2, {50, 3}}},
    {"odd", LS_KIND_PARAMETER, LS_F32, {3, {5, 2, 3}}},
    {"one", LS_KIND_PARAMETER, LS_BF16, {2, {1, 7}}},
    {"three", LS_KIND_BUFFER, LS_F32, {1, {3}}},
    {"six", LS_KIND_OPTIMIZER, LS_F32, {2, {6, 300}}},
    {"exp_avg.wte.weight", LS_KIND_OPTIMIZER, LS_F32, {2, {50, 3}}},
    {"scalar", LS_KIND_BUFFER, LS_I64, {0, {0}}},
    {"empty", LS_KIND_OPTIMIZER, LS_F32, {2, {0, 4}}},
};

typedef struct {
    ls_tensor        tensor[TENSORS];
    ls_shard         shard[TENSORS];
    ls_stored_tensor list[TENSORS];
} model;

/* A byte of tensor i, of the whole. */
static char value(int i, int64_t at, int salt)
{
    return (char)(((uint64_t)at * 2654435761u + (uint64_t)(i * 97 + salt) * 40503u) >> 5);
}

static int64_t held_from(const model *m, int i)
{
    const ls_tensor *t = &m->tensor[i];

    return ls_tensor_owned_first(t) * (int64_t)ls_dtype_bytes(t->dtype);
}

static void fill(model *m, int salt)
{
    for (int i = 0; i < TENSORS; i++) {
        ls_tensor *held = ls_tensor_owned(&m->tensor[i]);
        char      *p    = ls_tensor_data(held);
        for (size_t b = 0; b < ls_tensor_bytes(held); b++)
            p[b] = value(i, held_from(m, i) + (int64_t)b, salt);
    }
}

static bool is_filled(const model *m, int salt)
{
    for (int i = 0; i < TENSORS; i++) {
        ls_tensor  *held = ls_tensor_owned((ls_tensor *)(uintptr_t)&m->tensor[i]);
        const char *p    = ls_tensor_data(held);
        for (size_t b = 0; b < ls_tensor_bytes(held); b++)
            if (p[b] != value(i, held_from(m, i) + (int64_t)b, salt))
                return false;
    }
    return true;
}

/* Rank r of n has rows floor(R r / n) to floor(R (r + 1) / n), of what has dimensions. */
static void cut(model *m, int i, int rank, int size, ls_comm *world)
{
    ls_tensor *t     = &m->tensor[i];
    ls_shape   shape = t->shape;
    int64_t    rows = shape.ndim ? shape.dim[0] : 0, first = rows * rank / size;

    shape.dim[0] = rows * (rank + 1) / size - first;
    m->shard[i] =
        (ls_shard){.rows = ls_tensor_header(t->dtype, shape), .first = first, .group = world};
    t->shard         = &m->shard[i];
    t->requires_grad = false;
}

static bool make(model *m, bool sharded, ls_comm *world)
{
    int  rank = world ? ls_comm_rank(world) : 0, size = world ? ls_comm_size(world) : 1;
    bool well = true;

    memset(m, 0, sizeof *m);
    for (int i = 0; i < TENSORS; i++) {
        m->tensor[i] = ls_tensor_header(specs[i].dtype, specs[i].shape);
        if (sharded && specs[i].shape.ndim)
            cut(m, i, rank, size, world);
        well = well && !ls_tensor_materialize(ls_tensor_owned(&m->tensor[i]), LS_MEM_OTHER);
        m->list[i] = (ls_stored_tensor){specs[i].name, &m->tensor[i], specs[i].kind};
    }
    return CHECK(well);
}

static void drop(model *m)
{
    for (int i = 0; i < TENSORS; i++)
        ls_tensor_drop(ls_tensor_owned(&m->tensor[i]));
}

/* What the ranks of a run are to do. */
typedef struct {
    const char *store;
    bool        sharded, compressed, async;
    int64_t     step;
    int         salt, keep;
    ls_status   wants;
    const char *text;
    rlim_t      limit; /* of a file, on rank 1; 0: none */
} task;

static ls_save_facts facts_of(const task *t)
{
    return (ls_save_facts){t->step, "ddp", "{\"val_loss\":null}", "{}", "{}", !t->async};
}

static void save_body(ls_comm *world, void *context)
{
    const task   *t     = context;
    ls_saver_opts opts  = {.store      = t->store,
                           .comm       = world,
                           .keep       = t->keep ? t->keep : 100,
                           .async      = t->async,
                           .compressed = t->compressed,
                           .timeout_s  = 100};
    ls_saver     *saver = NULL;
    ls_save_end   end;
    ls_save_facts facts = facts_of(t);
    model         m;
    struct rlimit limit;

    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = t->limit;
    signal(SIGXFSZ, SIG_IGN);
    if (t->limit && ls_comm_rank(world) == 1)
        setrlimit(RLIMIT_FSIZE, &limit);
    if (!make(&m, t->sharded, world))
        return;
    fill(&m, t->salt);
    if (CHECK_OK(ls_saver_new(&opts, m.list, TENSORS, &saver)) &&
        CHECK_OK(ls_saver_begin(saver, &facts, &end))) {
        fill(&m, t->salt + 1); /* training goes on */
        ls_save_end later;
        CHECK_OK(ls_saver_wait(saver, &later));
        if (!end.step)
            end = later;
        CHECK(end.step == t->step && end.status == t->wants);
        if (end.status != t->wants || (t->text && !CHECK(strstr(end.text, t->text))))
            printf("  %s\n", end.text);
    }
    ls_saver_free(saver);
    drop(&m);
}

static void load_body(ls_comm *world, void *context)
{
    const task     *t    = context;
    char           *path = ls_store_path(t->store, t->step);
    ls_checkpoint  *c    = NULL;
    ls_safetensors *view = NULL;
    model           m;

    if (!make(&m, t->sharded, world))
        return;
    fill(&m, 77);
    if (CHECK_OK(ls_checkpoint_open_folder(path, &c)) &&
        CHECK_OK(ls_view_new(c, LS_VIEW_STATE, &view))) {
        ls_status status = ls_checkpoint_load(view, m.list, TENSORS, world);
        if (!CHECK(status == t->wants) ||
            (t->text && !CHECK(strstr(ls_error_message(), t->text))))
            printf("  %s\n", ls_error_message());
        if (!t->wants)
            CHECK(is_filled(&m, t->salt));
    }
    ls_safetensors_close(view);
    free(path);
    drop(&m);
}

static void run(int n, void (*body)(ls_comm *, void *), task *t)
{
    ranks_opts opts = {.backend = t->limit ? "shm" : "threads", .n = n};

    if (n)
        CHECK(ranks_run(&opts, body, t) == 0);
    else
        body(NULL, t);
}

static void test_pairs(void)
{
    char row[80], store[600];

    snprintf(store, sizeof store, "%s", temp_path("pairs"));
    for (int w = 0; w < 4 * (MOST_RANKS + 1); w++) {
        task t = {.store      = store,
                  .sharded    = w & 1,
                  .compressed = (w & 2) != 0,
                  .step       = w,
                  .salt       = w,
                  .async      = w % 3 == 0};
        snprintf(row, sizeof row, "saved by %d%s%s", w / 4, t.sharded ? ", sharded" : "",
                 t.compressed ? ", compressed" : "");
        TEST_ROW(row);
        run(w / 4, save_body, &t);
        for (int r = 0; r < 2 * (MOST_RANKS + 1); r++) {
            t.sharded = r & 1;
            run(r / 2, load_body, &t);
        }
        char *path = ls_store_path(store, w);
        CHECK_OK(ls_store_check(path));
        free(path);
    }
}

/* ---- damage ---- */

static char *file_of(const char *store, int64_t step, const char *name)
{
    char *folder = ls_store_path(store, step);
    char *path   = ls_sprintf("%s/%s", folder, name);

    free(folder);
    return path;
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");

    if (!CHECK(f))
        return;
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    int c = getc(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    putc(c ^ 4, f);
    fclose(f);
}

static void test_damage(void)
{
    char  store[600];
    task  t = {.store = store, .step = 5, .salt = 3};
    char *path;

    snprintf(store, sizeof store, "%s", temp_path("damage"));
    run(2, save_body, &t);
    path    = file_of(store, 5, "rank-00001-of-00002.safetensors");
    t.wants = LS_EFORMAT;
    static const struct {
        const char *name;
        long        at;
        const char *text;
    } rows[] = {{"length of the header", 0, "another file"},
                {"a byte of the header", 40, "rank-00001-of-00002.safetensors"},
                {"the last byte", -1, "tensor"}};
    for (int i = 0; i < 3; i++) {
        TEST_ROW(rows[i].name);
        flip(path, rows[i].at);
        t.text = rows[i].text;
        for (int n = 0; n <= 3; n++)
            run(n, load_body, &t);
        flip(path, rows[i].at);
    }
    TEST_ROW("cut");
    CHECK(!truncate(path, 700));
    t.text = "truncated: expected";
    run(3, load_body, &t);
    TEST_ROW("missing");
    unlink(path);
    t.wants = LS_EIO;
    t.text  = "No such file";
    run(2, load_body, &t);
    TEST_ROW("a link");
    CHECK(!symlink("rank-00000-of-00002.safetensors", path));
    t.text = "symbolic link";
    run(0, load_body, &t);
    free(path);
}

/* Every byte of a small checkpoint's data file, flipped: never a wrong value. */
static void test_every_byte(void)
{
    char        store[600];
    task        t = {.store = store, .step = 1, .salt = 9};
    struct stat info;
    int         missed = 0;

    TEST_ROW("every byte");
    snprintf(store, sizeof store, "%s", temp_path("bytes"));
    run(0, save_body, &t);
    char *path   = file_of(store, 1, "rank-00000-of-00001.safetensors"),
         *folder = ls_store_path(store, 1);
    CHECK(!stat(path, &info));
    for (long i = 0; i < info.st_size; i++) {
        ls_checkpoint *c = NULL;
        flip(path, i);
        missed += ls_checkpoint_open_folder(folder, &c) != LS_OK;
        missed += ls_checkpoint_verify(c) != LS_EFORMAT;
        ls_checkpoint_close(c);
        flip(path, i);
    }
    CHECK(missed == 0);
    free(folder);
    free(path);
}

static void test_mismatch(void)
{
    char            store[600];
    task            t    = {.store = store, .step = 2};
    ls_checkpoint  *c    = NULL;
    ls_safetensors *view = NULL;
    model           m;

    TEST_ROW("another model");
    snprintf(store, sizeof store, "%s", temp_path("mismatch"));
    run(2, save_body, &t);
    char *folder = ls_store_path(store, 2);
    make(&m, false, NULL);
    fill(&m, 11);
    m.list[0].name           = "other";
    m.tensor[1].shape.dim[0] = 4;
    m.tensor[2].dtype        = LS_F32;
    if (CHECK_OK(ls_checkpoint_open_folder(folder, &c)) &&
        CHECK_OK(ls_view_new(c, LS_VIEW_STATE, &view))) {
        CHECK(ls_checkpoint_load(view, m.list, TENSORS, NULL) == LS_ESHAPE);
        const char *text = ls_error_message();
        CHECK(strstr(text, "missing 'other'") && strstr(text, "unexpected 'wte.weight'"));
        CHECK(strstr(text, "'odd'") && strstr(text, "'one'"));
    }
    m.tensor[1].shape.dim[0] = 5;
    m.tensor[2].dtype        = LS_BF16;
    CHECK(is_filled(&m, 11));
    ls_safetensors_close(view);
    free(folder);
    drop(&m);
}

/* ---- failures of a save ---- */

static bool store_holds(const char *store, int64_t step)
{
    char *path = ls_store_path(store, step);
    bool  well = !ls_store_check(path);

    free(path);
    return well;
}

static int leftovers(const char *store)
{
    char command[700];

    snprintf(command, sizeof command, "ls -A '%s' 2>/dev/null | grep -c '^[.]' > '%s'", store,
             temp_path("count"));
    (void)!system(command);
    size_t n;
    char  *text  = temp_get(temp_path("count"), &n);
    int    count = text ? atoi(text) : -1;
    free(text);
    return count;
}

static void test_failed_saves(void)
{
    char store[600];
    task t = {.store = store, .step = 1, .salt = 1};

    snprintf(store, sizeof store, "%s", temp_path("failures"));
    run(3, save_body, &t);
    t = (task){.store = store, .step = 2, .wants = LS_EIO, .text = "rank 1: ", .limit = 2000};
    for (int async = 0; async < 2; async++) {
        TEST_ROW(async ? "one rank's disk, asynchronous" : "one rank's disk");
        t.async = async;
        run(3, save_body, &t);
        CHECK(store_holds(store, 1) && !store_holds(store, 2));
        CHECK(leftovers(store) == 0);
    }
    TEST_ROW("then well again");
    t = (task){.store = store, .step = 3, .salt = 4};
    run(2, save_body, &t);
    CHECK(store_holds(store, 3));
}

/* ---- the store ---- */

static void save_step(const char *store, int64_t step, int keep, const char *state, bool best)
{
    ls_saver_opts opts  = {.store = store, .keep = keep, .best = best};
    ls_saver     *saver = NULL;
    ls_save_end   end;
    model         m;

    make(&m, false, NULL);
    fill(&m, (int)step);
    if (CHECK_OK(ls_saver_new(&opts, m.list, TENSORS, &saver))) {
        CHECK_OK(ls_saver_begin(
            saver, &(ls_save_facts){step, "single", state, "{}", "{}", false}, &end));
        CHECK(end.step == step && !end.status);
    }
    ls_saver_free(saver);
    drop(&m);
}

static void check_steps(const char *store, int n, const int64_t *wants)
{
    int64_t *steps;
    int      found;

    if (!CHECK_OK(ls_store_list(store, &steps, &found)) || !CHECK(found == n))
        printf("  %d steps\n", found);
    for (int i = 0; i < n && i < found; i++)
        CHECK(steps[i] == wants[i]);
    free(steps);
}

static void test_store(void)
{
    char   store[600];
    size_t n;

    snprintf(store, sizeof store, "%s", temp_path("store"));
    TEST_ROW("none yet");
    check_steps(store, 0, NULL);
    TEST_ROW("999 and 1000, 10^8");
    save_step(store, 999, 2, "{}", false);
    save_step(store, 1000, 2, "{}", false);
    check_steps(store, 2, (int64_t[]){1000, 999});
    save_step(store, 123456789, 2, "{}", false);
    check_steps(store, 2, (int64_t[]){123456789, 1000});
    char *latest = ls_sprintf("%s/latest", store), *text = temp_get(latest, &n);
    CHECK(text && n == 15 && !memcmp(text, "step-123456789\n", n));
    free(text);
    TEST_ROW("an older one again: later ones stay");
    save_step(store, 1000, 1, "{}", false);
    check_steps(store, 2, (int64_t[]){123456789, 1000});
    TEST_ROW("names that are none");
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"step-x", "step-9", "step-00000009x", "foreign"};
        char                    *path    = ls_sprintf("%s/%s", store, names[i]);
        CHECK(!mkdir(path, 0777));
        free(path);
    }
    char *link = ls_sprintf("%s/step-00000077", store);
    CHECK(!symlink("foreign", link));
    check_steps(store, 2, (int64_t[]){123456789, 1000});
    free(link);
    TEST_ROW("leftovers");
    char *old = ls_store_temporary(store, 5, 1), *file = ls_sprintf("%s/x", old);
    CHECK(!mkdir(old, 0777));
    temp_put(file, "x", 1);
    CHECK(leftovers(store) == 1);
    CHECK_OK(ls_store_open(store));
    CHECK(leftovers(store) == 0);
    free(file);
    free(old);
    free(latest);
}

static void test_keep(void)
{
    char store[600];

    snprintf(store, sizeof store, "%s", temp_path("keep"));
    TEST_ROW("the best stays");
    save_step(store, 1, 2, "{\"val_loss\":3.5}", true);
    save_step(store, 2, 2, "{\"val_loss\":2.5}", true);
    for (int64_t s = 3; s <= 6; s++)
        save_step(store, s, 2, s == 5 ? "{\"val_loss\":2.75}" : "{\"val_loss\":null}", true);
    check_steps(store, 3, (int64_t[]){6, 5, 2});
    TEST_ROW("one that is not whole does not count");
    char *manifest = file_of(store, 6, "manifest.json");
    unlink(manifest);
    free(manifest);
    save_step(store, 7, 2, "{\"val_loss\":9}", false);
    check_steps(store, 3, (int64_t[]){7, 6, 5});
    TEST_ROW("keep 1");
    save_step(store, 8, 1, "{}", false);
    check_steps(store, 1, (int64_t[]){8});
}

/* ---- memory ---- */

static ls_status save_alone(const char *store, const model *m, ls_save_end *end)
{
    ls_saver_opts opts   = {.store = store, .no_thread = true, .async = true};
    ls_saver     *saver  = NULL;
    ls_status     status = ls_saver_new(&opts, m->list, TENSORS, &saver);

    *end = (ls_save_end){0};
    if (!status)
        status =
            ls_saver_begin(saver, &(ls_save_facts){4, "single", "{}", "{}", "{}", false}, end);
    if (!status && !end->step)
        status = ls_saver_wait(saver, end);
    ls_saver_free(saver);
    return status ? status : end->status;
}

static ls_status load_alone(const char *folder, const model *m)
{
    ls_checkpoint  *c;
    ls_safetensors *view;
    ls_status       status = ls_checkpoint_open_folder(folder, &c);

    if (!status)
        status = ls_view_new(c, LS_VIEW_STATE, &view);
    if (status)
        return status;
    status = ls_checkpoint_load(view, m->list, TENSORS, NULL);
    ls_safetensors_close(view);
    return status;
}

/* ENOMEM and nothing held, until there are allocations enough; a save's snapshot alone may fail
 * and the save still be made. */
static void test_memory(void)
{
    char        store[600];
    model       m;
    ls_save_end end;
    ls_status   status  = LS_ENOMEM;
    bool        without = false;

    TEST_ROW("out of memory, saving");
    snprintf(store, sizeof store, "%s", temp_path("memory"));
    make(&m, false, NULL);
    fill(&m, 5);
    int64_t held = ls_mem_get_stats().total;
    int     i    = 0;
    for (int well = 0; well < 2 && i < 2000; i++) {
        ls_alloc_fail_after(i);
        status = save_alone(store, &m, &end);
        ls_alloc_fail_after(-1);
        CHECK(!status || status == LS_ENOMEM);
        CHECK(ls_mem_get_stats().total == held);
        without |= !status && end.no_snapshot;
        well = status ? 0 : well + 1;
        if (status)
            CHECK(leftovers(store) == 0);
    }
    CHECK_OK(status);
    CHECK(without && i > 30);
    TEST_ROW("out of memory, loading");
    char *folder = ls_store_path(store, 4);
    status       = LS_ENOMEM;
    for (i = 0; status && i < 2000; i++) {
        ls_alloc_fail_after(i);
        status = load_alone(folder, &m);
        ls_alloc_fail_after(-1);
        CHECK(!status || status == LS_ENOMEM);
        CHECK(ls_mem_get_stats().total == held);
    }
    CHECK_OK(status);
    CHECK(is_filled(&m, 5));
    free(folder);
    drop(&m);
}

int main(void)
{
    char command[700];

    temp_dir_make();
    test_pairs();
    test_damage();
    test_every_byte();
    test_mismatch();
    test_failed_saves();
    test_store();
    test_keep();
    test_memory();
    snprintf(command, sizeof command, "rm -rf '%s'", temp_dir);
    CHECK(!system(command));
    return test_summary("checkpoint");
}

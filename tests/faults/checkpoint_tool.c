/*
 * checkpoint_tool.c - saves and loads a small state, for tests that break what the system does.
 *
 *     checkpoint_tool save STORE STEP     keep 1; "saved 2", exit 0, or "failed: ...", exit 3
 *     checkpoint_tool load STORE...       a line each: the newest step that loads with the
 * values that belong to it, "none", or "wrong" for other values checkpoint_tool again STORE
 * STEP    load, then save: both lines
 *
 * One process saves on its only thread, between two calls of getsid() that a trace shows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "checkpoint/store.h"

enum { N = 3, ROWS = 5, COLUMNS = 40 };

typedef struct {
    ls_tensor        tensor[N];
    ls_stored_tensor list[N];
} model;

static const char *const names[N] = {"a.weight", "b.bias", "exp_avg.a.weight"};

static float value(int64_t step, int i, int at)
{
    return (float)(step * 1000 + i * 100) + (float)at / 512;
}

static bool make(model *m)
{
    bool well = true;

    for (int i = 0; i < N; i++) {
        m->tensor[i] = ls_tensor_header(LS_F32, LS_SHAPE2(ROWS, COLUMNS));
        m->list[i]   = (ls_stored_tensor){names[i], &m->tensor[i],
                                        i == 2 ? LS_KIND_OPTIMIZER : LS_KIND_PARAMETER};
        well         = well && !ls_tensor_materialize(&m->tensor[i], LS_MEM_PARAMS);
    }
    return well;
}

static void drop(model *m)
{
    for (int i = 0; i < N; i++)
        ls_tensor_drop(&m->tensor[i]);
}

static int save(const char *store, int64_t step)
{
    ls_saver_opts opts  = {.store = store, .keep = 1, .no_thread = true};
    ls_saver     *saver = NULL;
    ls_save_end   end   = {0};
    model         m;

    if (!make(&m))
        return 4;
    for (int i = 0; i < N; i++)
        for (int at = 0; at < ROWS * COLUMNS; at++)
            ls_reals(&m.tensor[i])[at] = (ls_real)value(step, i, at);
    (void)!getsid(0);
    ls_status status = ls_saver_new(&opts, m.list, N, &saver);
    if (!status)
        status = ls_saver_begin(saver, &(ls_save_facts){step, "single", "{}", "{}", "{}", true},
                                &end);
    if (!status && end.status)
        status = ls_fail(end.status, "%s", end.text);
    ls_saver_free(saver);
    (void)!getsid(0);
    drop(&m);
    if (status)
        printf("failed: %s\n", ls_error_message());
    else
        printf("saved %lld\n", (long long)step);
    fflush(stdout);
    return status ? 3 : 0;
}

static ls_status load_step(const char *store, int64_t step, model *m)
{
    char           *path = ls_store_path(store, step);
    ls_checkpoint  *c;
    ls_safetensors *view   = NULL;
    ls_status       status = path ? ls_checkpoint_open_folder(path, &c) : LS_ENOMEM;

    if (!status)
        status = ls_view_new(c, LS_VIEW_STATE, &view);
    if (!status)
        status = ls_checkpoint_load(view, m->list, N, NULL);
    ls_safetensors_close(view);
    free(path);
    return status;
}

static bool is_right(const model *m, int64_t step)
{
    for (int i = 0; i < N; i++)
        for (int at = 0; at < ROWS * COLUMNS; at++)
            if (ls_reals(&m->tensor[i])[at] != (ls_real)value(step, i, at))
                return false;
    return true;
}

static void load(const char *store)
{
    int64_t *steps;
    int      n;
    model    m;

    if (!make(&m) || ls_store_list(store, &steps, &n)) {
        puts("none");
        return;
    }
    for (int i = 0; i < n; i++) {
        if (load_step(store, steps[i], &m))
            continue;
        if (is_right(&m, steps[i]))
            printf("%lld\n", (long long)steps[i]);
        else
            puts("wrong");
        n = -1;
    }
    if (n >= 0)
        puts("none");
    free(steps);
    drop(&m);
}

int main(int argc, char **argv)
{
    if (argc > 3 && !strcmp(argv[1], "save"))
        return save(argv[2], atoll(argv[3]));
    if (argc > 3 && !strcmp(argv[1], "again")) {
        load(argv[2]);
        return save(argv[2], atoll(argv[3]));
    }
    for (int i = 2; i < argc && !strcmp(argv[1], "load"); i++)
        load(argv[i]);
    return 0;
}

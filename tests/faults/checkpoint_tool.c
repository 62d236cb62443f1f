/*
 * checkpoint_tool.c - saves and loads a small state, for tests that break what the system does.
 *
 *     checkpoint_tool save STORE STEP     keep 1; "saved 2", exit 0, or "failed: ...", exit 3
 *     checkpoint_tool load STORE...       a line each: the newest step that loads with the
 *                                         values that belong to it, "none", or "wrong" for
 *                                         other values
 *     checkpoint_tool again STORE STEP    load, then save: both lines
 *     checkpoint_tool ranks STORE HOW VICTIM FAULT...
 *
 * One process saves on its only thread, between two calls of getsid() that a trace shows.
 *
 * Three ranks, which live as long as none is killed, save for each FAULT steps 2, 4, 6 ...
 * while strace holds the thread of rank VICTIM (-1: of each) that saves, and after it, without
 * a fault, 3, 5, 7 ...  Each rank says of each save "R saved 2", "R failed 2: ..." or, of a
 * group that has ended, "R lost 2: ..."; rank 0 says between the two "0 load 1", as load does.
 * FAULT is strace's ("write:error=EIO:when=3"), or "trace": the calls are in STORE.trace.R.
 * HOW:
 *
 *     alone      a rank's only thread saves, as above
 *     threads    a snapshot, and a thread of its own writes; strace counts for each thread
 *     broken     alone, but that rank 0 first removes what the save is to replace
 */
#define _GNU_SOURCE /* PR_SET_PTRACER */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "checkpoint/store.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/local_world.h"
#include "dist/comm/verdict.h"

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

static void set_values(model *m, int64_t step)
{
    for (int i = 0; i < N; i++)
        for (int at = 0; at < ROWS * COLUMNS; at++)
            ls_reals(&m->tensor[i])[at] = (ls_real)value(step, i, at);
}

/* A saver for this one save; how it went is in *end, a failure of the group is returned. */
static ls_status save_once(const ls_saver_opts *opts, const model *m, int64_t step,
                           ls_save_end *end)
{
    ls_save_facts facts  = {step, "single", "{}", "{}", "{}", !opts->async};
    ls_saver     *saver  = NULL;
    ls_status     status = ls_saver_new(opts, m->list, N, &saver);

    if (status && !(opts->comm && ls_comm_check(opts->comm))) {
        *end = (ls_save_end){.step = step, .status = status};
        snprintf(end->text, sizeof end->text, "%s", ls_error_message());
        return LS_OK;
    }
    if (!status)
        status = ls_saver_begin(saver, &facts, end);
    if (!status && !end->step)
        status = ls_saver_wait(saver, end);
    ls_saver_free(saver);
    return status;
}

static int save(const char *store, int64_t step)
{
    ls_saver_opts opts = {.store = store, .keep = 1, .no_thread = true};
    ls_save_end   end  = {0};
    model         m;

    if (!make(&m))
        return 4;
    set_values(&m, step);
    (void)!getsid(0);
    ls_status status = save_once(&opts, &m, step, &end);
    (void)!getsid(0);
    drop(&m);
    if (status || end.status)
        printf("failed: %s\n", status ? ls_error_message() : end.text);
    else
        printf("saved %lld\n", (long long)step);
    fflush(stdout);
    return status || end.status ? 3 : 0;
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

/* ---- ranks ---- */

enum { RANKS = 3 };

typedef struct {
    const char *store, *how;
    int         victim;
    char      **fault;
} plan;

static bool is_how(const plan *p, const char *how)
{
    return !strcmp(p->how, how);
}

/* The shell's command that holds this thread (threads: those that it starts, too). */
static char *command_of(const plan *p, const char *fault, int rank)
{
    const char *calls   = strchr(fault, ':') + 1;
    bool        trace   = !strncmp(fault, "trace:", 6);
    char       *output  = trace ? ls_sprintf("%s.trace.%d", p->store, rank) : NULL;
    char       *command = ls_sprintf(
              "exec strace -qq -ttt -y -xx -s 1000000 -o %s -p %d%s -e trace=getsid,%.*s "
                    "-e inject=getsid:error=EPERM %s%s",
        trace ? output : "/dev/null", (int)getpid(), is_how(p, "threads") ? " -f" : "",
        trace ? (int)strlen(calls) : (int)(calls - fault) - 1, trace ? calls : fault,
        trace ? "" : "-e inject=", trace ? "" : fault);

    free(output);
    return command;
}

/* From here on strace holds this thread, as a getsid() shows that it lets fail; -1: it does
 * not.
 */
static pid_t watch(const plan *p, const char *fault, int rank)
{
    char *command = command_of(p, fault, rank);

    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid_t tracer = command ? fork() : -1;
    if (!tracer) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    free(command);
    while (tracer > 0 && getsid(0) >= 0)
        if (waitpid(tracer, NULL, WNOHANG))
            tracer = -1;
        else
            ls_sleep_ns(200000);
    return tracer;
}

static void unwatch(pid_t tracer)
{
    kill(tracer, SIGTERM);
    waitpid(tracer, NULL, 0);
}

static void say(int rank, int64_t step, ls_status status, const ls_save_end *end)
{
    const char *what = status ? "lost" : end->status ? "failed" : "saved";
    const char *text = status ? ls_error_message() : end->text;

    printf("%d %s %lld%s%s\n", rank, what, (long long)step, *text ? ": " : "", text);
    fflush(stdout);
}

/* Of one save; a failure of the group is returned. */
static ls_status save_as_rank(ls_comm *world, const plan *p, int64_t step, const char *fault)
{
    int           rank    = ls_comm_rank(world);
    bool          threads = is_how(p, "threads");
    ls_saver_opts opts    = {.store     = p->store,
                             .comm      = world,
                             .keep      = 1,
                             .async     = threads,
                             .no_thread = !threads,
                             .timeout_s = 5};
    ls_save_end   end     = {0};
    pid_t         tracer  = 0;
    model         m;

    if (!make(&m))
        return LS_ENOMEM;
    set_values(&m, step);
    if (fault && (p->victim < 0 || p->victim == rank))
        tracer = watch(p, fault, rank);
    ls_status status = ls_comm_agree(
        world, tracer < 0 ? ls_fail(LS_EUNSUPPORTED, "strace does not hold it") : LS_OK);
    if (!status)
        status = save_once(&opts, &m, step, &end);
    if (tracer > 0)
        unwatch(tracer);
    say(rank, step, status, &end);
    drop(&m);
    return status;
}

static void remove_old(const plan *p, int64_t step)
{
    char *path = ls_store_path(p->store, step);

    if (path)
        ls_store_abandon(path);
    free(path);
}

static ls_status rank_body(ls_comm *world, void *context)
{
    const plan *p      = context;
    int         rank   = ls_comm_rank(world);
    int64_t     step   = 2;
    ls_status   status = LS_OK;

    for (int i = 0; p->fault[i] && !status; i++, step += 2) {
        if (is_how(p, "broken") && !rank)
            remove_old(p, step - 1);
        status = save_as_rank(world, p, step, p->fault[i]);
        if (!status && !rank) {
            printf("0 load ");
            load(p->store);
        }
        if (!status)
            status = ls_comm_barrier(world);
        if (!status)
            status = save_as_rank(world, p, step + 1, NULL);
    }
    return status;
}

static int ranks(char **argv)
{
    plan          p    = {argv[2], argv[3], atoi(argv[4]), argv + 5};
    ls_local_opts opts = {.n = RANKS, .join = {.timeout_s = 10}};

    if (!ls_local_world(&opts, rank_body, &p))
        return 0;
    printf("failed: %s\n", ls_error_message());
    return 3;
}

int main(int argc, char **argv)
{
    if (argc > 5 && !strcmp(argv[1], "ranks"))
        return ranks(argv);
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

/*
 * cmd_repair.c - lockstep repair: which of a run's checkpoints are valid.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/store.h"
#include "cli/args.h"
#include "cli/checkpoints.h"
#include "cli/commands.h"
#include "cli/run_dir.h"
#include "core/alloc.h"

static const char help[] =
    "usage: lockstep repair RUN_DIR\n"
    "\n"
    "Verifies the run's checkpoints from the newest on, says what is wrong with those that "
    "are\n"
    "not valid, and sets checkpoints/latest to the first that is, which training and all "
    "other\n"
    "commands take by themselves too.  What an interrupted save left behind is removed; no\n"
    "checkpoint is, whatever its state.\n"
    "\n"
    "  -h, --help   this text\n"
    "\n"
    "Exit status: 0 a valid checkpoint was found, 1 none, or the run is in progress, 2 "
    "usage.\n";

static ls_status parse(const char **run_dir, bool *wants_help, int argc, char **argv)
{
    return ls_args_parse(&(ls_arg_table){.command    = "repair",
                                         .operand    = "RUN_DIR",
                                         .operand_to = run_dir,
                                         .help       = wants_help},
                         argc, argv);
}

static ls_status look_at(const char *path)
{
    ls_safetensors *file   = NULL;
    ls_status       status = ls_candidate_open(path, LS_VIEW_STATE, &file);

    if (!status)
        printf("%s: valid, step %s, %zu tensors\n", path, ls_safetensors_metadata(file, "step"),
               file->header.n_entries);
    else if (ls_is_damage(status))
        printf("%s: not valid: %s\n", path, ls_error_message());
    ls_safetensors_close(file);
    return status;
}

/* The step of the newest valid one. */
static ls_status find_valid(const ls_candidates *c, const char *run_dir, int64_t *step)
{
    for (int i = 0; i < c->n; i++) {
        ls_status status = look_at(c->path[i]);
        if (status && !ls_is_damage(status))
            return status;
        if (status)
            continue;
        *step = strtoll(strrchr(c->path[i], '-') + 1, NULL, 10);
        return LS_OK;
    }
    return ls_fail(LS_EFORMAT, "%s: none of its %d checkpoints is valid", run_dir, c->n);
}

static ls_status repair_store(const char *store, const char *run_dir)
{
    ls_candidates c;
    int64_t       step   = 0;
    ls_status     status = ls_candidates_of(store, &c);

    if (!status)
        status = find_valid(&c, run_dir, &step);
    if (!status)
        status = ls_store_open(store);
    if (!status)
        status = ls_store_set_latest(store, step);
    ls_candidates_free(&c);
    return status;
}

static ls_status repair(const char *run_dir)
{
    int       lock   = -1;
    char     *store  = ls_run_dir_path(run_dir, "checkpoints");
    ls_status status = store ? ls_run_dir_lock(run_dir, &lock) : LS_ENOMEM;

    if (!status)
        status = repair_store(store, run_dir);
    if (lock >= 0)
        close(lock);
    free(store);
    return status;
}

int ls_cmd_repair(int argc, char **argv)
{
    const char *run_dir    = NULL;
    bool        wants_help = false;
    ls_status   status     = parse(&run_dir, &wants_help, argc, argv);

    if (status || wants_help)
        return ls_report_help(status, help);
    return ls_report(repair(run_dir));
}

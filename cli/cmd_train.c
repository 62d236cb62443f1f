/*
 * cmd_train.c - lockstep train.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "cli/train.h"
#include "core/alloc.h"
#include "dist/comm/launch.h"
#include "dist/comm/rendezvous.h"

static const char help[] =
    "usage: lockstep train CONFIG [--nproc N] [--set KEY.PATH=VALUE]... [--dry-run]\n"
    "\n"
    "Trains as CONFIG (JSON, docs/config.md) says: on N processes of this host with --nproc,\n"
    "as a rank of a job that another launcher started (lockstep run, torchrun, mpirun, srun), "
    "or\n"
    "else on one process, all to the same bits.  Writes into run.dir:\n"
    "config.json (resolved), log.txt, metrics.jsonl, summary.json, params.safetensors.\n"
    "Files of an earlier run there are moved to previous-N/ first.\n"
    "\n"
    "  --nproc N         starts N ranks, which share each step's micro-batches; N must divide "
    "their\n"
    "                    number, batch.global / batch.micro\n"
    "  --set KEY=VALUE   replaces a value of the config; VALUE is JSON, or else a string\n"
    "  --dry-run         prints the resolved config, the number of parameters and an\n"
    "                    estimate of the memory as one JSON object, and trains nothing\n"
    "  --resume never    what this version does; auto does the same where there is no "
    "checkpoint\n"
    "  -h, --help        this text\n"
    "\n"
    "SIGINT and SIGTERM end the run after the current step; the parameters are saved and the\n"
    "exit status is 130 or 143.  A second signal ends it at once, without saving.\n"
    "Exit status: 0 done, 1 failed while running, 2 wrong usage or config, 3 N does not fit.\n";

typedef struct {
    const char *config, *nproc, *resume, *stop_at;
    ls_arg_list sets;
    bool        dry_run, help;
} arguments;

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--set", 0, LS_ARG_LIST, &a->sets},
                           {"--nproc", 0, LS_ARG_VALUE, &a->nproc},
                           {"--resume", 0, LS_ARG_VALUE, &a->resume},
                           {"--stop-at", 0, LS_ARG_VALUE, &a->stop_at},
                           {"--dry-run", 0, LS_ARG_FLAG, &a->dry_run}};

    return ls_args_parse(&(ls_arg_table){.command    = "train",
                                         .arg        = args,
                                         .n_args     = sizeof args / sizeof *args,
                                         .operand    = "CONFIG",
                                         .operand_to = &a->config,
                                         .help       = &a->help},
                         argc, argv);
}

static ls_status refuse_later(const arguments *a)
{
    if (a->resume && strcmp(a->resume, "never") && strcmp(a->resume, "auto"))
        return ls_fail(LS_EUNSUPPORTED, "--resume %s is not in this version", a->resume);
    if (a->stop_at)
        return ls_fail(LS_EUNSUPPORTED, "--stop-at %s is not in this version", a->stop_at);
    return LS_OK;
}

/* The arguments without --nproc, behind the name of this program; freed with free(). */
static char **rank_arguments(int argc, char **argv)
{
    char **args = ls_calloc((size_t)argc + 3, sizeof *args);
    int    n    = 0;

    if (!args)
        return NULL;
    args[n++] = (char *)(uintptr_t) "/proc/self/exe";
    args[n++] = (char *)(uintptr_t) "train";
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--nproc"))
            i++;
        else if (strncmp(argv[i], "--nproc=", 8))
            args[n++] = argv[i];
    return args;
}

static ls_status read_nproc(const char *text, int *n)
{
    char *end;
    long  value = strtol(text, &end, 10);

    if (end == text || *end || value < 1 || value > LS_LAUNCH_MOST)
        return ls_fail(LS_ECONFIG, "--nproc %s, want 1 to %d", text, LS_LAUNCH_MOST);
    *n = (int)value;
    return LS_OK;
}

/* What every rank would refuse is refused once, before there are any. */
static ls_status check_nproc(const ls_config *cfg, const char *text, int *n)
{
    ls_launch_env env;
    ls_status     status = read_nproc(text, n);

    if (!status)
        status = ls_launch_env_read(&env);
    if (!status && env.world > 1)
        status = ls_fail(LS_ECONFIG, "--nproc %s inside a job of %d ranks, which %s started",
                         text, env.world, env.launcher);
    if (!status && cfg->parallel.backend == LS_CFG_BACKEND_MPI)
        status =
            ls_fail(LS_ECONFIG,
                    "parallel.backend \"mpi\" with --nproc: start the ranks with mpirun -n %d "
                    "lockstep train ... instead",
                    *n);
    return status ? status : ls_ranks_check(cfg, *n);
}

static int launch(const ls_config *cfg, const arguments *a, int argc, char **argv)
{
    int       n = 0, code = 0;
    ls_status status = check_nproc(cfg, a->nproc, &n);
    char    **args   = status ? NULL : rank_arguments(argc, argv);

    if (!status)
        status = args ? ls_launch(&(ls_launch_opts){.n = n, .argv = args, .plain = true}, &code)
                      : LS_ENOMEM;
    free(args);
    return status ? ls_report(status) : code;
}

static int run(const arguments *a, int argc, char **argv)
{
    ls_config cfg;
    int       signal = 0;
    ls_status status = refuse_later(a);

    if (!status)
        status = ls_config_load(&cfg, a->config, a->sets.item, a->sets.n);
    if (status)
        return ls_report(status);
    if (a->nproc && !a->dry_run) {
        int code = launch(&cfg, a, argc, argv);
        ls_config_free(&cfg);
        return code;
    }
    status = a->dry_run ? ls_train_dry_run(&cfg) : ls_train(&cfg, &signal);
    ls_config_free(&cfg);
    if (status)
        return ls_report(status);
    return signal ? 128 + signal : 0;
}

int ls_cmd_train(int argc, char **argv)
{
    arguments a      = {0};
    ls_status status = parse(&a, argc, argv);
    int       code   = status || a.help ? ls_report_help(status, help) : run(&a, argc, argv);

    free(a.sets.item);
    return code;
}

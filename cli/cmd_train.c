/*
 * cmd_train.c - lockstep train.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/nproc.h"
#include "cli/train.h"

static const char help[] =
    "usage: lockstep train CONFIG [--nproc N] [--set KEY.PATH=VALUE]...\n"
    "                      [--resume auto|never|PATH] [--stop-at STEP] [--allow-change "
    "KEY]...\n"
    "                      [--new-data] [--dry-run]\n"
    "\n"
    "Trains as CONFIG (JSON, docs/config.md) says: on N processes of this host with --nproc,\n"
    "as a rank of a job that another launcher started (lockstep run, torchrun, mpirun, srun), "
    "or\n"
    "else on one process, all to the same bits.  Writes into run.dir:\n"
    "config.json (resolved), log.txt, metrics.jsonl, summary.json, checkpoints/.\n"
    "A run that was interrupted goes on from its newest valid checkpoint, on any number of\n"
    "ranks, to the same bits.\n"
    "\n"
    "  --nproc N         starts N ranks, which share each step's micro-batches; N must divide "
    "their\n"
    "                    number, batch.global / batch.micro\n"
    "  --set KEY=VALUE   replaces a value of the config; VALUE is JSON, or else a string\n"
    "  --dry-run         prints the resolved config, the number of parameters and an\n"
    "                    estimate of the memory as one JSON object, and trains nothing\n"
    "  --resume HOW      auto: goes on from run.dir's newest valid checkpoint, if there is "
    "one;\n"
    "                    never: starts over, files of an earlier run go to previous-N/;\n"
    "                    PATH: goes on from that checkpoint, or the newest of that run [auto]\n"
    "  --stop-at STEP    saves after that step and ends, exit 0\n"
    "  --allow-change KEY  this key may differ from the checkpoint's\n"
    "  --new-data        the data may be other files than the checkpoint's; where they are, "
    "it\n"
    "                    begins with their first sequence\n"
    "  -h, --help        this text\n"
    "\n"
    "SIGINT and SIGTERM end the run after the current step; the state is saved and the\n"
    "exit status is 130 or 143.  A second signal ends it at once, without saving.\n"
    "Exit status: 0 done, 1 failed while running, 2 wrong usage or config, 3 N does not fit.\n";

typedef struct {
    const char   *config, *nproc, *stop_at;
    ls_train_opts opts;
    ls_arg_list   sets;
    bool          dry_run, help;
} arguments;

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--set", 0, LS_ARG_LIST, &a->sets},
                           {"--nproc", 0, LS_ARG_VALUE, &a->nproc},
                           {"--resume", 0, LS_ARG_VALUE, &a->opts.resume},
                           {"--stop-at", 0, LS_ARG_VALUE, &a->stop_at},
                           {"--allow-change", 0, LS_ARG_LIST, &a->opts.allow},
                           {"--new-data", 0, LS_ARG_FLAG, &a->opts.new_data},
                           {"--dry-run", 0, LS_ARG_FLAG, &a->dry_run}};

    return ls_args_parse(&(ls_arg_table){.command    = "train",
                                         .arg        = args,
                                         .n_args     = sizeof args / sizeof *args,
                                         .operand    = "CONFIG",
                                         .operand_to = &a->config,
                                         .help       = &a->help},
                         argc, argv);
}

static ls_status read_stop_at(arguments *a)
{
    char *end;

    if (!a->stop_at)
        return LS_OK;
    errno          = 0;
    long long step = strtoll(a->stop_at, &end, 10);
    if (end == a->stop_at || *end || errno || step < 1)
        return ls_fail(LS_ECONFIG, "--stop-at %s, want a step from 1 on", a->stop_at);
    a->opts.stop_at = step;
    return LS_OK;
}

static int run(arguments *a, int argc, char **argv)
{
    ls_config cfg;
    int       signal = 0;
    ls_status status = read_stop_at(a);

    if (!status)
        status = ls_config_load(&cfg, a->config, a->sets.item, a->sets.n);
    if (status)
        return ls_report(status);
    if (a->nproc && !a->dry_run) {
        int code = ls_nproc_launch(&cfg, a->nproc, argc, argv);
        ls_config_free(&cfg);
        return code;
    }
    if (a->nproc)
        status = ls_nproc_check(&cfg, a->nproc, argv[0]);
    if (!status)
        status = a->dry_run ? ls_train_dry_run(&cfg) : ls_train(&cfg, &a->opts, &signal);
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
    free(a.opts.allow.item);
    return code;
}

/*
 * cmd_run.c - lockstep run: a program as the ranks of a job (dist/comm/launch.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "dist/comm/launch.h"

static const char help[] =
    "usage: lockstep run -n N [OPTION]... -- PROGRAM [ARGUMENT]...\n"
    "\n"
    "Starts N processes of PROGRAM, the ranks of a job, and ends them together.  They find\n"
    "torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK,\n"
    "MASTER_ADDR, MASTER_PORT) and Lockstep's own (LOCKSTEP_*) in their environment.\n"
    "\n"
    "  -n N               ranks on this node\n"
    "  --max-restarts R   starts all again, up to R times, when a rank fails (0)\n"
    "  --min-nproc M      after exit status 3 or a rank that was killed the next start has "
    "one\n"
    "                     rank less, down to M; starts after status 3 do not count against R\n"
    "  -h, --help         this text\n"
    "\n"
    "Several nodes, this command on each, with the same LOCKSTEP_SECRET exported:\n"
    "  --nnodes K         nodes; the world has N * K ranks\n"
    "  --node-rank R      this node, 0 to K - 1\n"
    "  --rdzv HOST:PORT   where rank 0, on node 0, listens\n"
    "\n"
    "Lines of the ranks come out whole with `[rank] ` in front; rank 0 inherits stdin.\n"
    "When a rank fails the others are sent SIGTERM, and SIGKILL after 2 s.  SIGINT, SIGTERM\n"
    "and SIGHUP are passed on; the second SIGINT or SIGTERM kills at once.\n"
    "Exit status: 0 all ranks ended well, else that of the first that failed, 128 + signal\n"
    "where it was killed; 2 wrong usage; 130, 143 after SIGINT, SIGTERM.\n";

typedef struct {
    const char *n, *nodes, *node, *rendezvous, *restarts, *least, *operand;
    bool        help;
} arguments;

static ls_status parse(arguments *a, int argc, char **argv)
{
    const ls_arg args[] = {{"--nproc", 'n', LS_ARG_VALUE, &a->n},
                           {"--nnodes", 0, LS_ARG_VALUE, &a->nodes},
                           {"--node-rank", 0, LS_ARG_VALUE, &a->node},
                           {"--rdzv", 0, LS_ARG_VALUE, &a->rendezvous},
                           {"--max-restarts", 0, LS_ARG_VALUE, &a->restarts},
                           {"--min-nproc", 0, LS_ARG_VALUE, &a->least}};
    ls_status    status = ls_args_parse(&(ls_arg_table){.command = "run",
                                                        .arg     = args,
                                                        .n_args  = sizeof args / sizeof *args,
                                                        .operand = "PROGRAM",
                                                        .operand_to = &a->operand,
                                                        .optional   = true,
                                                        .help       = &a->help},
                                        argc, argv);

    if (a->operand && !a->help)
        return ls_fail(LS_ECONFIG, "run: -- belongs in front of the program: -- %s ...",
                       a->operand);
    return status;
}

/* The value of an option, `standard` where it was not given. */
static ls_status number(const char *name, const char *text, int least, int most, int standard,
                        int *value)
{
    char *end = NULL;
    long  x   = standard;

    errno = 0;
    if (text)
        x = strtol(text, &end, 10);
    if (text && (end == text || *end || errno || x < least || x > most))
        return ls_fail(LS_ECONFIG, "run: %s %s, want %d to %d", name, text, least, most);
    *value = (int)x;
    return LS_OK;
}

static ls_status read_numbers(const arguments *a, ls_launch_opts *o)
{
    enum { MOST_RESTARTS = 1000000 };
    ls_status status;

    if (!a->n)
        return ls_fail(LS_ECONFIG, "run: -n N is missing; see lockstep run --help");
    status = number("-n", a->n, 1, LS_LAUNCH_MOST, 1, &o->n);
    if (!status)
        status = number("--nnodes", a->nodes, 1, LS_LAUNCH_MOST, 1, &o->nodes);
    if (!status && o->nodes > 1 && !a->node)
        return ls_fail(LS_ECONFIG, "run: --nnodes %d needs --node-rank, 0 to %d", o->nodes,
                       o->nodes - 1);
    if (!status)
        status = number("--node-rank", a->node, 0, o->nodes - 1, 0, &o->node);
    if (!status)
        status = number("--max-restarts", a->restarts, 0, MOST_RESTARTS, 0, &o->max_restarts);
    if (!status)
        status = number("--min-nproc", a->least, 1, o->n, 0, &o->min_n);
    return status;
}

/* Where "--" stands, argc where it does not. */
static int end_of_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--"))
            return i;
    return argc;
}

int ls_cmd_run(int argc, char **argv)
{
    arguments      a    = {0};
    ls_launch_opts opts = {0};
    int            mine = end_of_options(argc, argv), code = 1;
    ls_status      status = parse(&a, mine, argv);

    if (status || a.help)
        return ls_report_help(status, help);
    status = read_numbers(&a, &opts);
    if (!status && mine + 1 >= argc)
        status = ls_fail(LS_ECONFIG, "run: no program; want -- PROGRAM [ARGUMENT]...");
    if (status)
        return ls_report(status);
    opts.rendezvous = a.rendezvous;
    opts.argv       = argv + mine + 1;
    status          = ls_launch(&opts, &code);
    return status ? ls_report(status) : code;
}

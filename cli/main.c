/*
 * main.c - `lockstep`: hands over to a sub-command.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

static const struct {
    const char *name;
    int (*run)(int, char **);
} commands[] = {{"inspect", ls_cmd_inspect}, {"diff", ls_cmd_diff}};

static const char help[] = "Usage: lockstep COMMAND ...\n"
                           "\n"
                           "  inspect   what a checkpoint holds\n"
                           "  diff      two checkpoints, tensor by tensor\n"
                           "\n"
                           "`lockstep COMMAND --help` tells more.\n";

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of write, not a death */
    if (argc > 1 && !strcmp(argv[1], "--help")) {
        fputs(help, stdout);
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    return ls_report(ls_fail(LS_ECONFIG, "expected a command: inspect or diff"));
}

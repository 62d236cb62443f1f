/*
 * main.c - the `lockstep` command: a table of sub-commands.
 */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

typedef struct {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: in a later version */
    const char *summary;
} command;

static const command commands[] = {
    {"train", ls_cmd_train, "train a model from a config file"},
    {"init", ls_cmd_init, "write the initial parameters of a config"},
    {"eval", ls_cmd_eval, "loss of a checkpoint over a text"},
    {"inspect", ls_cmd_inspect, "what a checkpoint holds; verifies it"},
    {"diff", ls_cmd_diff, "compare two checkpoints tensor by tensor"},
    {"bench", ls_cmd_bench, "measure training steps and matrix products"},
    {"run", NULL, NULL},
    {"generate", NULL, NULL},
    {"export", NULL, NULL},
    {"import", NULL, NULL},
    {"plan", NULL, NULL},
    {"repair", NULL, NULL},
    {"report", NULL, NULL},
    {"tokenize", NULL, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *out)
{
    fputs("usage: lockstep COMMAND [ARGUMENTS]\n\n"
          "Trains small neural networks on CPUs; the same config gives the same bits.\n\n",
          out);
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i].run)
            fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs("\nlockstep COMMAND --help tells more; lockstep --version prints the version.\n",
          out);
}

static int dispatch(const char *name, int argc, char **argv)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name))
            continue;
        if (commands[i].run)
            return commands[i].run(argc, argv);
        return ls_report(ls_fail(LS_EUNSUPPORTED, "%s is not in this version", name));
    }
    return ls_report(ls_fail(LS_ECONFIG, "unknown command '%s'; see lockstep --help", name));
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("lockstep %s\n", LS_VERSION);
        return 0;
    }
    return dispatch(argv[1], argc - 1, argv + 1);
}

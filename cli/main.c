/*
 * main.c - the `lockstep` command: a table of sub-commands.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    {"repair", ls_cmd_repair, "find a run's newest valid checkpoint"},
    {"generate", ls_cmd_generate, "let a checkpoint write text"},
    {"export", ls_cmd_export, "write a checkpoint for Hugging Face, or as one file"},
    {"import", ls_cmd_import, "a checkpoint out of a Hugging Face directory"},
    {"bench", ls_cmd_bench, "measure training steps, matrix products, collectives"},
    {"tokenize", ls_cmd_tokenize, "train a tokenizer on a text, write token files"},
    {"run", ls_cmd_run, "start a program as the ranks of a job"},
    {"plan", ls_cmd_plan, "memory and time of a config, by strategy and ranks"},
    {"report", ls_cmd_report, "a run, or two, as a page of charts"},
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
        return ls_report(ls_fail(LS_EUNSUPPORTED,
                                 "the command '%s' is not in this version; see lockstep --help",
                                 name));
    }
    return ls_report(ls_fail(LS_ECONFIG, "unknown command '%s'; see lockstep --help", name));
}

static bool is_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help");
}

static int run(int argc, char **argv)
{
    static char help[] = "--help";

    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (is_help(argv[1]) && argc > 2)
        return dispatch(argv[2], 2, (char *[]){argv[2], help, NULL});
    if (is_help(argv[1])) {
        usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("lockstep %s\n", LS_VERSION);
        return 0;
    }
    return dispatch(argv[1], argc - 1, argv + 1);
}

/*
 * A file that is opened later must not take the number of a standard stream that the caller
 * closed: its text would go there.  Opened for reading, so that writing still fails.
 */
static void hold_standard_streams(void)
{
    while (true) {
        int fd = open("/dev/null", O_RDONLY);
        if (fd > STDERR_FILENO)
            close(fd);
        if (fd < 0 || fd > STDERR_FILENO)
            return;
    }
}

/* A result that did not get out is a failure, whatever the command thought. */
static int finish_output(int code)
{
    bool lost = fflush(stdout) || ferror(stdout);

    if (!lost || code)
        return code;
    return ls_report(ls_fail(LS_EIO, "writing to stdout: %s", strerror(errno ? errno : EIO)));
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write, not a death */
    return finish_output(run(argc, argv));
}

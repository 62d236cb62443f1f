/*
 * cmd_report.c - lockstep report: a run, or two, as a page.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/atomic_file.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/run_dir.h"
#include "core/alloc.h"

static const char help[] =
    "usage: lockstep report RUN_DIR [OTHER_RUN_DIR] [-o FILE]\n"
    "\n"
    "Writes one HTML page, RUN_DIR/report.html: loss, learning rate, throughput, memory, and\n"
    "with log.trace the time line of all ranks; with two runs both in the same charts, and\n"
    "what differs in their configs.  The page holds all that it shows and needs no network.\n"
    "\n"
    "  -o, --output FILE  where to\n"
    "  -h, --help         this text\n"
    "\n"
    "Exit status: 0 written, 1 a file of the run is damaged or the page cannot be written,\n"
    "2 wrong usage or no run directory.\n";

enum { MOST_RUNS = 2 };

typedef struct {
    const char *dirs[MOST_RUNS], *output;
    int         n;
    bool        help;
} arguments;

static ls_status take(arguments *a, int argc, char **argv, int *i, bool options)
{
    const char *word = argv[*i];

    if (options && (!strcmp(word, "-o") || !strcmp(word, "--output"))) {
        if (++*i == argc)
            return ls_fail(LS_ECONFIG, "report: %s needs a value", word);
        a->output = argv[*i];
    } else if (options && !strncmp(word, "--output=", 9)) {
        a->output = word + 9;
    } else if (options && word[0] == '-' && word[1]) {
        return ls_fail(LS_ECONFIG,
                       "report: unknown option '%s'; it has --output, --help; see lockstep "
                       "report --help",
                       word);
    } else if (a->n == MOST_RUNS) {
        return ls_fail(LS_ECONFIG,
                       "report: one or two run directories expected, found '%s' too", word);
    } else {
        a->dirs[a->n++] = word;
    }
    return LS_OK;
}

static ls_status parse(arguments *a, int argc, char **argv)
{
    ls_status status  = LS_OK;
    bool      options = true; /* until "--" */

    for (int i = 1; i < argc && !status; i++) {
        if (options && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
            a->help = true;
            return LS_OK;
        }
        if (options && !strcmp(argv[i], "--"))
            options = false;
        else
            status = take(a, argc, argv, &i, options);
    }
    if (!status && !a->n)
        status = ls_fail(LS_ECONFIG, "report: RUN_DIR is missing; see lockstep report --help");
    return status;
}

static ls_status write_page(const char *path, const ls_strbuf *page)
{
    ls_atomic_file f;
    ls_status      status = ls_atomic_begin(&f, path);

    if (status)
        return status;
    status = ls_atomic_write(&f, page->data, page->used);
    if (!status)
        status = ls_atomic_commit(&f);
    ls_atomic_abandon(&f);
    return status;
}

static ls_status report(const arguments *a)
{
    ls_strbuf page = {0};
    char *path = a->output ? ls_strdup(a->output) : ls_run_dir_path(a->dirs[0], "report.html");
    ls_status status = path ? ls_report_page(a->dirs, a->n, &page) : LS_ENOMEM;

    if (!status)
        status = write_page(path, &page);
    if (!status)
        puts(path);
    ls_strbuf_free(&page);
    free(path);
    return status;
}

int ls_cmd_report(int argc, char **argv)
{
    arguments a      = {0};
    ls_status status = parse(&a, argc, argv);

    return status || a.help ? ls_report_help(status, help) : ls_report(report(&a));
}

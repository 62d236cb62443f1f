/*
 * exit.c - statuses as exit statuses and error lines.
 */
#include <stdio.h>

#include "cli/commands.h"

int ls_exit_status(ls_status status)
{
    if (status == LS_OK)
        return 0;
    if (status == LS_ECONFIG || status == LS_EUNSUPPORTED)
        return 2;
    if (status == LS_EWORLD)
        return 3;
    return status == LS_EINTERRUPTED ? 130 : 1;
}

int ls_report(ls_status status)
{
    const char *message = ls_error_message();

    if (status == LS_OK)
        return 0;
    fputs("lockstep: error: ", stderr);
    for (const char *p = *message ? message : ls_status_text(status); *p; p++)
        fputs(*p == '\n' ? "; " : (char[2]){*p}, stderr);
    fputc('\n', stderr);
    return ls_exit_status(status);
}

int ls_report_help(ls_status status, const char *help)
{
    if (!status && help)
        fputs(help, stdout);
    return ls_report(status);
}

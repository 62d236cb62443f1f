/*
 * numbers.c - the whole word is a number, or it is an error.
 */
#include "cli/numbers.h"

#include <errno.h>
#include <stdlib.h>

ls_status ls_number_int(const ls_number_arg *a, int64_t least, int64_t most, int64_t *value)
{
    char *end;

    if (!a->text)
        return LS_OK;
    errno       = 0;
    long long x = strtoll(a->text, &end, 10);
    if (errno || end == a->text || *end || x < least || x > most)
        return ls_fail(LS_ECONFIG, "%s: %s %s, want %lld to %lld", a->command, a->option,
                       a->text, (long long)least, (long long)most);
    *value = x;
    return LS_OK;
}

ls_status ls_number_double(const ls_number_arg *a, double least, double most, double *value)
{
    char *end;

    if (!a->text)
        return LS_OK;
    double x = strtod(a->text, &end);
    if (end == a->text || *end || !(x >= least && x <= most))
        return ls_fail(LS_ECONFIG, "%s: %s %s, want %g to %g", a->command, a->option, a->text,
                       least, most);
    *value = x;
    return LS_OK;
}

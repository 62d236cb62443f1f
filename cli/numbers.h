/*
 * numbers.h - numbers on the command line.
 */
#ifndef LS_CLI_NUMBERS_H
#define LS_CLI_NUMBERS_H

#include <stdint.h>

#include "core/error.h"

/* The value of an option of a command; text NULL: not given, *value stays.  ECONFIG, naming all
 * three. */
typedef struct {
    const char *command, *option, *text;
} ls_number_arg;

LS_MUST_CHECK ls_status ls_number_int(const ls_number_arg *a, int64_t least, int64_t most,
                                      int64_t *value);
LS_MUST_CHECK ls_status ls_number_double(const ls_number_arg *a, double least, double most,
                                         double *value);

#endif

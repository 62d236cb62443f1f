/*
 * args.h - a sub-command's arguments by a table: --name, --name VALUE, --name=VALUE, positions.
 */
#ifndef LS_CLI_ARGS_H
#define LS_CLI_ARGS_H

#include <stdbool.h>

#include "core/error.h"

typedef enum { LS_ARG_FLAG, LS_ARG_VALUE, LS_ARG_LIST } ls_arg_kind;

typedef struct {
    const char **item; /* freed by the caller with free() */
    int          n;
} ls_arg_list;

typedef struct {
    const char *name;   /* "--set" */
    char        letter; /* of a short form, 0: none */
    ls_arg_kind kind;
    void       *to; /* bool *, const char **, ls_arg_list * */
} ls_arg;

typedef struct {
    const char   *command;
    const ls_arg *arg;
    int           n_args;
    const char   *operand; /* what the one position is called, "CONFIG" */
    const char  **operand_to;
    ls_arg_list  *operands; /* instead of it: one or more positions */
    bool          optional; /* the position may be left out */
    bool         *help;     /* --help and -h; nothing is required then */
} ls_arg_table;

/* ECONFIG, naming the command and the argument, for anything the table does not know. */
LS_MUST_CHECK ls_status ls_args_parse(const ls_arg_table *table, int argc, char **argv);

#endif

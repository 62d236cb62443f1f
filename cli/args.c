/*
 * args.c - arguments by a table.
 */
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"

typedef struct {
    const ls_arg_table *table;
    int                 argc, at;
    char              **argv;
} cursor;

/* The option that a word names; *value gets what stands behind its '='. */
static const ls_arg *find(const ls_arg_table *t, const char *word, const char **value)
{
    for (int i = 0; i < t->n_args; i++) {
        size_t n = strlen(t->arg[i].name);
        *value   = NULL;
        if (word[0] == '-' && t->arg[i].letter && word[1] == t->arg[i].letter && !word[2])
            return &t->arg[i];
        if (strncmp(word, t->arg[i].name, n) || (word[n] && word[n] != '='))
            continue;
        if (word[n] == '=')
            *value = word + n + 1;
        return &t->arg[i];
    }
    return NULL;
}

static ls_status append(cursor *c, ls_arg_list *list, const char *value)
{
    if (!list->item)
        list->item = ls_calloc((size_t)c->argc, sizeof *list->item);
    if (!list->item)
        return LS_ENOMEM;
    list->item[list->n++] = value;
    return LS_OK;
}

static ls_status take_value(cursor *c, const ls_arg *arg, const char *value)
{
    if (!value && ++c->at < c->argc)
        value = c->argv[c->at];
    if (!value)
        return ls_fail(LS_ECONFIG, "%s: %s needs a value", c->table->command, arg->name);
    if (arg->kind == LS_ARG_LIST)
        return append(c, arg->to, value);
    *(const char **)arg->to = value;
    return LS_OK;
}

static ls_status fail_unknown(const ls_arg_table *t, const char *word)
{
    char   known[512] = "";
    size_t used       = 0;

    for (int i = 0; i < t->n_args && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s, ", t->arg[i].name);
    return ls_fail(LS_ECONFIG,
                   "%s: unknown option '%s'; it has %s--help; see lockstep %s --help",
                   t->command, word, known, t->command);
}

static ls_status take_option(cursor *c, const char *word)
{
    const char   *value;
    const ls_arg *arg = find(c->table, word, &value);

    if (!arg)
        return fail_unknown(c->table, word);
    if (arg->kind != LS_ARG_FLAG)
        return take_value(c, arg, value);
    if (value)
        return ls_fail(LS_ECONFIG, "%s: %s takes no value", c->table->command, arg->name);
    *(bool *)arg->to = true;
    return LS_OK;
}

static ls_status take_operand(cursor *c, const char *word)
{
    if (c->table->operands)
        return append(c, c->table->operands, word);
    if (!c->table->operand_to)
        return ls_fail(LS_ECONFIG, "%s: unexpected argument '%s'", c->table->command, word);
    if (*c->table->operand_to)
        return ls_fail(LS_ECONFIG, "%s: one %s expected, found '%s' and '%s'",
                       c->table->command, c->table->operand, *c->table->operand_to, word);
    *c->table->operand_to = word;
    return LS_OK;
}

ls_status ls_args_parse(const ls_arg_table *table, int argc, char **argv)
{
    cursor    c       = {table, argc, 1, argv};
    bool      options = true; /* until "--" */
    ls_status status  = LS_OK;

    for (; c.at < argc && !status; c.at++) {
        const char *word = argv[c.at];
        if (options && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            *table->help = true;
            return LS_OK;
        }
        if (options && !strcmp(word, "--"))
            options = false;
        else if (options && word[0] == '-' && word[1])
            status = take_option(&c, word);
        else
            status = take_operand(&c, word);
    }
    bool missing =
        table->operands ? !table->operands->n : table->operand_to && !*table->operand_to;
    if (!status && missing && !table->optional)
        return ls_fail(LS_ECONFIG, "%s: %s is missing; see lockstep %s --help", table->command,
                       table->operand, table->command);
    return status;
}

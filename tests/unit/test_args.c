/*
 * test_args.c - a sub-command's arguments: forms that are taken, and what is said of others.
 */
#include "cli/args.h"

#include <stdint.h>

#include "test.h"

enum { MOST = 8 };

typedef struct {
    const char *input, *value;
    const char *set[MOST];
    ls_arg_list sets;
    bool        flag, help;
} arguments;

static ls_status parse(arguments *a, const char *const *words, bool with_operand)
{
    char        *argv[MOST + 1] = {(char *)(uintptr_t) "cmd"};
    int          argc           = 1;
    const ls_arg args[]         = {{"--set", 0, LS_ARG_LIST, &a->sets},
                                   {"--output", 'o', LS_ARG_VALUE, &a->value},
                                   {"--flag", 0, LS_ARG_FLAG, &a->flag}};

    *a = (arguments){.sets = {.item = a->set}};
    while (argc < MOST && words[argc - 1]) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        argc++;
    }
    return ls_args_parse(&(ls_arg_table){.command    = "cmd",
                                         .arg        = args,
                                         .n_args     = 3,
                                         .operand    = "INPUT",
                                         .operand_to = with_operand ? &a->input : NULL,
                                         .help       = &a->help},
                         argc, argv);
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static void test_taken(void)
{
    static const struct {
        const char *name, *words[MOST], *input, *value, *sets[3];
        bool        flag, help;
    } rows[] = {
        {"operand alone", {"in"}, "in", NULL, {0}, false, false},
        {"value behind", {"in", "--output", "x"}, "in", "x", {0}, false, false},
        {"value behind =", {"--output=x", "in"}, "in", "x", {0}, false, false},
        {"empty value", {"in", "--output="}, "in", "", {0}, false, false},
        {"= in a value", {"in", "--output=a=b"}, "in", "a=b", {0}, false, false},
        {"letter", {"-o", "x", "in"}, "in", "x", {0}, false, false},
        {"a value like an option", {"in", "-o", "--flag"}, "in", "--flag", {0}, false, false},
        {"the last value counts",
         {"in", "-o", "x", "--output=y"},
         "in",
         "y",
         {0},
         false,
         false},
        {"list", {"--set", "a=1", "in", "--set=b=2"}, "in", NULL, {"a=1", "b=2"}, false, false},
        {"flag", {"--flag", "in"}, "in", NULL, {0}, true, false},
        {"behind --", {"--flag", "--", "--flag"}, "--flag", NULL, {0}, true, false},
        {"a dash", {"-"}, "-", NULL, {0}, false, false},
        {"help needs nothing", {"--help"}, NULL, NULL, {0}, false, true},
        {"help by letter", {"in", "-h", "--unknown"}, "in", NULL, {0}, false, true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arguments a;
        TEST_ROW(rows[i].name);
        CHECK_OK(parse(&a, rows[i].words, true));
        CHECK(same(a.input, rows[i].input));
        CHECK(same(a.value, rows[i].value));
        CHECK(a.flag == rows[i].flag && a.help == rows[i].help);
        for (int k = 0; k < 3; k++)
            CHECK(same(a.set[k], rows[i].sets[k]));
    }
}

static void test_refused(void)
{
    static const struct {
        const char *words[MOST], *message;
        bool        no_operand;
    } rows[] = {
        {{0}, "cmd: INPUT is missing; see lockstep cmd --help", false},
        {{"a", "b"}, "cmd: one INPUT expected, found 'a' and 'b'", false},
        {{"a"}, "cmd: unexpected argument 'a'", true},
        {{"--help-me"}, "cmd: unknown option '--help-me'; it has ", false},
        {{"in", "--outputs", "x"}, "cmd: unknown option '--outputs'", false},
        {{"in", "--out", "x"}, "cmd: unknown option '--out'", false},
        {{"in", "-x"}, "cmd: unknown option '-x'", false},
        {{"in", "-ox"}, "cmd: unknown option '-ox'", false},
        {{"in", "--output"}, "cmd: --output needs a value", false},
        {{"in", "-o"}, "cmd: --output needs a value", false},
        {{"in", "--set"}, "cmd: --set needs a value", false},
        {{"in", "--flag=1"}, "cmd: --flag takes no value", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arguments a;
        TEST_ROW(rows[i].message);
        CHECK_FAILS(parse(&a, rows[i].words, !rows[i].no_operand), LS_ECONFIG, rows[i].message);
    }
}

int main(void)
{
    test_taken();
    test_refused();
    return test_summary("args");
}

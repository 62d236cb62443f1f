/*
 * gen_man.c - the program ls_gen_man: man pages and bash completion from what `--help` says.
 *
 *     ls_gen_man LOCKSTEP TEMPLATES OUT
 *
 * It asks the command itself (LOCKSTEP --help, LOCKSTEP COMMAND --help), so pages, completion
 * and help cannot say different things, and a new command needs nothing here.  The form of a
 * help text, which the ctest `man` checks for all commands:
 *
 *     usage: lockstep train CONFIG [--nproc N]
 *            lockstep train ...                      further forms
 *
 *     Sentences.
 *
 *       --nproc N     an option: two blanks, its names, its value, two blanks or more, its
 * text, which goes on in lines that are indented further
 *
 *     Exit status: 0 done, ...                       a section of its own
 *
 * Values of options: FILE, PATH, DIR, CONFIG, CHECKPOINT are files; a|b|PATH are words and
 * files; KEY=VALUE is a key of the config; and where a text starts `a (default), b, or c` these
 * are words.  A form `lockstep bench gemm` makes gemm a word behind bench, and where `--help`
 * is said to exist behind it, it has a page of its own.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config_impl.h"
#include "core/alloc.h"
#include "core/strbuf.h"

enum { MOST_PAGES = 64, MOST_NAME = 64 };

typedef struct {
    char  name[MOST_NAME]; /* "train", "bench collectives" */
    char  summary[256];
    char *help;
} page;

typedef struct {
    const char *command, *templates, *out;
    page        pages[MOST_PAGES];
    int         n;
} generator;

/* The names and the value that an option's row starts with, and where its text starts. */
typedef struct {
    char        names[2][MOST_NAME];
    int         n_names;
    char        value[MOST_NAME];
    const char *text;
} option;

/* ---- what the command says ---- */

static char *ask(const char *command, const char *words)
{
    ls_strbuf text = {0};
    char      chunk[4096];
    char     *line = ls_sprintf("'%s' %s", command, words);
    FILE     *pipe = line ? popen(line, "r") : NULL;
    size_t    got;

    while (pipe && (got = fread(chunk, 1, sizeof chunk, pipe)) > 0)
        ls_strbuf_add(&text, chunk, got);
    bool failed = !pipe || pclose(pipe) || ls_strbuf_status(&text) || !text.used;
    if (failed)
        fprintf(stderr, "ls_gen_man: '%s' says nothing\n", line ? line : command);
    free(line);
    if (!failed)
        return text.data;
    ls_strbuf_free(&text);
    return NULL;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static int line_length(const char *line)
{
    return (int)strcspn(line, "\n");
}

static int indent_of(const char *line)
{
    return (int)strspn(line, " ");
}

static bool add_page(generator *g, const char *name, int length, const char *summary)
{
    page *p = &g->pages[g->n];
    char  words[MOST_NAME + 16];

    if (g->n == MOST_PAGES || length >= MOST_NAME)
        return false;
    snprintf(p->name, sizeof p->name, "%.*s", length, name);
    snprintf(p->summary, sizeof p->summary, "%.*s", line_length(summary), summary);
    snprintf(words, sizeof words, "%s --help", p->name);
    p->help = ask(g->command, words);
    g->n += p->help != NULL;
    return p->help != NULL;
}

/* Forms whose line ends in "it has a --help" have pages of their own. */
static bool add_inner_pages(generator *g, const page *p)
{
    static const char mark[] = "; it has a --help";

    for (const char *line = p->help; *line && *line != '\n'; line = next_line(line)) {
        const char *name   = line + 7 + strlen("lockstep ");
        int         length = line_length(line), tail = (int)sizeof mark - 1;
        if (length <= tail || memcmp(line + length - tail, mark, (size_t)tail))
            continue;
        int first = (int)strcspn(name, " ");
        int both  = first + 1 + (int)strcspn(name + first + 1, " ;\n");
        if (!add_page(g, name, both, p->summary))
            return false;
    }
    return true;
}

static bool find_pages(generator *g)
{
    char *help = ask(g->command, "--help");
    bool  ok   = help != NULL;

    for (const char *line = help; ok && *line; line = next_line(line)) {
        if (indent_of(line) != 2)
            continue;
        int         length  = (int)strcspn(line + 2, " \n");
        const char *summary = line + 2 + length;
        ok                  = add_page(g, line + 2, length, summary + strspn(summary, " "));
    }
    for (int i = 0, n = g->n; ok && i < n; i++)
        ok = add_inner_pages(g, &g->pages[i]);
    free(help);
    return ok && g->n > 0;
}

/* ---- options ---- */

static bool is_option(const char *line)
{
    return indent_of(line) == 2 && line[2] == '-';
}

static option option_of(const char *line)
{
    option      o    = {0};
    const char *word = line + 2;

    while (*word && *word != '\n' && *word != ' ') {
        int length = (int)strcspn(word, ", \n");
        if (*word == '-' && o.n_names < 2)
            snprintf(o.names[o.n_names++], MOST_NAME, "%.*s", length, word);
        else
            snprintf(o.value, MOST_NAME, "%.*s", (int)strcspn(word, " \n"), word);
        word += *word == '-' ? length + (word[length] == ',') : (int)strcspn(word, " \n");
        word += *word == ' ' && word[1] != ' ';
    }
    o.text = word + strspn(word, " ");
    return o;
}

static bool is_path(const char *word, size_t n)
{
    static const char *const kinds[] = {"FILE", "PATH", "DIR", "CONFIG", "CHECKPOINT"};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t at = 0, k = strlen(kinds[i]); at + k <= n; at++)
            if (!memcmp(word + at, kinds[i], k))
                return true;
    return false;
}

/* a|b|PATH: words, and " FILES" where one of them is a path. */
static void add_alternatives(ls_strbuf *words, const char *value)
{
    while (*value) {
        size_t n = strcspn(value, "|");
        if (is_path(value, n))
            ls_strbuf_format(words, " FILES");
        else if (!isupper((unsigned char)*value))
            ls_strbuf_format(words, " %.*s", (int)n, value);
        value += n + (value[n] == '|');
    }
}

/* `a (default), b, or c`, until something else stands there. */
static void add_listed(ls_strbuf *words, const char *text)
{
    const char *mark = strstr(text, "(default");

    if (!mark || mark != text + strcspn(text, " \n") + 1)
        return;
    while (true) {
        size_t n =
            strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        ls_strbuf_format(words, " %.*s", (int)n, text);
        text += n + strspn(text + n, " \n");
        if (*text == '(')
            text += strcspn(text, ")") + 1;
        if (!n || *text++ != ',')
            return;
        text += strspn(text, " \n");
        if (!strncmp(text, "or ", 3))
            text += 3;
    }
}

/* What may stand behind an option, for the completion: words, FILES, KEYS or nothing. */
static void add_values(ls_strbuf *words, const option *o)
{
    if (!strncmp(o->value, "KEY", 3))
        ls_strbuf_format(words, " KEYS");
    else if (strchr(o->value, '|') || is_path(o->value, strlen(o->value)))
        add_alternatives(words, o->value);
    else
        add_listed(words, o->text);
}

/* ---- man pages ---- */

/* One line of text as roff: no character of it is an instruction. */
static void put_roff(FILE *f, const char *text, int n)
{
    if (n && (*text == '.' || *text == '\''))
        fputs("\\&", f);
    for (int i = 0; i < n; i++) {
        if (text[i] == '\\')
            fputs("\\e", f);
        else if (text[i] == '-')
            fputs("\\-", f);
        else
            fputc(text[i], f);
    }
    fputc('\n', f);
}

static void put_synopsis(FILE *f, const char **line)
{
    fputs(".SH SYNOPSIS\n.nf\n", f);
    for (; **line && **line != '\n'; *line = next_line(*line))
        put_roff(f, *line + 7, line_length(*line) - 7);
    fputs(".fi\n.SH DESCRIPTION\n", f);
}

static void put_option(FILE *f, const char **line)
{
    option o = option_of(*line);

    int n = (int)(o.text - *line) - 2;

    while ((*line + 2)[n - 1] == ' ')
        n--;
    fputs(".TP\n.B ", f);
    put_roff(f, *line + 2, n);
    put_roff(f, o.text, line_length(o.text));
    for (*line = next_line(*line); indent_of(*line) > 3; *line = next_line(*line))
        put_roff(f, *line + indent_of(*line), line_length(*line) - indent_of(*line));
}

static void put_literal(FILE *f, const char **line)
{
    fputs(".nf\n", f);
    for (; indent_of(*line) > 0 && !is_option(*line); *line = next_line(*line))
        put_roff(f, *line, line_length(*line));
    fputs(".fi\n", f);
}

/* Sentences, options, literal lines; what was open before decides about headings. */
static void put_body(FILE *f, const char *line)
{
    static const char status[] = "Exit status: ";
    bool              options  = false;

    while (*line) {
        if (*line == '\n') {
            line = next_line(line);
            if (*line && !is_option(line) && strncmp(line, status, sizeof status - 1))
                fputs(".PP\n", f);
        } else if (is_option(line)) {
            fputs(options ? "" : ".SH OPTIONS\n", f);
            options = true;
            put_option(f, &line);
        } else if (indent_of(line)) {
            put_literal(f, &line);
        } else {
            bool   ends = !strncmp(line, status, sizeof status - 1);
            size_t skip = ends ? sizeof status - 1 : 0;
            fputs(ends ? ".SH EXIT STATUS\n" : "", f);
            put_roff(f, line + skip, line_length(line) - (int)skip);
            line = next_line(line);
        }
    }
}

static void file_name(const page *p, char name[MOST_NAME + 16])
{
    snprintf(name, MOST_NAME + 16, "lockstep-%s", p->name);
    for (char *c = name; *c; c++)
        *c = *c == ' ' ? '-' : *c;
}

static FILE *open_out(const generator *g, const char *name)
{
    char *path = ls_sprintf("%s/%s", g->out, name);
    FILE *f    = path ? fopen(path, "w") : NULL;

    if (!f)
        perror(path ? path : "ls_gen_man");
    free(path);
    return f;
}

static bool close_out(FILE *f)
{
    bool failed = ferror(f);

    failed = fclose(f) || failed;
    if (failed)
        perror("ls_gen_man");
    return !failed;
}

static bool write_page(const generator *g, const page *p)
{
    char name[MOST_NAME + 16], file[MOST_NAME + 24], upper[MOST_NAME + 16];

    file_name(p, name);
    snprintf(file, sizeof file, "%s.1", name);
    for (size_t i = 0; i <= strlen(name); i++)
        upper[i] = (char)toupper((unsigned char)name[i]);
    FILE *f = open_out(g, file);
    if (!f)
        return false;
    fprintf(f, ".TH %s 1 \"\" \"lockstep %s\" \"Lockstep\"\n.SH NAME\n%s \\- %s\n", upper,
            LS_VERSION, name, p->summary);
    const char *line = p->help;
    put_synopsis(f, &line);
    put_body(f, line + (*line == '\n'));
    fputs(".SH SEE ALSO\n.BR lockstep (1)\n", f);
    return close_out(f);
}

/* ---- templates ---- */

static void put_commands(const generator *g, FILE *f)
{
    for (int i = 0; i < g->n; i++) {
        char name[MOST_NAME + 16];
        file_name(&g->pages[i], name);
        fprintf(f, ".It Xr %s 1\n%s\n", name, g->pages[i].summary);
    }
}

static void put_words(const generator *g, FILE *f)
{
    for (int i = 0; i < g->n; i++)
        if (!strchr(g->pages[i].name, ' '))
            fprintf(f, "%s ", g->pages[i].name);
    fputs("--help --version", f);
}

/* Words that stand behind a command: `lockstep bench gemm` in its usage. */
static void put_inner(const generator *g, FILE *f)
{
    for (int i = 0; i < g->n; i++) {
        const page *p    = &g->pages[i];
        ls_strbuf   list = {0};
        size_t      n    = strlen(p->name);
        for (const char *line = p->help; *line && *line != '\n'; line = next_line(line)) {
            const char *word = line + 7 + strlen("lockstep ") + n + 1;
            if (islower((unsigned char)*word) && !strchr(p->name, ' '))
                ls_strbuf_format(&list, " %.*s", (int)strcspn(word, " ;\n"), word);
        }
        if (list.used)
            fprintf(f, "    %s) echo \"%s\" ;;\n", p->name, list.data + 1);
        ls_strbuf_free(&list);
    }
}

/* Options whose usage names them and whose row is missing are none: the ctest `man` looks. */
static void put_options(const generator *g, FILE *f)
{
    for (int i = 0; i < g->n; i++) {
        fprintf(f, "    \"%s\") echo \"", g->pages[i].name);
        for (const char *line = g->pages[i].help; *line; line = next_line(line)) {
            option o = is_option(line) ? option_of(line) : (option){0};
            for (int k = 0; k < o.n_names; k++)
                fprintf(f, "%s ", o.names[k]);
        }
        fputs("\" ;;\n", f);
    }
}

static void put_values(const generator *g, FILE *f)
{
    for (int i = 0; i < g->n; i++)
        for (const char *line = g->pages[i].help; *line; line = next_line(line)) {
            option    o     = is_option(line) ? option_of(line) : (option){0};
            ls_strbuf words = {0};
            if (*o.value)
                add_values(&words, &o);
            for (int k = 0; k < o.n_names && *o.value; k++)
                fprintf(f, "    \"%s %s\") echo \"%s\" ;;\n", g->pages[i].name, o.names[k],
                        words.used ? words.data + 1 : "");
            ls_strbuf_free(&words);
        }
}

static void put_keys(const generator *g, FILE *f)
{
    (void)g;
    for (int i = 0; i < ls__config_n_keys; i++)
        fprintf(f, "%s%s=", i ? " " : "", ls__config_keys[i].path);
}

static void put_version(const generator *g, FILE *f)
{
    (void)g;
    fputs(LS_VERSION, f);
}

static const struct {
    const char *mark;
    void (*put)(const generator *g, FILE *f);
} marks[] = {{"@COMMANDS@\n", put_commands}, {"@WORDS@", put_words},
             {"@INNER@\n", put_inner},       {"@OPTIONS@\n", put_options},
             {"@VALUES@\n", put_values},     {"@KEYS@", put_keys},
             {"@VERSION@", put_version}};

static void fill(const generator *g, const char *text, FILE *f)
{
    while (*text) {
        bool found = false;
        for (size_t i = 0; i < sizeof marks / sizeof *marks && !found; i++) {
            size_t n = strlen(marks[i].mark);
            found    = !strncmp(text, marks[i].mark, n);
            if (found) {
                marks[i].put(g, f);
                text += n;
            }
        }
        if (!found)
            fputc(*text++, f);
    }
}

/* TEMPLATES/name.in with its marks filled becomes OUT/name. */
static bool write_template(const generator *g, const char *name)
{
    ls_strbuf text = {0};
    char      chunk[4096];
    size_t    got;
    char     *path = ls_sprintf("%s/%s.in", g->templates, name);
    FILE     *in   = path ? fopen(path, "r") : NULL;

    if (!in)
        perror(path ? path : "ls_gen_man");
    while (in && (got = fread(chunk, 1, sizeof chunk, in)) > 0)
        ls_strbuf_add(&text, chunk, got);
    if (in)
        fclose(in);
    free(path);
    FILE *f = text.used && !ls_strbuf_status(&text) ? open_out(g, name) : NULL;
    if (f)
        fill(g, text.data, f);
    ls_strbuf_free(&text);
    return f && close_out(f);
}

int main(int argc, char **argv)
{
    static generator g;

    if (argc != 4) {
        fputs("usage: ls_gen_man LOCKSTEP TEMPLATES OUT\n", stderr);
        return 2;
    }
    g.command   = argv[1];
    g.templates = argv[2];
    g.out       = argv[3];
    bool ok     = find_pages(&g);
    for (int i = 0; i < g.n && ok; i++)
        ok = write_page(&g, &g.pages[i]);
    ok = ok && write_template(&g, "lockstep.1") && write_template(&g, "lockstep.bash");
    for (int i = 0; i < g.n; i++)
        free(g.pages[i].help);
    return !ok;
}
